"""Packing the inputs of AITER's assembly MoE kernels: quantisation, sorted tokens, shuffled weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import UsageError

F64 = npt.NDArray[np.float64]
BLOCK = 128
"""Side of a quantisation block of the blockscale kernels."""
MX = 32
"""Elements of an mxfp4 row that share a scale."""


def shuffle(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The (16, 16) weight layout of [E, N, K]: tiles of 16 rows by 16 bytes.

    Raises:
        UsageError: N is no multiple of 16, or K of 32.
    """
    experts, n, k = weight.shape
    if n % 16 or k % 32:
        raise UsageError(f"a shuffled weight must have N a multiple of 16, K of 32 (got {weight.shape})")
    part = 16 // weight.dtype.itemsize
    tiles = weight.reshape(experts, n // 16, 16, k // part, part).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(tiles).reshape(experts, n, k)


def shuffle_scales(scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The layout of e8m0 scales [rows, K / 32] for matrix instructions: bytes of 32 rows by 8 scales.

    Rows are padded to 32 and scales to 8, with zeros. ``aiter/ops/shuffle.py`` of v0.1.20.post1 pads rows to
    256 and leaves padding as it was allocated; no kernel that runs here reads rows past 32.
    """
    rows, groups = scales.shape
    padded = np.pad(scales, ((0, -rows % 32), (0, -groups % 8)))
    tiles = padded.reshape(-1, 2, 16, padded.shape[1] // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)
    return np.ascontiguousarray(tiles).reshape(padded.shape)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Tokens by expert, as AITER's sorting leaves them for blocks of M rows; or `unsorted`.

    Attributes:
        ids: int32 [rows], ``slot << 24 | token``, each expert's run padded to M by ``topk << 24 | tokens``.
        weights: float32 [rows], router weights; 0 for padding.
        blocks: int32 [rows / M], the expert of each block.
        valid: int32 [2]: rows that count, and tokens.
    """

    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    blocks: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int32]


def sort_tokens(
    ids: npt.NDArray[np.integer[Any]], weights: npt.NDArray[np.float32], experts: int, tile: int
) -> Sorted:
    """Sort [tokens, topk] choices of experts; an id outside 0 to experts - 1 is no expert of this rank's."""
    tokens, topk = ids.shape
    sorted_ids: list[int] = []
    sorted_weights: list[float] = []
    blocks: list[int] = []
    for expert in range(experts):
        chosen = [(t, j) for t, j in zip(*(a.tolist() for a in np.nonzero(ids == expert)), strict=True)]
        padding = -len(chosen) % tile
        sorted_ids += [j << 24 | t for t, j in chosen] + [topk << 24 | tokens] * padding
        sorted_weights += [float(weights[t, j]) for t, j in chosen] + [0.0] * padding
        blocks += [expert] * ((len(chosen) + padding) // tile)
    return Sorted(
        np.array(sorted_ids, np.int32),
        np.array(sorted_weights, np.float32),
        np.array(blocks, np.int32),
        np.array([len(sorted_ids), tokens], np.int32),
    )


def unsorted(ids: npt.NDArray[np.integer[Any]], weights: npt.NDArray[np.float32]) -> Sorted:
    """What AITER gives kernels that find their tokens themselves: the router's own ids and weights [T, topk].

    The ids, plain int32 here, stand for the blocks and the number of rows too, which are not read
    (``aiter/fused_moe.py`` of v0.1.20.post1, ``_moe_prepare_unsorted_input``).
    """
    plain = np.ascontiguousarray(ids, np.int32)
    return Sorted(plain, weights, plain, plain)


@dataclass(frozen=True, slots=True)
class Quantised:
    """A quantised tensor.

    Attributes:
        codes: What the kernel reads.
        scales: Scales, float32 or the exponents of e8m0 as uint8; None without.
        values: What they stand for, float64 in the shape of the codes.
    """

    codes: npt.NDArray[Any]
    scales: npt.NDArray[Any] | None
    values: F64


def mxfp4(x: F64) -> Quantised:
    """Quantise to e2m1, two codes a byte (the first low), with an e8m0 scale for each 32 of the last axis.

    The scale is the power of two at or above a sixth of the largest element, so that nothing saturates; codes
    are rounded to nearest even. That is what the kernels do with their intermediate.
    """
    groups = x.reshape(*x.shape[:-1], -1, MX).astype(np.float32)
    bits = (np.abs(groups).max(-1) * np.float32(1 / 6)).view(np.int32)
    exponent = (bits + 0x7FFFFF) >> 23 & 0xFF
    scale = np.ldexp(1.0, exponent - 127)[..., None]
    codes = (groups / scale).astype(ml_dtypes.float4_e2m1fn)
    values = (codes.astype(np.float64) * scale).reshape(x.shape)
    nibbles = codes.view(np.uint8).reshape(x.shape)
    return Quantised(nibbles[..., ::2] | nibbles[..., 1::2] << 4, exponent.astype(np.uint8), values)


@dataclass(frozen=True, slots=True)
class Quantiser:
    """Quantisation to one format.

    Attributes:
        dtype: Format of the codes.
        largest: Code that the largest element of a group is scaled to; None rounds without a scale.
        truncates: Whether codes are rounded towards zero to an integer; False rounds to nearest even.
        keeps_largest: Whether the largest of a group is its largest code however its scale was rounded;
            without, truncation may make it one less.
    """

    dtype: np.dtype[Any]
    largest: float | None
    truncates: bool = False
    keeps_largest: bool = False

    def _scaled(self, x: F64, amax: F64) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        if self.largest is None:
            raise UsageError("a format without scales cannot be scaled (got largest None)")
        # The kernels keep a group of zeros away from a scale of zero with this floor.
        scale = (np.maximum(amax, 1e-6) / self.largest).astype(np.float32)
        scaled = (x / scale).clip(-self.largest, self.largest)
        if self.dtype.kind == "i":
            if self.keeps_largest:
                scaled = scaled * (1 + 2.0**-20)
            scaled = np.trunc(scaled) if self.truncates else np.rint(scaled)
        return scaled.astype(np.float32).astype(self.dtype), scale

    def rows(self, x: F64) -> Quantised:
        """One scale for each row of the last axis."""
        if self.largest is None:
            codes = x.astype(np.float32).astype(self.dtype)
            return Quantised(codes, None, codes.astype(np.float64))
        codes, scale = self._scaled(x, np.abs(x).max(-1, keepdims=True))
        return Quantised(codes, scale[..., 0], codes.astype(np.float64) * scale)

    def groups(self, x: F64, width: int) -> Quantised:
        """One scale for each ``width`` elements of the last axis."""
        found = self.rows(x.reshape(*x.shape[:-1], -1, width))
        return Quantised(found.codes.reshape(x.shape), found.scales, found.values.reshape(x.shape))

    def blocks(self, w: F64) -> Quantised:
        """One scale for each block of 128 x 128 of a weight [E, N, K]."""
        experts, n, k = w.shape
        blocks = w.reshape(experts, n // BLOCK, BLOCK, k // BLOCK, BLOCK)
        codes, scale = self._scaled(blocks, np.abs(blocks).max((2, 4), keepdims=True))
        values = (codes.astype(np.float64) * scale).reshape(w.shape)
        return Quantised(codes.reshape(w.shape), np.ascontiguousarray(scale[:, :, 0, :, 0]), values)
