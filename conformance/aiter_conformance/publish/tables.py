"""The rows and words in which a matrix is shown, on a terminal and on a page alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
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
    groups: list[tuple[dict[Router, CellState], dict[Router, CellState], list[str]]] = []
    for activation in axes.activations:
        states = {
            router: replace(matrix.cells[cell], peers={})
            for router in ROUTERS
            if (cell := Cell(arch, scheme, activation, router)) in chosen
        }
        alike = {router: _masked(state, activation) for router, state in states.items()}
        same = next((activations for other, _, activations in groups if other == alike), None)
        if same is not None:
            same.append(activation)
        elif states:
            groups.append((alike, states, [activation]))
    found = []
    for _, states, activations in groups:
        shown = {router: _said_of(state, activations) for router, state in states.items()}
        seen: list[CellState] = []
        for state in shown.values():
            if state not in seen:
                seen.append(state)
                routers = tuple(router for router, other in shown.items() if other == state)
                found.append(Row(arch, scheme, tuple(activations), routers, state))
    return found


def _masked(state: CellState, activation: str) -> CellState:
    """Return what is said of a cell with its activation masked, in names too: what is alike shares a row."""
    if state.message is None:
        return state
    return replace(state, message=re.sub(rf"(?<![a-z0-9]){activation}(?![a-z0-9])", "*", state.message))


def _said_of(state: CellState, activations: Sequence[str]) -> CellState:
    """Return what is said of the first of a row's activations in words that are true of all of them.

    The activation as a word of its own stands in a column of its own. Within a path, an id or a kernel's name
    it stays, or that would name nothing: one original is shown then, and whose it is.
    """
    if state.message is None:
        return state
    first = activations[0]
    message = state.message.replace(f"the activation {first}", "this activation")
    message = re.sub(rf"(?<![\w./:@-]){first}(?![\w/:@-]|\.\w)", "this activation", message)
    if len(activations) > 1 and _masked(replace(state, message=message), first).message != message:
        message = f"{message.rstrip('.')} (shown for {first})."
    return replace(state, message=message)


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
