"""From the checkpoint to AITER: padding, fp8 flavour and layout of weights; and the expert mask."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

import torch
from torch import Tensor

from aiter_moe.activation import MoEActivation
from aiter_moe.arch import current_arch, is_fp8_fnuz
from aiter_moe.bridge import current_bridge
from aiter_moe.checkpoint import ExpertWeights, grown
from aiter_moe.layouts import (
    interleave_gate_up,
    pack_int4,
    shuffle_scale,
    shuffle_scale_a16w4,
    shuffle_scale_int4,
    shuffle_weight,
)
from aiter_moe.quant import Scheme, scheme_named

_INT4: Final[torch.dtype] = torch.int4  # type: ignore[attr-defined]


def prepare_weights(
    scheme: Scheme | str,
    activation: MoEActivation,
    weights: ExpertWeights,
    *,
    use_mxfp4_w4a4_dsv4: bool = False,
    into: ExpertWeights | None = None,
) -> ExpertWeights:
    """Return weights as AITER loads them: padded to `padded_sizes`, in its layout and tagged ``is_shuffled``.

    The inputs are neither changed nor shared. Prepared weights come back as they are, so that preparing twice
    does no harm. The tag is an attribute of the tensor: ``clone()`` and wrapping in a Parameter lose it, and
    loading a checkpoint over a prepared tensor keeps it, wrongly. Reload with `into`.

    Padding is 0 in weights and biases and 1 in scales. MXFP4 weights come back as ``float4_e2m1fn_x2`` and
    int4 ones as packed ``torch.int4``, by which AITER recognises them. On gfx94x, e4m3fn weights are
    re-read as e4m3fnuz.

    Args:
        scheme: A `Scheme`.
        activation: What the experts compute; MXFP4 layouts depend on it, and SITU's on the environment.
        weights: What the checkpoint holds.
        use_mxfp4_w4a4_dsv4: DeepSeek V4.1's opt-in, with which gate and up stay separated.
        into: Weights prepared before, of the same shapes: they are overwritten in place, keep their tags,
            and are returned. For reloading under a captured graph.

    Raises:
        ValueError: Tensors that do not fit the scheme, each other or `into`. Nothing is written then.
    """
    scheme = scheme_named(scheme)
    tags = [getattr(weight, "is_shuffled", False) for weight in (weights.w1, weights.w2)]
    if tags[0] != tags[1]:
        msg = f"w1 and w2 must be both prepared or both not (got is_shuffled {tags[0]} and {tags[1]})"
        raise ValueError(msg)
    prepared = weights if tags[0] else _prepare(scheme, activation, weights, use_mxfp4_w4a4_dsv4)
    if into is None:
        return prepared
    _write(into, prepared)
    return into


def make_expert_mask(expert_map: Tensor | None, num_fused_shared_experts: int = 0) -> Tensor | None:
    """Return the mask of experts that AITER takes, for a rank that holds some of them.

    Args:
        expert_map: vLLM's map of all experts, ``[E_global]``: the index here, or -1 for an expert held
            elsewhere. None without expert parallelism.
        num_fused_shared_experts: Shared experts that ride along; every rank holds them.

    Returns:
        int32 0/1 of length ``E_global + num_fused_shared_experts + 1`` on the device of the map: own
        experts and shared ones 1, others and the sentinel at the end 0. None without expert parallelism.

    Raises:
        ValueError: `expert_map` is no such map, or the number of shared experts is negative.
    """
    if num_fused_shared_experts < 0:
        msg = f"num_fused_shared_experts must be at least 0 (got {num_fused_shared_experts})"
        raise ValueError(msg)
    if expert_map is None:
        return None
    local = expert_map[expert_map >= 0]
    if expert_map.dim() != 1 or sorted(local.tolist()) != list(range(local.numel())):
        msg = (
            f"expert_map must be 1-D with each local index from 0 up once and -1 elsewhere (got {expert_map})"
        )
        raise ValueError(msg)
    own = (expert_map >= 0).to(torch.int32)
    return torch.cat((own, own.new_ones(num_fused_shared_experts), own.new_zeros(1)))


def pack_gate_up(rows: Tensor) -> Tensor:
    """Return ``[E, 2N, ...]`` whose rows alternate gate, up, gate, up with all gate rows before all up rows.

    For weights, their scales and their biases.
    """
    return torch.cat((rows[:, 0::2], rows[:, 1::2]), dim=1)


def normalize_e4m3fn_to_e4m3fnuz(
    weight: Tensor, weight_scale: Tensor, input_scale: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return e4m3fn weights re-read as e4m3fnuz, and their scales to match.

    The same bits are worth half as much, so scales are doubled. The bits of -0, which are NaN in e4m3fnuz,
    become 0.

    Args:
        weight: ``float8_e4m3fn`` of any shape.
        weight_scale: Its scales.
        input_scale: Static scales of the activations.

    Raises:
        ValueError: `weight` is of another type.
    """
    if weight.dtype is not torch.float8_e4m3fn:
        msg = f"weight must be of type torch.float8_e4m3fn (got {weight.dtype})"
        raise ValueError(msg)
    bits = weight.view(torch.uint8)
    reread = bits.masked_fill(bits == 0x80, 0).view(torch.float8_e4m3fnuz)
    return reread, weight_scale * 2, None if input_scale is None else input_scale * 2


