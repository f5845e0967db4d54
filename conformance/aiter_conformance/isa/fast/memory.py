"""LDS and global memory of the fast core; semantics as in `reference.lds` and `reference.memory`.

Functions return 0 or a fault's number, with lane and address of the fault left in ``place[3]`` and
``place[4]``.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.assembly import M0
from aiter_conformance.isa.decode import DESTINATION, DWORDS, FLAG_LDS, FLAG_RETURN, FLAGS, OFFSET, VALUE0
from aiter_conformance.isa.fast.bits import from_bits, from_f16, to_bf16, to_bits, to_f16
from aiter_conformance.isa.fast.jit import compiled, inlined
from aiter_conformance.isa.fast.lanes import ALL, RESULT_ROW, commit, exec_mask, scalar32, scalar64, source
from aiter_conformance.isa.machine import END, LIMIT, START, WRITABLE, FaultKind
from aiter_conformance.isa.opcodes import Op

u8, u16, u32, u64, i64, f32 = np.uint8, np.uint16, np.uint32, np.uint64, np.int64, np.float32
_LDS_BOUNDS, _LDS_ALIGNMENT = int(FaultKind.LDS_BOUNDS), int(FaultKind.LDS_ALIGNMENT)
_BOUNDS, _READ_ONLY = int(FaultKind.GLOBAL_BOUNDS), int(FaultKind.GLOBAL_READ_ONLY)
_ALIGNMENT, _DESCRIPTOR = int(FaultKind.GLOBAL_ALIGNMENT), int(FaultKind.DESCRIPTOR)


@inlined
def _extent(v, at):
    """Lowest and highest value of all lanes of a row, and all of their bits together."""
    low, high, bits = v[at, 0], v[at, 0], u32(0)
    for lane in range(64):
        low, high, bits = min(low, v[at, lane]), max(high, v[at, lane]), bits | v[at, lane]
    return i64(low), i64(high), i64(bits)


@inlined
def _gather(v, at, origin, dwords, to, words):
    """Read aligned dwords of every lane, at ``origin`` plus the lane's value of a row, in bytes."""
    for lane in range(64):  # the destination may overlap the addresses
        v[RESULT_ROW, lane] = v[at, lane]
    for r in range(dwords):
        for lane in range(64):
            v[to + r, lane] = words[((origin + i64(v[RESULT_ROW, lane])) >> 2) + r]


@inlined
def _check_lds(v, mask, first, stride, at_row, size, limit, place):
    """Check accesses at ``first + stride * lane`` plus, unless it is negative, the lane's value of a row."""
    align = min(size, 4) - 1
    if mask == u64(ALL) and at_row >= 0:
        low, high, bits = _extent(v, at_row)
        if first + low >= 0 and first + high <= limit - size and not ((first | bits) & align):
            return 0
    for lane in range(64):
        if (mask >> u64(lane)) & u64(1):
            address = first + stride * lane + (i64(v[at_row, lane]) if at_row >= 0 else 0)
            if address & align or address < 0 or address > limit - size:
                place[3], place[4] = lane, address
                return _LDS_ALIGNMENT if address & align else _LDS_BOUNDS
    return 0


@inlined
def lds(op, row, v, s, memory, place):
    """LDS instructions."""
    mask, offset, at = exec_mask(s), i64(row[OFFSET]), i64(row[VALUE0])
    if op == Op.DS_BPERMUTE_B32:
        data = i64(row[VALUE0 + 2])
        for lane in range(64):
            other = ((i64(v[at, lane]) + offset) >> 2) & 63
            v[RESULT_ROW, lane] = v[data, other] if (mask >> u64(other)) & u64(1) else u32(0)
        commit(v, i64(row[DESTINATION]), mask)
        return 0
    dwords = row[DWORDS]
    size = 4 * dwords
    if op == Op.DS_READ_U8 or op == Op.DS_WRITE_B8:
        size = 1
    elif op == Op.DS_WRITE_B16:
        size = 2
    fault = _check_lds(v, mask, offset, 0, at, size, len(memory), place)
    if fault:
        return fault
    if op <= Op.DS_READ_B128:
        _read_lds(v, mask, at, offset, size, i64(row[DESTINATION]), memory)
    else:
        _write_lds(v, mask, at, offset, size, i64(row[VALUE0 + 2]), memory)
    return 0


