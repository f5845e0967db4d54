"""Stepping waves of a work-group through the reference semantics."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from aiter_conformance.isa import decode
from aiter_conformance.isa.assembly import Instruction, parse
from aiter_conformance.isa.machine import (
    ENDED,
    EXECUTED,
    PC,
    RUNNING,
    STATE,
    VSKIP,
    WAITING,
    Fault,
    FaultKind,
    Workgroup,
)
from aiter_conformance.isa.opcodes import FIRST_VECTOR, Op
from aiter_conformance.isa.reference import convert, crosslane, lds, matrix, memory, scalar, vector
from aiter_conformance.isa.reference.wave import Semantics, Wave

SEMANTICS: dict[Op, Semantics] = (
    scalar.SEMANTICS
    | vector.SEMANTICS
    | convert.SEMANTICS
    | crosslane.SEMANTICS
    | matrix.SEMANTICS
    | lds.SEMANTICS
    | memory.SEMANTICS
)
_parse = lru_cache(maxsize=1 << 16)(parse)


def _branches(op: Op, wave: Wave) -> bool:
    return op is Op.S_BRANCH or (op is Op.S_CBRANCH_SCC0) == (wave.scc == 0)


def step(group: Workgroup, index: int) -> None:
    """Execute one instruction of one wave and move on.

    Raises:
        KernelFaultError: The kernel did something that it must not.
    """
    wave = Wave(group, index)
    status = group.status[index]
    row = int(status[PC])
    instruction: Instruction = _parse(group.program.texts[row], group.program.arch)
    op = instruction.op
    group.counts[row] += 1
    status[EXECUTED] += 1
    if op is Op.S_ENDPGM:
        status[STATE] = ENDED
    elif op is Op.S_BARRIER:
        status[STATE], status[PC] = WAITING, row + 1
    elif op in (Op.S_BRANCH, Op.S_CBRANCH_SCC0, Op.S_CBRANCH_SCC1):
        status[PC] = group.program.table[row, decode.TARGET] if _branches(op, wave) else row + 1
    elif op in SEMANTICS and not (status[VSKIP] and op >= FIRST_VECTOR):
        try:
            with np.errstate(all="ignore"):
                SEMANTICS[op](wave, instruction)
        except Fault as fault:
            raise group.fault(index, fault.kind, fault.lane, fault.address) from fault
        status[PC] = row + 1
    else:
        status[PC] = row + 1


def run(group: Workgroup, *, quantum: int, budget: int) -> None:
    """Run a work-group to its end, its waves in round robin.

    Args:
        group: A started work-group.
        quantum: Instructions that a wave executes before the next one's turn.
        budget: Instructions that a wave may execute in all.

    Raises:
        KernelFaultError: The kernel did something that it must not, or did not end.
    """
    status = group.status
    while True:
        for index in range(len(status)):
            for _ in range(quantum):
                if status[index, STATE] != RUNNING:
                    break
                if status[index, EXECUTED] >= budget:
                    raise group.fault(index, FaultKind.BUDGET, -1, 0)
                step(group, index)
        if (status[:, STATE] == ENDED).all():
            return
        if not (status[:, STATE] == RUNNING).any():
            status[status[:, STATE] == WAITING, STATE] = RUNNING