def _prepare(
    scheme: Scheme, activation: MoEActivation, weights: ExpertWeights, use_mxfp4_w4a4_dsv4: bool
) -> ExpertWeights:
    padded = grown(scheme, activation, weights)
    if scheme is Scheme.INT4_W4A16:
        prepared = _int4(padded)
    elif scheme is Scheme.MXFP4_W4A4:
        prepared = _mxfp4_separated(padded)
    elif scheme is Scheme.MXFP4_W4A16:
        prepared = _mxfp4_w4a16(padded, activation, use_mxfp4_w4a4_dsv4)
    elif scheme is Scheme.BF16:
        prepared = replace(padded, w1=shuffle_weight(padded.w1), w2=shuffle_weight(padded.w2))
    else:
        prepared = _fp8(padded)
    prepared = _own(prepared, weights)
    _tag(prepared)
    return prepared


def _own(prepared: ExpertWeights, weights: ExpertWeights) -> ExpertWeights:
    """Copy what was handed through: written with `into` later, it would change the checkpoint's tensor."""
    pairs = ((f.name, getattr(prepared, f.name), getattr(weights, f.name)) for f in fields(ExpertWeights))
    return replace(prepared, **{name: new.clone() for name, new, old in pairs if new is old is not None})


def _tag(weights: ExpertWeights) -> None:
    for weight in (weights.w1, weights.w2):
        weight.is_shuffled = True  # type: ignore[attr-defined]


def _fp8(weights: ExpertWeights) -> ExpertWeights:
    w1_scale, w2_scale = weights.scales()
    if is_fp8_fnuz(current_arch()) and weights.w1.dtype is torch.float8_e4m3fn:
        w1, w1_scale, a1_scale = normalize_e4m3fn_to_e4m3fnuz(weights.w1, w1_scale, weights.a1_scale)
        w2, w2_scale, a2_scale = normalize_e4m3fn_to_e4m3fnuz(weights.w2, w2_scale, weights.a2_scale)
        weights = replace(
            weights, w1=w1, w2=w2, w1_scale=w1_scale, w2_scale=w2_scale, a1_scale=a1_scale, a2_scale=a2_scale
        )
    return replace(weights, w1=shuffle_weight(weights.w1), w2=shuffle_weight(weights.w2))


def _mxfp4_separated(weights: ExpertWeights) -> ExpertWeights:
    w1_scale, w2_scale = weights.scales()
    return replace(
        weights,
        w1=_fp4(shuffle_weight(weights.w1)),
        w2=_fp4(shuffle_weight(weights.w2)),
        w1_scale=shuffle_scale(w1_scale),
        w2_scale=shuffle_scale(w2_scale),
    )


def _mxfp4_w4a16(
    weights: ExpertWeights, activation: MoEActivation, use_mxfp4_w4a4_dsv4: bool
) -> ExpertWeights:
    is_situ = activation is MoEActivation.SITU
    if use_mxfp4_w4a4_dsv4 and not is_situ:
        return _mxfp4_separated(weights)
    w1_scale, w2_scale = weights.scales()
    gate_up = current_bridge().is_fused_moe_situv2_gate_up_interleaved() if is_situ else True
    return replace(
        weights,
        w1=_fp4(shuffle_weight(interleave_gate_up(weights.w1) if gate_up else weights.w1)),
        w2=_fp4(shuffle_weight(weights.w2)),
        w1_scale=shuffle_scale_a16w4(w1_scale, gate_up=gate_up),
        w2_scale=shuffle_scale(w2_scale) if is_situ else shuffle_scale_a16w4(w2_scale, gate_up=False),
    )


def _int4(weights: ExpertWeights) -> ExpertWeights:
    w1_scale, w2_scale = weights.scales()
    return replace(
        weights,
        w1=pack_int4(shuffle_weight(weights.w1)).view(_INT4),
        w2=pack_int4(shuffle_weight(weights.w2)).view(_INT4),
        w1_scale=shuffle_scale_int4(w1_scale),
        w2_scale=shuffle_scale_int4(w2_scale),
    )


def _fp4(stored: Tensor) -> Tensor:
    return stored.view(torch.float4_e2m1fn_x2)


def _write(into: ExpertWeights, prepared: ExpertWeights) -> None:
    pairs = [(f.name, getattr(into, f.name), getattr(prepared, f.name)) for f in fields(ExpertWeights)]
    for name, old, new in pairs:
        if _described(old) != _described(new):
            msg = f"{name} must be as prepared before, {_described(old)} (got {_described(new)})"
            raise ValueError(msg)
    for _, old, new in pairs:
        if old is not None:
            _stored(old).copy_(_stored(new))
    _tag(into)


def _described(tensor: Tensor | None) -> str:
    return "None" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _stored(tensor: Tensor) -> Tensor:
    """Return bytes in place of the packed types, which torch cannot copy."""
    return tensor.view(torch.uint8) if tensor.dtype in (torch.float4_e2m1fn_x2, _INT4) else tensor