@inlined
def _read_lds(v, mask, at, offset, size, to, memory):
    words = memory.view(np.uint32)
    if mask == u64(ALL) and size > 1:
        _gather(v, at, offset, size >> 2, to, words)
        return
    for lane in range(64):
        if (mask >> u64(lane)) & u64(1):
            address = i64(v[at, lane]) + offset
            if size == 1:
                v[to, lane] = memory[address]
            else:
                for r in range(size >> 2):
                    v[to + r, lane] = words[(address >> 2) + r]


@inlined
def _write_lds(v, mask, at, offset, size, data, memory):
    words = memory.view(np.uint32)
    for lane in range(64):
        if (mask >> u64(lane)) & u64(1):
            address = i64(v[at, lane]) + offset
            if size == 1:
                memory[address] = u8(v[data, lane])
            elif size == 2:
                memory[address] = u8(v[data, lane])
                memory[address + 1] = u8(v[data, lane] >> u32(8))
            else:
                for r in range(size >> 2):
                    words[(address >> 2) + r] = v[data + r, lane]


@inlined
def _locate(address, size, store, aligned, base, bounds, uses, hint, lane, place):
    """Index of the allocation of an access, or minus a fault's number."""
    at = address - base
    if aligned and address & 3:
        place[3], place[4] = lane, address
        return -_ALIGNMENT
    column = END if store else LIMIT
    if bounds[hint, START] > at or at + size > bounds[hint, column]:
        hint = -1
        for i in range(len(bounds)):
            if bounds[i, START] <= at and at + size <= bounds[i, column]:
                hint = i
                break
        if hint < 0:
            place[3], place[4] = lane, address
            return -_BOUNDS
    if store and bounds[hint, WRITABLE] == 0:
        place[3], place[4] = lane, address
        return -_READ_ONLY
    past = at + size - bounds[hint, END]
    if past > 0:
        uses[0] += 1
        uses[1] = max(uses[1], past)
    return hint


@inlined
def _dword(raw32, at):
    """The dword at a byte of the arena, which need not be aligned."""
    word, shift = at >> 2, u32((at & 3) << 3)
    if shift == u32(0):
        return raw32[word]
    return u32(raw32[word] >> shift) | u32(raw32[word + 1] << (u32(32) - shift))


@inlined
def memory(op, row, v, s, local, raw32, base, bounds, uses, place):
    """Global memory instructions."""
    if op <= Op.BUFFER_STORE_DWORDX4:
        return _buffer(op, row, v, s, local, raw32, base, bounds, uses, place)
    mask, hint = exec_mask(s), 0
    store = op >= Op.GLOBAL_STORE_DWORDX2  # or an atomic
    at = i64(row[VALUE0])
    start = i64(scalar64(s, row, 2 if store else 1)) + i64(row[OFFSET])
    dwords = i64(row[DWORDS])
    for lane in range(64):
        if (mask >> u64(lane)) & u64(1):
            address = start + i64(v[at, lane])
            hint = _locate(address, 4 * dwords, store, store, base, bounds, uses, hint, lane, place)
            if hint < 0:
                return -hint
            word = (address - base) >> 2
            if not store:
                for r in range(dwords):
                    v[i64(row[DESTINATION]) + r, lane] = _dword(raw32, address - base + 4 * r)
            elif op == Op.GLOBAL_STORE_DWORDX2:
                for r in range(dwords):
                    raw32[word + r] = v[i64(row[VALUE0 + 2]) + r, lane]
            else:
                _atomic(op, row, v, lane, raw32, word)
    return 0


@compiled
def _canonical(x, nan):
    """Bits of a float32, a NaN replaced."""
    return to_bits(x) if x == x else nan


