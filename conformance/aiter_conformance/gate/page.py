"""The gate's page of text: a decision, then causes with what follows from them, read in a minute."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from aiter_conformance.axes import load_axes
from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.report import Report

WIDTH: Final = 110
LINES: Final = 150
# Causes shown in full in each section; of tuned tables, shapes shown for each board.
_SHOWN: Final = 16
_SHAPES: Final = 6
# Kinds whose things have short names within their group.
_NAMED: Final = (ItemKind.PARAMETER, ItemKind.MEMBER, ItemKind.CHOICE)
_NEUTRAL: Final = (ChangeClass.KERNEL_CHANGED, ChangeClass.TUNED_CHANGED)


def render(report: Report, *, full: bool = False) -> str:
    """Return the page, ending in a newline; at most `LINES` lines.

    Args:
        report: What was found.
        full: Leave nothing out, however long it gets: for a report of a single cause.
    """
    failing = report.failing
    known = [cause for cause in report.causes if cause not in failing and cause.change.direction < 0]
    better = [cause for cause in report.causes if cause not in failing and cause.change.direction > 0]
    neutral = [cause for cause in report.causes if cause not in failing and cause.change in _NEUTRAL]
    lines = [*_head(report), ""]
    lines += _section("FAILS", failing, report, full, detail=True)
    lines += _section("WORSE, and explained (does not fail)", known, report, full, detail=True)
    lines += _section("BETTER", better, report, full)
    lines += _section("OTHERWISE (alone no regression)", neutral, report, full)
    lines += _foot(report)
    if not full and len(lines) > LINES:
        cut = len(lines) - LINES + 1
        foot = len(_foot(report))
        more = f"... {cut} more lines: --json has everything"
        lines = [*lines[: LINES - foot - 1], more, *lines[-foot:]]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def decision(report: Report) -> str:
    """Return the decision as one line."""
    if report.not_run:
        return f"NOT RUN (exit 3): {len(report.not_run)} observations could not be made"
    if report.failing:
        n = len(report.failing)
        return f"FAIL (exit 1): {n} {'cause fails' if n == 1 else 'causes fail'}"
    if not report.causes:
        return "PASS (exit 0): all same"
    return "PASS (exit 0): nothing regressed, was lost or broke callers without an explanation"


def _head(report: Report) -> Iterator[str]:
    yield f"AITER {report.old.version} -> {report.new.version}"
    yield decision(report)
    where = report.board or "all boards"
    yield f"subject {report.subject}; levels {', '.join(report.levels)}; {where}"
    yield from (f"NOT RUN {sentence}" for sentence in report.not_run)
    cells = report.counts.get(ItemKind.CELL, {})
    yield "cells: " + ", ".join(f"{n} {found.value}" for found, n in cells.items())


def _section(
    title: str, causes: Sequence[Cause], report: Report, full: bool, *, detail: bool = False
) -> Iterator[str]:
    if not causes:
        return
    yield f"{title}: {_counted(causes)}"
    tuned = [cause for cause in causes if cause.kind is ItemKind.TUNED]
    cells = [cause for cause in causes if cause.kind is ItemKind.CELL]
    plain = [cause for cause in causes if cause.kind not in (ItemKind.TUNED, ItemKind.CELL)]
    shown = plain if full else plain[:_SHOWN]
    for cause in shown:
        yield from _cause(cause, report, full, detail)
    if len(plain) > len(shown):
        yield f"  ... {len(plain) - len(shown)} more causes: --json has them"
    if full:
        for cause in (*cells, *tuned):
            yield from _cause(cause, report, full, detail)
    else:
        yield from _cells(cells, report)
        yield from _tuned(tuned, report)
    yield ""


def _counted(causes: Iterable[Cause]) -> str:
    by_class: dict[str, int] = defaultdict(int)
    for cause in causes:
        by_class[cause.change.value] += 1
    return ", ".join(f"{n} {found}" for found, n in by_class.items())


def _cause(cause: Cause, report: Report, full: bool, detail: bool) -> Iterator[str]:
    yield from textwrap.wrap(
        f"{cause.id}{_members(cause)}",
        WIDTH,
        initial_indent=f"  {cause.change.value:<14} ",
        subsequent_indent=" " * 17,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if full or cause.kind is not ItemKind.KERNEL:
        for change in cause.changes if full else cause.changes[:1]:
            yield from _sides(change, full)
    elif detail:
        for change in cause.changes[:_SHAPES]:
            yield from _wrapped(_short(change), _row_evidence(change))
    elif cause.change is ChangeClass.KERNEL_CHANGED:
        yield from _wrapped("how", ", ".join(sorted({_how_moved(change) for change in cause.changes})))
    if cause.covered is not None:
        yield from _wrapped("explained by", cause.covered)
    if cause.consequences:
        yield from _consequences(cause.consequences, full)
        cells = [change for change in cause.consequences if change.item.kind is ItemKind.CELL]
        if detail and cells and not full and cause.covered is None:
            yield f"      such as {cells[0].item.key}"
            yield from _sides(cells[0], full)
    if detail and cause.covered is None:
        yield f"      reproduce: {report.reproduce(cause)}"


def _members(cause: Cause) -> str:
    """Return which things of its group a cause is about, or how many where their names are long."""
    if cause.changes[0].id == cause.id:
        return ""
    if cause.kind is ItemKind.FINDING:
        files = sorted({change.item.where.rpartition("/")[2] for change in cause.changes})
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        return f" in {', '.join(files[:3])}{more}"
    if cause.kind in _NAMED:
        return f": {', '.join(_short(change) for change in cause.changes)}"
    return f" ({len(cause.changes)} of them)" if len(cause.changes) > 1 else ""


def _how_moved(change: Change) -> str:
    if change.now is None or change.before is None:
        return "another kernel of the same tile"
    return "new machine code" if change.now.note == change.before.note else "other settings"


def _short(change: Change) -> str:
    """Return the name of a thing within its group."""
    item = change.before or change.item
    return re.split(r"[ .(]", item.key.removesuffix(")"))[-1]


def _sides(change: Change, full: bool) -> Iterator[str]:
    old = _side_text(change.before, change.now, full)
    new = _side_text(change.now, change.before, full)
    name = f"{change.id}: " if full else ""
    renamed = change.before and change.now and change.before.key != change.now.key
    if renamed and change.now is not None:
        new = f"renamed to {change.now.key}, {new}"
    if len(old) + len(new) + len(name) < WIDTH - 20:
        yield f"      {name}{old} -> {new}"
    else:
        yield from _wrapped(f"{name}before", old)
        yield from _wrapped(f"{name}now", new)


def _side_text(item: Item | None, other: Item | None, full: bool) -> str:
    """Return what stands on one side; of a cell's kernels, those that the other side has not."""
    if item is None:
        return "nothing"
    text = item.findings[0].message.removeprefix(f"{item.key}: ") if item.findings else item.text
    if item.kind in (ItemKind.PARAMETER, ItemKind.ANCHOR) and not item.findings and item.note:
        text = f"{text} ({item.note})"
    if not full:
        text = textwrap.shorten(text, 200 if item.kind is ItemKind.CELL else 260, placeholder=" ...")
    if item.kind is ItemKind.CELL:
        text = f"{text} {_kernels(item, other, full)}"
    elif full and item.note:
        text = f"{text} [{item.note}]"
    at = f" at {item.where}" if item.where else ""
    return f"{text}{at}"


