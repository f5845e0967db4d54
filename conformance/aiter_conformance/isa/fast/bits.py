"""Bit-level number formats for the fast core, one value at a time; the reference uses ml_dtypes instead."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aiter_conformance.isa.fast.jit import compiled, inlined

u32, u64, i64, f32 = np.uint32, np.uint64, np.int64, np.float32


@intrinsic
def fma(_typing, _a, _b, _c):
    """float32 a * b + c with one rounding."""

    def generate(_context, builder, _signature, arguments):
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def to_bits(_typing, _value):
    """uint32: the bits of a float32."""

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def from_bits(_typing, _bits):
    """float32 of a uint32's bits."""

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@inlined
def count_ones(x):
    """uint32: set bits of a uint32."""
    x = u32(x - ((x >> u32(1)) & u32(0x55555555)))
    x = u32((x & u32(0x33333333)) + ((x >> u32(2)) & u32(0x33333333)))
    x = u32((x + (x >> u32(4))) & u32(0x0F0F0F0F))
    return u32(u32(x * u32(0x01010101)) >> u32(24))


@inlined
def _round_small(x):
    """Nearest even integer of 0 <= x < 2^22 as uint32."""
    return u32(f32(f32(x + f32(8388608.0)) - f32(8388608.0)))


@inlined
def to_bf16(bits):
    """bfloat16 bits, nearest even, NaN 0x7fc0."""
    if (bits & u32(0x7FFFFFFF)) > u32(0x7F800000):
        return u32(0x7FC0)
    return u32((u64(bits) + u64(0x7FFF) + u64((bits >> u32(16)) & u32(1))) >> u64(16))


@inlined
def to_f16(bits, saturates):
    """float16 bits, nearest even, NaN 0x7e00; a finite value beyond the range saturates where asked."""
    sign, size = (bits >> u32(16)) & u32(0x8000), bits & u32(0x7FFFFFFF)
    if size > u32(0x7F800000):
        return u32(0x7E00)
    if size >= u32(0x477FF000):
        return sign | (u32(0x7BFF) if saturates and size != u32(0x7F800000) else u32(0x7C00))
    if size < u32(0x38800000):
        return sign | _round_small(from_bits(size) * f32(16777216.0))
    return sign | u32(((size + u32(0xFFF) + ((size >> u32(13)) & u32(1))) >> u32(13)) - u32(112 << 10))


@compiled
def to_f16_towards_zero(bits):
    """float16 bits, towards zero, NaN 0x7e00."""
    sign, size = (bits >> u32(16)) & u32(0x8000), bits & u32(0x7FFFFFFF)
    if size > u32(0x7F800000):
        return u32(0x7E00)
    if size == u32(0x7F800000):
        return sign | u32(0x7C00)
    if size >= u32(0x47800000):
        return sign | u32(0x7BFF)
    if size < u32(0x38800000):
        return sign | u32(from_bits(size) * f32(16777216.0))
    return sign | u32((size >> u32(13)) - u32(112 << 10))


@inlined
def from_f16(half):
    """float32 of float16 bits."""
    sign, size = u32((half & u32(0x8000)) << u32(16)), half & u32(0x7FFF)
    if size >= u32(0x7C00):
        return from_bits(u32(sign | u32(0x7F800000) | u32((size & u32(0x3FF)) << u32(13))))
    if size < u32(0x400):
        value = f32(size) * f32(5.9604644775390625e-08)  # 2^-24
        return -value if sign else value
    return from_bits(u32(sign | u32((size << u32(13)) + u32(112 << 23))))


@inlined
def to_fp8(bits, fnuz, saturates):
    """e4m3 code, nearest even; fnuz has bias 8, one NaN (0x80) and no -0; fn has bias 7 and NaN 0x7f."""
    bias, largest, nan = (8, 0x7F, 0x80) if fnuz else (7, 0x7E, 0x7F)
    size = bits & u32(0x7FFFFFFF)
    if size > u32(0x7F800000):
        return u32(nan)
    if size < u32((128 - bias) << 23):
        code = _round_small(from_bits(size) * f32(1 << (bias + 2)))
    else:
        rounded = u64(size) + u64(0x7FFFF) + u64((size >> u32(20)) & u32(1))
        code = u32((rounded >> u64(20)) - u64((127 - bias) << 3))
    if code > u32(largest):
        if not saturates:
            return u32(nan)
        code = u32(largest)
    if fnuz and code == u32(0):
        return code
    return code | ((bits >> u32(24)) & u32(0x80))


@compiled
def to_fp4(value):
    """e2m1 code of a float64, nearest even, saturating; NaN becomes the largest."""
    size = abs(value)
    code = u32(7)
    if size == size:
        code = u32(
            (size > 0.25)
            + (size >= 0.75)
            + (size > 1.25)
            + (size >= 1.75)
            + (size > 2.5)
            + (size >= 3.5)
            + (size > 5)
        )
    return code | (u32(8) if np.signbit(value) else u32(0))


@inlined
def permute_bytes(a, b, selector):
    """v_perm_b32."""
    both = (u64(a) << u64(32)) | u64(b)
    result = u32(0)
    for i in range(4):
        choice = (selector >> u32(8 * i)) & u32(0xFF)
        byte = u64(0xFF)
        if choice < u32(8):
            byte = (both >> u64(8 * choice)) & u64(0xFF)
        elif choice < u32(12):
            byte = u64(0xFF) * ((both >> u64(16 * (choice - u32(8)) + u32(15))) & u64(1))
        elif choice == u32(12):
            byte = u64(0)
        result |= u32(byte << u64(8 * i))
    return result
