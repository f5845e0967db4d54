"""Vector arithmetic of the fast core; semantics as in `reference.vector`."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.decode import DESTINATION, KIND0
from aiter_conformance.isa.fast.bits import count_ones, fma, permute_bytes
from aiter_conformance.isa.fast.jit import inlined
from aiter_conformance.isa.fast.lanes import (
    RESULT_ROW,
    commit,
    commit_result,
    exec_mask,
    finish_floats,
    float_source,
    scalar64,
    source,
)
from aiter_conformance.isa.opcodes import Op

u32, u64, i64, i32, f32 = np.uint32, np.uint64, np.int64, np.int32, np.float32
R = RESULT_ROW


@inlined
def integer(op, row, v, s):
    """Integer and bit operations."""
    a = source(v, s, row, 0, 0)
    if op == Op.V_CNDMASK_B32:
        b, mask = source(v, s, row, 1, 0), scalar64(s, row, 2)
        for i in range(64):
            v[R, i] = v[b, i] if (mask >> u64(i)) & u64(1) else v[a, i]
    elif op <= Op.V_ACCVGPR_WRITE_B32:
        for i in range(64):
            v[R, i] = v[a, i]
    elif row[KIND0 + 4] == 0:
        _two(op, v, a, source(v, s, row, 1, 0))
    else:
        _three(op, v, a, source(v, s, row, 1, 0), source(v, s, row, 2, 0))
    commit_result(v, row, exec_mask(s))


@inlined
def _two(op, v, a, b):
    if op == Op.V_ADD_U32 or op == Op.V_ADD_I32:
        for i in range(64):
            v[R, i] = v[a, i] + v[b, i]
    elif op == Op.V_SUB_U32:
        for i in range(64):
            v[R, i] = v[a, i] - v[b, i]
    elif op == Op.V_SUBREV_U32:
        for i in range(64):
            v[R, i] = v[b, i] - v[a, i]
    elif op == Op.V_MUL_LO_U32:
        for i in range(64):
            v[R, i] = u32(v[a, i] * v[b, i])
    elif op == Op.V_MUL_HI_U32:
        for i in range(64):
            v[R, i] = u32((u64(v[a, i]) * u64(v[b, i])) >> u64(32))
    elif op == Op.V_MUL_U32_U24:
        for i in range(64):
            v[R, i] = u32((v[a, i] & u32(0xFFFFFF)) * (v[b, i] & u32(0xFFFFFF)))
    elif op == Op.V_MUL_I32_I24:
        for i in range(64):
            x, y = i32(v[a, i] << u32(8)) >> 8, i32(v[b, i] << u32(8)) >> 8
            v[R, i] = u32(i64(x) * i64(y))
    elif op == Op.V_MIN_U32:
        for i in range(64):
            v[R, i] = min(v[a, i], v[b, i])
    elif op == Op.V_AND_B32:
        for i in range(64):
            v[R, i] = v[a, i] & v[b, i]
    elif op == Op.V_OR_B32:
        for i in range(64):
            v[R, i] = v[a, i] | v[b, i]
    elif op == Op.V_XOR_B32:
        for i in range(64):
            v[R, i] = v[a, i] ^ v[b, i]
    elif op == Op.V_LSHLREV_B32:
        for i in range(64):
            v[R, i] = u32(v[b, i] << (v[a, i] & u32(31)))
    elif op == Op.V_LSHRREV_B32:
        for i in range(64):
            v[R, i] = v[b, i] >> (v[a, i] & u32(31))
    elif op == Op.V_MBCNT_LO_U32_B32:
        for i in range(64):
            below = u32((u64(1) << u64(min(i, 32))) - u64(1))
            v[R, i] = u32(count_ones(v[a, i] & below) + v[b, i])
    elif op == Op.V_MBCNT_HI_U32_B32:
        for i in range(64):
            below = u32((u64(1) << u64(max(i, 32) - 32)) - u64(1))
            v[R, i] = u32(count_ones(v[a, i] & below) + v[b, i])


@inlined
def _three(op, v, a, b, c):
    if op == Op.V_ADD3_U32:
        for i in range(64):
            v[R, i] = u32(v[a, i] + v[b, i] + v[c, i])
    elif op == Op.V_LSHL_ADD_U32:
        for i in range(64):
            v[R, i] = u32(u32(v[a, i] << (v[b, i] & u32(31))) + v[c, i])
    elif op == Op.V_BFE_U32:
        for i in range(64):
            v[R, i] = (v[a, i] >> (v[b, i] & u32(31))) & ((u32(1) << (v[c, i] & u32(31))) - u32(1))
    elif op == Op.V_PERM_B32:
        for i in range(64):
            v[R, i] = permute_bytes(v[a, i], v[b, i], v[c, i])


@inlined
def _maximum(x, y):
    larger = x > y or (x == y and not np.signbit(x)) or y != y
    return x if larger and x == x else y


@inlined
def floating(op, row, v, vf, s, flushes):
    """Float32 operations."""
    if op == Op.V_PK_MUL_F32 or op == Op.V_PK_FMA_F32:
        _packed(op, row, v, vf, s, flushes)
        return
    a = float_source(v, s, row, 0, 0, flushes)
    if op == Op.V_EXP_F32:
        for i in range(64):
            vf[R, i] = f32(np.exp2(np.float64(vf[a, i])))
    elif op == Op.V_RCP_F32 or op == Op.V_RCP_IFLAG_F32:
        for i in range(64):
            vf[R, i] = f32(1.0) / vf[a, i]
    else:
        b = float_source(v, s, row, 1, 0, flushes)
        if op == Op.V_MUL_F32:
            for i in range(64):
                vf[R, i] = vf[a, i] * vf[b, i]
        elif op == Op.V_ADD_F32:
            for i in range(64):
                vf[R, i] = vf[a, i] + vf[b, i]
        elif op == Op.V_MAX_F32:
            for i in range(64):
                vf[R, i] = _maximum(vf[a, i], vf[b, i])
        else:
            c = float_source(v, s, row, 2, 0, flushes)
            if op == Op.V_FMA_F32:
                for i in range(64):
                    vf[R, i] = fma(vf[a, i], vf[b, i], vf[c, i])
            else:
                for i in range(64):
                    vf[R, i] = _maximum(_maximum(vf[a, i], vf[b, i]), vf[c, i])
    finish_floats(v, flushes)
    commit_result(v, row, exec_mask(s))


@inlined
def _packed(op, row, v, vf, s, flushes):
    mask, spare = exec_mask(s), R + 1
    for part in range(2):
        # A constant has no second register: its value is the same in both halves.
        a = float_source(v, s, row, 0, 0 if row[KIND0] == 3 else part, flushes)
        b = float_source(v, s, row, 1, 0 if row[KIND0 + 2] == 3 else part, flushes)
        if op == Op.V_PK_MUL_F32:
            for i in range(64):
                vf[R, i] = vf[a, i] * vf[b, i]
        else:
            c = float_source(v, s, row, 2, 0 if row[KIND0 + 4] == 3 else part, flushes)
            for i in range(64):
                vf[R, i] = fma(vf[a, i], vf[b, i], vf[c, i])
        finish_floats(v, flushes)
        if part == 0:  # the second half may still read what the first one overwrites
            for i in range(64):
                v[spare, i] = v[R, i]
    commit(v, i64(row[DESTINATION]) + 1, mask)
    for i in range(64):
        v[R, i] = v[spare, i]
    commit(v, i64(row[DESTINATION]), mask)