def _kernels(cell: Item, other: Item | None, full: bool) -> str:
    levels, *kernels = cell.note.split("\n")
    elsewhere = [] if other is None else other.note.split("\n")
    own = [line for line in kernels if line not in elsewhere]
    shown = own if full else own[:2]
    more = [f"and {len(own) - len(shown)} more"] if len(own) > len(shown) else []
    return f"[{'; '.join([levels, *shown, *more])}]"


def _wrapped(label: str, text: str, indent: str = "      ") -> Iterator[str]:
    yield from textwrap.wrap(
        f"{label}: {text}",
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _consequences(changes: Sequence[Change], full: bool) -> Iterator[str]:
    """Yield what follows from a cause: cells together where they say the same, the rest by kind."""
    if full:
        yield "      so that:"
        for change in changes:
            yield f"        {change.change.value:<14} {change.id}"
            yield from (f"  {line}" for line in _sides(change, full))
        return
    others: dict[tuple[ItemKind, ChangeClass], list[Change]] = defaultdict(list)
    for change in changes:
        others[change.item.kind, change.change].append(change)
    for (kind, found), members in others.items():
        if kind is ItemKind.CELL:
            names = compress_cells(change.item.key for change in members)
        else:
            names = list(dict.fromkeys(change.group for change in members))
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        yield from _wrapped(f"-> {_count(len(members), kind)} {found.value}", ", ".join(names[:6]) + more)


def compress_cells(cells: Iterable[str]) -> list[str]:
    """Return cells as few texts: those alike but for one axis are written together, ``{a,b}``.

    Activations are joined first, then routers, schemes and archs.
    """
    axes = load_axes()
    order = [list(axes.archs), list(axes.schemes), list(axes.activations), ["out", "in"]]
    texts = [tuple(cell.split("/")) for cell in cells]
    for axis in (2, 3, 1, 0):
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for parts in texts:
            groups[(*parts[:axis], *parts[axis + 1 :])].append(parts[axis])
        texts = [
            (*rest[:axis], _joined(sorted(values, key=order[axis].index)), *rest[axis:])
            if all(value in order[axis] for value in values)
            else (*rest[:axis], _joined(values), *rest[axis:])
            for rest, values in groups.items()
        ]
    return ["/".join(parts) for parts in texts]


def _count(number: int, kind: ItemKind) -> str:
    """Return how many things of a kind, e.g. ``1 cell``, ``2 tuned rows``."""
    noun = "tuned row" if kind is ItemKind.TUNED else kind.value
    plural = {"arch": "archs", "import": "broken imports"}.get(noun, f"{noun}s")
    singular = "broken import" if kind is ItemKind.IMPORT else noun
    return f"{number} {singular if number == 1 else plural}"


def _joined(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else "{" + ",".join(values) + "}"


def _cells(causes: Iterable[Cause], report: Report) -> Iterator[str]:
    """Yield cells that changed with no cause below them, together where the same is said of them."""
    said: dict[tuple[ChangeClass, str | None, str], list[Change]] = defaultdict(list)
    for cause in causes:
        change = cause.changes[0]
        text = change.item.text if cause.change.direction < 0 else ""
        said[cause.change, cause.covered, text].append(change)
    for (found, covered, _), changes in said.items():
        names = compress_cells(change.item.key for change in changes)
        more = f" and {len(names) - _SHAPES} more" if len(names) > _SHAPES else ""
        yield from _wrapped(
            f"{found.value:<14} {_count(len(changes), ItemKind.CELL)}",
            ", ".join(names[:_SHAPES]) + more,
            indent="  ",
        )
        if len(changes) > 1:
            yield f"      such as {changes[0].item.key}"
        yield from _sides(changes[0], full=False)
        if covered is not None:
            yield from _wrapped("explained by", covered)
        elif found.direction < 0:
            yield f"      reproduce: {report.command} --only '{changes[0].id}'"


def _tuned(causes: Iterable[Cause], report: Report) -> Iterator[str]:
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
            yield from _wrapped("explained by", covered)
        biggest = sorted(members, key=lambda cause: (-len(cause.changes), cause.group))
        for cause in biggest[:_SHAPES]:
            buckets = [change.item.note for change in cause.changes]
            span = buckets[0] if len(buckets) == 1 else f"{len(buckets)} token buckets"
            yield f"      {cause.group.partition(', ')[2]}: {span}"
            if found.direction < 0:
                seen = textwrap.shorten(_row_evidence(cause.changes[0]), WIDTH - 8, placeholder=" ...")
                yield f"        {seen}"
        if len(members) > _SHAPES:
            yield f"      ... {len(members) - _SHAPES} more shapes: --json has them"
        if found.direction < 0 and covered is None:
            yield f"      reproduce: {report.command} --only 'tuned:{board},'"


def _row_evidence(change: Change) -> str:
    """Return what became of a row of a table, with where it is to be seen."""
    was = "no row" if change.before is None else f"was {change.before.where}"
    if change.now is None:
        return f"{was}, now no row"
    wrong = change.now.findings[0].message if change.now.findings else change.now.text
    return f"{was}, now {change.now.where}: {wrong}"


def _foot(report: Report) -> list[str]:
    differing = [(name, old, new) for name, old, new in report.environment if old != new]
    words = []
    for kind, counted in report.counts.items():
        same, unknown = counted.get(ChangeClass.SAME, 0), counted.get(ChangeClass.UNKNOWN, 0)
        aside = f", {unknown} unknown on both sides" if unknown else ""
        words.append(f"{_count(sum(counted.values()), kind)} ({same} the same{aside})")
    lines = textwrap.wrap(f"Compared: {'; '.join(words)}.", WIDTH, subsequent_indent="  ")
    shown = dict.fromkeys(cause.change for cause in report.causes)
    lines += textwrap.wrap(
        "; ".join(f"{found.value}: {found.meaning}" for found in shown), WIDTH, subsequent_indent="  "
    )
    if differing:
        lines += [f"Environment differs: {name} {old or '-'} -> {new or '-'}" for name, old, new in differing]
    else:
        lines.append("Environment: the same on both sides.")
    lines.append(f"One cause in full: {report.command} --only ID")
    return lines
