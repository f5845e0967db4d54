"""Calls that a release's own tuned rows are for: one a row, so that every row is seen to work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiter_conformance.contract import ACCEPTED_ACTIVATIONS
from aiter_conformance.release.tuned import TunedTables
from aiter_conformance.release.tuned_rows import TunedRow, short_dtype
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call, Situ

# (QuantType, dtype of the weights) -> scheme; the dtype of the activations follows from the call.
_SCHEMES: Final = {
    ("No", "bf16"): "bf16",
    ("per_Tensor", "fp8"): "fp8-tensor-dynamic",
    ("per_Token", "fp8"): "fp8-channel",
    ("per_Token", "int8"): "int8-token",
    ("per_1x128", "fp8"): "fp8-block",
    ("per_128x128", "fp8"): "fp8-block",
    ("per_1x32", "fp8"): "mxfp8",
    ("per_1x32", "int4"): "int4-w4a16",
}
_SITU: Final[dict[str, Situ]] = {"fp4": "a4w4", "fp8": "a8w4", "bf16": "a16w4"}
# AITER's name of an activation -> the first of vLLM's that is it.
_ACTIVATIONS: Final = {
    member: activation for activation, (member, _) in reversed(ACCEPTED_ACTIVATIONS.items())
}


def tuned_calls(tuned: TunedTables, board: Board) -> Iterator[tuple[TunedRow, Call]]:
    """Yield each row for a board that a direct call can ask for, with that call.

    Left out are rows that stand in where FlyDSL is not installed, grouped rows, and rows for what no call
    here can ask for (ungated layers, fp16 models).
    """
    for row in tuned.matching(gfx=board.arch, cu_num=board.compute_units):
        call = _call(row)
        if call is not None:
            yield row, call


def _call(row: TunedRow) -> Call | None:
    key = row.key
    a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
    activation = _ACTIVATIONS.get(key.act_type)
    scheme = _SCHEMES.get((key.q_type, w))
    gate_mode = ""
    if (key.q_type, w) == ("per_1x32", "fp4"):
        situ_or_fp4 = a == "fp4" or key.act_type == "Situv2"
        scheme = "mxfp4-w4a4" if situ_or_fp4 else "mxfp4-w4a16"
        gate_mode = "" if situ_or_fp4 else "interleave"
    if None in (activation, scheme) or not key.use_g1u1 or key.dtype != "bfloat16" or key.variant:
        return None
    return Call(
        entry="fused_moe",
        scheme=str(scheme),
        activation=str(activation),
        router="in" if key.doweight_stage1 else "out",
        tokens=key.token,
        experts=key.expert,
        local_experts=key.expert,
        topk=key.topk,
        hidden=key.model_dim,
        intermediate=key.inter_dim,
        situ=_SITU.get(a, "a4w4"),
        gate_mode=gate_mode,
    )
