"""Matrix instructions of the fast core; semantics as in `reference.matrix`.

Operands are unpacked to float64 [k, 16] (int8 is exact there as well), products are accumulated in the order
of k, and C is added last.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import math

import numpy as np

from aiter_conformance.isa.decode import AUX, DESTINATION, KIND0, VALUE0
from aiter_conformance.isa.fast.bits import from_bits, from_f16, to_bits
from aiter_conformance.isa.fast.jit import compiled, inlined
from aiter_conformance.isa.fast.lanes import source
from aiter_conformance.isa.fast.tile import multiply
from aiter_conformance.isa.opcodes import Op

u32, i64, i32, f32, f64 = np.uint32, np.int64, np.int32, np.float32, np.float64
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@compiled
def _unpack_bytes(v, first, registers, table, out):
    for quarter in range(4):
        for r in range(registers):
            for byte in range(4):
                at = (quarter * registers * 4 + r * 4 + byte) * 16
                for m in range(16):
                    out[at + m] = table[(v[first + r, quarter * 16 + m] >> u32(8 * byte)) & u32(0xFF)]


@compiled
def _unpack_int8(v, first, registers, out):
    for quarter in range(4):
        for r in range(registers):
            for byte in range(4):
                at = (quarter * registers * 4 + r * 4 + byte) * 16
                for m in range(16):
                    out[at + m] = f64(i32(u32(v[first + r, quarter * 16 + m] << u32(24 - 8 * byte))) >> 24)


@compiled
def _unpack_words(v, first, registers, half, out):
    for quarter in range(4):
        for r in range(registers):
            for word in range(2):
                at = (quarter * registers * 2 + r * 2 + word) * 16
                for m in range(16):
                    bits = (v[first + r, quarter * 16 + m] >> u32(16 * word)) & u32(0xFFFF)
                    out[at + m] = f64(from_f16(bits)) if half else f64(from_bits(u32(bits << u32(16))))


@compiled
def _unpack_fp4(v, first, registers, scales, byte, out):
    for quarter in range(4):
        for m in range(16):
            lane = quarter * 16 + m
            exponent = i64((v[scales, lane] >> u32(8 * byte)) & u32(0xFF))
            scale = math.nan if exponent == 255 else math.ldexp(1.0, exponent - 127)
            for r in range(registers):
                for nibble in range(8):
                    code = (v[first + r, lane] >> u32(4 * nibble)) & u32(15)
                    out[(quarter * registers * 8 + r * 8 + nibble) * 16 + m] = _FP4[code] * scale


@inlined
def matrix(op, row, v, s, table, work):
    """Execute one."""
    first_a, first_b = i64(row[VALUE0]), i64(row[VALUE0 + 2])
    a, b, total = work[0], work[1], work[2]
    depth = 32
    if op == Op.V_MFMA_F32_16X16X32_FP8_FP8:
        _unpack_bytes(v, first_a, 2, table, a)
        _unpack_bytes(v, first_b, 2, table, b)
    elif op == Op.V_MFMA_I32_16X16X32_I8:
        _unpack_int8(v, first_a, 2, a)
        _unpack_int8(v, first_b, 2, b)
    elif op == Op.V_MFMA_F32_16X16X16_BF16 or op == Op.V_MFMA_F32_16X16X16_F16:
        depth = 16
        half = op == Op.V_MFMA_F32_16X16X16_F16
        _unpack_words(v, first_a, 2, half, a)
        _unpack_words(v, first_b, 2, half, b)
    elif op == Op.V_MFMA_F32_16X16X128_F8F6F4:
        depth = 128
        _unpack_bytes(v, first_a, 8, table, a)
        _unpack_bytes(v, first_b, 8, table, b)
    else:  # scaled, fp4
        depth = 128
        _unpack_fp4(v, first_a, 4, source(v, s, row, 3, 0), row[AUX] & 3, a)
        _unpack_fp4(v, first_b, 4, source(v, s, row, 4, 0), (row[AUX] >> 2) & 3, b)
    multiply(total, a, b, np.int64(depth))
    is_register, c, d = row[KIND0 + 4] == 1, i64(row[VALUE0 + 4]), i64(row[DESTINATION])
    integer = op == Op.V_MFMA_I32_16X16X32_I8
    for r in range(4):  # all of C before any of D, which may overlap it
        for lane in range(64):
            addend = v[c + r, lane] if is_register else u32(c)
            at = (4 * (lane >> 4) + r) * 16 + (lane & 15)
            total[at] += f64(i32(addend)) if integer else f64(from_bits(addend))
    for r in range(4):
        for lane in range(64):
            value = total[(4 * (lane >> 4) + r) * 16 + (lane & 15)]
            if integer:
                v[d + r, lane] = u32(i64(value))
            else:
                v[d + r, lane] = to_bits(f32(value)) if value == value else u32(0x7FC00000)
