"""Conversions of the fast core; semantics as in `reference.convert`."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import math

import numpy as np

from aiter_conformance.isa.decode import AUX, DESTINATION
from aiter_conformance.isa.fast.bits import to_bf16, to_f16, to_f16_towards_zero, to_fp4, to_fp8
from aiter_conformance.isa.fast.jit import inlined
from aiter_conformance.isa.fast.lanes import RESULT_ROW, commit_result, exec_mask, float_source, source
from aiter_conformance.isa.opcodes import Op

u32, i64, i32, f32 = np.uint32, np.int64, np.int32, np.float32
R = RESULT_ROW


@inlined
def _saturate(x, low, high):
    """Towards zero between two bounds, NaN to 0."""
    if x != x:
        return i64(0)
    return i64(min(max(x, low), high))


@inlined
def convert(op, row, v, vf, s, flushes, saturates, fnuz):
    """Execute one."""
    if op == Op.V_CVT_F32_I32 or op == Op.V_CVT_F32_U32 or op == Op.V_CVT_OFF_F32_I4:
        _from_integer(op, v, vf, source(v, s, row, 0, 0))
    else:
        a = float_source(v, s, row, 0, 0, flushes)
        if op == Op.V_CVT_I32_F32:
            for i in range(64):
                v[R, i] = u32(_saturate(np.float64(vf[a, i]), -2147483648.0, 2147483647.0))
        elif op == Op.V_CVT_U32_F32:
            for i in range(64):
                v[R, i] = u32(_saturate(np.float64(vf[a, i]), 0.0, 4294967295.0))
        elif op == Op.V_CVT_F16_F32:
            for i in range(64):
                v[R, i] = to_f16(v[a, i], saturates)
        else:
            _pack(op, row, v, vf, s, a, float_source(v, s, row, 1, 0, flushes), saturates, fnuz)
    commit_result(v, row, exec_mask(s))


@inlined
def _from_integer(op, v, vf, a):
    if op == Op.V_CVT_F32_I32:
        for i in range(64):
            vf[R, i] = f32(i32(v[a, i]))
    elif op == Op.V_CVT_F32_U32:
        for i in range(64):
            vf[R, i] = f32(v[a, i])
    else:
        for i in range(64):
            vf[R, i] = f32(((i32(v[a, i]) & 15) ^ 8) - 8) * f32(0.0625)


@inlined
def _pack(op, row, v, vf, s, a, b, saturates, fnuz):
    to = i64(row[DESTINATION])
    if op == Op.V_CVT_PKRTZ_F16_F32:
        for i in range(64):
            v[R, i] = to_f16_towards_zero(v[a, i]) | (to_f16_towards_zero(v[b, i]) << u32(16))
    elif op == Op.V_CVT_PK_BF16_F32:
        for i in range(64):
            v[R, i] = to_bf16(v[a, i]) | (to_bf16(v[b, i]) << u32(16))
    elif op == Op.V_CVT_PK_FP8_F32:
        shift = u32(16 * row[AUX])
        keep = ~u32(0xFFFF << shift)
        for i in range(64):
            pair = to_fp8(v[a, i], fnuz, saturates) | (to_fp8(v[b, i], fnuz, saturates) << u32(8))
            v[R, i] = (v[to, i] & keep) | u32(pair << shift)
    else:  # v_cvt_scalef32_pk_fp4_f32
        scale = source(v, s, row, 2, 0)
        shift = u32(8 * row[AUX])
        keep = ~u32(0xFF << shift)
        for i in range(64):
            power = 127 - i64((v[scale, i] >> u32(23)) & u32(0xFF))
            low, high = math.ldexp(np.float64(vf[a, i]), power), math.ldexp(np.float64(vf[b, i]), power)
            v[R, i] = (v[to, i] & keep) | u32((to_fp4(low) | (to_fp4(high) << u32(4))) << shift)
