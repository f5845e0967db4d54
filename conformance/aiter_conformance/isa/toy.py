"""Small MoE problems for AITER's assembly kernels: packed inputs, a launch, and the float64 answer.

The answer is computed from the logical, de-quantised tensors, never from the packed ones. The arithmetic is
that found by running the objects: one-stage kernels re-quantise the intermediate per (token, slice of it)
(fp8: to nearest, int8: truncated), per (token, 128) for blockscale, or round it to the output's 16-bit type
without quantisation; mxfp4 per (token, 32) with a power of two. Some take 16-bit activations for 8-bit or
4-bit weights, and quantise them per (token, 128), smoothed per (token, expert, 256), or in mxfp4 per
(token, 32), in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.arguments import Operands, one_stage, stage1
from aiter_conformance.isa.launch import Family, Launch
from aiter_conformance.isa.packing import (
    BLOCK,
    F64,
    Quantised,
    Quantiser,
    Sorted,
    mxfp4,
    shuffle,
    shuffle_scales,
    sort_tokens,
    unsorted,
)
from aiter_conformance.isa.variant import Variant

_K_TILE = 256
"""Columns of the activations that share a scale where a kernel quantises them itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a problem.

    Attributes:
        tokens: Tokens.
        experts: Experts.
        topk: Experts per token.
        hidden: Model dimension K.
        intermediate: Intermediate dimension I.
        seed: Seed of the inputs.
        groups: Persistent work-groups (multiplied by the slices of the intermediate, rounded to 8 where
            needed).
        ksplit: Stage 1 divides K among ``1 << ksplit`` work-groups, before the activation.
    """

    tokens: int = 12
    experts: int = 4
    topk: int = 2
    hidden: int = 512
    intermediate: int = 256
    seed: int = 0
    groups: int = 3
    ksplit: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A launch and what it must give.

    Attributes:
        launch: The launch.
        expected: float64: stage 1 [tokens, topk, I] (split K: [tokens, topk, 2 I]), one-stage [tokens, K].
        variant: The kernel that it is for.
        shape: Its sizes.
    """

    launch: Launch
    expected: F64
    variant: Variant
    shape: Shape

    def results(self, output: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An output without what follows it where tokens are unsorted: there work-groups agree."""
        if self.variant.routing == "sorted":
            return output
        return output.reshape(-1)[: self.expected.size].reshape(self.expected.shape)

    def decode(self, output: npt.NDArray[Any]) -> F64:
        """An output of the launch as float64, in the shape of `expected`.

        Stage 1 of blockscale appends float32 scales [tokens, topk, I / 128] to its codes [tokens, topk, I].
        """
        output = self.results(output)
        coded = self.variant.family is Family.STAGE1 and self.variant.scheme == "fp8-block"
        if not coded or self.shape.ksplit:
            return output.astype(np.float64)
        size = self.expected.size
        codes = output[:size].view(ARCHES[self.variant.arch].fp8).astype(np.float64)
        scales = output[size:].view(np.float32).reshape(self.shape.tokens, self.shape.topk, -1)
        return codes.reshape(self.expected.shape) * np.repeat(scales, BLOCK, axis=2)

    def error(self, output: npt.NDArray[Any]) -> float:
        """||output - expected|| / ||expected||; NaN when the output has one."""
        decoded = self.decode(output)
        return float(np.linalg.norm(decoded - self.expected) / np.linalg.norm(self.expected))


def _activate(gate: F64, up: F64 | None, *, gelu: bool) -> F64:
    if gelu:
        erf = np.vectorize(math.erf)
        active = 0.5 * gate * (1 + erf(gate / np.sqrt(2)))
    else:
        active = gate / (1 + np.exp(-gate))
    return np.asarray(active if up is None else active * up)


def _quantiser(kind: Variant) -> Quantiser:
    """How activations and weights are quantised."""
    if kind.scheme in ("none", "mxfp4"):
        return Quantiser(kind.sixteen, None)
    if kind.scheme == "int8":
        return Quantiser(np.dtype(np.int8), 127.0)
    return Quantiser(np.dtype(getattr(ml_dtypes, ARCHES[kind.arch].fp8)), ARCHES[kind.arch].fp8_max)


def _activations(kind: Variant, quantiser: Quantiser, x: F64) -> Quantised:
    """Activations [T, K]: per token, per 128 with scales [K / 128, T], mxfp4, or 16-bit without scales."""
    if kind.quantises:
        return Quantiser(kind.sixteen, None).rows(x)
    if kind.scheme == "mxfp4":
        return mxfp4(x)
    if kind.scheme != "fp8-block":
        return quantiser.rows(x)
    found = quantiser.groups(x, BLOCK)
    scales = None if found.scales is None else np.ascontiguousarray(found.scales.T)
    return Quantised(found.codes, scales, found.values)


def _by_expert(rows: F64, weight: F64, ids: npt.NDArray[np.int64]) -> F64:
    """Each row [T, topk, K] times the weight [E, N, K] of its expert, which `ids` [T, topk] names."""
    out = np.zeros((*ids.shape, weight.shape[1]))
    for expert in np.unique(ids):
        chosen = ids == expert
        out[chosen] = rows[chosen] @ weight[expert].T
    return out


def _with_shuffled_scales(weight: Quantised) -> Quantised:
    """A weight [E, N, K] with the e8m0 scales of each expert in the layout that kernels read."""
    scales = np.stack([shuffle_scales(one) for one in np.asarray(weight.scales)])
    return replace(weight, scales=scales)


def _sorted_scales(scales: npt.NDArray[np.uint8], sorted_: Sorted) -> npt.NDArray[np.uint8]:
    """The e8m0 scales [T, K / 32] of sorted rows in the layout that kernels read; those of padding are 0."""
    with_padding = np.concatenate([scales, np.zeros_like(scales[:1])])
    return shuffle_scales(with_padding[sorted_.ids & 0xFFFFFF])


def _quantised_inside(
    kind: Variant, quantiser: Quantiser, x: F64, smoothing: npt.NDArray[np.float32] | None
) -> F64:
    """Activations [T, topk, K] as a kernel sees them that quantises them itself, smoothed or not."""
    if smoothing is not None:
        inside = replace(quantiser, truncates=True, keeps_largest=True)
        return inside.groups(x * smoothing, _K_TILE).values
    return mxfp4(x).values if kind.scheme == "mxfp4" else quantiser.groups(x, BLOCK).values


def _requantised(kind: Variant, quantiser: Quantiser, hidden: F64) -> F64:
    """The intermediate [T, topk, I] as stage 2 sees it."""
    if kind.scheme == "mxfp4":
        return mxfp4(hidden).values
    again = Quantiser(
        quantiser.dtype, kind.requant_max, truncates=True, keeps_largest=kind.quantises == "smoothed"
    )
    return again.groups(hidden, BLOCK if kind.scheme == "fp8-block" else kind.tile_n).values


def problem(kind: Variant, shape: Shape) -> Problem:
    """Make a problem for a kernel.

    Raises:
        UsageError: The intermediate is no multiple of the kernel's slice, or the hidden size is none of its K
            tile where it quantises activations itself.
    """
    if shape.intermediate % kind.tile_n:
        raise UsageError(f"intermediate must be a multiple of {kind.tile_n} (got {shape.intermediate})")
    if kind.quantises == "smoothed" and shape.hidden % _K_TILE:
        raise UsageError(f"hidden must be a multiple of {_K_TILE} (got {shape.hidden})")
    rng = np.random.default_rng(shape.seed)
    rows = shape.intermediate * (2 if kind.gated else 1)
    quantiser = _quantiser(kind)
    slots = shape.topk if kind.per_slot else 1
    x = _activations(kind, quantiser, rng.standard_normal((slots * shape.tokens, shape.hidden)))
    weight = {"fp8-block": quantiser.blocks, "mxfp4": mxfp4}.get(kind.scheme, quantiser.rows)
    w1 = weight(rng.standard_normal((shape.experts, rows, shape.hidden)) / 10)
    w2 = weight(rng.standard_normal((shape.experts, shape.hidden, shape.intermediate)) / 10)
    ids = np.stack([rng.permutation(shape.experts)[: shape.topk] for _ in range(shape.tokens)])
    weights = rng.random((shape.tokens, shape.topk)).astype(np.float32)
    weights /= weights.sum(1, keepdims=True)

    by_slot = np.broadcast_to(
        x.values.reshape(slots, shape.tokens, -1), (shape.topk, shape.tokens, shape.hidden)
    ).transpose(1, 0, 2)
    x_scales = x.scales
    if kind.quantises == "smoothed":
        x_scales = rng.uniform(0.5, 2.0, (shape.experts, shape.hidden)).astype(np.float32)
    if kind.quantises:
        smoothing = None if x_scales is None else x_scales[ids]
        by_slot = _quantised_inside(kind, quantiser, by_slot, smoothing)
    projected = _by_expert(by_slot, w1.values, ids)
    if kind.weight_in:
        projected = projected * weights[..., None]
    gate, up = (
        projected[..., : shape.intermediate],
        projected[..., shape.intermediate :] if kind.gated else None,
    )
    hidden = _activate(gate, up, gelu=kind.gelu)
    smooth = np.ones((shape.experts, shape.intermediate), np.float32)
    if kind.smooth:
        smooth = rng.uniform(0.5, 2.0, smooth.shape).astype(np.float32)
        hidden = hidden * smooth[ids]
    requantised = _requantised(kind, quantiser, hidden)
    sorted_ = unsorted(ids, weights)
    if kind.routing == "sorted":
        sorted_ = sort_tokens(ids, weights, shape.experts, kind.tile_m)
    if kind.scheme == "mxfp4":
        w1, w2 = _with_shuffled_scales(w1), _with_shuffled_scales(w2)
        x_scales = None if x_scales is None else _sorted_scales(x_scales, sorted_)
    operands = Operands(
        tokens=shape.tokens,
        topk=shape.topk,
        x=x.codes,
        x_scales=x_scales,
        w1=shuffle(w1.codes),
        w1_scales=w1.scales,
        w2=shuffle(w2.codes),
        w2_scales=w2.scales,
        smooth=smooth if kind.smooth else None,
        sorted=sorted_,
    )
    if kind.family is Family.STAGE1:
        out = requantised if kind.scheme == "fp8-block" else hidden
        out = projected if shape.ksplit else out
        return Problem(stage1(kind, operands, shape.ksplit), out, kind, shape)
    down = _by_expert(requantised, w2.values, ids)
    out = down.sum(1) if kind.weight_in else (down * weights[..., None]).sum(1)
    slices = -(-shape.intermediate // kind.tile_n)
    groups = slices * shape.groups * (8 if kind.xcd_order else 1)
    return Problem(one_stage(kind, operands, groups), out, kind, shape)
