"""Running a kernel over its grid, work-group after work-group."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.codeobject import Kernel
from aiter_conformance.isa.decode import Program
from aiter_conformance.isa.machine import EXECUTED, LANES, Memory, Workgroup

QUANTUM = 8
"""Instructions a wave runs before the next one's turn.

Shipped kernels re-use LDS without a barrier and rely on waves moving together: running each wave to its
barrier gives wrong numbers.
"""
BUDGET = 20_000_000
"""Instructions a wave may execute before it counts as hanging."""


class Core(Protocol):
    """An interpreter: runs a started work-group to its end."""

    def __call__(self, group: Workgroup, *, quantum: int, budget: int) -> None:
        """Run; raises `machine.KernelFaultError`."""


@dataclass(frozen=True, slots=True)
class OverRead:
    """Reads past the end of an allocation, into its slack.

    Attributes:
        pc: Address of the instruction.
        text: The instruction.
        count: Lane accesses that reached past an end.
        furthest: Bytes past the end, at most.
    """

    pc: int
    text: str
    count: int
    furthest: int


@dataclass(frozen=True, slots=True)
class Execution:
    """What a run did.

    Attributes:
        instructions: Wave-instructions executed.
        counts: int64 [instructions of the program], how often each was executed.
        over_reads: Reads into slack, in order of pc.
        partly_outside: Lane accesses with a dword that lies partly beyond its buffer descriptor: how hardware
            treats those is not certain, see `reference.memory`.
    """

    instructions: int
    counts: npt.NDArray[np.int64]
    over_reads: tuple[OverRead, ...]
    partly_outside: int

    @property
    def coverage(self) -> float:
        """Share of the program's instructions that ran at least once."""
        return float((self.counts > 0).mean())


def execute(
    program: Program,
    kernel: Kernel,
    memory: Memory,
    *,
    kernarg: str,
    grid: tuple[int, int, int],
    core: Core,
    threads: int = 256,
    quantum: int = QUANTUM,
    budget: int = BUDGET,
) -> Execution:
    """Run a kernel.

    Args:
        program: The decoded code object.
        kernel: The kernel in it.
        memory: Global memory, changed by the run.
        kernarg: Name of the buffer that holds the kernarg segment.
        grid: Work-groups along x, y, z.
        core: The interpreter.
        threads: Threads of a work-group, all along x.
        quantum: Instructions a wave runs before the next one's turn.
        budget: Instructions a wave may execute.

    Raises:
        KernelFaultError: The kernel did something that it must not.
        UsageError: A grid or group size below 1, or LDS or work-group too large.
    """
    if min(grid) < 1 or not 1 <= threads <= 1024 or quantum < 1:
        raise UsageError(
            f"grid and quantum must be positive, threads 1 to 1024 "
            f"(got grid {grid}, quantum {quantum}, threads {threads})"
        )
    scalars = kernel.user_sgprs(memory.address(kernarg), memory.contents(kernarg).tobytes())
    ids = [axis for axis in range(3) if kernel.rsrc2 >> 7 + axis & 1]
    group = Workgroup.create(
        program,
        memory,
        waves=-(-threads // LANES),
        lds_bytes=ARCHES[program.arch].lds_allocation(kernel.lds_bytes),
        mode=kernel.mode,
    )
    memory.watch(len(program.texts))
    first, total = program.row(kernel.start), 0
    for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0])):
        place = (x, y, z)
        group.start(first, place, threads, [*scalars, *(place[axis] for axis in ids)])
        core(group, quantum=quantum, budget=budget)
        total += int(group.status[:, EXECUTED].sum())
    over = tuple(
        OverRead(int(program.addresses[row]), program.texts[row], int(count), int(furthest))
        for row, (count, furthest, _) in enumerate(memory.over_reads)
        if count
    )
    return Execution(total, group.counts.copy(), over, int(memory.over_reads[:, 2].sum()))
