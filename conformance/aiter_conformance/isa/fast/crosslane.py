"""Compares and moves between lanes of the fast core; semantics as in `reference.crosslane`."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.decode import DESTINATION, VALUE0
from aiter_conformance.isa.fast.jit import inlined
from aiter_conformance.isa.fast.lanes import exec_mask, scalar32, source
from aiter_conformance.isa.opcodes import Op

u32, u64, i64 = np.uint32, np.uint64, np.int64


@inlined
def _compare(op, v, vf, a, b):
    bits = u64(0)
    if op == Op.V_CMP_EQ_U32:
        for i in range(64):
            bits |= u64(v[a, i] == v[b, i]) << u64(i)
    elif op == Op.V_CMP_NE_U32:
        for i in range(64):
            bits |= u64(v[a, i] != v[b, i]) << u64(i)
    elif op == Op.V_CMP_LT_U32:
        for i in range(64):
            bits |= u64(v[a, i] < v[b, i]) << u64(i)
    elif op == Op.V_CMP_LE_U32:
        for i in range(64):
            bits |= u64(v[a, i] <= v[b, i]) << u64(i)
    elif op == Op.V_CMP_GT_U32:
        for i in range(64):
            bits |= u64(v[a, i] > v[b, i]) << u64(i)
    else:  # v_cmp_u_f32: unordered
        for i in range(64):
            bits |= u64(vf[a, i] != vf[a, i] or vf[b, i] != vf[b, i]) << u64(i)
    return bits


@inlined
def cross(op, row, v, vf, s):
    """Execute one."""
    d = i64(row[DESTINATION])
    if op <= Op.V_CMP_U_F32:
        bits = _compare(op, v, vf, source(v, s, row, 0, 0), source(v, s, row, 1, 0)) & exec_mask(s)
        s[d], s[d + 1] = u32(bits), u32(bits >> u64(32))
    elif op == Op.V_READFIRSTLANE_B32:
        mask, lane = exec_mask(s), 0
        while mask != u64(0) and (mask >> u64(lane)) & u64(1) == u64(0):
            lane += 1
        s[d] = v[source(v, s, row, 0, 0), lane]
    elif op == Op.V_READLANE_B32:
        s[d] = v[source(v, s, row, 0, 0), i64(scalar32(s, row, 1) & u32(63))]
    elif op == Op.V_WRITELANE_B32:
        v[d, i64(scalar32(s, row, 1) & u32(63))] = scalar32(s, row, 0)
    else:
        _swap(v, d, i64(row[VALUE0]), 16 if op == Op.V_PERMLANE16_SWAP_B32 else 32)


@inlined
def _swap(v, first, second, width):
    for start in range(0, 64, 2 * width):
        for i in range(start, start + width):
            odd = v[first, i + width]
            v[first, i + width] = v[second, i]
            v[second, i] = odd
