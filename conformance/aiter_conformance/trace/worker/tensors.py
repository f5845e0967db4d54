"""The tensors of a call, without storage: dispatch looks at shapes, dtypes and the shuffle tag alone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from aiter_conformance.trace.call import Call
from aiter_conformance.trace.worker.fake_torch import DEVICE

# Weight dtype of a scheme, by torch's name; None: the board's fp8, "int4": the release's own packed int4.
_WEIGHTS: Final[dict[str, str | None]] = {
    "bf16": "bfloat16",
    "fp8-block": None,
    "fp8-tensor-static": None,
    "fp8-tensor-dynamic": None,
    "fp8-channel": None,
    "mxfp4-w4a16": "float4_e2m1fn_x2",
    "mxfp4-w4a4": "float4_e2m1fn_x2",
    "int4-w4a16": "int4",
    "mxfp8": None,
    "int8-token": "int8",
}
_PACKED: Final = ("mxfp4-w4a16", "mxfp4-w4a4", "int4-w4a16")


class Tensors:
    """Makes tensors for calls; what does not depend on the number of tokens is made once.

    Args:
        fp8: The board's fp8 flavour, by torch's name: what a loader stores weights in.
        int4: The dtype in which this release takes packed int4.
    """

    def __init__(self, fp8: str, int4: torch.dtype) -> None:
        self._fp8: torch.dtype = getattr(torch, fp8)
        self._int4 = int4
        self._layer = lru_cache(maxsize=512)(self._make_layer)

    def layer(self, call: Call) -> dict[str, Tensor]:
        """Return w1, w2, their scales and biases, static activation scales, and the expert mask."""
        return self._layer(replace(call, tokens=1))

    def tokens(self, call: Call) -> dict[str, Tensor]:
        """Return hidden states, router weights and ids."""
        shape = (call.tokens, call.columns)
        return {
            "hidden_states": _empty((call.tokens, call.hidden), torch.bfloat16),
            "topk_weights": _empty(shape, torch.float32),
            "topk_ids": _empty(shape, torch.int32),
        }

    def _make_layer(self, call: Call) -> dict[str, Tensor]:
        experts, hidden, rows = call.held, call.hidden, 2 * call.intermediate
        dtype = self._weight_dtype(call.scheme)
        pack = 2 if call.scheme in _PACKED else 1
        made = {
            "w1": _empty((experts, rows, hidden // pack), dtype),
            "w2": _empty((experts, hidden, call.intermediate // pack), dtype),
        }
        if call.shuffled:
            for weight in made.values():
                weight.is_shuffled = True  # type: ignore[attr-defined]  # the tag that loaders set
        made |= _scales(call)
        if call.bias:
            made["w1_bias"] = _empty((experts, rows), torch.float32)
            made["w2_bias"] = _empty((experts, hidden), torch.float32)
        if call.mask:
            # One entry an expert of the model, shared ones among them, and the sentinel (SPEC 11).
            made["expert_mask"] = _empty((call.experts + call.shared + 1,), torch.int32)
        if call.shared_apart:
            made |= _shared(call, self._fp8)
        return made

    def _weight_dtype(self, scheme: str) -> torch.dtype:
        name = _WEIGHTS[scheme]
        if name is None:
            return self._fp8
        if name == "int4":
            return self._int4
        dtype: torch.dtype = getattr(torch, name)
        return dtype


def _scales(call: Call) -> dict[str, Tensor]:
    """Return the scales in the layout of the scheme, as its loader leaves them."""
    experts, hidden, inner = call.held, call.hidden, call.intermediate
    rows = 2 * inner
    float32 = torch.float32
    match call.scheme:
        case "bf16":
            return {}
        case "fp8-tensor-static" | "fp8-tensor-dynamic":
            made = {"w1_scale": _empty((experts,), float32), "w2_scale": _empty((experts,), float32)}
            if call.scheme == "fp8-tensor-static":
                made |= {"a1_scale": _empty((1,), float32), "a2_scale": _empty((1,), float32)}
            return made
        case "fp8-channel" | "int8-token":
            return {
                "w1_scale": _empty((experts, rows, 1), float32),
                "w2_scale": _empty((experts, hidden, 1), float32),
            }
        case "fp8-block":
            return {
                "w1_scale": _empty((experts, -(-rows // 128), -(-hidden // 128)), float32),
                "w2_scale": _empty((experts, -(-hidden // 128), -(-inner // 128)), float32),
            }
        case "int4-w4a16":
            return {
                "w1_scale": _empty((experts, hidden // 32, rows), torch.bfloat16),
                "w2_scale": _empty((experts, inner // 32, hidden), torch.bfloat16),
            }
    # Microscaling: one e8m0 byte for 32 values.
    return {
        "w1_scale": _empty((experts * rows, hidden // 32), torch.float8_e8m0fnu),
        "w2_scale": _empty((experts * hidden, inner // 32), torch.float8_e8m0fnu),
    }


def _shared(call: Call, fp8: torch.dtype) -> dict[str, Tensor]:
    """Return the tensors of a shared expert apart, in MXFP8, scales as loaders shuffle them (aiter/fhmoe.py).

    The routed scales of w2 are padded as the shared ones are, to 256 columns of w2.
    """
    hidden, inner = call.hidden, call.intermediate
    padded = _up(inner, 256)
    scale = torch.float8_e8m0fnu
    return {
        "w2_scale": _empty((call.held * hidden, padded // 32), scale),
        "shared_w1": _empty((1, 2 * inner, hidden), fp8),
        "shared_w2": _empty((1, hidden, inner), fp8),
        "shared_w1_scale": _empty((_up(2 * inner, 256), _up(hidden // 32, 8)), scale),
        "shared_w2_scale": _empty((_up(hidden, 256), _up(padded // 32, 8)), scale),
    }


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=DEVICE)


def direct_keywords(call: Call, made: dict[str, Tensor]) -> dict[str, Any]:
    """Return the keywords of a direct call of the release's ``fused_moe`` that say something."""
    keywords: dict[str, Any] = {
        name: made[name]
        for name in ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "expert_mask")
        if name in made
    }
    if call.shared_apart:
        keywords |= {name: made[name] for name in made if name.startswith("shared_")}
        keywords["shared_expert_id"] = call.experts
    if call.bias:
        keywords |= {"bias1": made["w1_bias"], "bias2": made["w2_bias"]}
    if call.sent_pads != (0, 0):
        keywords |= {"hidden_pad": call.sent_pads[0], "intermediate_pad": call.sent_pads[1]}
    if call.gate_mode:
        keywords["gate_mode"] = call.gate_mode
    if call.router == "in":
        keywords["doweight_stage1"] = True
    if call.swiglu_limit:
        keywords["swiglu_limit"] = call.swiglu_limit
    return keywords
