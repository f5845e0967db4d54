"""Whether ``families.toml`` and what releases launch agree, both ways.

A tool of the harness's own tests by design: they hold the hand-written table against traces, no command does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiter_conformance import contract
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.families import launch_kind, load_families
from aiter_conformance.outcome import Kind
from aiter_conformance.trace.findings import Code, Finding
from aiter_conformance.trace.record import Role
from aiter_conformance.trace.run import Run


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where the two disagree, each as ``family cell``.

    Attributes:
        unlisted: A kind of kernel was launched for a call of a cell, nothing is wrong with the call, and no
            family of that kind is listed for the cell.
        unseen: A family is listed for a cell that a leaf accepts, and no release launched its kind for it.
    """

    unlisted: frozenset[str]
    unseen: frozenset[str]


def compare_families(runs: Iterable[tuple[Run, Iterable[Finding]]]) -> Disagreement:
    """Compare the table of families with runs.

    Args:
        runs: Runs of releases on boards, each with what is wrong in it. Left out are calls past the leaf and
            calls that it refuses; calls that another activation's tuned row answered play no part in what
            should be listed.
    """
    accepted = {cell for cell in load_axes().cells() if contract.declaration(cell).kind is Kind.PASS}
    listed = [(f.name, launch_kind(f.name), c) for f in load_families() for c in accepted if f.may_launch(c)]
    known = {(kind, cell) for _, kind, cell in listed}
    launched: set[tuple[str, Cell]] = set()
    sound: set[tuple[str, Cell]] = set()
    for run, findings in runs:
        doubtful = {each.call for each in findings if each.fails or each.code is Code.TUNED_FOR_OTHER}
        for trace in run.traces:
            call = trace.call
            if call.entry != "leaf":
                continue
            cell = Cell(run.board.arch, call.scheme, call.activation, call.router)
            if cell not in accepted:
                continue
            kinds = {(each.family, cell) for each in trace.products if each.role is not Role.STAGE2}
            launched |= kinds
            sound |= set() if call in doubtful else kinds
    return Disagreement(
        unlisted=frozenset(f"{kind} {cell}" for kind, cell in sound - known),
        unseen=frozenset(f"{name} {cell}" for name, kind, cell in listed if (kind, cell) not in launched),
    )
