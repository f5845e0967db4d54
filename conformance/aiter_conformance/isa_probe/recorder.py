"""What a run is watched for: reads past the end of an allocation, and LDS accesses that no barrier orders."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.assembly import M0, parse
from aiter_conformance.isa.decode import DWORDS, FLAG_LDS, FLAGS, OP
from aiter_conformance.isa.machine import (
    END,
    LANES,
    LIMIT,
    PC,
    VSKIP,
    FaultKind,
    KernelFaultError,
    Workgroup,
)
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference import step
from aiter_conformance.isa.reference.wave import Wave

_LDS_BYTES = {
    op: int(re.sub(r"\D+", " ", op.name).split()[-1]) // 8
    for op in Op
    if op.name.startswith(("DS_READ", "DS_WRITE"))
}
_LOADS = frozenset(op for op in Op if op.name.startswith(("BUFFER_LOAD", "GLOBAL_LOAD")))
_parse = lru_cache(maxsize=1 << 16)(parse)


@dataclass(frozen=True, slots=True)
class PastEnd:
    """Reads of one instruction past the end of an allocation.

    Attributes:
        pc: Its address in the image.
        text: The instruction.
        count: Lane accesses that reached past an end.
        furthest: Bytes past the end, at most.
        group: Work-group (x, y, z) of the first such read.
        wave: Its wave.
        lane: Its lowest lane.
        address: Where that lane's access starts.
        nearest: The allocation, in words.
    """

    pc: int
    text: str
    count: int
    furthest: int
    group: tuple[int, int, int]
    wave: int
    lane: int
    address: int
    nearest: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two instructions by which two waves use the same bytes of LDS without a barrier between, one to write.

    Attributes:
        kind: ``write/write`` or ``read/write``.
        pcs: Their addresses in the image, in order; the same twice where both waves are at one instruction.
        texts: The instructions.
        count: Bytes concerned, once each time a wave used them.
        group: Work-group (x, y, z) of the first such use.
        waves: Its waves, in the order of `pcs`.
        byte: The lowest byte of LDS concerned.
    """

    kind: str
    pcs: tuple[int, int]
    texts: tuple[str, str]
    count: int
    group: tuple[int, int, int]
    waves: tuple[int, int]
    byte: int


class Recorder:
    """Executes loads and LDS accesses by the reference, and notes them.

    Of several accesses of a wave to one byte between two barriers the last is kept.
    """

    ops = frozenset(_LDS_BYTES) | _LOADS

    def __init__(self) -> None:
        self.past_end: dict[int, PastEnd] = {}
        self.conflicts: dict[tuple[int, int, str], Conflict] = {}
        self._last: npt.NDArray[np.int32] = np.empty((2, 0, 0), np.int32)  # read 0, write 1; wave; byte: row

    def start(self, group: Workgroup) -> None:
        """A work-group starts: nothing in its LDS was used."""
        self._last = np.full((2, len(group.status), len(group.lds)), -1, np.int32)

    def release(self) -> None:
        """All waves passed a barrier: what they did before is ordered before what follows."""
        self._last[...] = -1

    def step(self, group: Workgroup, wave: int) -> None:
        """Execute the current instruction of a wave."""
        row = int(group.status[wave, PC])
        op = Op(group.program.table[row, OP])
        if not group.status[wave, VSKIP]:
            self._note(group, wave, row, op)
        if op in _LOADS:
            self._load(group, wave, row)
        else:
            step(group, wave)

    def _load(self, group: Workgroup, wave: int, row: int) -> None:
        """Load without slack, for the place of a read past the end; where there is one, again with it."""
        memory, status = group.memory, group.status[wave]
        limits, registers, before = memory.bounds[:, LIMIT].copy(), group.vector[wave].copy(), status.copy()
        count = int(group.counts[row])
        memory.bounds[:, LIMIT] = memory.bounds[:, END]
        try:
            step(group, wave)
        except KernelFaultError as error:
            if error.kind is not FaultKind.GLOBAL_BOUNDS:
                raise
            group.vector[wave], group.counts[row], place = registers, count, error
            status[:] = before
        else:
            return
        finally:
            memory.bounds[:, LIMIT] = limits
        step(group, wave)
        total, furthest, _ = (int(n) for n in memory.over_reads[row])
        known = self.past_end.get(row)
        if known is None:
            near = memory.nearest(place.address)
            known = PastEnd(place.pc, place.text, 0, 0, group.group, wave, place.lane, place.address, near)
        self.past_end[row] = replace(known, count=total, furthest=furthest)

    def _note(self, group: Workgroup, wave: int, row: int, op: Op) -> None:
        """Note which bytes of LDS the instruction uses, and who used them since the last barrier."""
        used = _used(group, wave, row, op)
        if not len(used):
            return
        writes = not op.name.startswith("DS_READ")
        for other in range(len(group.status)):
            for other_writes in (0, 1):
                if other != wave and (writes or other_writes):
                    self._compare(group, used, (row, wave, writes), (other, other_writes))
        self._last[int(writes), wave, used] = row

    def _compare(
        self,
        group: Workgroup,
        used: npt.NDArray[np.int64],
        here: tuple[int, int, bool],
        there: tuple[int, int],
    ) -> None:
        (row, wave, writes), (other, other_writes) = here, there
        rows = self._last[other_writes, other, used]
        kind = "write/write" if writes and other_writes else "read/write"
        for other_row in np.unique(rows[rows >= 0]):
            (low, first), (high, second) = sorted([(row, wave), (int(other_row), other)])
            known = self.conflicts.get((low, high, kind))
            shared = used[rows == other_row]
            if known is None:
                program = group.program
                known = Conflict(
                    kind,
                    (int(program.addresses[low]), int(program.addresses[high])),
                    (program.texts[low], program.texts[high]),
                    0,
                    group.group,
                    (first, second),
                    int(shared.min()),
                )
            self.conflicts[low, high, kind] = replace(known, count=known.count + len(shared))


def _used(group: Workgroup, wave: int, row: int, op: Op) -> npt.NDArray[np.int64]:
    """Bytes of LDS that the active lanes of a wave use, each once; none outside the allocation."""
    program, view = group.program, Wave(group, wave)
    if op not in _LDS_BYTES and not program.table[row, FLAGS] & FLAG_LDS:
        return np.zeros(0, np.int64)
    instruction = _parse(program.texts[row], program.arch)
    if op in _LDS_BYTES:
        size = _LDS_BYTES[op]
        starts = view.read(instruction.sources[0]).astype(np.int64) + instruction.number("offset")
    else:
        size = 4 * int(program.table[row, DWORDS])
        starts = int(view.s[M0]) + instruction.number("offset") + np.arange(LANES, dtype=np.int64) * size
    found = np.unique(starts[view.active, None] + np.arange(size))
    return found[(found >= 0) & (found < len(group.lds))]
