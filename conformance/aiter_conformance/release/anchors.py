"""Named checks of what the contract rests on in AITER's sources, each with the file and line it was found at.

A check looks for a structure (an assignment to a name, an argument of a call, a function's parameters), never
for a line number or a spelling, so that it survives moves and reformatting. What it finds either is what the
contract expects, or has changed; a check that finds nothing says absent. The expectations come from the
specification of the leaves: sections 1 (enumerations), 5 (pads), 7 (bridge) and 12 (layouts).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aiter_conformance.release.anchor_finders import (
    Find,
    Place,
    default_of,
    enum_values,
    flydsl_stage1_pad,
    flydsl_stage2_tail,
    fp4x2,
    fp8_arch,
    fp8_table,
    function_with,
    gate_mode_values,
    pad_of,
    shuffle_tag,
    split_k_guard,
    tuned_key,
)
from aiter_conformance.release.pysource import Sources

SHUFFLE_PATH = "aiter/ops/shuffle.py"
FP4_PATH = "aiter/utility/fp4_utils.py"
_ACTIVATION_VALUES = {"No": -1, "Silu": 0, "Gelu": 1}
_QUANT_VALUES = {"No": 0, "per_Tensor": 1, "per_Token": 2, "per_1x32": 3, "per_1x128": 4, "per_128x128": 5}


class AnchorStatus(StrEnum):
    """What became of an anchor."""

    HOLDS = "holds"
    CHANGED = "changed"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Anchor:
    """One anchor of one release.

    Attributes:
        name: Its name, the same in every release.
        expected: What the contract expects, one sentence.
        status: `AnchorStatus.HOLDS` if it was found and every place agrees.
        places: Where it was found, by path and line.
    """

    name: str
    expected: str
    status: AnchorStatus
    places: tuple[Place, ...]


def read_anchors(sources: Sources) -> tuple[Anchor, ...]:
    """Check every anchor, in the order of the table; what cannot be parsed is a finding of *sources*."""
    anchors = []
    for name, expected, find in _CHECKS:
        places = tuple(sorted(find(sources), key=lambda place: (place.path, place.line)))
        if not places:
            status = AnchorStatus.ABSENT
        elif all(place.agrees for place in places):
            status = AnchorStatus.HOLDS
        else:
            status = AnchorStatus.CHANGED
        anchors.append(Anchor(name, expected, status, places))
    return tuple(anchors)


_CHECKS: tuple[tuple[str, str, Find], ...] = (
    (
        "ck-tile-stage1-intermediate-pad",
        "CK-Tile stage 1 floors the intermediate pad to 64 and doubles it for fused gate and up",
        pad_of("n_pad_zeros", "intermediate_pad", "intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1)"),
    ),
    (
        "ck-tile-stage1-hidden-pad",
        "CK-Tile stage 1 floors the hidden pad to 128",
        pad_of("k_pad_zeros", "hidden_pad", "hidden_pad // 128 * 128"),
    ),
    (
        "ck-tile-stage2-hidden-pad",
        "CK-Tile stage 2 floors the hidden pad to 64",
        pad_of("n_pad_zeros", "hidden_pad", "hidden_pad // 64 * 64"),
    ),
    (
        "ck-tile-stage2-intermediate-pad",
        "CK-Tile stage 2 floors the intermediate pad to 128 and does not double it",
        pad_of("k_pad_zeros", "intermediate_pad", "intermediate_pad // 128 * 128"),
    ),
    (
        "flydsl-stage1-pad-doubled",
        "FlyDSL stage 1 doubles the intermediate pad inside the kernel",
        flydsl_stage1_pad,
    ),
    (
        "flydsl-stage2-pad-undoubled",
        "FlyDSL stage 2 masks the K tail with the pad as it is",
        flydsl_stage2_tail,
    ),
    (
        "activation-type-values",
        "ActivationType has No -1, Silu 0, Gelu 1",
        enum_values("ActivationType", _ACTIVATION_VALUES),
    ),
    (
        "quant-type-values",
        "QuantType has No 0, per_Tensor 1, per_Token 2, per_1x32 3, per_1x128 4, per_128x128 5",
        enum_values("QuantType", _QUANT_VALUES),
    ),
    (
        "gate-mode-values",
        "GateMode has the values separated and interleave",
        gate_mode_values,
    ),
    (
        "gate-mode-default",
        "fused_moe takes gate and up as separated when no gate_mode is given",
        default_of("gate_mode", "GateMode.SEPARATED.value", "'separated'"),
    ),
    (
        "swiglu-limit-default",
        "fused_moe clamps nothing when no swiglu_limit is given",
        default_of("swiglu_limit", "0.0", "0", "None"),
    ),
    (
        "fp4x2-dtype",
        "dtypes.fp4x2 is torch.float4_e2m1fn_x2",
        fp4x2,
    ),
    (
        "fp8-dtype-of-arch",
        "fp8 is e4m3fnuz on gfx94x and e4m3fn elsewhere",
        fp8_table,
    ),
    (
        "fp8-by-runtime-arch",
        "the fp8 dtype follows the arch of the GPU that is there, not the list of archs to build for",
        fp8_arch,
    ),
    (
        "shuffle-weight",
        "shuffle_weight takes (x, layout=(16, 16))",
        function_with(SHUFFLE_PATH, "shuffle_weight", x=None, layout="(16, 16)"),
    ),
    (
        "shuffle-weight-interleave",
        "shuffle_weight can interleave gate and up (is_guinterleave, off by default)",
        function_with(SHUFFLE_PATH, "shuffle_weight", is_guinterleave="False"),
    ),
    (
        "shuffle-scale-interleave",
        "shuffle_scale can interleave gate and up (is_guinterleave, off by default)",
        function_with(SHUFFLE_PATH, "shuffle_scale", src=None, is_guinterleave="False"),
    ),
    (
        "shuffle-weight-a16w4",
        "shuffle_weight_a16w4 takes (src, NLane, gate_up)",
        function_with(SHUFFLE_PATH, "shuffle_weight_a16w4", src=None, NLane=None, gate_up=None),
    ),
    (
        "shuffle-scale-a16w4",
        "shuffle_scale_a16w4 takes (src, experts_cnt, gate_up)",
        function_with(SHUFFLE_PATH, "shuffle_scale_a16w4", src=None, experts_cnt=None, gate_up=None),
    ),
    (
        "shuffle-scale-int4",
        "shuffle_scale_for_int4 takes (scale, group_size=32)",
        function_with(SHUFFLE_PATH, "shuffle_scale_for_int4", scale=None, group_size="32"),
    ),
    (
        "e8m0-shuffle",
        "fp4_utils.e8m0_shuffle takes (scale)",
        function_with(FP4_PATH, "e8m0_shuffle", scale=None),
    ),
    (
        "is-shuffled-tag",
        "fused_moe reads the layout of the weights from their attribute is_shuffled, False if it is missing",
        shuffle_tag,
    ),
    (
        "tuned-key-activation",
        "the tuned lookup compares the activation as text, as the tables hold it",
        tuned_key,
    ),
    (
        "block-fp8-split-k-guard",
        "block-fp8 stage 1 splits K only when at least two K tiles are left",
        split_k_guard,
    ),
)

ANCHOR_NAMES: tuple[str, ...] = tuple(name for name, _, _ in _CHECKS)
