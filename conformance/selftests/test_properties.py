"""The properties of pads, derivation and dispatch can fail: each planted fault is caught by its check."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from aiter_conformance.checks import properties_derivation as derivation
from aiter_conformance.checks import properties_dispatch as dispatch
from aiter_conformance.checks import properties_pads as pads
from aiter_conformance.checks.properties_derivation import Answers
from aiter_conformance.checks.properties_faulty import (
    Fault,
    answer,
    apply_after,
    called_with,
    leaf_with,
    told,
)
from aiter_conformance.checks.properties_leaf import LeafCase
from aiter_conformance.checks.properties_pads import PaddedCall, Pads
from aiter_conformance.protocols import MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.subjects import load_subject


@pytest.fixture(scope="module")
def impl() -> Subject:
    """The subject that faults are planted in."""
    return load_subject("impl")


PADS = Pads(200, 200, "silu", tp_size=1)
LAYER = MoEConfigSpec(num_experts=4, hidden_dim=64, intermediate_size=32)
PADDED = PaddedCall(
    LeafCase("mxfp4-w4a16", replace(LAYER, hidden_dim=512, intermediate_size=256), ((0, 1),)), 130, 70
)
ROWS = LeafCase("bf16", LAYER, ((-1, 2), (0, 3)))
MASKED = replace(ROWS, masked=True)
ONE_COUNT = replace(ROWS, local_tokens=(1,))
PER_EXPERT = replace(ROWS, local_tokens=(0, 1, 1, 0))


def unrepaired(ids: torch.Tensor) -> torch.Tensor:
    """Return ids with the first one, which stands for a padding row, turned back into -1."""
    return torch.cat((torch.tensor([-1], dtype=ids.dtype), ids.reshape(-1)[1:])).reshape(ids.shape)


FAULTS = (
    Fault(
        "the intermediate pad is doubled twice",
        lambda s: pads.check_pads(s, PADS),
        {"aiter_moe_pads": answer(lambda pads: (pads[0], pads[1] * 2))},
    ),
    Fault(
        "the intermediate pad is not doubled",
        lambda s: pads.check_pads(s, PADS),
        {"aiter_moe_pads": called_with(lambda a: [*a[:4], 2])},
    ),
    Fault(
        "pads are rounded up",
        lambda s: pads.check_pads(s, PADS),
        {"aiter_moe_pads": called_with(lambda a: [a[0] + 127, *a[1:]])},
    ),
    Fault(
        "w4a4 SILU is doubled here too",
        lambda s: pads.check_pads(s, replace(PADS, w4a4=True)),
        {"aiter_moe_pads": called_with(lambda a: [*a[:3], False, a[4]])},
    ),
    Fault(
        "SITU is rounded",
        lambda s: pads.check_pads(s, replace(PADS, activation="situ")),
        {"aiter_moe_pads": answer(lambda pads: (pads[0] // 128 * 128, pads[1]))},
    ),
    Fault(
        "pads wrap at 256",
        lambda s: pads.check_pads_monotone(s, PADS, 100, 100),
        {"aiter_moe_pads": answer(lambda pads: (pads[0] % 256, pads[1] % 256))},
    ),
    Fault(
        "pads of one tp_size differ from those of another",
        lambda s: pads.check_pads_stable(s, replace(PADS, tp_size=8)),
        {"aiter_moe_pads": called_with(lambda a: [a[0], a[1] + 64 * (a[4] == 2), *a[2:]])},
    ),
    Fault(
        "negative pads are floored instead of refused",
        lambda s: pads.check_bad_pads_refused(s, replace(PADS, hidden=-1)),
        {"aiter_moe_pads": called_with(lambda a: [max(a[0], 0), *a[1:]])},
    ),
    Fault(
        "the kernel is told the raw pads",
        lambda s: pads.check_pads_in_call(s, PADDED),
        arguments=told(hidden_pad=lambda _: 130),
    ),
    Fault(
        "negative sizes reach the kernel",
        lambda s: pads.check_negative_sizes_refused(s, replace(PADDED, hidden_pad=-64)),
        {"AiterMxfp4Experts": leaf_with(apply=lambda _self, **_: None)},
    ),
    Fault(
        "per-channel wins over blocks",
        lambda s: derivation.check_derivation(
            s, Answers(use_fp8_w8a8=True, per_out_ch_quant=True, blocks=True)
        ),
        {
            "derive_aiter_quant_method": called_with(
                lambda a: [SimpleNamespace(**{**vars(a[0]), "block_shape": None})]
            )
        },
    ),
    Fault(
        "fp8 blocks are not seen in a real config",
        lambda s: derivation.check_derivation_of_config(
            s, "gfx942", QuantSpec("fp8", "fp8", block_shape=(128, 128))
        ),
        {"derive_aiter_quant_method": answer(lambda method: type(method).PER_TENSOR)},
    ),
    Fault(
        "a scheme is derived as unquantised",
        lambda s: derivation.check_derivation_agrees(s, "mxfp4-w4a16", "gfx950"),
        {"derive_aiter_quant_method": answer(lambda method: type(method).NO)},
    ),
    Fault(
        "a leaf declares another method",
        lambda s: derivation.check_derivation_agrees(s, "mxfp4-w4a16", "gfx950"),
        {"AiterMxfp4Experts": leaf_with(_AITER_QUANT_METHOD=4)},
    ),
    Fault(
        "the known disagreement is repaired in silence",
        lambda s: derivation.check_known_disagreement(s, derivation.KNOWN_DISAGREEMENTS[0]),
        {"derive_aiter_quant_method": answer(lambda method: type(method).BLOCK_1X32)},
    ),
    Fault(
        "a negative id reaches the kernel",
        lambda s: dispatch.check_routing(s, ROWS),
        arguments=told(topk_ids=unrepaired),
    ),
    Fault(
        "a negative id becomes expert 0 although there is a mask",
        lambda s: dispatch.check_routing(s, MASKED),
        arguments=told(topk_ids=lambda ids: ids.clone().masked_fill(ids == 4, 0)),
    ),
    Fault(
        "a padding row keeps its router weight",
        lambda s: dispatch.check_routing(s, ROWS),
        arguments=told(topk_weight=lambda w: w + (w == 0) / 256),
    ),
    Fault(
        "ids go in as int64",
        lambda s: dispatch.check_routing(s, ROWS),
        arguments=told(topk_ids=lambda ids: ids.long()),
    ),
    Fault(
        "router weights go in as bfloat16",
        lambda s: dispatch.check_routing(s, replace(ROWS, weights_dtype="bfloat16")),
        arguments=told(topk_weight=lambda w: w.bfloat16()),
    ),
    Fault(
        "float32 router weights are copied",
        lambda s: dispatch.check_routing(s, MASKED),
        arguments=told(topk_weight=torch.clone),
    ),
    Fault(
        "hidden states are scaled in place",
        lambda s: dispatch.check_inputs_untouched(s, ROWS),
        {"AiterUnquantizedExperts": apply_after(lambda given: given["hidden_states"].mul_(1.0))},
    ),
    Fault(
        "the ids of the caller are repaired in place",
        lambda s: dispatch.check_inputs_untouched(s, ROWS),
        {"AiterUnquantizedExperts": apply_after(lambda given: given["topk_ids"].clamp_(min=0))},
    ),
    Fault(
        "a count per expert reaches the kernel",
        lambda s: dispatch.check_local_tokens(s, PER_EXPERT),
        arguments=told(num_local_tokens=lambda _: torch.tensor([0, 1, 1, 0])),
    ),
    Fault(
        "the row count is dropped",
        lambda s: dispatch.check_local_tokens(s, ONE_COUNT),
        arguments=told(num_local_tokens=lambda _: None),
    ),
    Fault(
        "the row count is read and made anew",
        lambda s: dispatch.check_local_tokens(s, ONE_COUNT),
        arguments=told(num_local_tokens=torch.clone),
    ),
    Fault(
        "a value is read from the device",
        lambda s: dispatch.check_without_values(s, ROWS),
        {"AiterUnquantizedExperts": apply_after(lambda given: bool((given["topk_ids"] < 0).any()))},
    ),
    Fault(
        "router weights of several experts are applied to the input",
        lambda s: dispatch.check_on_input_needs_one_expert(s, ROWS),
        {
            "AiterUnquantizedExperts": apply_after(
                lambda given: given.update(apply_router_weight_on_input=False)
            )
        },
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
