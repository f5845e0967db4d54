"""Number formats of the kernels: fp8 in both flavours, e2m1, int4, bf16, and the e8m0 scales.

Values are decoded to float64, which holds every format exactly. Encoding clamps before it casts, because
casts differ above the maximum (NUMERICS 1), and e8m0 scales are computed on exponent and mantissa bits, so
that no library's rounding is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Codes = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format whose elements are stored one code to an integer.

    Attributes:
        name: Usual name, e.g. ``e4m3fnuz``.
        dtype: The ml_dtypes scalar type.
        code: Integer type of a code.
        maximum: Largest finite value.
        max_exponent: Floor of log2 of ``maximum``.
        mantissa_bits: Stored bits of the mantissa.
        has_nan: Whether a code means NaN.
    """

    name: str
    dtype: Any
    code: Any
    maximum: float
    max_exponent: int
    mantissa_bits: int
    has_nan: bool = True

    def decode(self, codes: Codes) -> Floats:
        """Return the values of codes, float64 of the same shape."""
        return np.asarray(np.ascontiguousarray(codes, self.code).view(self.dtype), np.float64)

    def encode(self, values: ArrayLike) -> Codes:
        """Return the codes of values: clamped, made float32 as a kernel holds them, cast to nearest even.

        Raises:
            ValueError: A value is NaN and the format has none.
        """
        values = np.asarray(values, np.float64)
        if not self.has_nan and np.isnan(values).any():
            msg = f"values must not hold NaN, which {self.name} cannot express (got {np.isnan(values).sum()})"
            raise ValueError(msg)
        clamped = np.clip(values, -self.maximum, self.maximum).astype(np.float32)
        return np.asarray(clamped.astype(self.dtype).view(self.code))

    def round(self, values: ArrayLike) -> Floats:
        """Return the nearest values of the format, float64."""
        return self.decode(self.encode(values))


# AITER's kernels quantise fnuz with the maximum 240 (NUMERICS 1).
E4M3FN: Final = FloatFormat("e4m3fn", ml_dtypes.float8_e4m3fn, np.uint8, 448.0, 8, 3)
E4M3FNUZ: Final = FloatFormat("e4m3fnuz", ml_dtypes.float8_e4m3fnuz, np.uint8, 240.0, 7, 3)
E2M1: Final = FloatFormat("e2m1", ml_dtypes.float4_e2m1fn, np.uint8, 6.0, 2, 1, has_nan=False)
FLOAT_FORMATS: Final = {f.name: f for f in (E4M3FN, E4M3FNUZ, E2M1)}


def round_bf16(values: ArrayLike) -> Floats:
    """Return float64 values rounded once to bfloat16, ties to even; beyond the maximum gives infinity."""
    values = np.asarray(values, np.float64)
    mantissa, exponent = np.frexp(values)
    # 8 significant bits, fewer below the smallest normal number 2^-126
    quantum = np.maximum(exponent, -125) - 8
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, exponent - quantum)), quantum)
    return np.asarray(np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, values), rounded))


def encode_bf16(values: ArrayLike) -> NDArray[np.uint16]:
    """Return the bfloat16 bits of values, rounded as by `round_bf16`."""
    return round_bf16(values).astype(ml_dtypes.bfloat16).view(np.uint16)


def decode_bf16(codes: Codes) -> Floats:
    """Return the values of bfloat16 bits, float64."""
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        return np.asarray(np.ascontiguousarray(codes, np.uint16).view(ml_dtypes.bfloat16), np.float64)


# --------------------------------------------------------------------------- e8m0


class ScaleRounding(StrEnum):
    """How the power of two of a block is chosen from its largest magnitude (AITER's MxScaleRoundMode)."""

    FLOOR = "floor"  # largest power of two <= amax, over 2^max_exponent
    CEIL = "ceil"  # smallest power of two >= amax, over 2^max_exponent
    RCEIL = "rceil"  # smallest power of two >= amax / maximum: nothing is clamped
    EVEN = "even"  # amax rounded to the element's mantissa first, then floor


E8M0_BIAS: Final = 127
E8M0_NAN: Final = 255
_MANTISSA: Final = (1 << 23) - 1


def e8m0_scale(amax: ArrayLike, element: FloatFormat, rounding: ScaleRounding) -> NDArray[np.uint8]:
    """Return the e8m0 code of a block's scale from its largest magnitude.

    Args:
        amax: Largest magnitudes, >= 0, taken as float32.
        element: Format of the block's elements.
        rounding: Which power of two.

    Returns:
        Codes of the same shape: 0 (2^-127) for 0 and whatever is too small, 255 (NaN) for infinity and NaN.

    Raises:
        ValueError: A magnitude is negative.
    """
    amax = np.asarray(amax, np.float32)
    if (amax < 0).any():
        msg = f"amax must be the largest magnitude of a block, >= 0 (got {amax.min()})"
        raise ValueError(msg)
    bits = np.abs(amax).view(np.uint32).astype(np.int64)
    exponent, mantissa = bits >> 23, bits & _MANTISSA
    maximum_mantissa = int(np.float32(element.maximum).view(np.uint32)) & _MANTISSA
    round_up = {
        ScaleRounding.FLOOR: np.zeros_like(mantissa, bool),
        ScaleRounding.CEIL: mantissa > 0,
        ScaleRounding.RCEIL: mantissa > maximum_mantissa,
        ScaleRounding.EVEN: mantissa + (1 << (22 - element.mantissa_bits)) > _MANTISSA,
    }[rounding]
    code = np.clip(exponent + round_up - element.max_exponent, 0, E8M0_NAN - 1)
    return np.where(exponent == 255, E8M0_NAN, code).astype(np.uint8)


def decode_e8m0(codes: Codes) -> Floats:
    """Return 2^(code - 127), and NaN for 255."""
    codes = np.asarray(codes, np.uint8).astype(np.int64)
    return np.where(codes == E8M0_NAN, np.nan, np.ldexp(1.0, codes - E8M0_BIAS))


# --------------------------------------------------------------------------- packing


def pack_nibbles(codes: Codes) -> NDArray[np.uint8]:
    """Pack 4-bit codes two to a byte along the last axis, the even element in the low nibble.

    Raises:
        ValueError: The last axis is odd, or a code does not fit four bits.
    """
    codes = np.asarray(codes, np.uint8)
    if codes.shape[-1] % 2:
        msg = f"the last axis must be even to be packed two to a byte (got shape {codes.shape})"
        raise ValueError(msg)
    if codes.size and codes.max() > 15:
        msg = f"codes must fit four bits (got {codes.max()})"
        raise ValueError(msg)
    return np.asarray(codes[..., ::2] | codes[..., 1::2] << 4, np.uint8)


def int4_to_nibbles(values: Codes) -> NDArray[np.uint8]:
    """Return the two's complement nibbles of integers.

    Raises:
        ValueError: A value lies outside -8 .. 7.
    """
    values = np.asarray(values)
    if values.size and (values.min() < -8 or values.max() > 7):
        msg = f"int4 values must lie in -8 .. 7 (got {values.min()} .. {values.max()})"
        raise ValueError(msg)
    return np.asarray(values.astype(np.int8).view(np.uint8) & 15, np.uint8)
