"""Every accepted cell of every arch: all inputs that coverage.toml asks for give the right numbers.

What does not is in the ledger, with its reason and the size of the error. Anything else is a failure, so is
a finding of the ledger that does not show.
"""

from __future__ import annotations

import pytest

from aiter_conformance import contract, coverage
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Level
from aiter_conformance.golden import AITER_RELEASE
from aiter_conformance.ledger import Entry, Observation, explains
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.levels.reference import observe_cell
from aiter_conformance.outcome import Kind
from aiter_conformance.protocols import Subject

CELLS = [cell for cell in load_axes().cells() if contract.declaration(cell).kind is Kind.PASS]


LEDGER = [entry for entry in load_ledger() if entry.cells and set(entry.levels) <= {Level.REFERENCE}]


def entries_of(cell: Cell) -> tuple[list[Entry], list[Entry]]:
    """Return the ledger's entries about the whole cell, and those about single inputs of it."""
    whole, inputs = [], []
    cases = [coverage.problem_id(name, problem) for name, problem in coverage.problems(cell, "reference")]
    for entry in LEDGER:
        seen = (Observation(AITER_RELEASE, str(cell), case, level=Level.REFERENCE) for case in cases)
        if any(map(entry.matches, seen)):
            (inputs if entry.cases else whole).append(entry)
    return whole, inputs


@pytest.mark.parametrize("cell", CELLS, ids=str)
class TestCells:
    """One cell each."""

    def test_numbers(self, subject: Subject, cell: Cell) -> None:
        """All inputs are right; a known finding shows in exactly the way that is known."""
        outcome = observe_cell(subject, cell, LEDGER)
        whole, inputs = entries_of(cell)
        if not whole:
            assert (outcome.kind, outcome.message) == (Kind.PASS, None)
            assert sorted(outcome.details.get("known", {})) == sorted(entry.id for entry in inputs)
            return
        seen = Observation(
            AITER_RELEASE,
            str(cell),
            kind=outcome.kind,
            reason=outcome.reason,
            size=outcome.details.get("size"),
            message=outcome.message,
            level=Level.REFERENCE,
        )
        assert explains(whole, seen) is whole[0], outcome.message


class TestLedger:
    """What the ledger says of this level."""

    def test_wrong_numbers_are_bounded(self) -> None:
        """Each entry about wrong numbers says how wrong they may be, and by no more than a few times."""
        entries = [
            e for e in load_ledger() if e.levels == (Level.REFERENCE,) and e.reason == "numbers-differ"
        ]
        assert len(entries) >= 8
        assert [e.id for e in entries if e.bound is None or not 0.01 <= e.bound <= 5] == []

    def test_most_cells_are_right(self) -> None:
        """Each arch has cells without a finding about the whole cell: 118 of 159 in all."""
        right = [cell for cell in CELLS if not entries_of(cell)[0]]
        assert {cell.arch for cell in right} == {"gfx942", "gfx950", "gfx1250"}
        assert (len(right), len(CELLS)) == (118, 159)
