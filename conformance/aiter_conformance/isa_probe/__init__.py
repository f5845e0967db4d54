"""Probes of a code object that inform and do not judge: orders of waves, reads past an end, unordered LDS.

Two waves of a work-group are ordered by barriers alone here. Hardware orders them no further, but waves that
are started together move together, and shipped kernels may rely on it: what is found is a question to a
kernel's author, no fault that was seen on a GPU. This package is outside `isa`, so that no judgement depends
on it; it needs numba, as the fast core does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from aiter_conformance.isa import judge
from aiter_conformance.isa.decode import OP
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.fast import FastCore
from aiter_conformance.isa.judge import Case
from aiter_conformance.isa.machine import KernelFaultError
from aiter_conformance.isa.objects import Opened
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa_probe.order import USUAL, Order, OrderedCore
from aiter_conformance.isa_probe.recorder import Conflict, PastEnd, Recorder

Array: TypeAlias = npt.NDArray[Any]
Run: TypeAlias = Callable[[Core], Array]
"""Runs a kernel afresh with an interpreter and gives its output; raises `machine.KernelFaultError`."""


@dataclass(frozen=True, slots=True)
class OrderResult:
    """What an order gave.

    Attributes:
        name: The order.
        differing: Elements of the output whose bits differ from those of the usual order; None where one of
            both has no output.
        error: Relative error of the output; None where it has a NaN or there is none.
        fault: What the kernel did that it must not.
    """

    name: str
    differing: int | None
    error: float | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """What the probes found in one case.

    Attributes:
        case: Its name.
        shape: Its sizes, as `isa run` takes them.
        elements: Elements of the output, as stored.
        orders: What each order of waves gave, the usual one first.
        past_end: Reads past an end, in order of pc.
        conflicts: LDS accesses that no barrier orders, the one on most bytes first.
        fault: What ended the run that was watched; what is noted is what came before.
        adds: Whether the object adds to its output by atomics: an order may then change the rounding of sums.
    """

    case: str
    shape: str
    elements: int
    orders: tuple[OrderResult, ...]
    past_end: tuple[PastEnd, ...]
    conflicts: tuple[Conflict, ...]
    fault: str | None
    adds: bool


def try_orders(
    run: Run, fast: FastCore, tried: Sequence[Order], error: Callable[[Array], float]
) -> tuple[OrderResult, ...]:
    """Run a kernel in several orders; the first is what the others are compared with.

    Args:
        run: Runs it.
        fast: The fast core.
        tried: The orders.
        error: Relative error of an output.
    """
    usual: Array | None = None
    found: list[OrderResult] = []
    for i, order in enumerate(tried):
        try:
            output = run(OrderedCore(fast, order))
        except KernelFaultError as fault:
            found.append(OrderResult(order.name, None, None, str(fault)))
            continue
        usual = output if i == 0 else usual
        differing = None if usual is None else _differing(usual, output)
        off = error(output)
        found.append(OrderResult(order.name, differing, None if np.isnan(off) else off, None))
    return tuple(found)


def _differing(left: Array, right: Array) -> int:
    """Elements whose bits differ."""
    bits = [np.ascontiguousarray(a).view(np.uint8).reshape(a.size, -1) for a in (left, right)]
    return int((bits[0] != bits[1]).any(1).sum())


def watch(run: Run, fast: FastCore) -> tuple[Recorder, str | None]:
    """Run a kernel in the usual order with a recorder; the text is the fault that ended it, if one did."""
    recorder = Recorder()
    try:
        run(OrderedCore(fast, USUAL, recorder))
    except KernelFaultError as fault:
        return recorder, str(fault)
    return recorder, None


def probe(opened: Opened, case: Case, fast: FastCore, tried: Sequence[Order]) -> Report:
    """Run all probes on one case of a shipped object.

    Args:
        opened: The object.
        case: The launch.
        fast: The fast core.
        tried: The orders, the usual one first.

    Raises:
        HarnessError: It could not be launched.
    """
    problem = judge.problem_of(opened.kind, case)

    def run(core: Core) -> Array:
        ran = judge.run_problem(opened.code, opened.program, problem, core)
        return problem.results(ran.outputs["O"])

    seen, fault = watch(run, fast)
    return Report(
        case.name,
        judge.describe(case.shape),
        problem.results(problem.launch.buffers["O"].data).size,
        try_orders(run, fast, tried, problem.error),
        tuple(found for _, found in sorted(seen.past_end.items())),
        tuple(sorted(seen.conflicts.values(), key=lambda c: (-c.count, c.pcs))),
        fault,
        any("ATOMIC" in Op(op).name for op in np.unique(opened.program.table[:, OP])),
    )
