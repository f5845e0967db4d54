"""The properties of shared experts can fail: each planted fault is caught by its check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from aiter_conformance.checks import properties_shared_experts as checks
from aiter_conformance.checks import properties_shared_refusals as refusals
from aiter_conformance.checks.properties_faulty import (
    Fault,
    answer,
    called_with,
    crashing,
    forgiving,
    with_buffers,
)
from aiter_conformance.checks.properties_shared_experts import Buffers, Injection
from aiter_conformance.checks.properties_shared_refusals import BadShapes
from aiter_conformance.protocols import Subject
from aiter_conformance.subjects import load_subject


@pytest.fixture(scope="module")
def impl() -> Subject:
    """The subject that faults are planted in."""
    return load_subject("impl")


EP = Buffers(8, 2, 2, tp_rank=1, tp_size=2, shared_experts_score=0.5, max_num_tokens=5, is_EP=True)
NARROW = Injection(EP, tokens=3)


def rows_of_every_rank(_weights: torch.Tensor, ids: torch.Tensor) -> None:
    """Give every row the shared experts' ids, as if this rank had all tokens."""
    ids[:, 2:4] = torch.tensor([8, 9], dtype=torch.int32)


def write_then_check(real: Any, api: Any) -> Any:
    """Write the routed columns before anything is checked."""

    def inject(weights: Any, ids: Any, topk: int, *rest: Any) -> Any:
        api.aiter_topK_meta_data[0][: len(weights), :topk] = 0.0
        return real(weights, ids, topk, *rest)

    return inject


def rebuilding(real: Any, api: Any) -> Any:
    """Build new buffers on every initialisation."""

    def init(*args: Any, **kwargs: Any) -> Any:
        api.reset_aiter_topK_meta_data()
        return real(*args, **kwargs)

    return init