@inlined
def _atomic(op, row, v, lane, raw32, word):
    data, old, old_high = i64(row[VALUE0 + 2]), raw32[word], raw32[word + 1]
    new = v[data, lane]
    if op == Op.GLOBAL_ATOMIC_ADD_F32:
        raw32[word] = _canonical(from_bits(old) + from_bits(new), u32(0x7FC00000))
    elif op == Op.GLOBAL_ATOMIC_PK_ADD_BF16:
        low = from_bits(u32(old << u32(16))) + from_bits(u32(new << u32(16)))
        high = from_bits(u32(old & u32(0xFFFF0000))) + from_bits(u32(new & u32(0xFFFF0000)))
        raw32[word] = to_bf16(to_bits(low)) | u32(to_bf16(to_bits(high)) << u32(16))
    elif op == Op.GLOBAL_ATOMIC_PK_ADD_F16:
        low = from_f16(old & u32(0xFFFF)) + from_f16(new & u32(0xFFFF))
        high = from_f16(old >> u32(16)) + from_f16(new >> u32(16))
        raw32[word] = to_f16(to_bits(low), 0) | u32(to_f16(to_bits(high), 0) << u32(16))
    else:  # compare and swap of two dwords
        if old == v[data + 2, lane] and old_high == v[data + 3, lane]:
            raw32[word], raw32[word + 1] = new, v[data + 1, lane]
    if row[FLAGS] & FLAG_RETURN:
        v[i64(row[DESTINATION]), lane] = old
        if op == Op.GLOBAL_ATOMIC_CMPSWAP_X2:
            v[i64(row[DESTINATION]) + 1, lane] = old_high


@inlined
def _holds(first, last, bounds):
    """Whether one allocation has all bytes from first to before last, without its slack."""
    found = False
    for i in range(len(bounds)):
        found |= bounds[i, START] <= first and last <= bounds[i, END]
    return found


@inlined
def _load_all(v, at, origin, dwords, to, to_lds, places, raw32, words):
    """Load aligned dwords of every lane that need no check; origin is the byte of offset 0."""
    if to_lds:
        for lane in range(64):
            word = (origin + i64(v[at, lane])) >> 2
            for r in range(dwords):
                words[((places + 4 * dwords * lane) >> 2) + r] = raw32[word + r]
        return
    _gather(v, at, origin, dwords, to, raw32)


@inlined
def _buffer(op, row, v, s, local, raw32, base, bounds, uses, place):
    mask, hint, dwords = exec_mask(s), 0, i64(row[DWORDS])
    store, to_lds = op >= Op.BUFFER_STORE_DWORD, (row[FLAGS] & FLAG_LDS) != 0
    first = 1 if store else 0
    descriptor = i64(row[VALUE0 + 2 * (first + 1)])
    shift = i64(scalar32(s, row, first + 2))
    start = i64(s[descriptor]) | (i64(s[descriptor + 1] & u32(0xFFFF)) << 32)
    if s[descriptor + 1] >> u32(31) or (s[descriptor + 3] >> u32(23)) & u32(1):
        place[3], place[4] = -1, start
        return _DESCRIPTOR
    records, places = i64(s[descriptor + 2]), i64(s[M0]) + i64(row[OFFSET])
    if to_lds:
        fault = _check_lds(v, mask, places, 4 * dwords, -1, 4 * dwords, len(local), place)
        if fault:
            return fault
    words = local.view(np.uint32)
    at = source(v, s, row, first, 0)
    to = i64(row[VALUE0]) if store else i64(row[DESTINATION])
    if mask == u64(ALL) and not store:
        low, high, bits = _extent(v, at)
        # The usual case, every lane within one allocation, is checked once.
        origin = start + shift + i64(row[OFFSET]) - base
        within = high + i64(row[OFFSET]) + 4 * dwords <= records - shift
        if within and not (origin | bits) & 3 and _holds(origin + low, origin + high + 4 * dwords, bounds):
            _load_all(v, at, origin, dwords, to, to_lds, places, raw32, words)
            return 0
    for lane in range(64):
        if (mask >> u64(lane)) & u64(1):
            offset = i64(v[at, lane]) + i64(row[OFFSET])
            left = max(records - shift - offset, 0)
            inside = min(left >> 2, dwords)
            if left & 3 and inside < dwords:
                uses[2] += 1
            byte, aligned = i64(0), store or to_lds
            if inside > 0:
                address = start + shift + offset
                hint = _locate(address, 4 * inside, store, aligned, base, bounds, uses, hint, lane, place)
                if hint < 0:
                    return -hint
                byte = address - base
            if store:
                for r in range(inside):
                    raw32[(byte >> 2) + r] = v[to + r, lane]
            elif to_lds:
                for r in range(dwords):
                    value = raw32[(byte >> 2) + r] if r < inside else u32(0)
                    words[((places + 4 * dwords * lane) >> 2) + r] = value
            else:
                for r in range(dwords):
                    v[to + r, lane] = _dword(raw32, byte + 4 * r) if r < inside else u32(0)
    return 0
