"""The interpreter loop of the fast core: waves in round robin, one table row after another."""

# numba infers the types of what it compiles.
# mypy: ignore-errors

import numpy as np

from aiter_conformance.isa.decode import OP, TARGET
from aiter_conformance.isa.fast.convert import convert
from aiter_conformance.isa.fast.crosslane import cross
from aiter_conformance.isa.fast.jit import compiled, inlined
from aiter_conformance.isa.fast.matrix import matrix
from aiter_conformance.isa.fast.memory import lds, memory
from aiter_conformance.isa.fast.scalar import scalar
from aiter_conformance.isa.fast.vector import floating, integer
from aiter_conformance.isa.machine import ENDED, EXECUTED, PC, RUNNING, SCC, STATE, VSKIP, WAITING, FaultKind
from aiter_conformance.isa.opcodes import (
    FIRST_CONVERT,
    FIRST_CROSS,
    FIRST_FLOAT,
    FIRST_GLOBAL,
    FIRST_LDS,
    FIRST_MATRIX,
    FIRST_SCALAR,
    FIRST_VECTOR,
    Op,
)

DONE, FALLBACK = 0, 1
_BUDGET = int(FaultKind.BUDGET)


@inlined
def _turn(table, v, s, status, counts, local, raw, base, bounds, over, work, options, left_out, place):
    """Run a wave until its turn or its run ends, a barrier, or something the caller must see to (not 0)."""
    flushes, saturates, fnuz, quantum, budget = options[0], options[1], options[2], options[3], options[4]
    vf, raw32 = v.view(np.float32), raw.view(np.uint32)
    while place[1] < quantum:
        pc = status[PC]
        if status[EXECUTED] >= budget:
            place[3], place[4] = -1, 0
            return _BUDGET
        row = table[pc]
        op = row[OP]
        if left_out[op]:
            return FALLBACK
        counts[pc] += 1
        status[EXECUTED] += 1
        place[1] += 1
        following = pc + 1
        fault = 0
        if op < FIRST_SCALAR:
            if op == Op.S_ENDPGM:
                status[STATE] = ENDED
                return 0
            if op == Op.S_BARRIER:
                status[STATE], status[PC] = WAITING, following
                return 0
            if (
                op == Op.S_BRANCH
                or (op == Op.S_CBRANCH_SCC0 and status[SCC] == 0)
                or (op == Op.S_CBRANCH_SCC1 and status[SCC] != 0)
            ):
                following = np.int64(row[TARGET])
        elif op < FIRST_VECTOR:
            fault = scalar(op, row, s, status, raw32, base, bounds, place)
        elif status[VSKIP] or op == Op.V_NOP:
            pass
        elif op < FIRST_FLOAT:
            integer(op, row, v, s)
        elif op < FIRST_CONVERT:
            floating(op, row, v, vf, s, flushes)
        elif op < FIRST_CROSS:
            convert(op, row, v, vf, s, flushes, saturates, fnuz)
        elif op < FIRST_MATRIX:
            cross(op, row, v, vf, s)
        elif op < FIRST_LDS:
            matrix(op, row, v, s, fnuz, work)
        elif op < FIRST_GLOBAL:
            fault = lds(op, row, v, s, local, place)
        else:
            fault = memory(op, row, v, s, local, raw32, base, bounds, over[pc], place)
        if fault:
            return fault
        status[PC] = following
    return 0


@compiled
def run_group(
    table,
    vector,
    scalars,
    status,
    counts,
    local,
    raw,
    base,
    bounds,
    over,
    work,
    options,
    left_out,
    place,
):
    """Run a work-group from ``place`` (wave, instructions of its turn) until all ended (0) or one stops."""
    while True:
        for wave in range(place[0], len(status)):
            place[0] = wave
            if status[wave, STATE] == RUNNING:
                stop = _turn(
                    table,
                    vector[wave],
                    scalars[wave],
                    status[wave],
                    counts,
                    local,
                    raw,
                    base,
                    bounds,
                    over,
                    work,
                    options,
                    left_out,
                    place,
                )
                if stop:
                    return stop
            place[1] = 0
        place[0] = 0
        running, waiting = 0, 0
        for wave in range(len(status)):
            running += status[wave, STATE] == RUNNING
            waiting += status[wave, STATE] == WAITING
        if running + waiting == 0:
            return DONE
        if running == 0:
            for wave in range(len(status)):
                if status[wave, STATE] == WAITING:
                    status[wave, STATE] = RUNNING
