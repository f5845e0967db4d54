"""The rows and words in which a matrix is shown, on a terminal and on a page alike."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from aiter_conformance.axes import ROUTERS, Axes, Cell, Router
from aiter_conformance.evidence import Level
from aiter_conformance.matrix import CellState, Matrix
from aiter_conformance.verdicts import Verdict

ROUTER_WORDS: dict[Router, str] = {"out": "output", "in": "input"}


@dataclass(frozen=True)
class Row:
    """Cells of one arch and scheme of which the same is said.

    Attributes:
        arch: The arch.
        scheme: The scheme.
        activations: The activations, in display order.
        routers: Where the router weight multiplies, in display order.
        state: What the matrix says of each of the cells.
    """

    arch: str
    scheme: str
    activations: tuple[str, ...]
    routers: tuple[Router, ...]
    state: CellState


def rows(matrix: Matrix, axes: Axes, cells: Collection[Cell]) -> list[Row]:
    """Return the rows that show the given cells, as few as possible, in display order."""
    chosen = set(cells)
    return [
        row
        for arch in axes.archs
        for scheme in axes.schemes
        for row in _rows_of_scheme(matrix, axes, arch, scheme, chosen)
    ]


def _rows_of_scheme(matrix: Matrix, axes: Axes, arch: str, scheme: str, chosen: set[Cell]) -> list[Row]:
    # First the activations that agree for both places of the router weight, then the places that agree.
    groups: list[tuple[dict[Router, CellState], list[str]]] = []
    for activation in axes.activations:
        cells = {router: Cell(arch, scheme, activation, router) for router in ROUTERS}
        states = {
            router: replace(_unnamed(matrix.cells[cell], activation), peers={})
            for router, cell in cells.items()
            if cell in chosen
        }
        same = next((activations for other, activations in groups if other == states), None)
        if same is not None:
            same.append(activation)
        elif states:
            groups.append((states, [activation]))
    found = []
    for states, activations in groups:
        seen: list[CellState] = []
        for state in states.values():
            if state not in seen:
                seen.append(state)
                routers = tuple(router for router, other in states.items() if other == state)
                found.append(Row(arch, scheme, tuple(activations), routers, state))
    return found


def _unnamed(state: CellState, activation: str) -> CellState:
    """Return what is said of a cell without the activation's name, which stands in a column of its own.

    Otherwise no two activations would be refused in the same words.
    """
    if state.message is None:
        return state
    message = state.message.replace(f"the activation {activation}", "this activation")
    return replace(state, message=re.sub(rf"(?<![\w.-]){activation}(?![\w-])", "this activation", message))


def level_words(state: CellState) -> str:
    """Return what each level that was run gave, e.g. ``declared yes, inventory no``.

    Of a cell that the leaf refuses only that is said: nobody can call what the other levels looked at.
    """
    words = {"pass": "yes", "refused": "no", "fail": "no", "not_run": "not shown"}
    levels = state.levels
    if state.verdict is Verdict.UNSUPPORTED:
        levels = {Level.DECLARED: levels[Level.DECLARED]}
    said = [f"{level.value} {words.get(how, how)}" for level, how in levels.items()]
    return ", ".join(said) or "never tried"


def count_verdicts(matrix: Matrix, arch: str) -> dict[Verdict, int]:
    """Return how many cells of an arch have each verdict; verdicts without cells are left out."""
    states = [state for cell, state in matrix.cells.items() if cell.arch == arch]
    counts = {verdict: sum(state.verdict is verdict for state in states) for verdict in Verdict}
    return {verdict: count for verdict, count in counts.items() if count}


def peers(matrix: Matrix) -> list[str]:
    """Return the other subjects that the matrix knows, sorted."""
    return sorted({who for state in matrix.cells.values() for who in state.peers})


def peer_rows(matrix: Matrix, axes: Axes, peer: str) -> list[Row]:
    """Return the rows that show what another subject does, for the cells that it was asked about."""
    asked = {cell: state.peers[peer] for cell, state in matrix.cells.items() if peer in state.peers}
    states = {
        cell: CellState(Verdict.UNKNOWN, state.levels, None, state.message, {}, ())
        for cell, state in asked.items()
    }
    return rows(replace(matrix, cells=states), axes, states)


def never_run(matrix: Matrix) -> list[Level]:
    """Return the levels of which the matrix holds no record at all, weakest first."""
    run = {source.level for source in matrix.sources if source.subject in (None, matrix.subject)}
    return [level for level in Level if level not in run]
