"""Operands and results of vector instructions: rows of the register file, 64 lanes each.

A source is used in place where it is a plain register; anything else (a scalar, a constant, modifiers) is
first spread or copied to a scratch row. Results go to a scratch row and are then committed under exec: with
sources and destination apart, the compiler can vectorise the loops.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.assembly import Kind
from aiter_conformance.isa.decode import (
    ABSOLUTE,
    DESTINATION,
    DPP_BROADCAST,
    DPP_QUAD,
    DWORD,
    KIND0,
    LANES,
    NEGATE,
    SELECT,
    VALUE0,
)
from aiter_conformance.isa.fast.jit import compiled, inlined
from aiter_conformance.isa.machine import VECTOR_ROWS

SOURCE_ROW = VECTOR_ROWS
"""Scratch rows of sources 0 to 2; 3 is a spare for lane permutation."""
SPARE_ROW = VECTOR_ROWS + 3
RESULT_ROW = VECTOR_ROWS + 4

u32, u64, i64 = np.uint32, np.uint64, np.int64
_VECTOR, _SCALAR = int(Kind.VECTOR), int(Kind.SCALAR)
ALL = 0xFFFFFFFFFFFFFFFF


@inlined
def exec_mask(s):
    """uint64: exec."""
    return u64(s[126]) | (u64(s[127]) << u64(32))


@inlined
def scalar32(s, row, i):
    """uint32: scalar source i."""
    if row[KIND0 + 2 * i] == _SCALAR:
        return s[row[VALUE0 + 2 * i]]
    return u32(row[VALUE0 + 2 * i])


@inlined
def scalar64(s, row, i):
    """uint64: scalar source i; constants are sign-extended."""
    at = row[VALUE0 + 2 * i]
    if row[KIND0 + 2 * i] == _SCALAR:
        return u64(s[at]) | (u64(s[at + 1]) << u64(32))
    return u64(i64(at))


@inlined
def source_lane(lanes, i):
    """Lane that a DPP source of lane i comes from."""
    kind, argument = lanes >> 8, lanes & 0xFF
    if kind == DPP_BROADCAST:
        return (i & ~15) | argument
    if kind == DPP_QUAD:
        return (i & ~3) | ((argument >> (2 * (i & 3))) & 3)
    return i ^ 7


@compiled
def _prepare(v, s, row, i, part):
    """Fill scratch row of source i; see `source`."""
    to = SOURCE_ROW + i
    kind, at = row[KIND0 + 2 * i], i64(row[VALUE0 + 2 * i])
    if kind == _VECTOR:
        for lane in range(64):
            v[to, lane] = v[at + part, lane]
    else:
        value = s[at + part] if kind == _SCALAR else u32(at)
        for lane in range(64):
            v[to, lane] = value
    if i == 0 and row[LANES] != 0:
        for lane in range(64):
            v[SPARE_ROW, lane] = v[to, lane]
        for lane in range(64):
            v[to, lane] = v[SPARE_ROW, source_lane(row[LANES], lane)]
    field = row[SELECT] & 15
    if i == 0 and field != DWORD:
        shift, mask = (8 * field, 0xFF) if field < 4 else (16 * (field - 4), 0xFFFF)
        for lane in range(64):
            v[to, lane] = (v[to, lane] >> u32(shift)) & u32(mask)
    if (row[ABSOLUTE] >> i) & 1:
        for lane in range(64):
            v[to, lane] &= u32(0x7FFFFFFF)
    if (row[NEGATE] >> i) & 1:
        for lane in range(64):
            v[to, lane] ^= u32(0x80000000)


@inlined
def source(v, s, row, i, part):
    """Row that holds source i (register ``part`` of it) with its modifiers applied."""
    plain = row[KIND0 + 2 * i] == _VECTOR and (((row[ABSOLUTE] | row[NEGATE]) >> i) & 1) == 0
    if plain and (i > 0 or (row[LANES] == 0 and (row[SELECT] & 15) == DWORD)):
        return i64(row[VALUE0 + 2 * i]) + part
    _prepare(v, s, row, i, part)
    return i64(SOURCE_ROW + i)


@compiled
def float_source(v, s, row, i, part, flushes):
    """As `source`, with denormals flushed to zero of their sign where asked."""
    at = source(v, s, row, i, part)
    if flushes == 0:
        return at
    to = i64(SOURCE_ROW + i)
    for lane in range(64):
        bits = v[at, lane]
        v[to, lane] = bits & u32(0x80000000) if (bits & u32(0x7F800000)) == u32(0) else bits
    return to


@compiled
def finish_floats(v, flushes):
    """Make NaNs of the result row canonical, and flush its denormals where asked."""
    keep = u32(0x80000000) if flushes else u32(0xFFFFFFFF)
    for lane in range(64):
        bits = v[RESULT_ROW, lane]
        bits = bits & keep if (bits & u32(0x7F800000)) == u32(0) else bits
        v[RESULT_ROW, lane] = u32(0x7FC00000) if (bits & u32(0x7FFFFFFF)) > u32(0x7F800000) else bits


@inlined
def commit(v, to, mask):
    """Copy the result row to a register in the lanes of a mask."""
    if mask == u64(ALL):
        for lane in range(64):
            v[to, lane] = v[RESULT_ROW, lane]
    else:
        for lane in range(64):
            on = (mask >> u64(lane)) & u64(1)
            v[to, lane] = v[RESULT_ROW, lane] if on != u64(0) else v[to, lane]


@inlined
def commit_result(v, row, mask):
    """Commit with SDWA's destination select and DPP's write disable."""
    to = i64(row[DESTINATION])
    field = (row[SELECT] >> 4) & 15
    if field != DWORD:
        shift, ones = (8 * field, 0xFF) if field < 4 else (16 * (field - 4), 0xFFFF)
        hole = u32(ones << shift)
        keep = ~hole if (row[SELECT] >> 8) & 1 else u32(0)
        for lane in range(64):
            v[RESULT_ROW, lane] = (v[to, lane] & keep) | ((v[RESULT_ROW, lane] << u32(shift)) & hole)
    if row[LANES] != 0 and mask != u64(ALL):
        enabled = u64(0)
        for lane in range(64):
            enabled |= ((mask >> u64(source_lane(row[LANES], lane))) & u64(1)) << u64(lane)
        mask = mask & enabled
    commit(v, to, mask)
