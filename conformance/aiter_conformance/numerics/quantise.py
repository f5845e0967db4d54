"""Quantised tensors and the quantisers of the schemes, per tensor, token, channel and block."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aiter_conformance.numerics.formats import (
    E2M1,
    Codes,
    FloatFormat,
    Floats,
    ScaleRounding,
    decode_bf16,
    decode_e8m0,
    e8m0_scale,
    encode_bf16,
)

# (rows, columns) of the elements that share a scale; -1 is the whole extent.
Block = tuple[int, int]
TENSOR: Final[Block] = (-1, -1)
ROW: Final[Block] = (1, -1)  # a token of activations, an output channel of weights
BLOCK_1X32: Final[Block] = (1, 32)
BLOCK_1X128: Final[Block] = (1, 128)
BLOCK_128X128: Final[Block] = (128, 128)

INT4_MAXIMUM: Final = 7.0  # AITER's per_1x32_i4_quant is symmetric: -8 is never made
INT4_LEAST_AMAX: Final = 1e-6


class ScaleFormat(StrEnum):
    """How the scales of a quantised tensor are stored."""

    F32 = "float32"
    E8M0 = "e8m0"
    BF16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class Quantised:
    """A tensor of codes with a scale to each block.

    Attributes:
        codes: One code an element, [..., R, C]: uint8 of ``element``, int8 for int4, uint16 bits for bf16.
        element: Format of the codes; None with int8 codes is int4, None with uint16 codes is bf16.
        scales: [..., R / rows, C / columns] of the block: float32, e8m0 codes (uint8) or bf16 bits (uint16);
            None for bf16 elements.
        scale_format: What ``scales`` holds.
    """

    codes: Codes
    element: FloatFormat | None = None
    scales: NDArray[np.generic] | None = None
    scale_format: ScaleFormat | None = None

    def elements(self) -> Floats:
        """Return the values of the codes without their scales, float64 [..., R, C]."""
        if self.element is not None:
            return self.element.decode(self.codes)
        return decode_bf16(self.codes) if self.codes.dtype == np.uint16 else self.codes.astype(np.float64)

    def scale_values(self) -> Floats:
        """Return the values of the scales, float64 [..., R / rows, C / columns]; ones without scales."""
        if self.scales is None:
            return np.ones((*self.codes.shape[:-2], 1, 1))
        if self.scale_format is ScaleFormat.E8M0:
            return decode_e8m0(self.scales)
        return (
            decode_bf16(self.scales)
            if self.scale_format is ScaleFormat.BF16
            else self.scales.astype(np.float64)
        )

    def values(self) -> Floats:
        """Return what the tensor means, float64 [..., R, C]."""
        return self.elements() * spread(self.scale_values(), self.codes.shape)


def block_of(shape: tuple[int, ...], block: Block) -> Block:
    """Return the block with whole extents filled in.

    Raises:
        ValueError: The block does not divide the last two axes.
    """
    rows, columns = (
        max(size, 1) if want == -1 else want for size, want in zip(shape[-2:], block, strict=True)
    )
    if shape[-2] % rows or shape[-1] % columns:
        msg = f"the last two axes must be multiples of the block {rows}x{columns} (got shape {shape})"
        raise ValueError(msg)
    return rows, columns


def spread(scales: Floats, shape: tuple[int, ...]) -> Floats:
    """Repeat each block's scale over its elements: [..., R / rows, C / columns] to [..., R, C]."""
    rows, columns = shape[-2] // max(scales.shape[-2], 1), shape[-1] // max(scales.shape[-1], 1)
    return np.repeat(np.repeat(scales, rows, axis=-2), columns, axis=-1)


def block_amax(values: Floats, block: Block) -> Floats:
    """Return the largest magnitude of each block, [..., R / rows, C / columns]; 0 for an empty one."""
    rows, columns = block_of(values.shape, block)
    *lead, height, width = values.shape
    if not values.size:
        return np.zeros(
            (*lead, 1 if block[0] == -1 else height // rows, 1 if block[1] == -1 else width // columns)
        )
    parts = np.abs(values).reshape(*lead, height // rows, rows, width // columns, columns)
    return np.asarray(parts.max(axis=(-3, -1)))


def quantise_float(
    values: ArrayLike, element: FloatFormat, block: Block, static_scale: NDArray[np.float32] | None = None
) -> Quantised:
    """Quantise to a float format with float32 scales, amax / maximum (1 where amax is 0) unless static.

    Args:
        values: [..., R, C].
        element: Format of the codes.
        block: Which elements share a scale.
        static_scale: Scales that a checkpoint fixes, [..., R / rows, C / columns]; larger values saturate.
    """
    values = np.asarray(values, np.float32)
    if static_scale is None:
        scales = block_amax(values.astype(np.float64), block).astype(np.float32) / np.float32(element.maximum)
        scales = np.where(scales == 0, np.float32(1), scales)
    else:
        scales = np.asarray(static_scale, np.float32)
    spread_scales = spread(scales.astype(np.float64), values.shape).astype(np.float32)
    return Quantised(element.encode(values / spread_scales), element, scales, ScaleFormat.F32)


def quantise_mx(
    values: ArrayLike, element: FloatFormat, rounding: ScaleRounding, block: Block = BLOCK_1X32
) -> Quantised:
    """Quantise to an MX format: e8m0 scales over blocks of 32, elements clamped to the maximum.

    Args:
        values: [..., R, C].
        element: Format of the codes, e2m1 for MXFP4.
        rounding: How the scale is chosen; only RCEIL never clamps.
        block: Which elements share a scale.
    """
    values = np.asarray(values, np.float32)
    scales = e8m0_scale(block_amax(values.astype(np.float64), block), element, rounding)
    spread_scales = spread(decode_e8m0(scales), values.shape)
    return Quantised(element.encode(values / spread_scales), element, scales, ScaleFormat.E8M0)


def quantise_mxfp4(values: ArrayLike, rounding: ScaleRounding) -> Quantised:
    """Quantise to MXFP4: e2m1 with an e8m0 scale per 32 elements of a row."""
    return quantise_mx(values, E2M1, rounding)


def quantise_int4(values: ArrayLike) -> Quantised:
    """Quantise to int4 in -7 .. 7 with a bfloat16 scale per 32 elements of a row.

    The codes are made with the scale in float32, which is rounded to bfloat16 only then, as AITER's
    ``per_1x32_i4_quant`` does (aiter/ops/quant.py).
    """
    values = np.asarray(values, np.float32)
    amax = np.maximum(block_amax(values.astype(np.float64), BLOCK_1X32), INT4_LEAST_AMAX).astype(np.float32)
    scales = amax / np.float32(INT4_MAXIMUM)
    spread_scales = spread(scales.astype(np.float64), values.shape).astype(np.float32)
    codes = np.clip(np.rint(values / spread_scales), -INT4_MAXIMUM, INT4_MAXIMUM).astype(np.int8)
    return Quantised(codes, None, encode_bf16(scales), ScaleFormat.BF16)


def as_bf16(values: ArrayLike) -> Quantised:
    """Return values rounded to bfloat16, without scales."""
    return Quantised(encode_bf16(values))