FAULTS = (
    Fault(
        "shared ids start one too late",
        lambda s: checks.check_buffers(s, EP),
        {"init_aiter_topK_meta_data": called_with(lambda a: [a[0] + 1, *a[1:]])},
    ),
    Fault(
        "the score is not written",
        lambda s: checks.check_buffers(s, EP),
        {"init_aiter_topK_meta_data": with_buffers(lambda weights, _ids: weights.fill_(1.0))},
    ),
    Fault(
        "the sentinel column is missing",
        lambda s: checks.check_buffers(s, EP),
        {"init_aiter_topK_meta_data": called_with(lambda a: [*a[:7], False])},
    ),
    Fault(
        "every rank runs the shared experts of every token",
        lambda s: checks.check_shared_expert_runs_once(s, EP),
        {"init_aiter_topK_meta_data": with_buffers(rows_of_every_rank)},
    ),
    Fault(
        "every rank takes the rows of rank 0",
        lambda s: checks.check_shared_expert_runs_once(s, EP),
        {"init_aiter_topK_meta_data": called_with(lambda a: [*a[:3], 0, *a[4:]])},
    ),
    Fault(
        "initialising again makes new buffers",
        lambda s: checks.check_init_again(s, EP, EP),
        {"init_aiter_topK_meta_data": rebuilding},
    ),
    Fault(
        "other arguments are taken in silence",
        lambda s: checks.check_init_again(s, EP, replace(EP, top_k=3)),
        {
            "init_aiter_topK_meta_data": lambda real, api: (
                lambda *a: None if api.aiter_topK_meta_data else real(*a)
            )
        },
    ),
    Fault(
        "initialising again writes the score again",
        lambda s: checks.check_init_again(s, EP, EP),
        {"init_aiter_topK_meta_data": with_buffers(lambda weights, _ids: weights[:, 2:].fill_(0.5))},
    ),
    Fault(
        "arguments by keyword are other arguments",
        lambda s: checks.check_init_again_by_keyword(s, EP),
        {"init_aiter_topK_meta_data": lambda real, _api: lambda *a, **k: real(*a, **k) if a else 1 / 0},
    ),
    Fault(
        "a reset leaves the buffers",
        lambda s: checks.check_reset(s, EP, EP),
        {"reset_aiter_topK_meta_data": lambda _real, _api: lambda: None},
    ),
    Fault(
        "the gates are not written, so a poisoned slot is left",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": called_with(lambda a: [*a[:4], None])},
    ),
    Fault(
        "the gates are looked at",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": called_with(lambda a: a if a[4].sum() else [])},
    ),
    Fault(
        "the gates of the last rows are taken",
        lambda s: checks.check_injection(s, replace(NARROW, spare_gates=1)),
        {"inject_shared_expert_weights": called_with(lambda a: [*a[:4], a[4][1:]])},
    ),
    Fault(
        "routed weights are multiplied by the gates",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": called_with(lambda a: [a[0] * 2, *a[1:]])},
    ),
    Fault(
        "the sentinel column is written",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": with_buffers(lambda weights, _ids: weights[:3, -1].fill_(0))},
    ),
    Fault(
        "copies are returned instead of views",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": answer(lambda pair: tuple(t.clone() for t in pair))},
    ),
    Fault(
        "more rows than tokens are returned",
        lambda s: checks.check_injection(s, NARROW),
        {"inject_shared_expert_weights": lambda real, api: lambda *a: real(*a) and api.aiter_topK_meta_data},
    ),
    Fault(
        "a result that is wide already is copied",
        lambda s: checks.check_injection(s, replace(NARROW, wide=True)),
        {"inject_shared_expert_weights": called_with(lambda a: [a[0].clone(), a[1].clone(), *a[2:]])},
    ),
    Fault(
        "without shared experts copies come back",
        lambda s: checks.check_no_shared_experts(s, NARROW, initialised=True),
        {"inject_shared_expert_weights": answer(lambda pair: tuple(t.clone() for t in pair))},
    ),
    Fault(
        "no gates means the score again",
        lambda s: checks.check_gates_are_kept(s, NARROW),
        {
            "inject_shared_expert_weights": called_with(
                lambda a: [*a[:4], torch.full((len(a[0]), a[3]), 0.5) if a[4] is None else a[4]]
            )
        },
    ),
    Fault(
        "missing buffers are forgiven",
        lambda s: refusals.check_missing_buffers(s, NARROW),
        {"inject_shared_expert_weights": forgiving},
    ),
    Fault(
        "too many tokens are forgiven",
        lambda s: refusals.check_too_many_tokens(s, NARROW),
        {"inject_shared_expert_weights": forgiving},
    ),
    Fault(
        "the buffers are written before the number of tokens is checked",
        lambda s: refusals.check_too_many_tokens(s, NARROW),
        {"inject_shared_expert_weights": write_then_check},
    ),
    Fault(
        "a wrong width is forgiven",
        lambda s: refusals.check_bad_shapes_refused(
            s, replace(BadShapes.good(NARROW), columns=3, id_columns=3)
        ),
        {"inject_shared_expert_weights": forgiving},
    ),
    Fault(
        "the buffers are written before the gates are checked",
        lambda s: refusals.check_bad_shapes_refused(s, replace(BadShapes.good(NARROW), gate_columns=1)),
        {"inject_shared_expert_weights": write_then_check},
    ),
    Fault(
        "a wrong shape is a crash instead of a refusal",
        lambda s: refusals.check_bad_shapes_refused(s, replace(BadShapes.good(NARROW), gate_rows=1)),
        {"inject_shared_expert_weights": crashing},
    ),
)


class TestPlantedFaults:
    """Each check against a subject with one fault."""

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
    def test_is_caught(self, impl: Subject, fault: Fault) -> None:
        """The check is silent about the sound subject, and speaks about the faulty one."""
        sound, faulty = fault.problems(impl)
        assert sound == []
        assert faulty != []
