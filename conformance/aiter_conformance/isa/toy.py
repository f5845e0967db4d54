"""Small MoE problems for AITER's assembly kernels: packed inputs, a launch, and the float64 answer.

What a kernel expects is read off its file name, as AITER's own manifests do. The answer is computed from the
logical, de-quantised tensors, never from the packed ones. Layouts and arithmetic are those found by running
the objects:

* Sorted ids are ``slot << 24 | token``; each expert's run is padded to the M tile with ``topk << 24 |
  tokens``.
* Weights [E, N, K] are stored in tiles of 16 rows by 16 bytes of K: [E, N / 16, K / P, 16, P], P = 16 /
  element size.
* One-stage kernels re-quantise the intermediate per (token, slice of it) (fp8: to nearest, int8: truncated),
  per (token, 128) for blockscale, or round it to the output's 16-bit type without quantisation.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.launch import Family, Launch
from aiter_conformance.isa.machine import Buffer
from aiter_conformance.isa.packing import BLOCK, F64, Quantised, Quantiser, shuffle, sort_tokens

Scheme = Literal["fp8", "fp8-block", "int8", "none"]
_TILE = re.compile(r"_(?P<m>\d+)x(?P<n>\d+)(?=[_.])")
_GELU, _SILU = 1, 0
_DEFAULT_MAX: dict[str, float | None] = {"none": None, "int8": 127.0}


@dataclass(frozen=True, slots=True)
class Variant:
    """What a kernel's file name says.

    Attributes:
        arch: Architecture.
        family: Stage 1 alone, or both in one kernel.
        scheme: How activations and weights are quantised.
        tile_m: Rows of an M block.
        tile_n: Columns of the intermediate that one work-group computes.
        half: Whether 16-bit tensors are float16 instead of bfloat16.
        gelu: GELU instead of SiLU (an argument of stage 1, not a property of the object).
        gated: Whether w1 holds gate and up.
        weight_in: Whether the router weight multiplies gate and up, before the activation.
        persistent: Whether work-groups loop over blocks.
        xcd_order: Whether a persistent kernel permutes work-groups over eight chiplets.
        per_slot: Whether activations are [topk, tokens, K], quantised for each expert that a token goes to.
        smooth: Whether the intermediate is multiplied by a smoothing scale [E, I] before it is re-quantised.
        requant_max: Code that the largest element of the intermediate is scaled to; None without a scale.
    """

    arch: str
    family: Family
    scheme: Scheme
    tile_m: int
    tile_n: int
    half: bool
    gelu: bool
    gated: bool
    weight_in: bool
    persistent: bool
    xcd_order: bool
    per_slot: bool
    smooth: bool
    requant_max: float | None

    @property
    def sixteen(self) -> np.dtype[Any]:
        """The 16-bit format of the output and of tensors that are not quantised."""
        return np.dtype(np.float16 if self.half else ml_dtypes.bfloat16)


def variant(arch: str, file: str, requant_max: float | None = None) -> Variant:
    """Read a kernel's file name.

    Args:
        arch: Architecture.
        file: Name of the code object.
        requant_max: Code that the largest element of the intermediate is scaled to, where that is not the
            largest of the format: some gfx950 objects scale to 240 as those of gfx942 do.

    Raises:
        UsageError: The name is of a kind whose launch is not modelled.
    """
    name = PurePath(file).name
    tile = _TILE.search(name)
    unmodelled = re.search(r"MXfp4|Int4|int4|_a16_|flat|emsort|smf|blockscaleBf16", name)
    if tile is None or unmodelled or not name.startswith(("fmoe_stage1_bf16_", "fmoe_bf16_", "fmoe_fp16_")):
        raise UsageError(
            f"launch of {name} must be modelled (got {unmodelled[0] if unmodelled else 'no known name'})"
        )
    scheme: Scheme = "none"
    if "lockscale" in name:
        scheme = "fp8-block"
    elif "Int8" in name:
        scheme = "int8"
    elif "pertokenFp8" in name:
        scheme = "fp8"
    elif "noquant" not in name:
        raise UsageError(f"quantisation of {name} must be modelled (got none that is)")
    stage1 = name.startswith("fmoe_stage1")
    smooth = "multix" in name or (scheme == "int8" and "g1u0" in name)
    return Variant(
        arch=arch,
        family=Family.STAGE1 if stage1 else Family.ONE_STAGE,
        scheme=scheme,
        tile_m=int(tile["m"]),
        tile_n=int(tile["n"]),
        half=name.startswith("fmoe_fp16_"),
        gelu="gelu" in name,
        gated="g1u0" not in name,
        weight_in="tkw1" in name or "doweight" in name,
        persistent=re.search(r"_psx?_", name) is not None,
        xcd_order=re.search(r"_psx?_.*64x", name) is not None,
        per_slot=smooth,
        smooth=smooth,
        requant_max=requant_max or _DEFAULT_MAX.get(scheme, ARCHES[arch].fp8_max),
    )


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

    def decode(self, output: npt.NDArray[Any]) -> F64:
        """An output of the launch as float64, in the shape of `expected`.

        Stage 1 of blockscale appends float32 scales [tokens, topk, I / 128] to its codes [tokens, topk, I].
        """
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
    if kind.scheme == "none":
        return Quantiser(kind.sixteen, None)
    if kind.scheme == "int8":
        return Quantiser(np.dtype(np.int8), 127.0)
    return Quantiser(np.dtype(getattr(ml_dtypes, ARCHES[kind.arch].fp8)), ARCHES[kind.arch].fp8_max)


def _activations(kind: Variant, quantiser: Quantiser, x: F64) -> Quantised:
    """Activations [T, K]: per token, or per 128 with the scales [K / 128, T]."""
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


def problem(kind: Variant, shape: Shape) -> Problem:
    """Make a problem for a kernel.

    Raises:
        UsageError: The intermediate is no multiple of the kernel's slice.
    """
    if shape.intermediate % kind.tile_n:
        raise UsageError(f"intermediate must be a multiple of {kind.tile_n} (got {shape.intermediate})")
    rng = np.random.default_rng(shape.seed)
    rows = shape.intermediate * (2 if kind.gated else 1)
    quantiser = _quantiser(kind)
    slots = shape.topk if kind.per_slot else 1
    x = _activations(kind, quantiser, rng.standard_normal((slots * shape.tokens, shape.hidden)))
    weight = quantiser.blocks if kind.scheme == "fp8-block" else quantiser.rows
    w1 = weight(rng.standard_normal((shape.experts, rows, shape.hidden)) / 10)
    w2 = weight(rng.standard_normal((shape.experts, shape.hidden, shape.intermediate)) / 10)
    ids = np.stack([rng.permutation(shape.experts)[: shape.topk] for _ in range(shape.tokens)])
    weights = rng.random((shape.tokens, shape.topk)).astype(np.float32)
    weights /= weights.sum(1, keepdims=True)

    by_slot = np.broadcast_to(
        x.values.reshape(slots, shape.tokens, -1), (shape.topk, shape.tokens, shape.hidden)
    )
    projected = _by_expert(by_slot.transpose(1, 0, 2), w1.values, ids)
    if kind.weight_in:
        projected = projected * weights[..., None]
    gate, up = (
        projected[..., : shape.intermediate],
        projected[..., shape.intermediate :] if kind.gated else None,
    )
    hidden = _activate(gate, up, gelu=kind.gelu)
    sorted_ = sort_tokens(ids, weights, shape.experts, kind.tile_m)
    smooth = np.ones((shape.experts, shape.intermediate), np.float32)
    if kind.smooth:
        smooth = rng.uniform(0.5, 2.0, smooth.shape).astype(np.float32)
        hidden = hidden * smooth[ids]
    again = Quantiser(quantiser.dtype, kind.requant_max, truncates=True)
    requantised = again.groups(hidden, BLOCK if kind.scheme == "fp8-block" else kind.tile_n).values
    if kind.family is Family.STAGE1:
        out = requantised if kind.scheme == "fp8-block" else hidden
        out = projected if shape.ksplit else out
        return Problem(_stage1(kind, shape, x, w1, sorted_), out, kind, shape)
    down = _by_expert(requantised, w2.values, ids)
    out = down.sum(1) if kind.weight_in else (down * weights[..., None]).sum(1)
    return Problem(_one_stage(kind, shape, (x, w1, w2), smooth, sorted_), out, kind, shape)


def _buffers(**arrays: npt.NDArray[Any] | None) -> dict[str, Buffer]:
    return {
        slot: Buffer(slot, array, writable=slot == "O") for slot, array in arrays.items() if array is not None
    }


_Sorted = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.int32]]


def _stage1(kind: Variant, shape: Shape, x: Quantised, w1: Quantised, sorted_: _Sorted) -> Launch:
    ids, weights, blocks = sorted_
    size, k, i = x.codes.dtype.itemsize, shape.hidden, shape.intermediate
    if shape.ksplit:  # partial sums of gate and up are added into zeroed float32
        out: npt.NDArray[Any] = np.zeros((shape.tokens, shape.topk, 2 * i), np.float32)
        row = shape.topk * 2 * i * 4
    elif kind.scheme == "fp8-block":
        elements = shape.tokens * shape.topk * i
        out = np.zeros(elements + elements // BLOCK * 4, np.uint8)
        row = shape.topk * i
    else:
        out = np.zeros((shape.tokens, shape.topk, i), ml_dtypes.bfloat16)
        row = shape.topk * i * 2
    buffers = _buffers(
        O=out,
        X=x.codes,
        G=shuffle(w1.codes),
        Xc=np.array([len(ids), shape.tokens], np.int32),
        XQ=x.scales,
        GQ=w1.scales,
        STP=ids,
        SEP=blocks,
        SW=weights if kind.weight_in else None,
    )
    integers = {
        "dim": k,
        "hdim": i,
        "batch": shape.tokens,
        "eprt": shape.experts,
        "Xs": k * size,
        "GUs": k * size,
        "Os": row,
        "eGUs": k * size * i * (2 if kind.gated else 1),
        "eGUQs": 0 if w1.scales is None else w1.scales[0].nbytes,
        "eSMQs": 4 * i,
        "topk": shape.topk,
        "splitk": shape.ksplit,
        "activation": _GELU if kind.gelu else _SILU,
    }
    return Launch(kind.family, buffers, integers, (i // kind.tile_n, len(blocks), 1 << shape.ksplit))


def _one_stage(
    kind: Variant,
    shape: Shape,
    tensors: tuple[Quantised, ...],
    smooth: npt.NDArray[np.float32],
    sorted_: _Sorted,
) -> Launch:
    x, w1, w2 = tensors
    ids, weights, blocks = sorted_
    size, k, i = x.codes.dtype.itemsize, shape.hidden, shape.intermediate
    slices = -(-i // kind.tile_n)
    groups = slices * shape.groups * (8 if kind.xcd_order else 1) if kind.persistent else 0
    buffers = _buffers(
        O=np.zeros((shape.tokens, k), kind.sixteen),
        X=x.codes,
        G=shuffle(w1.codes),
        U=np.array([len(ids), shape.tokens], np.int32),
        D=shuffle(w2.codes),
        XQ=x.scales,
        GQ=w1.scales,
        DQ=w2.scales,
        SMQ=smooth if kind.smooth else None,
        STP=ids,
        SW=weights,
        SEP=blocks,
    )
    integers = {
        "dim": k,
        "hdim": i,
        "batch": shape.tokens,
        "eprt": shape.experts,
        "Xs": k * size,
        "GUs": k * size,
        "Ds": i * size,
        "Os": 2 * k,
        "eGUs": k * size * i * (2 if kind.gated else 1),
        "eDs": i * size * k,
        "eGUQs": 0 if w1.scales is None else w1.scales[0].nbytes,
        "eDQs": 0 if w2.scales is None else w2.scales[0].nbytes,
        "eSMQs": 4 * i,
        "topk": shape.topk,
        "total_tgs": groups // slices * slices,
        "ps_deno": slices,
    }
    grid = (groups, 1, 1) if kind.persistent else (slices, len(blocks), 1)
    return Launch(kind.family, buffers, integers, grid)
