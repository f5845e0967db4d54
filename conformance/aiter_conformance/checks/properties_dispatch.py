"""Properties of what ``apply`` sends to the kernel, whatever the routing (SPEC 3, SPEC 4 step 3, SPEC 11).

Nothing here says what the whole call is: that is the contract suite's. These are the statements that hold for
every routing, padding rows and dtype, on real and on meta tensors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aiter_conformance.checks.properties import (
    Reads,
    Untouched,
    compare_refusal,
    compare_tensors,
    share_memory,
)
from aiter_conformance.checks.properties_leaf import LeafCase, LeafRun, leaf_inputs, run_leaf
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

NEGATIVE_IDS = "negative-topk-ids"
VECTOR = "num-local-tokens-vector"


def entry_of(case: LeafCase) -> str:
    """Return the kernel entry that SPEC 3 routes the case to."""
    return "asm_moe_tkw1" if case.scheme == "fp8-channel" and case.on_input else "fused_moe"


def _router_weight(run: LeafRun) -> Any:
    call = run.calls[0]
    return call.arguments["topk_weight" if call.entry == "fused_moe" else "topk_weights"]


def expected_routing(case: LeafCase) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the router weights and ids that must reach the kernel.

    A negative id becomes the mask's last index, or without a mask id 0 with weight 0; everything else only
    changes its dtype, to float32 and int32.
    """
    given = leaf_inputs(replace(case, device="cpu"))["topk_weights"]
    assert given is not None  # noqa: S101 -- leaf_inputs always makes them
    sentinel = case.config.num_experts if case.masked else 0
    ids = [[expert if expert >= 0 else sentinel for expert in row] for row in case.ids]
    weights = [
        [0.0 if expert < 0 and not case.masked else weight for expert, weight in zip(*rows, strict=True)]
        for rows in zip(case.ids, given.double().tolist(), strict=True)
    ]
    shape = (case.tokens, case.config.experts_per_token)
    return (
        torch.tensor(weights, dtype=torch.float32).reshape(shape),
        torch.tensor(ids, dtype=torch.int32).reshape(shape),
    )


def check_routing(subject: Subject, case: LeafCase) -> Report:
    """Ids that reach the kernel are int32 and name an expert or the sentinel; weights are float32."""
    report = Report()
    run = run_leaf(subject, case)
    where = f"apply of {case}"
    if not run.compare_one_call(report, where, entry_of(case)):
        return report
    negative = any(expert < 0 for row in case.ids for expert in row)
    weights, ids = expected_routing(case)
    got_ids, got_weights = run.calls[0].arguments["topk_ids"], _router_weight(run)
    compare_tensors(report, f"{where}: topk_ids", ids, got_ids, NEGATIVE_IDS if negative else None)
    # With a mask the sentinel drops the row, so its weight may be anything: it is left as it is.
    zeroed = negative and not case.masked
    compare_tensors(
        report, f"{where}: router weights", weights, got_weights, NEGATIVE_IDS if zeroed else None
    )
    if case.weights_dtype == "float32" and case.masked:
        given = run.inputs["topk_weights"]
        shared = given is not None and share_memory(given, got_weights)
        report.compare(f"{where}: float32 router weights go in without a copy", True, shared)
    return report


def check_inputs_untouched(subject: Subject, case: LeafCase) -> Report:
    """No tensor that ``apply`` was given is written to: the shared expert may still have to read it."""
    report = Report()
    inputs = leaf_inputs(case)
    before = Untouched(inputs)
    run = run_leaf(subject, case, inputs)
    where = f"apply of {case}"
    run.compare_one_call(report, where, entry_of(case))
    before.compare(report, where)
    return report


def check_local_tokens(subject: Subject, case: LeafCase) -> Report:
    """The kernel is given one row count, as the tensor that came, or None: no vector, no sum."""
    report = Report()
    inputs = leaf_inputs(case)
    run = run_leaf(subject, case, inputs)
    where = f"apply of {case}"
    if not run.compare_one_call(report, where):
        return report
    given = inputs["expert_num_tokens"]
    counts = given is not None and given.numel() == 1
    got = run.calls[0].arguments["num_local_tokens"]
    vector = given is not None and not counts
    wanted, came = (
        ("the tensor itself", "None")[not counts],
        "the tensor itself" if got is given else repr(got),
    )
    came = "None" if got is None else came
    report.compare(f"{where}: num_local_tokens", wanted, came, VECTOR if vector else None)
    return report


def check_without_values(subject: Subject, case: LeafCase) -> Report:
    """Nothing that ``apply`` does depends on the value of a tensor: no synchronisation, no shape of data.

    Seen in two ways: by the operations of a call with values, and by a call with tensors that have none,
    where whatever looks at them is an error (the kernel may then not be reached: a fake can answer).
    """
    report = Report()
    where = f"apply of {case}"
    with Reads() as reads:
        run = run_leaf(subject, case)
    run.compare_one_call(report, where, entry_of(case))
    report.compare(f"{where}: operations that read a value", [], reads.seen)
    meta = run_leaf(subject, replace(case, device="meta"))
    error = None if meta.error is None else f"{type(meta.error).__name__}: {meta.error}"
    report.compare(f"{where} without values", None, error)
    return report


def check_on_input_needs_one_expert(subject: Subject, case: LeafCase) -> Report:
    """Router weights on the input with more than one expert a token are refused, and nothing is called."""
    report = Report()
    run = run_leaf(subject, replace(case, on_input=True))
    where = f"apply of {case} with router weights on the input"
    compare_refusal(report, subject, where, ValueError, run.outcome)
    report.compare(f"{where}: kernel calls", 0, len(run.calls))
    return report
