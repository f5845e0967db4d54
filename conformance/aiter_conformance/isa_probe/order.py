"""Orders in which the waves of a work-group take turns, and an interpreter that keeps to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES, MODE_FP16_OVFL, MODE_FP32_DENORM
from aiter_conformance.isa.decode import OP
from aiter_conformance.isa.execute import BUDGET, QUANTUM
from aiter_conformance.isa.fast import FastCore
from aiter_conformance.isa.machine import ENDED, EXECUTED, PC, RUNNING, STATE, WAITING, FaultKind, Workgroup
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference import step
from aiter_conformance.isa_probe.recorder import Recorder

RANDOM_ORDERS = 4
_DONE, _FALLBACK = 0, 1  # of the fast core's loop, beside fault kinds


@dataclass(frozen=True, slots=True)
class Order:
    """An order in which the waves of a work-group take turns.

    Attributes:
        name: In words.
        quantum: Instructions of a turn; at most so many where the order is random.
        reverse: Whether the last wave comes first.
        seed: Of random turns: each round has every wave once, in random order, for 1 to quantum instructions.
    """

    name: str
    quantum: int
    reverse: bool = False
    seed: int | None = None

    def round(self, waves: int, random: np.random.Generator) -> list[tuple[int, int]]:
        """(wave, instructions) of each turn of one round."""
        if self.seed is None:
            return [(wave, self.quantum) for wave in range(waves)[:: -1 if self.reverse else 1]]
        return [(int(wave), int(random.integers(1, self.quantum + 1))) for wave in random.permutation(waves)]


USUAL = Order(f"round robin, {QUANTUM} instructions", QUANTUM)
"""The order of every other command."""


def orders(most: int = QUANTUM) -> tuple[Order, ...]:
    """The usual order, then those that are tried.

    Args:
        most: Turns are of 1 to this many instructions.

    Raises:
        UsageError: ``most`` is below 1.
    """
    if most < 1:
        raise UsageError(f"instructions of a turn must be at least 1 (got {most})")
    plain = [Order(f"round robin, {n} instructions", n) for n in range(1, most + 1)]
    back = [Order(f"last wave first, {n} instructions", n, reverse=True) for n in range(1, most + 1)]
    ahead = [
        Order("first wave to its barrier, then the next", BUDGET),
        Order("last wave to its barrier, then the one before", BUDGET, reverse=True),
    ]
    mixed = [Order(f"random, seed {seed}", most, seed=seed) for seed in range(RANDOM_ORDERS)]
    return (USUAL, *(order for order in plain if order != USUAL), *back, *ahead, *mixed)


class OrderedCore:
    """An interpreter (`execute.Core`) with another order of waves, and one that watches some instructions.

    The fast core runs one wave at a time; at a barrier and at what is watched it comes back.
    """

    def __init__(self, fast: FastCore, order: Order, recorder: Recorder | None = None) -> None:
        self._entry, self._order, self._recorder = fast.entry, order, recorder
        watched = {Op.S_BARRIER} | fast.leave_out | (recorder.ops if recorder else frozenset())
        self._left_out = np.zeros(len(Op), np.uint8)
        self._left_out[list(watched)] = 1

    def __call__(self, group: Workgroup, *, quantum: int, budget: int) -> None:  # noqa: ARG002 (the protocol's)
        """Run a started work-group to its end; the order's turns count, not ``quantum``.

        Raises:
            KernelFaultError: The kernel did something that it must not, or did not end.
        """
        random = np.random.default_rng([self._order.seed or 0, *group.group])
        states = group.status[:, STATE]
        if self._recorder:
            self._recorder.start(group)
        while not (states == ENDED).all():
            for wave, turn in self._order.round(len(states), random):
                self._turn(group, wave, turn, budget)
            if not (states == RUNNING).any():
                states[states == WAITING] = RUNNING
                if self._recorder:
                    self._recorder.release()

    def _turn(self, group: Workgroup, wave: int, turn: int, budget: int) -> None:
        """Run one wave for so many instructions, to a barrier, or to its end."""
        status, memory, arch = group.status[wave], group.memory, ARCHES[group.program.arch]
        end = int(status[EXECUTED]) + turn
        one = slice(wave, wave + 1)
        options = np.array(
            [
                group.mode & MODE_FP32_DENORM == 0,
                bool(group.mode & MODE_FP16_OVFL),
                arch.fp8.endswith("fnuz"),
                turn,
                min(end, budget),
            ],
            np.int64,
        )
        work = np.zeros((3, 128 * 16), np.float64)
        while status[STATE] == RUNNING and status[EXECUTED] < end:
            if status[EXECUTED] >= budget:
                raise group.fault(wave, FaultKind.BUDGET, -1, 0)
            place = np.zeros(5, np.int64)  # as for `FastCore`; this wave is the first of one
            outcome = self._entry(
                group.program.table,
                group.vector[one],
                group.scalar[one],
                group.status[one],
                group.counts,
                group.lds,
                memory.raw,
                memory.base,
                memory.bounds,
                memory.over_reads,
                work,
                options,
                self._left_out,
                place,
            )
            if outcome == _FALLBACK:
                barrier = group.program.table[status[PC], OP] == Op.S_BARRIER
                (step if barrier or self._recorder is None else self._recorder.step)(group, wave)
            elif outcome not in (_DONE, FaultKind.BUDGET):
                raise group.fault(wave, FaultKind(outcome), int(place[3]), int(place[4]))
