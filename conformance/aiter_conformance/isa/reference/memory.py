"""Global memory: through buffer descriptors, by address, and atomics.

Source: "AMD Instinct MI300 Instruction Set Architecture", sections "Vector Memory Operations" and "Flat
Memory Instructions": a raw buffer checks each dword against num_records, gives 0 for a load outside and
drops such a store. A dword that is partly outside is outside ("Relaxed Buffer OOB Mode" in LLVM's "User Guide
for AMDGPU Backend", llvm/llvm-project#134734; AMD's text names the first byte alone). Loads to registers need
not be aligned: for compute, Linux sets SH_MEM_CONFIG's alignment mode to unaligned
(``kfd_device_queue_manager_v9.c``), and LLVM's amdhsa target relies on it. Stores, atomics and loads to LDS
are held to a dword; no kernel that runs here does otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.assembly import M0, Instruction
from aiter_conformance.isa.machine import END, LANES, LIMIT, START, WRITABLE, Fault, FaultKind
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS
from aiter_conformance.isa.reference import lds
from aiter_conformance.isa.reference.wave import Semantics, Wave, destination_of

_SWIZZLE = 1 << 31
_ADD_THREAD_ID = 1 << 23


def _locate(wave: Wave, lane: int, address: int, size: int, *, store: bool, aligned: bool) -> int:
    """Arena offset of a checked access.

    Raises:
        Fault: Misaligned, outside every allocation, or a store to a read-only one.
    """
    memory = wave.group.memory
    at = address - memory.base
    if aligned and address % 4:
        raise Fault(FaultKind.GLOBAL_ALIGNMENT, lane, address)
    limit = memory.bounds[:, END if store else LIMIT]
    inside = np.flatnonzero((memory.bounds[:, START] <= at) & (at + size <= limit))
    if not len(inside):
        raise Fault(FaultKind.GLOBAL_BOUNDS, lane, address)
    allocation = memory.bounds[inside[0]]
    if store and not allocation[WRITABLE]:
        raise Fault(FaultKind.GLOBAL_READ_ONLY, lane, address)
    past = at + size - int(allocation[END])
    if past > 0 and len(memory.over_reads):
        uses = memory.over_reads[wave.row]
        uses[0] += 1
        uses[1] = max(uses[1], past)
    return at


def _buffer_addresses(
    wave: Wave, instruction: Instruction
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(int64 [64] addresses, int64 [64] dwords from there that lie inside num_records)."""
    address, descriptor, scalar_offset = instruction.sources[-3:]
    words = [int(wave.s[descriptor.value + i]) for i in range(4)]
    if words[1] & _SWIZZLE or words[3] & _ADD_THREAD_ID:
        raise Fault(FaultKind.DESCRIPTOR, -1, words[0] | (words[1] & 0xFFFF) << 32)
    shift = wave.scalar32(scalar_offset)
    offsets = wave.read(address).astype(np.int64) + instruction.number("offset")
    base = words[0] | (words[1] & 0xFFFF) << 32
    left = np.maximum(words[2] - shift - offsets, 0)
    partly = (left % 4 > 0) & (left // 4 < SPECS[instruction.op].dwords) & wave.active
    if len(wave.group.memory.over_reads):
        wave.group.memory.over_reads[wave.row, 2] += partly.sum()
    return offsets + (base + shift), left // 4


def _load_lane(
    wave: Wave, lane: int, address: int, inside: int, dwords: int, *, aligned: bool
) -> npt.NDArray[np.uint32]:
    """uint32 [dwords]: the first ``inside`` of them from memory, the rest 0."""
    words = np.zeros(dwords, np.uint32)
    count = min(inside, dwords)
    if count:
        at = _locate(wave, lane, address, 4 * count, store=False, aligned=aligned)
        words[:count] = wave.group.memory.raw[at : at + 4 * count].view("<u4")
    return words


def _store_lane(wave: Wave, lane: int, address: int, words: npt.NDArray[np.uint32]) -> None:
    if len(words):
        at = _locate(wave, lane, address, words.nbytes, store=True, aligned=True)
        wave.group.memory.raw[at : at + words.nbytes] = words.view(np.uint8)


def buffer_load(wave: Wave, instruction: Instruction) -> None:
    """buffer_load, to registers."""
    if instruction.number("lds"):
        buffer_load_lds(wave, instruction)
        return
    addresses, inside = _buffer_addresses(wave, instruction)
    destination = destination_of(instruction)
    loaded = {
        lane: _load_lane(
            wave, int(lane), int(addresses[lane]), int(inside[lane]), destination.dwords, aligned=False
        )
        for lane in np.flatnonzero(wave.active)
    }
    for lane, words in loaded.items():
        wave.v[destination.value : destination.value + destination.dwords, lane] = words


def buffer_load_lds(wave: Wave, instruction: Instruction) -> None:
    """buffer_load ... lds: each lane's dwords to LDS at M0 + instruction offset + lane * size."""
    dwords = SPECS[instruction.op].dwords
    addresses, inside = _buffer_addresses(wave, instruction)
    places = int(wave.s[M0]) + instruction.number("offset") + np.arange(LANES, dtype=np.int64) * 4 * dwords
    lds.check(wave, places, 4 * dwords)
    for lane in np.flatnonzero(wave.active):
        words = _load_lane(wave, int(lane), int(addresses[lane]), int(inside[lane]), dwords, aligned=True)
        wave.group.lds[places[lane] : places[lane] + 4 * dwords] = words.view(np.uint8)


def buffer_store(wave: Wave, instruction: Instruction) -> None:
    """buffer_store, in the order of lanes."""
    data = instruction.sources[0]
    addresses, inside = _buffer_addresses(wave, instruction)
    for lane in np.flatnonzero(wave.active):
        count = min(int(inside[lane]), data.dwords)
        words = wave.v[data.value : data.value + count, lane].copy()
        _store_lane(wave, int(lane), int(addresses[lane]), words)


def _addresses(wave: Wave, instruction: Instruction) -> list[int]:
    """Address of each lane: scalar base + unsigned 32-bit vector offset + instruction offset."""
    base = wave.scalar64(instruction.sources[-1])
    return [base + int(v) + instruction.number("offset") for v in wave.read(instruction.sources[0])]


def global_load(wave: Wave, instruction: Instruction) -> None:
    """global_load."""
    addresses, destination = _addresses(wave, instruction), destination_of(instruction)
    for lane in np.flatnonzero(wave.active):
        dwords = destination.dwords
        words = _load_lane(wave, int(lane), addresses[lane], dwords, dwords, aligned=False)
        wave.v[destination.value : destination.value + destination.dwords, lane] = words


def global_store(wave: Wave, instruction: Instruction) -> None:
    """global_store, in the order of lanes."""
    addresses, data = _addresses(wave, instruction), instruction.sources[1]
    for lane in np.flatnonzero(wave.active):
        _store_lane(
            wave, int(lane), addresses[lane], wave.v[data.value : data.value + data.dwords, lane].copy()
        )


def _add(dtype: Any) -> Callable[[npt.NDArray[np.uint32], npt.NDArray[np.uint32]], npt.NDArray[np.uint32]]:
    def add(old: npt.NDArray[np.uint32], data: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        total = old.view(dtype).astype(np.float32) + data.view(dtype).astype(np.float32)
        result = np.where(np.isnan(total), np.float32(np.nan), total).astype(dtype)
        bits: npt.NDArray[np.uint32] = result.view(np.uint32)
        return bits

    return add


def _compare_swap(old: npt.NDArray[np.uint32], data: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    new, expected = data[:2], data[2:]
    return new if (old == expected).all() else old


_ATOMIC: dict[Op, Callable[[npt.NDArray[np.uint32], npt.NDArray[np.uint32]], npt.NDArray[np.uint32]]] = {
    Op.GLOBAL_ATOMIC_ADD_F32: _add(np.float32),
    Op.GLOBAL_ATOMIC_PK_ADD_F16: _add(np.float16),
    Op.GLOBAL_ATOMIC_PK_ADD_BF16: _add(ml_dtypes.bfloat16),
    Op.GLOBAL_ATOMIC_CMPSWAP_X2: _compare_swap,
}


def atomic(wave: Wave, instruction: Instruction) -> None:
    """Read, combine, write, lane after lane; sc0 with a destination returns the old value.

    A packed sum rounds once, to nearest even: float32 is wide enough for that for both 16-bit formats.
    """
    addresses, data = _addresses(wave, instruction), instruction.sources[1]
    dwords = SPECS[instruction.op].dwords
    memory = wave.group.memory
    for lane in np.flatnonzero(wave.active):
        at = _locate(wave, int(lane), addresses[lane], 4 * dwords, store=True, aligned=True)
        cell = memory.raw[at : at + 4 * dwords].view("<u4")
        old = cell.copy()
        cell[:] = _ATOMIC[instruction.op](old, wave.v[data.value : data.value + data.dwords, lane].copy())
        if instruction.destination is not None:
            first = instruction.destination.value
            wave.v[first : first + dwords, lane] = old


_BUFFER_LOADS = (Op.BUFFER_LOAD_DWORD, Op.BUFFER_LOAD_DWORDX2, Op.BUFFER_LOAD_DWORDX4)
_GLOBAL_LOADS = (Op.GLOBAL_LOAD_DWORD, Op.GLOBAL_LOAD_DWORDX2, Op.GLOBAL_LOAD_DWORDX4)
SEMANTICS: dict[Op, Semantics] = {
    **dict.fromkeys(_BUFFER_LOADS, buffer_load),
    Op.BUFFER_STORE_DWORD: buffer_store,
    Op.BUFFER_STORE_DWORDX4: buffer_store,
    **dict.fromkeys(_GLOBAL_LOADS, global_load),
    Op.GLOBAL_STORE_DWORDX2: global_store,
    **dict.fromkeys(_ATOMIC, atomic),
}
