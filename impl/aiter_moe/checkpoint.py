"""Experts' tensors as a checkpoint has them, and how they grow to the sizes that kernels want."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from aiter_moe.activation import MoEActivation
from aiter_moe.layouts import NEUTRAL_E8M0, pad_to
from aiter_moe.pads import padded_sizes
from aiter_moe.quant import DType, Scheme

_GROUP: Final = 32
_MXFP4: Final = (Scheme.MXFP4_W4A16, Scheme.MXFP4_W4A4)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertWeights:
    """The tensors of the E experts of one layer: as described here until `prepare_weights` lays them out.

    K is the hidden and N the intermediate size on this rank, unpadded. Gate rows come before up rows: a
    checkpoint that alternates them, as gpt-oss does, goes through `pack_gate_up` first, biases too.

    Attributes:
        w1: ``[E, 2N, K]`` bf16, fp16, fp8 or, for int4, int8 with one value -8 to 7 a byte; for MXFP4
            ``[E, 2N, K / 2]`` uint8 or ``float4_e2m1fn_x2``, the even element in the low nibble.
        w2: ``[E, K, N]``, or ``[E, K, N / 2]``, likewise.
        w1_scale: fp8: as AITER takes it. MXFP4: e8m0 bytes ``[E, 2N, K / 32]``. int4: bf16 of that shape.
        w2_scale: fp8: as AITER takes it. MXFP4 and int4: ``[E, K, N / 32]``, rounded up.
        a1_scale: Static scale of the hidden states.
        a2_scale: Static scale of the intermediate.
        w1_bias: ``[E, 2N]``.
        w2_bias: ``[E, K]``.
    """

    w1: Tensor
    w2: Tensor
    w1_scale: Tensor | None = None
    w2_scale: Tensor | None = None
    a1_scale: Tensor | None = None
    a2_scale: Tensor | None = None
    w1_bias: Tensor | None = None
    w2_bias: Tensor | None = None

    def scales(self) -> tuple[Tensor, Tensor]:
        """Return the scales of both weights.

        Raises:
            ValueError: One of them is None.
        """
        if self.w1_scale is None or self.w2_scale is None:
            msg = "w1_scale and w2_scale must be given for quantised weights (got None)"
            raise ValueError(msg)
        return self.w1_scale, self.w2_scale


def grown(scheme: Scheme, activation: MoEActivation, weights: ExpertWeights) -> ExpertWeights:
    """Return weights grown to `padded_sizes`, MXFP4 weights and scales as bytes.

    Rows of gate and up grow each on their own. New weights and biases are 0, new scales 1.

    Raises:
        ValueError: A tensor does not have the type or the shape that `ExpertWeights` says.
    """
    w1, w2 = _stored(scheme, weights)
    per_element = 2 if scheme in _MXFP4 else 1
    experts, rows, columns = w1.shape
    hidden, intermediate = columns * per_element, rows // 2
    _check_shape("w1", w1, (experts, intermediate // per_element * per_element * 2, columns))
    _check_shape("w2", w2, (experts, hidden, intermediate // per_element))
    to_hidden, to_intermediate = padded_sizes(scheme, activation, hidden, intermediate)
    result = replace(
        weights,
        w1=_grow_halves(w1, to_intermediate, to_hidden // per_element, 0),
        w2=pad_to(w2, to_hidden, to_intermediate // per_element, value=0),
    )
    if scheme in _MXFP4 or scheme is Scheme.INT4_W4A16:
        w1_scale, w2_scale = weights.scales()
        _check_shape("w1_scale", w1_scale, (experts, rows, _groups(hidden)))
        _check_shape("w2_scale", w2_scale, (experts, hidden, _groups(intermediate)))
        one = NEUTRAL_E8M0 if scheme in _MXFP4 else 1
        result = replace(
            result,
            w1_scale=_grow_halves(w1_scale, to_intermediate, _groups(to_hidden), one),
            w2_scale=pad_to(w2_scale, to_hidden, _groups(to_intermediate), value=one),
        )
    if weights.w1_bias is not None:
        _check_shape("w1_bias", weights.w1_bias, (experts, rows))
        bias = _grow_halves(weights.w1_bias.unsqueeze(-1), to_intermediate, 1, 0).squeeze(-1)
        result = replace(result, w1_bias=bias)
    if weights.w2_bias is not None:
        _check_shape("w2_bias", weights.w2_bias, (experts, hidden))
        bias = pad_to(weights.w2_bias.unsqueeze(-1), to_hidden, 1, value=0).squeeze(-1)
        result = replace(result, w2_bias=bias)
    return result


def _stored(scheme: Scheme, weights: ExpertWeights) -> tuple[Tensor, Tensor]:
    """Return both weights in a type that torch can work with, after checking that it is one of the scheme."""
    types: tuple[torch.dtype, ...]
    if scheme is Scheme.BF16:
        types = torch.bfloat16, torch.float16
    elif scheme is Scheme.INT4_W4A16:
        types = (torch.int8,)
    elif scheme in _MXFP4:
        types = torch.uint8, torch.float4_e2m1fn_x2
    else:
        types = torch.float8_e4m3fn, DType.FP8.torch_dtype()
    w1, w2 = weights.w1, weights.w2
    if w1.dtype not in types or w2.dtype != w1.dtype or w1.dim() != 3:
        wanted = " or ".join(str(one) for one in types)
        msg = (
            f"w1 and w2 must be 3-D and both {wanted} for {scheme} "
            f"(got {w1.dtype} {tuple(w1.shape)} and {w2.dtype} {tuple(w2.shape)})"
        )
        raise ValueError(msg)
    return (w1.view(torch.uint8), w2.view(torch.uint8)) if scheme in _MXFP4 else (w1, w2)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        msg = f"{name} must have the shape {shape} (got {tuple(tensor.shape)})"
        raise ValueError(msg)


def _grow_halves(rows: Tensor, to_rows: int, to_columns: int, value: float) -> Tensor:
    """Grow gate and up, ``[E, 2R, C]``, each to `to_rows`."""
    halves = rows.reshape(rows.shape[0], 2, -1, rows.shape[2])
    return pad_to(halves, to_rows, to_columns, value=value).flatten(1, 2)


def _groups(elements: int) -> int:
    return -(-elements // _GROUP)
