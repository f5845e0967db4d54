"""Scalar instructions of the fast core; semantics as in `reference.scalar`."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.decode import DESTINATION, DWORDS, VALUE0
from aiter_conformance.isa.fast.bits import count_ones
from aiter_conformance.isa.fast.jit import inlined
from aiter_conformance.isa.fast.lanes import scalar32, scalar64
from aiter_conformance.isa.machine import END, SCC, START, VSKIP, FaultKind
from aiter_conformance.isa.opcodes import Op

u32, u64, i64, i32 = np.uint32, np.uint64, np.int64, np.int32
_SCALAR_BOUNDS = int(FaultKind.SCALAR_BOUNDS)


@inlined
def _load(s, row, raw32, base, bounds, place):
    address = (scalar64(s, row, 0) + u64(scalar32(s, row, 1))) & ~u64(3)
    at, size = i64(address - u64(base)), 4 * row[DWORDS]
    for i in range(len(bounds)):
        if bounds[i, START] <= at and at + size <= bounds[i, END]:
            for j in range(row[DWORDS]):
                s[row[DESTINATION] + j] = raw32[(at >> 2) + j]
            return 0
    place[3], place[4] = -1, i64(address)
    return _SCALAR_BOUNDS


@inlined
def _write64(s, at, value):
    s[at] = u32(value)
    s[at + 1] = u32(value >> u64(32))


@inlined
def scalar(op, row, s, status, raw32, base, bounds, place):
    """Execute one; returns 0 or a fault's number."""
    d = row[DESTINATION]
    if op == Op.S_LOAD_DWORD or op == Op.S_LOAD_DWORDX2:
        return _load(s, row, raw32, base, bounds, place)
    if op == Op.S_MOV_B32:
        s[d] = scalar32(s, row, 0)
    elif op == Op.S_MOV_B64:
        _write64(s, d, scalar64(s, row, 0))
    elif op == Op.S_BCNT1_I32_B64:
        pair = scalar64(s, row, 0)
        ones = count_ones(u32(pair)) + count_ones(u32(pair >> u64(32)))
        status[SCC] = ones != 0
        s[d] = ones
    elif op == Op.S_AND_B64:
        both = scalar64(s, row, 0) & scalar64(s, row, 1)
        status[SCC] = both != 0
        _write64(s, d, both)
    elif op == Op.S_CSELECT_B64:
        _write64(s, d, scalar64(s, row, 0) if status[SCC] else scalar64(s, row, 1))
    elif op == Op.S_ADDK_I32:
        total = i64(i32(s[d])) + i64(np.int16(row[VALUE0]))
        status[SCC] = total != i64(i32(total))
        s[d] = u32(total)
    else:
        _two(op, d, scalar32(s, row, 0), scalar32(s, row, 1), s, status)
    return 0


@inlined
def _two(op, d, a, b, s, status):
    if op == Op.S_ADD_U32:
        total = i64(a) + i64(b)
        status[SCC] = total >> 32
        s[d] = u32(total)
    elif op == Op.S_ADDC_U32:
        total = i64(a) + i64(b) + status[SCC]
        status[SCC] = total >> 32
        s[d] = u32(total)
    elif op == Op.S_SUB_U32:
        status[SCC] = a < b
        s[d] = u32(i64(a) - i64(b))
    elif op == Op.S_ADD_I32:
        total = i64(i32(a)) + i64(i32(b))
        status[SCC] = total != i64(i32(total))
        s[d] = u32(total)
    elif op == Op.S_SUB_I32:
        total = i64(i32(a)) - i64(i32(b))
        status[SCC] = total != i64(i32(total))
        s[d] = u32(total)
    elif op == Op.S_MUL_I32:
        s[d] = u32(u64(a) * u64(b))
    elif op == Op.S_MUL_HI_U32:
        s[d] = u32((u64(a) * u64(b)) >> u64(32))
    elif op == Op.S_AND_B32:
        s[d] = a & b
        status[SCC] = s[d] != 0
    elif op == Op.S_OR_B32:
        s[d] = a | b
        status[SCC] = s[d] != 0
    elif op == Op.S_LSHL_B32:
        s[d] = u32(u64(a) << u64(b & u32(31)))
        status[SCC] = s[d] != 0
    elif op == Op.S_LSHR_B32:
        s[d] = a >> (b & u32(31))
        status[SCC] = s[d] != 0
    elif op == Op.S_LSHL1_ADD_U32:
        total = (i64(a) << 1) + i64(b)
        status[SCC] = total > 0xFFFFFFFF
        s[d] = u32(total)
    elif op == Op.S_CSELECT_B32:
        s[d] = a if status[SCC] else b
    elif op == Op.S_CMP_EQ_U32:
        status[SCC] = a == b
    elif op == Op.S_CMP_GE_U32:
        status[SCC] = a >= b
    elif op == Op.S_CMP_GT_U32:
        status[SCC] = a > b
    elif op == Op.S_CMP_LT_U32:
        status[SCC] = a < b
    elif op == Op.S_CMP_LT_I32:
        status[SCC] = i32(a) < i32(b)
    elif op == Op.S_SETVSKIP:
        status[VSKIP] = (a >> (b & u32(31))) & u32(1)
