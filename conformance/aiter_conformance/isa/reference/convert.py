"""Conversions between number formats.

Source: "AMD Instinct MI300 Instruction Set Architecture" and "AMD Instinct CDNA4 Instruction Set
Architecture", V_CVT opcodes; OCP "8-bit Floating Point Specification" and "Microscaling Formats
Specification" for fp8 and fp4. ml_dtypes rounds to nearest even and gives NaN on overflow of an e4m3 format,
as the instruction does without FP16_OVFL.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from aiter_conformance.isa.arch import MODE_FP16_OVFL
from aiter_conformance.isa.assembly import Instruction
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference.wave import F32, U32, Semantics, Wave, destination_of

_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _to_integer(low: int, high: int) -> Callable[[F32], U32]:
    def convert(a: F32) -> U32:
        clipped = np.clip(np.trunc(a.astype(np.float64)), low, high)
        return np.where(np.isnan(a), 0, clipped).astype(np.int64).astype(np.uint32)

    return convert


_TO_INTEGER = {
    Op.V_CVT_I32_F32: _to_integer(-(1 << 31), (1 << 31) - 1),
    Op.V_CVT_U32_F32: _to_integer(0, (1 << 32) - 1),
}


def to_integer(wave: Wave, instruction: Instruction) -> None:
    """Towards zero, saturating, NaN to 0."""
    wave.write_result(instruction, _TO_INTEGER[instruction.op](wave.floats(instruction, 0)))


def from_integer(wave: Wave, instruction: Instruction) -> None:
    """Integer to float32, to nearest even."""
    bits = wave.source(instruction, 0)
    numbers = bits.view(np.int32) if instruction.op is Op.V_CVT_F32_I32 else bits
    wave.write_result(instruction, numbers.astype(np.float32).view(np.uint32))


def from_nibble(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_off_f32_i4: the low four bits, signed, divided by 16."""
    nibble = (wave.source(instruction, 0) & np.uint32(15)).astype(np.int32)
    values = ((nibble ^ 8) - 8).astype(np.float32) / np.float32(16)
    wave.write_result(instruction, values.view(np.uint32))


def to_half(wave: Wave, values: F32) -> U32:
    """Bits of float16, to nearest even; NaN is 0x7e00; with FP16_OVFL a finite value saturates."""
    half = values.astype(np.float16)
    if wave.group.mode & MODE_FP16_OVFL:
        half = np.where(np.isinf(half) & np.isfinite(values), np.copysign(np.float16(65504), half), half)
    return np.where(np.isnan(values), 0x7E00, half.view(np.uint16)).astype(np.uint32)


def half(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_f16_f32; the upper half of the result is zero."""
    wave.write_result(instruction, to_half(wave, wave.floats(instruction, 0)))


def _half_towards_zero(values: F32) -> U32:
    nearest = values.astype(np.float16)
    beyond = np.abs(nearest.astype(np.float32)) > np.abs(values)
    result = np.where(beyond, np.nextafter(nearest, np.float16(0)), nearest).astype(np.float16)
    return np.where(np.isnan(values), 0x7E00, result.view(np.uint16)).astype(np.uint32)


def packed_half_towards_zero(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_pkrtz_f16_f32: two values towards zero, so a finite value stays finite."""
    low, high = (_half_towards_zero(wave.floats(instruction, i)) for i in range(2))
    wave.write_result(instruction, low | high << np.uint32(16))


def to_bf16(values: F32) -> U32:
    """Bits of bfloat16, to nearest even; NaN is 0x7fc0."""
    bits = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where(np.isnan(values), 0x7FC0, bits).astype(np.uint32)


def packed_bf16(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_pk_bf16_f32."""
    low, high = (to_bf16(wave.floats(instruction, i)) for i in range(2))
    wave.write_result(instruction, low | high << np.uint32(16))


def to_fp8(wave: Wave, values: F32) -> U32:
    """Bits of the architecture's e4m3, to nearest even; beyond its range NaN, saturated with FP16_OVFL."""
    dtype = np.dtype(getattr(ml_dtypes, wave.arch.fp8))
    if wave.group.mode & MODE_FP16_OVFL:
        values = np.clip(values, np.float32(-wave.arch.fp8_max), np.float32(wave.arch.fp8_max))
    bits = values.astype(dtype).view(np.uint8).astype(np.uint32)
    # The sign of a NaN is not defined: e4m3fn has two, this takes the positive one.
    nan = 0x80 if wave.arch.fp8.endswith("fnuz") else 0x7F
    is_nan = np.isnan(bits.astype(np.uint8).view(dtype).astype(np.float32))
    return np.where(is_nan, nan, bits).astype(np.uint32)


def packed_fp8(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_pk_fp8_f32: two codes to the low half of the destination, or with op_sel[2] to the high half."""
    low, high = (to_fp8(wave, wave.floats(instruction, i)) for i in range(2))
    at = np.uint32(16 * instruction.bits("op_sel", 3)[2])
    kept = wave.read(destination_of(instruction)) & ~(np.uint32(0xFFFF) << at)
    wave.write(destination_of(instruction), kept | (low | high << np.uint32(8)) << at)


def to_fp4(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> U32:
    """e2m1 codes, to nearest even, saturating at 6; a NaN becomes 6."""
    size = np.where(np.isnan(values), 6.0, np.abs(values))
    middles = (_FP4[1:] + _FP4[:-1]) / 2
    below, above = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
    codes = np.where(below % 2 == 0, below, above)
    return codes.astype(np.uint32) | np.signbit(values).astype(np.uint32) << np.uint32(3)


def packed_fp4(wave: Wave, instruction: Instruction) -> None:
    """v_cvt_scalef32_pk_fp4_f32: two values over the scale's power of two, to the byte op_sel[2:3]."""
    exponent = (wave.source(instruction, 2) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
    low, high = (
        to_fp4(np.ldexp(wave.floats(instruction, i).astype(np.float64), 127 - exponent)) for i in range(2)
    )
    select = instruction.bits("op_sel", 4)
    at = np.uint32(8 * (select[2] + 2 * select[3]))
    kept = wave.read(destination_of(instruction)) & ~(np.uint32(0xFF) << at)
    wave.write(destination_of(instruction), kept | (low | high << np.uint32(4)) << at)


SEMANTICS: dict[Op, Semantics] = {
    **dict.fromkeys(_TO_INTEGER, to_integer),
    Op.V_CVT_F32_I32: from_integer,
    Op.V_CVT_F32_U32: from_integer,
    Op.V_CVT_OFF_F32_I4: from_nibble,
    Op.V_CVT_F16_F32: half,
    Op.V_CVT_PKRTZ_F16_F32: packed_half_towards_zero,
    Op.V_CVT_PK_BF16_F32: packed_bf16,
    Op.V_CVT_PK_FP8_F32: packed_fp8,
    Op.V_CVT_SCALEF32_PK_FP4_F32: packed_fp4,
}
