"""Every accepted cell of every arch: all inputs that coverage.toml asks for give the right numbers.

What does not is listed here with its reason and the size of the error; anything else is a failure, and so is
a listed cell that passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiter_conformance import contract
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.families import load_families
from aiter_conformance.levels.reference import observe_cell
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.protocols import Subject

CELLS = [cell for cell in load_axes().cells() if contract.declaration(cell).kind is Kind.PASS]


@dataclass(frozen=True)
class Known:
    """Why a cell does not hold, and how far off it may be."""

    reason: Reason
    wrong: str  # all, some or none of the inputs that ran
    why: str


def known_finding(cell: Cell) -> Known | None:
    """Return what is known to be wrong with a cell, or None."""
    if not any(family.serves(cell) for family in load_families()):
        return Known(Reason.NO_KERNEL, "none", "the leaf accepts the cell and no kernel family computes it")
    if cell.scheme == "int4-w4a16" and cell.activation != "situ":
        why = "the w4a16 route calls with gate mode interleave, and Kimi-K3's int4 weights lie separated"
        return Known(Reason.NUMBERS_DIFFER, "all", why)
    if cell.scheme == "mxfp4-w4a16" and cell.activation == "situ":
        why = "AITER's SiTUv2 a16w4 kernels refuse an expert mask, and with it expert parallelism"
        return Known(Reason.NO_KERNEL, "none", why)
    return None


@pytest.mark.parametrize("cell", CELLS, ids=str)
class TestCells:
    """One cell each."""

    def test_numbers(self, subject: Subject, cell: Cell) -> None:
        """All inputs are right; a known finding shows in exactly the way that is known."""
        outcome = observe_cell(subject, cell)
        known = known_finding(cell)
        if known is None:
            assert (outcome.kind, outcome.message) == (Kind.PASS, None)
            return
        details = outcome.details
        kind = Kind.NOT_RUN if details["refused"] == details["cases"] else Kind.FAIL
        assert (outcome.kind, outcome.reason) == (kind, known.reason), known.why
        ran = details["cases"] - details["refused"]
        assert details["wrong"] == (ran if known.wrong == "all" else 0), known.why
        # wrong by about as much as the numbers are large: not NaN, not infinite, not off by orders
        assert details["row_error"] in ("> 100", "<= 0.1", "<= 0.25", "<= 0.5")
        assert details["bound_ratio"] != "not finite"


def test_something_is_tested() -> None:
    """Each arch has cells, and most of those that any kernel family computes have no known finding."""
    served = [c for c in CELLS if any(family.serves(c) for family in load_families())]
    assert {c.arch for c in served} == {"gfx942", "gfx950", "gfx1250"}
    assert sum(known_finding(c) is None for c in served) > 0.9 * len(served)
