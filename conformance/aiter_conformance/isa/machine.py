"""The state that both cores work on: memory with its bounds, registers of a work-group, and faults."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import HarnessError, UsageError
from aiter_conformance.isa.decode import Program

LANES = 64
VECTOR_ROWS = 512
SCRATCH_ROWS = 8
"""Rows after the vector registers that the fast core uses for operands and results."""
SCALARS = 128
# Columns of `Workgroup.status`.
PC, SCC, VSKIP, STATE, EXECUTED = range(5)
RUNNING, WAITING, ENDED = range(3)
# Columns of `Memory.bounds`.
START, END, LIMIT, WRITABLE = range(4)

_BASE = 0x7EFF_FFF0_0000
"""Address of the arena: 1 MiB below a 4 GiB boundary, so that a lost carry between address halves shows."""
_GUARD = 1 << 16
"""Bytes between allocations: wide, so that a wrong stride is nearest to the allocation that it left."""


class FaultKind(enum.IntEnum):
    """What went wrong; the numbers are return values of the fast core."""

    GLOBAL_BOUNDS = 10
    GLOBAL_READ_ONLY = 11
    GLOBAL_ALIGNMENT = 12
    LDS_BOUNDS = 13
    LDS_ALIGNMENT = 14
    SCALAR_BOUNDS = 15
    DESCRIPTOR = 16
    BUDGET = 17


ENDLESS = "the kernel must end within its budget of instructions"
"""How the message of such a fault begins."""
_SENTENCES = {
    FaultKind.GLOBAL_BOUNDS: "global access must stay inside an allocation",
    FaultKind.GLOBAL_READ_ONLY: "global store must go to an output",
    FaultKind.GLOBAL_ALIGNMENT: "a global store, atomic or load to LDS must be aligned to a dword",
    FaultKind.LDS_BOUNDS: "LDS access must stay inside the work-group's allocation",
    FaultKind.LDS_ALIGNMENT: "LDS access must be aligned to its size, at most a dword",
    FaultKind.SCALAR_BOUNDS: "scalar load must stay inside an allocation",
    FaultKind.DESCRIPTOR: "buffer descriptor must be linear, without swizzle or added thread id",
    FaultKind.BUDGET: ENDLESS,
}


class KernelFaultError(HarnessError):
    """A kernel did what it must not: the message names the place.

    Attributes:
        kind: What went wrong.
        pc: Address of the instruction in the code object's image.
        text: The instruction.
        group: Work-group id (x, y, z).
        wave: Wave in the work-group.
        lane: First lane concerned, -1 for scalar instructions.
        address: Address it used.
    """

    exit_code = 1

    def __init__(
        self,
        kind: FaultKind,
        *,
        pc: int,
        text: str,
        group: tuple[int, int, int],
        wave: int,
        lane: int,
        address: int,
        near: str,
    ) -> None:
        place = f"pc {pc:#x} '{text}', work-group {group}, wave {wave}" + (
            f", lane {lane}" if lane >= 0 else ""
        )
        got = (
            f"{near}, at {place}" if kind is FaultKind.BUDGET else f"address {address:#x} at {place}; {near}"
        )
        super().__init__(f"{_SENTENCES[kind]} (got {got})")
        self.kind, self.pc, self.text, self.group = kind, pc, text, group
        self.wave, self.lane, self.address = wave, lane, address


class Fault(Exception):  # noqa: N818 (internal signal, turned into KernelFaultError where the place is known)
    """Raised by the reference core: kind, lane and address of a fault."""

    def __init__(self, kind: FaultKind, lane: int, address: int) -> None:
        super().__init__(kind.name)
        self.kind, self.lane, self.address = kind, lane, address


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation of global memory.

    Attributes:
        name: What it holds, for messages.
        data: Its first contents.
        writable: Whether stores and atomics may go there.
    """

    name: str
    data: npt.NDArray[np.generic]
    writable: bool = False


