"""Many changes alike, as few lines of the gate's page: cells, tuned rows, inputs, calls of models."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from aiter_conformance.gate import calls
from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.gate.page_causes import (
    SHOWN,
    WIDTH,
    compress_cells,
    consequences,
    count,
    listed,
    row_evidence,
    sides,
    wrapped,
)
from aiter_conformance.gate.report import Report

# Shapes of tuned rows that are shown for each board.
_SHAPES: Final = 4
# Ways in which calls got worse that are shown, each with an example.
_WAYS: Final = 3


def cell_rows(changes: Iterable[Change], found: ChangeClass) -> Iterator[str]:
    """Yield cells that changed with no cause below them, together where the same is said of them."""
    said: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        said[change.item.text if found.direction < 0 else ""].append(change)
    for members in said.values():
        names = compress_cells(change.item.key for change in members)
        yield from wrapped(
            f"{found.value:<14} {count(len(members), ItemKind.CELL)}", listed(names), indent="  "
        )
        if len(members) > 1:
            yield f"      such as {members[0].item.key}"
        yield from sides(members[0], full=False)


def call_rows(changes: Iterable[Change], found: ChangeClass) -> Iterator[str]:
    """Yield inputs of cells, or calls of models, that moved: in which ways, and of which cells or models."""
    kinds: dict[ItemKind, list[Change]] = defaultdict(list)
    for change in changes:
        kinds[change.item.kind].append(change)
    for kind, members in kinds.items():
        ways: dict[str, list[Change]] = defaultdict(list)
        for change in members:
            ways[calls.how(change.before, change.now)].append(change)
        most = sorted(ways.items(), key=lambda way: (-len(way[1]), way[0]))
        in_ways = f"in {len(ways)} ways" if len(ways) > 1 else "in one way"
        yield f"  {found.value:<14} {count(len(members), kind)}, {in_ways}"
        shown = _WAYS if found.direction < 0 else SHOWN
        for way, moved in most[:shown]:
            yield from wrapped(f"{len(moved)} {way}", listed(_owners(kind, moved)))
            if found.direction < 0:
                yield f"        such as {moved[0].item.key}"
                yield from (f"  {line}" for line in sides(moved[0], full=False))
        if len(ways) > shown:
            yield f"      ... {_more(len(ways) - shown, 'way')}: --json has them"


def _more(number: int, noun: str) -> str:
    return f"{number} more {noun}" if number == 1 else f"{number} more {noun}s"


def _owners(kind: ItemKind, changes: Iterable[Change]) -> list[str]:
    """Return the cells that inputs are of, or the models that calls are of, each with its boards."""
    if kind is ItemKind.CASE:
        return compress_cells(dict.fromkeys(change.item.key.partition(" ")[0] for change in changes))
    boards: dict[str, list[str]] = defaultdict(list)
    for group in dict.fromkeys(change.item.group for change in changes):
        model, _, board = group.partition(" on ")
        boards[model].append(board)
    return [f"{model} on {', '.join(found)}" for model, found in boards.items()]


def wrong_rows(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield causes that cells, inputs and models have in common, each kind as rows."""
    for cause in causes:
        yield f"  {cause.change.value:<14} {cause.id}"
        yield from _rows(cause.changes, cause.change, indent="  ")
        if cause.consequences:
            yield from consequences(cause.consequences)
        if cause.covered is not None:
            yield from wrapped("explained by", cause.covered)
        elif cause.change.direction < 0:
            yield f"      reproduce: {report.reproduce(cause)}"


def moved_rows(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield cells, inputs and models that changed each for itself, many in a line."""
    classes: dict[tuple[ItemKind, ChangeClass, str | None], list[Cause]] = defaultdict(list)
    for cause in causes:
        classes[cause.kind, cause.change, cause.covered].append(cause)
    for (_, found, covered), members in classes.items():
        yield from _rows([change for cause in members for change in cause.changes], found)
        if covered is not None:
            yield from wrapped("explained by", covered)
        elif found.direction < 0:
            yield f"      reproduce: {report.reproduce(members[0])}"


def _rows(changes: Iterable[Change], found: ChangeClass, indent: str = "") -> Iterator[str]:
    cells = [change for change in changes if change.item.kind is ItemKind.CELL]
    others = [change for change in changes if change.item.kind is not ItemKind.CELL]
    yield from (f"{indent}{line}" for line in cell_rows(cells, found))
    yield from (f"{indent}{line}" for line in call_rows(others, found))


def tuned_rows(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield tuned rows by board and class: how many, and of which shapes."""
    boards: dict[tuple[ChangeClass, str, str | None], list[Cause]] = defaultdict(list)
    for cause in causes:
        boards[cause.change, cause.group.partition(",")[0], cause.covered].append(cause)
    for (found, board, covered), members in boards.items():
        rows = sum(len(cause.changes) for cause in members)
        yield (
            f"  {found.value:<14} tuned rows for {board}: "
            f"{rows} {'row' if rows == 1 else 'rows'} of {len(members)} "
            f"{'shape' if len(members) == 1 else 'shapes'}"
        )
        if covered is not None:
            yield from wrapped("explained by", covered)
        biggest = sorted(members, key=lambda cause: (-len(cause.changes), cause.group))
        shown = _SHAPES if found.direction < 0 else _SHAPES - 1
        for cause in biggest[:shown]:
            buckets = [change.item.note for change in cause.changes]
            span = buckets[0] if len(buckets) == 1 else f"{len(buckets)} token buckets"
            yield f"      {cause.group.partition(', ')[2]}: {span}"
            if found.direction < 0:
                seen = textwrap.shorten(row_evidence(cause.changes[0]), WIDTH - 8, placeholder=" ...")
                yield f"        {seen}"
        if len(members) > shown:
            yield f"      ... {_more(len(members) - shown, 'shape')}: --json has them"
        if found.direction < 0 and covered is None:
            yield f"      reproduce: {report.command} --only 'tuned:{board}'"
