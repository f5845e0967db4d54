"""Kernel arguments of one MoE layer: from the tensors that AITER's operators are given to a launch.

Facts from ``csrc/py_itfs_cu/asm_fmoe.cu`` and ``asm_moe_2stage.cu`` of v0.1.20.post1, and from running the
objects. Every stride is in bytes. A one-stage kernel adds into its output, which sorting has cleared, or,
where nothing was sorted, the kernel itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.launch import Launch
from aiter_conformance.isa.machine import Buffer
from aiter_conformance.isa.packing import BLOCK, Sorted
from aiter_conformance.isa.variant import Variant

_GELU, _SILU = 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """The tensors of a layer as a kernel reads them.

    Attributes:
        tokens: Tokens T.
        topk: Experts per token.
        x: Activations [T, K], or [topk * T, K] where they are quantised for each expert of a token.
        x_scales: float32 [T], for blockscale [K / 128, T], smoothing scales [E, K] of a kernel that quantises
            itself; for mxfp4 uint8, those of the sorted rows, shuffled; None without.
        w1: Shuffled gate and up [E, 2 I, K], or [E, I, K] without gate.
        w1_scales: float32 [E, 2 I], for blockscale [E, 2 I / 128, K / 128]; for mxfp4 uint8, shuffled; None
            without.
        w2: Shuffled [E, K, I].
        w2_scales: float32 [E, K], for blockscale [E, K / 128, I / 128]; for mxfp4 uint8, shuffled; None
            without.
        smooth: float32 [E, I]; None without.
        sorted: Tokens by expert, or as the router gave them for a kernel that does not have them sorted.

    mxfp4 has two codes in a byte, so the last axis of its tensors is half as long.
    """

    tokens: int
    topk: int
    x: npt.NDArray[Any]
    x_scales: npt.NDArray[Any] | None
    w1: npt.NDArray[Any]
    w1_scales: npt.NDArray[Any] | None
    w2: npt.NDArray[Any]
    w2_scales: npt.NDArray[Any] | None
    smooth: npt.NDArray[np.float32] | None = None
    sorted: Sorted

    @property
    def intermediate(self) -> int:
        """Elements I of the intermediate."""
        _, hidden, packed = self.w2.shape
        return int(packed * (hidden // self.w1.shape[2]))

    def integers(self) -> dict[str, int]:
        """The arguments that both families have."""
        experts, hidden, _ = self.w2.shape
        intermediate = self.intermediate
        row = self.w1.shape[2] * self.w1.dtype.itemsize
        return {
            "dim": hidden,
            "hdim": intermediate,
            "batch": self.tokens,
            "eprt": experts,
            "Xs": self.x.strides[0],
            "GUs": row,
            "eGUs": row * self.w1.shape[1],
            "eGUQs": 0 if self.w1_scales is None else self.w1_scales[0].nbytes,
            "eSMQs": 4 * intermediate,
            "topk": self.topk,
        }


def _buffers(**arrays: npt.NDArray[Any] | None) -> dict[str, Buffer]:
    return {
        slot: Buffer(slot, array, writable=slot == "O") for slot, array in arrays.items() if array is not None
    }


def stage1(kind: Variant, given: Operands, ksplit: int = 0) -> Launch:
    """The launch of a stage-1 kernel; its output is [T, topk, I], for blockscale codes and then scales.

    Args:
        kind: The kernel.
        given: The tensors.
        ksplit: K is divided among ``1 << ksplit`` work-groups; the output is then float32 [T, topk, 2 I].
    """
    tokens, topk, i = given.tokens, given.topk, given.w2.shape[2]
    if ksplit:  # partial sums of gate and up are added into zeroed float32
        out: npt.NDArray[Any] = np.zeros((tokens, topk, 2 * i), np.float32)
        row = topk * 2 * i * 4
    elif kind.scheme == "fp8-block":
        elements = tokens * topk * i
        out = np.zeros(elements + elements // BLOCK * 4, np.uint8)
        row = topk * i
    else:
        out = np.zeros((tokens, topk, i), ml_dtypes.bfloat16)
        row = topk * i * 2
    buffers = _buffers(
        O=out,
        X=given.x,
        G=given.w1,
        Xc=given.sorted.valid,
        XQ=given.x_scales,
        GQ=given.w1_scales,
        STP=given.sorted.ids,
        SEP=given.sorted.blocks,
        SW=given.sorted.weights if kind.weight_in else None,
    )
    integers = given.integers() | {
        "Os": row,
        "splitk": ksplit,
        "activation": _GELU if kind.gelu else _SILU,
    }
    grid = (i // kind.tile_n, len(given.sorted.blocks), 1 << ksplit)
    return Launch(kind.family, buffers, integers, grid)


def _output(kind: Variant, tokens: int, hidden: int) -> npt.NDArray[Any]:
    """The output [T, K] as the kernel finds it: zeros, or large numbers where it clears its rows itself.

    Such a kernel is given 8 further bytes, by which its work-groups agree on who clears; they are returned as
    part of the output: [T K + 4] elements. (``_moe_prepare_unsorted_input`` in ``aiter/fused_moe.py``
    allocates 8 and speaks of 8 a token; no kernel was seen to touch more.)
    """
    if kind.routing == "sorted":
        return np.zeros((tokens, hidden), kind.sixteen)
    return np.frombuffer(bytes([0x57]) * (2 * tokens * hidden + 8), kind.sixteen).copy()


def one_stage(kind: Variant, given: Operands, groups: int) -> Launch:
    """The launch of a one-stage kernel; its output is [T, K] in the kernel's 16-bit type, or see `_output`.

    Args:
        kind: The kernel.
        given: The tensors.
        groups: Work-groups of a persistent kernel, of no meaning to another one.
    """
    hidden, packed = given.w2.shape[1:]
    down_row = packed * given.w2.dtype.itemsize
    slices = -(-given.intermediate // kind.tile_n)
    groups = groups if kind.persistent else 0
    buffers = _buffers(
        O=_output(kind, given.tokens, hidden),
        X=given.x,
        G=given.w1,
        U=given.sorted.valid,
        D=given.w2,
        XQ=given.x_scales,
        GQ=given.w1_scales,
        DQ=given.w2_scales,
        SMQ=given.smooth,
        STP=given.sorted.ids,
        SW=given.sorted.weights,
        SEP=given.sorted.blocks,
    )
    integers = given.integers() | {
        "Ds": down_row,
        "Os": 2 * hidden,
        "eDs": down_row * hidden,
        "eDQs": 0 if given.w2_scales is None else given.w2_scales[0].nbytes,
        "total_tgs": groups // slices * slices,
        "ps_deno": slices,
    }
    persistent = integers["total_tgs"] > 0
    grid = (groups, 1, 1) if persistent else (slices, len(given.sorted.blocks), 1)
    if kind.routing == "flat":
        grid = (slices, given.topk, given.tokens)
    if kind.quantises == "smoothed":
        grid = (grid[1], grid[0], 1)
    return Launch(kind.family, buffers, integers, grid)