class Memory:
    """Global memory: a few allocations with guards between.

    Attributes:
        raw: uint8 [size], the arena; address `base` is its first byte.
        bounds: int64 [n, 4], per allocation: first byte, end, end of readable slack (arena offsets),
            writable.
        over_reads: int64 [instructions, 3] once `watch` was called: reads past an end, the farthest of them
            in bytes, and accesses with a dword that lies partly beyond its buffer descriptor.
        base: Address of the arena.
    """

    def __init__(self, buffers: Sequence[Buffer], *, slack: int = 0) -> None:
        """Lay out allocations.

        Args:
            buffers: The allocations; names must differ.
            slack: Bytes past each allocation that may be read (they are 0); each use is counted.

        Raises:
            UsageError: Two buffers have one name, or slack is negative.
        """
        if len({b.name for b in buffers}) != len(buffers) or slack < 0:
            raise UsageError(f"buffers must have different names and slack must be >= 0 (got {slack})")
        self.base = _BASE
        self._buffers = {b.name: b for b in buffers}
        self.bounds = np.zeros((len(buffers), 4), np.int64)
        at = _GUARD
        for i, buffer in enumerate(buffers):
            self.bounds[i] = at, at + buffer.data.nbytes, at + buffer.data.nbytes + slack, buffer.writable
            at = -(-(at + buffer.data.nbytes + slack + _GUARD) // 256) * 256
        self.raw = np.zeros(at, np.uint8)
        for (start, end, _, _), buffer in zip(self.bounds, buffers, strict=True):
            self.raw[start:end] = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
        self.over_reads = np.zeros((0, 3), np.int64)

    def watch(self, instructions: int) -> None:
        """Start counting over-reads anew, per instruction of a program."""
        self.over_reads = np.zeros((instructions, 3), np.int64)

    def address(self, name: str) -> int:
        """Address of a buffer."""
        return self.base + int(self.bounds[list(self._buffers).index(name), START])

    def contents(self, name: str) -> npt.NDArray[np.generic]:
        """A copy of a buffer as it is now, in its own shape and dtype."""
        start, end = self.bounds[list(self._buffers).index(name), :2]
        data = self._buffers[name].data
        return self.raw[start:end].view(data.dtype).reshape(data.shape).copy()

    def nearest(self, address: int) -> str:
        """The allocation closest to an address, in words."""
        offset = address - self.base
        gaps = np.maximum(np.maximum(self.bounds[:, START] - offset, offset - self.bounds[:, END] + 1), 0)
        i = int(np.argmin(gaps))
        if gaps[i] > _GUARD:
            return "no allocation near" + (": an argument that was not given?" if address < _GUARD else "")
        start, end = int(self.bounds[i, START]), int(self.bounds[i, END])
        name = list(self._buffers)[i]
        return f"nearest allocation '{name}' has {end - start} bytes, this is byte {offset - start} of it"


@dataclass(slots=True)
class Workgroup:
    """Registers of the waves of one work-group and what they share.

    Attributes:
        program: What they run.
        memory: Global memory.
        lds: uint8 [bytes], its LDS.
        mode: The MODE register.
        group: Work-group id (x, y, z).
        vector: uint32 [waves, VECTOR_ROWS + SCRATCH_ROWS, LANES]; row 256 is a0.
        scalar: uint32 [waves, SCALARS]; 106 vcc, 124 m0, 126 exec.
        status: int64 [waves, 5]: row of the next instruction, SCC, VSKIP, state, instructions executed.
        counts: int64 [instructions], how often each instruction was executed.
    """

    program: Program
    memory: Memory
    lds: npt.NDArray[np.uint8]
    mode: int
    group: tuple[int, int, int]
    vector: npt.NDArray[np.uint32]
    scalar: npt.NDArray[np.uint32]
    status: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64] = field(repr=False)

    @classmethod
    def create(
        cls,
        program: Program,
        memory: Memory,
        *,
        waves: int,
        lds_bytes: int,
        mode: int,
        counts: npt.NDArray[np.int64] | None = None,
    ) -> Workgroup:
        """A work-group with cleared registers."""
        return cls(
            program,
            memory,
            np.zeros(max(lds_bytes, 8), np.uint8)[:lds_bytes],
            mode,
            (0, 0, 0),
            np.zeros((waves, VECTOR_ROWS + SCRATCH_ROWS, LANES), np.uint32),
            np.zeros((waves, SCALARS), np.uint32),
            np.zeros((waves, 5), np.int64),
            np.zeros(len(program.texts), np.int64) if counts is None else counts,
        )

    def start(self, row: int, group: tuple[int, int, int], threads: int, scalars: Sequence[int]) -> None:
        """Set the registers as hardware does at launch: lane ids in v0, user SGPRs and ids, all of exec.

        Args:
            row: First instruction.
            group: Work-group id.
            threads: Threads along x; a last wave that is not full gets a partial exec.
            scalars: The first SGPRs.
        """
        self.group = group
        for array in (self.vector, self.scalar, self.status, self.lds):
            array[...] = 0
        self.status[:, PC] = row
        self.scalar[:, : len(scalars)] = np.array(scalars, np.uint32)
        ids = np.arange(len(self.status) * LANES, dtype=np.uint32).reshape(-1, LANES)
        self.vector[:, 0] = ids
        exec_bits = np.packbits(ids < threads, axis=1, bitorder="little").view(np.uint32)
        self.scalar[:, 126:128] = exec_bits

    def fault(self, wave: int, kind: FaultKind, lane: int, address: int) -> KernelFaultError:
        """The error for a fault of a wave's current instruction."""
        row = int(self.status[wave, PC])
        if kind in (FaultKind.LDS_BOUNDS, FaultKind.LDS_ALIGNMENT):
            near = f"LDS has {len(self.lds)} bytes"
        elif kind is FaultKind.BUDGET:
            near = f"{int(self.status[wave, EXECUTED])} instructions of a wave"
        elif kind is FaultKind.DESCRIPTOR:
            near = f"wave executed {int(self.status[wave, EXECUTED])} instructions"
        else:
            near = self.memory.nearest(address)
        return KernelFaultError(
            kind,
            pc=int(self.program.addresses[row]),
            text=self.program.texts[row],
            group=self.group,
            wave=wave,
            lane=lane,
            address=address,
            near=near,
        )
