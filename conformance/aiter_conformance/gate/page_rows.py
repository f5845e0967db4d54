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
    count,
    listed,
    row_evidence,
    sides,
    wrapped,
)
from aiter_conformance.gate.report import Report

# Shapes of tuned rows that are shown for each board.
_SHAPES: Final = 4


def cell_rows(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield cells that changed with no cause below them, together where the same is said of them."""
    said: dict[tuple[ChangeClass, str | None, str], list[Change]] = defaultdict(list)
    for cause in causes:
        change = cause.changes[0]
        text = change.item.text if cause.change.direction < 0 else ""
        said[cause.change, cause.covered, text].append(change)
    for (found, covered, _), changes in said.items():
        names = compress_cells(change.item.key for change in changes)
        yield from wrapped(
            f"{found.value:<14} {count(len(changes), ItemKind.CELL)}", listed(names), indent="  "
        )
        if len(changes) > 1:
            yield f"      such as {changes[0].item.key}"
        yield from sides(changes[0], full=False)
        if covered is not None:
            yield from wrapped("explained by", covered)
        elif found.direction < 0:
            yield f"      reproduce: {report.command} --only '{changes[0].id}'"


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
            yield f"      ... {len(members) - shown} more shapes: --json has them"
        if found.direction < 0 and covered is None:
            yield f"      reproduce: {report.command} --only 'tuned:{board},'"


def call_rows(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield inputs of cells, or calls of models, that moved: in which ways, and of which cells or models."""
    classes: dict[tuple[ItemKind, ChangeClass, str | None], list[Change]] = defaultdict(list)
    for cause in causes:
        classes[cause.kind, cause.change, cause.covered] += cause.changes
    for (kind, found, covered), changes in classes.items():
        ways: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            ways[calls.how(change.before, change.now)].append(change)
        most = sorted(ways.items(), key=lambda way: (-len(way[1]), way[0]))
        in_ways = f"in {len(ways)} ways" if len(ways) > 1 else "in one way"
        yield f"  {found.value:<14} {count(len(changes), kind)}, {in_ways}"
        for way, members in most[:SHOWN]:
            yield from wrapped(f"{len(members)} {way}", listed(_owners(kind, members)))
            if found.direction < 0:
                yield f"        such as {members[0].item.key}"
                yield from (f"  {line}" for line in sides(members[0], full=False))
                if covered is None:
                    yield f"        reproduce: {report.command} --only '{kind.value}:{members[0].group}'"
        if len(ways) > SHOWN:
            yield f"      ... {len(ways) - SHOWN} more ways: --json has them"
        if covered is not None:
            yield from wrapped("explained by", covered)


def _owners(kind: ItemKind, changes: Iterable[Change]) -> list[str]:
    """Return the cells that inputs are of, or the models that calls are of, each with its boards."""
    if kind is ItemKind.CASE:
        return compress_cells(dict.fromkeys(change.item.key.partition(" ")[0] for change in changes))
    boards: dict[str, list[str]] = defaultdict(list)
    for group in dict.fromkeys(change.item.group for change in changes):
        model, _, board = group.partition(" on ")
        boards[model].append(board)
    return [f"{model} on {', '.join(found)}" for model, found in boards.items()]
