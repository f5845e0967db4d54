"""Matrix instructions of the fast core; semantics as in `reference.matrix`.

Operands are unpacked to float64 [k, 16] (int8 is exact there as well), products are accumulated in the order
of k, and C is added last.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import math

import numpy as np

from aiter_conformance.isa.decode import AUX, DESTINATION, KIND0, VALUE0
from aiter_conformance.isa.fast.bits import from_bits, from_f16
from aiter_conformance.isa.fast.jit import compiled, inlined
from aiter_conformance.isa.fast.lanes import SOURCE_ROW, source
from aiter_conformance.isa.fast.tile import add_and_store, multiply
from aiter_conformance.isa.opcodes import Op

u32, i64, i32, f32, f64 = np.uint32, np.int64, np.int32, np.float32, np.float64
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _fp8(bias, nans):
    """float64 [256]: the value of each e4m3 code."""
    values = np.empty(256)
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        size = math.ldexp(mantissa + (8 if exponent else 0), max(exponent, 1) - bias - 3)
        values[code] = math.nan if code in nans else -size if code >= 0x80 else size
    return values


_FNUZ, _OCP = _fp8(8, (0x80,)), _fp8(7, (0x7F, 0xFF))


@compiled
def _unpack_fp8(v, first, registers, fnuz, out):
    values = _FNUZ if fnuz else _OCP
    for quarter in range(4):
        for r in range(registers):
            for byte in range(4):
                at = (quarter * registers * 4 + r * 4 + byte) * 16
                for m in range(16):
                    out[at + m] = values[(v[first + r, quarter * 16 + m] >> u32(8 * byte)) & u32(0xFF)]


@compiled
def _unpack_int8(v, first, registers, out):
    for quarter in range(4):
        for r in range(registers):
            for byte in range(4):
                at = (quarter * registers * 4 + r * 4 + byte) * 16
                for m in range(16):
                    word = u32(v[first + r, quarter * 16 + m] << u32(24 - 8 * byte))
                    out[at + m] = f64(i32(word) >> i32(24))


@compiled
def _unpack_bf16(v, first, registers, out):
    for quarter in range(4):
        for r in range(registers):
            at = (quarter * registers * 2 + r * 2) * 16
            for m in range(16):
                out[at + m] = f64(from_bits(u32(v[first + r, quarter * 16 + m] << u32(16))))
            for m in range(16):
                out[at + 16 + m] = f64(from_bits(v[first + r, quarter * 16 + m] & u32(0xFFFF0000)))


@compiled
def _unpack_f16(v, first, registers, out):
    for quarter in range(4):
        for r in range(registers):
            for word in range(2):
                at = (quarter * registers * 2 + r * 2 + word) * 16
                for m in range(16):
                    bits = (v[first + r, quarter * 16 + m] >> u32(16 * word)) & u32(0xFFFF)
                    out[at + m] = f64(from_f16(bits))


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


@compiled
def _add_integers(v, c, total):
    for r in range(4):
        for quarter in range(4):
            for n in range(16):
                total[(4 * quarter + r) * 16 + n] += f64(i32(v[c + r, 16 * quarter + n]))


@compiled
def _store_integers(v, d, total):
    for r in range(4):
        for quarter in range(4):
            for n in range(16):
                v[d + r, 16 * quarter + n] = u32(i64(total[(4 * quarter + r) * 16 + n]))


@inlined
def matrix(op, row, v, s, fnuz, work):
    """Execute one."""
    first_a, first_b = i64(row[VALUE0]), i64(row[VALUE0 + 2])
    a, b, total = work[0], work[1], work[2]
    depth = 32
    if op == Op.V_MFMA_F32_16X16X32_FP8_FP8:
        _unpack_fp8(v, first_a, 2, fnuz, a)
        _unpack_fp8(v, first_b, 2, fnuz, b)
    elif op == Op.V_MFMA_I32_16X16X32_I8:
        _unpack_int8(v, first_a, 2, a)
        _unpack_int8(v, first_b, 2, b)
    elif op == Op.V_MFMA_F32_16X16X16_BF16:
        depth = 16
        _unpack_bf16(v, first_a, 2, a)
        _unpack_bf16(v, first_b, 2, b)
    elif op == Op.V_MFMA_F32_16X16X16_F16:
        depth = 16
        _unpack_f16(v, first_a, 2, a)
        _unpack_f16(v, first_b, 2, b)
    elif op == Op.V_MFMA_F32_16X16X128_F8F6F4:
        depth = 128
        _unpack_fp8(v, first_a, 8, fnuz, a)
        _unpack_fp8(v, first_b, 8, fnuz, b)
    else:  # scaled, fp4
        depth = 128
        _unpack_fp4(v, first_a, 4, source(v, s, row, 3, 0), row[AUX] & 3, a)
        _unpack_fp4(v, first_b, 4, source(v, s, row, 4, 0), (row[AUX] >> 2) & 3, b)
    multiply(total, a, b, np.int64(depth))
    if row[KIND0 + 4] == 1:
        c = i64(row[VALUE0 + 4])
    else:
        c = i64(SOURCE_ROW)
        for lane in range(64):
            v[c, lane] = v[c + 1, lane] = v[c + 2, lane] = v[c + 3, lane] = u32(row[VALUE0 + 4])
    if op == Op.V_MFMA_I32_16X16X32_I8:
        _add_integers(v, c, total)
        _store_integers(v, i64(row[DESTINATION]), total)
    else:
        add_and_store(total, v, c, i64(row[DESTINATION]))
