"""The gate's page of text: a decision, then causes with what follows from them, read in a minute."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.gate.page_causes import WIDTH, brief_lines, cause_lines, count, listed
from aiter_conformance.gate.page_rows import moved_rows, tuned_rows, wrong_rows
from aiter_conformance.gate.report import DEFAULT_LEVELS, Report

LINES: Final = 150
# Causes of no table that are shown in full in each section.
_SHOWN: Final = 16
# Objects with new machine code that are named below the decision.
_OBJECTS: Final = 3
Rows = Callable[[Sequence[Cause], Report], Iterator[str]]
_NEUTRAL: Final = (ChangeClass.KERNEL_CHANGED, ChangeClass.TUNED_CHANGED)
# Kinds of cause that are shown as rows, many changes alike in a line.
_ROWS: Final[dict[ItemKind, Rows]] = {
    ItemKind.DISPATCH: wrong_rows,
    ItemKind.CELL: moved_rows,
    ItemKind.CASE: moved_rows,
    ItemKind.MODEL: moved_rows,
    ItemKind.TUNED: tuned_rows,
}


def render(report: Report, *, full: bool = False) -> str:
    """Return the page, ending in a newline; at most `LINES` lines.

    Args:
        report: What was found.
        full: Leave nothing out, however long it gets: for a report of a single cause.
    """
    failing = report.failing
    known = [cause for cause in report.causes if cause not in failing and cause.change.direction < 0]
    better = [cause for cause in report.causes if cause not in failing and cause.change.direction > 0]
    bad = [c for c in report.causes if c not in failing and c.change is ChangeClass.STILL_BAD]
    neutral = [cause for cause in report.causes if cause not in failing and cause.change in _NEUTRAL]

    def whole(brief: bool) -> list[str]:
        still = "STILL BAD, otherwise (no regression, and not mended)"
        return [
            *_head(report),
            "",
            *_section("FAILS", failing, report, full, detail=True),
            *_section("WORSE, and explained (does not fail)", known, report, full, detail=True),
            *([f"{still}: {_counted(bad)}", ""] if brief and bad else _section(still, bad, report, full)),
            *_section("BETTER", better, report, full, brief=brief),
            *_section("OTHERWISE (alone no regression)", neutral, report, full, brief=brief),
            *_foot(report),
        ]

    lines = whole(brief=False)
    if not full and len(lines) > LINES:  # what fails keeps its detail; the rest is named
        lines = whole(brief=True)
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
    explained = _explained(report)
    if report.failing:
        return f"FAIL (exit 1): {'; '.join(_failing(report.failing))}{explained}"
    at = ""
    if report.left_out:
        without = ", ".join(f"{level} NOT RUN" for level in report.left_out)
        at = f" at levels {', '.join(report.levels)}, {without}"
    if not report.causes:
        return f"PASS (exit 0){at}: all same"
    return f"PASS (exit 0){at}: nothing fails that is not explained{explained}"


def unjudged(report: Report) -> str:
    """Return what the gate says of the machine code that is new, without an end."""
    number = len(report.new_code)
    objects, were = ("object", "was") if number == 1 else ("objects", "were")
    return f"{number} {objects} with new machine code {were} not judged by the gate"


def _failing(causes: Sequence[Cause]) -> Iterator[str]:
    """Yield what fails, the classes apart: a lost tuned shape costs speed, a regression right answers."""
    by_class: dict[ChangeClass, list[Cause]] = defaultdict(list)
    for cause in causes:
        by_class[cause.change].append(cause)
    for found, members in by_class.items():
        if found is ChangeClass.REGRESSED:
            yield f"{len(members)} {'regression' if len(members) == 1 else 'regressions'}"
        elif found is ChangeClass.LOST:
            tuned = sum(cause.kind is ItemKind.TUNED for cause in members)
            parts = [f"{tuned} tuned {'shape' if tuned == 1 else 'shapes'} (speed)"] if tuned else []
            kinds = Counter(cause.kind for cause in members if cause.kind is not ItemKind.TUNED)
            yield f"lost: {', '.join([*(count(n, kind) for kind, n in kinds.items()), *parts])}"
        else:
            yield f"{len(members)} {found.value}"


def _explained(report: Report) -> str:
    """Return how much got worse and does not fail because the ledger or the contract explains it."""
    causes = [c for c in report.causes if c.covered is not None and c.change.direction < 0]
    if not causes:
        return ""
    worse = [
        change.item.kind
        for cause in causes
        for change in (*cause.changes, *cause.consequences)
        if change.change.direction < 0
    ]
    kinds = Counter(worse)
    met = [count(kinds[kind], kind) for kind in (ItemKind.CELL, ItemKind.CASE, ItemKind.MODEL) if kinds[kind]]
    return f", and {len(causes)} explained{': ' if met else ''}{', '.join(met)}"


def _head(report: Report) -> Iterator[str]:
    yield report.title
    yield decision(report)
    if report.new_code:
        names = listed([code.path for code in report.new_code], most=_OBJECTS)
        yield from textwrap.wrap(f"{unjudged(report)}: {names}. What judges them:", WIDTH)
        yield f"  {report.judge_command}"
    where = ", ".join([report.board or "all boards", *([report.model] if report.model else [])])
    yield f"subject {report.subject}; levels {', '.join(report.levels)}; {where}"
    if {*report.levels} <= {*DEFAULT_LEVELS}:
        yield "cells by these levels alone; --evidence reports takes along what is published of others"
    yield from (f"NOT RUN {sentence}" for sentence in report.not_run)
    for kind in (ItemKind.CELL, ItemKind.CASE, ItemKind.MODEL):
        counted = report.counts.get(kind, {})
        if counted:
            shown = ", ".join(f"{n} {found.value}" for found, n in counted.items())
            yield f"{count(2, kind).removeprefix('2 ')}: {shown}"


def _section(
    title: str,
    causes: Sequence[Cause],
    report: Report,
    full: bool,
    *,
    detail: bool = False,
    brief: bool = False,
) -> Iterator[str]:
    if not causes:
        return
    yield f"{title}: {_counted(causes)}"
    plain = [cause for cause in causes if _rows_of(cause) is None]
    shown = plain if full else plain[:_SHOWN]
    for cause in shown:
        yield from brief_lines(cause) if brief else cause_lines(cause, report, full, detail)
    if len(plain) > len(shown):
        yield f"  ... {len(plain) - len(shown)} more causes: --json has them"
    for rows in dict.fromkeys(_ROWS.values()):
        members = [cause for cause in causes if _rows_of(cause) is rows]
        if full:
            for cause in members:
                yield from cause_lines(cause, report, full, detail)
        else:
            yield from rows(members, report)
    yield ""


def _rows_of(cause: Cause) -> Rows | None:
    """Return what shows a cause together with others; None for one that is shown by itself."""
    if cause.kind is ItemKind.DISPATCH and cause.changes[0].item.kind is ItemKind.DISPATCH:
        return None
    if cause.kind is ItemKind.CELL and cause.changes[0].group != cause.group:
        return wrong_rows
    return _ROWS.get(cause.kind)


def _counted(causes: Iterable[Cause]) -> str:
    by_class: dict[str, int] = defaultdict(int)
    for cause in causes:
        by_class[cause.change.value] += 1
    return ", ".join(f"{n} {found}" for found, n in by_class.items())


def _foot(report: Report) -> list[str]:
    differing = [(name, old, new) for name, old, new in report.environment if old != new]
    words = []
    for kind, counted in report.counts.items():
        same, unknown = counted.get(ChangeClass.SAME, 0), counted.get(ChangeClass.UNKNOWN, 0)
        aside = f", {unknown} unknown on both sides" if unknown else ""
        words.append(f"{count(sum(counted.values()), kind)} ({same} the same{aside})")
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
