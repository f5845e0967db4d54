"""Compares the cells of two releases, by the verdicts and levels of their matrices and by their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aiter_conformance.axes import Cell
from aiter_conformance.evidence import Evidence, Level, Loaded
from aiter_conformance.gate.classes import (
    STANDING_OF_VERDICT,
    ChangeClass,
    Standing,
    change_of_levels,
    change_of_verdicts,
)
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.needs import needs
from aiter_conformance.ledger import Entry, Observation, explains
from aiter_conformance.matrix import CellState, Matrix, with_known
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.verdicts import Observations, Verdict


def compare_cells(
    before: Matrix,
    now: Matrix,
    records: tuple[Sequence[Evidence], Sequence[Evidence]],
    ledger: Sequence[Entry],
) -> list[Change]:
    """Compare two matrices cell by cell.

    Args:
        before: The matrix of the old release.
        now: The matrix of the new one, with the same cells.
        records: The evidence that the two rest on, for the kernels in its details.
        ledger: The known findings.

    Returns:
        A change for each cell, also for what is the same.
    """
    changes = []
    for cell, state in now.cells.items():
        was = before.cells[cell]
        kernels = [_kernels(side, cell) for side in records]
        found = change_of_verdicts(was.verdict, state.verdict)
        if found is ChangeClass.SAME and STANDING_OF_VERDICT[state.verdict] is Standing.GOOD:
            found = change_of_levels(_levels(was), _levels(state))
        bad = STANDING_OF_VERDICT[state.verdict] is Standing.BAD
        if found is ChangeClass.SAME and bad and was.reason != state.reason:
            found = ChangeClass.STILL_BAD
        if found is ChangeClass.SAME and kernels[0] != kernels[1]:
            found = ChangeClass.STILL_BAD if bad else ChangeClass.KERNEL_CHANGED
        items = [_item(cell, s, k) for s, k in zip((was, state), kernels, strict=True)]
        covered = _covered(found, cell, state, now, records[1], ledger)
        changes.append(Change(found, items[0], items[1], covered, state.reason))
    return changes


def _item(cell: Cell, state: CellState, kernels: Iterable[str]) -> Item:
    # A verdict is by the levels that the gate looked at, and no other: what is published may know more.
    passed = Kind.PASS.value
    levels = [level if how == passed else f"{level} {how}" for level, how in _levels(state).items()]
    message = f": {state.message}" if state.message else ""
    return Item(
        ItemKind.CELL,
        str(cell),
        STANDING_OF_VERDICT[state.verdict],
        f"{state.verdict.value} (by {', '.join(levels)}){message}",
        note="\n".join(kernels),
        provides=(f"cell {cell}",),
        rests_on=needs(cell),
    )


def _levels(state: CellState) -> dict[str, str]:
    return {level.value: how for level, how in state.levels.items()}


def _kernels(records: Iterable[Evidence], cell: Cell) -> tuple[str, ...]:
    """Return the families of kernels that are shipped for a cell; what is picked of them is for its cases."""
    found = []
    for record in records:
        outcome = record.outcomes.get(cell)
        if outcome is not None and record.level is Level.INVENTORY and "kernels" in outcome.details:
            found.append(f"kernels {', '.join(sorted(outcome.details['kernels']))}")
    return tuple(sorted(found))


def _covered(
    found: ChangeClass,
    cell: Cell,
    state: CellState,
    now: Matrix,
    records: Iterable[Evidence],
    ledger: Sequence[Entry],
) -> str | None:
    if found is ChangeClass.LOST:
        gone = Observation(now.release.version, cell=str(cell), kind=Kind.FAIL, reason=found.value)
        entry = explains(ledger, gone)
        return None if entry is None else f"ledger: {entry.id} ({entry.reported})"
    if found.direction >= 0 or state.verdict is not Verdict.KNOWN_BAD:
        return None
    used = [Loaded(record, "", "") for record in records if record.subject in (None, now.subject)]
    seen: dict[Level, list[Outcome]] = {}
    for record in (loaded.evidence for loaded in used):
        if cell in record.outcomes:
            seen.setdefault(record.level, []).append(record.outcomes[cell])
    entry = with_known(Observations(seen), ledger, now.release.version, cell, used).known
    return None if entry is None else f"ledger: {entry.id} ({entry.reported})"


def blind_boards(records: Iterable[Evidence]) -> set[str]:
    """Return the boards on which a release could not be traced: of its calls there, nothing can be said."""
    return {
        record.board
        for record in records
        if record.level is Level.TRACE
        and any(outcome.reason is Reason.INFRASTRUCTURE for outcome in record.outcomes.values())
    }


def not_run(records: Iterable[Evidence]) -> list[str]:
    """Return one sentence for each level and board where something around the observation was broken."""
    found: dict[str, str] = {}
    for record in records:
        for outcome in record.outcomes.values():
            if outcome.kind is Kind.NOT_RUN and outcome.reason is Reason.INFRASTRUCTURE:
                found.setdefault(f"{record.level.value} on {record.board}", outcome.message or "")
    return [f"{where}: {message}" for where, message in found.items()]
