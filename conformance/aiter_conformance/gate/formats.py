"""The gate's report for other readers: a pull request, a summary in CI, JUnit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Final

from aiter_conformance.gate.calls import CALLS
from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.page import decision, render, unjudged
from aiter_conformance.gate.page_causes import compress_cells, each, listed, short_name
from aiter_conformance.gate.report import Report
from aiter_conformance.publish.markdown import table

# Rows of a Markdown table before it ends with how many more there are.
_ROWS: Final = 30
_UNFIT_FOR_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")


def to_markdown(report: Report) -> str:
    """Return the report for the pull request of a bump: the decision, tables, and the page of text folded."""
    sections = [_heading(report)]
    sections += _tables(report)
    page = render(report)
    sections.append(
        f"<details><summary>The page of text</summary>\n\n```text\n{page}```\n\n</details>\n\n"
        f"Made by `{report.command}`."
    )
    return "\n\n".join(sections) + "\n"


def to_summary(report: Report) -> str:
    """Return the summary of a step in hosted CI: the decision and what fails, as Markdown."""
    deepest = sorted(report.failing, key=lambda cause: cause.kind.rank)  # what callers break on comes first
    failing = _table(deepest) if deepest else "Nothing fails."
    return "\n\n".join([_heading(report), failing, f"In full: `{report.command}`"]) + "\n"


def _heading(report: Report) -> str:
    parts = [f"## {report.title}: {decision(report)}"]
    if report.new_code:
        names = listed([f"`{code.path}`" for code in report.new_code])
        parts.append(f"{unjudged(report)}: {names}. What judges them: `{report.judge_command}`.")
    parts += [f"- NOT RUN {sentence}" for sentence in report.not_run]
    counted = ", ".join(f"{n} {found.value}" for found, n in report.counts.get(ItemKind.CELL, {}).items())
    where = report.board or "all boards"
    parts.append(f"Cells: {counted}. Subject {report.subject}, {where}, levels {', '.join(report.levels)}.")
    return "\n\n".join(parts)


def _tables(report: Report) -> Iterator[str]:
    failing = report.failing
    rest = [cause for cause in report.causes if cause not in failing]
    for title, causes in (
        ("Fails", failing),
        ("Worse, and explained", [cause for cause in rest if cause.change.direction < 0]),
        ("Better", [cause for cause in rest if cause.change.direction > 0]),
        ("Otherwise", [cause for cause in rest if cause.change.direction == 0]),
    ):
        if causes:
            yield f"### {title}\n\n{_table(causes)}"


def _table(causes: Sequence[Cause]) -> str:
    body = [
        [cause.change.value, f"`{cause.id}`", _evidence(cause), _consequences(cause), cause.covered or ""]
        for cause in causes[:_ROWS]
    ]
    more = f"\n\n{len(causes) - _ROWS} more rows: `--json` has them." if len(causes) > _ROWS else ""
    return table(["class", "cause", "before -> now", "so that", "explained by"], body) + more


def _evidence(cause: Cause) -> str:
    shown = each(cause)
    texts = [_both_sides(change, named=len(shown) > 1) for change in shown]
    more = f" (and {len(cause.changes) - len(shown)} more)" if len(cause.changes) > len(shown) else ""
    places = dict.fromkeys(change.item.where for change in shown if change.item.where)
    where = f" at {', '.join(places)}" if places else ""
    return f"{'; '.join(texts)}{where}{more}"


def _both_sides(change: Change, *, named: bool) -> str:
    """Return what stood and what stands, each by its own name where a thing is renamed."""
    sides = [
        "nothing" if item is None else (item.findings[0].message if _speaks(item) else item.text)
        for item in (change.before, change.now)
    ]
    if change.before is not None and change.now is not None and change.before.key != change.now.key:
        names = [short_name(item) for item in (change.before, change.now)]
        return f"{names[0]}, {sides[0]} -> renamed to {names[1]}, {sides[1]}"
    name = f"{short_name(change.item)}: " if named else ""
    return f"{name}{sides[0]} -> {sides[1]}"


def _speaks(item: Item) -> bool:
    """Say whether an item's findings say more of it than its text does."""
    return bool(item.findings) and item.kind not in CALLS


def _consequences(cause: Cause) -> str:
    cells = [change for change in cause.consequences if change.item.kind is ItemKind.CELL]
    others = len(cause.consequences) - len(cells)
    parts = [f"{len(cells)} cells: {', '.join(compress_cells(c.item.key for c in cells))}"] if cells else []
    parts += [f"{others} other things"] if others else []
    return "; ".join(parts)


def to_junit(report: Report) -> str:
    """Return the report as JUnit XML: a test case for the decision and one for each cause.

    A cause that fails is a failure, one that is explained is skipped with its explanation, and what could not
    be run is an error.
    """
    cases = [*_cases(report)]
    suite = ET.Element(
        "testsuite",
        name=f"aiter-gate {report.old.version} -> {report.new.version}",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
    )
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases(report: Report) -> Iterator[ET.Element]:
    whole = ET.Element("testcase", classname="gate", name="observations")
    if report.not_run:
        error = ET.SubElement(whole, "error", message=_plain("; ".join(report.not_run)), type="not-run")
        error.text = _plain("\n".join(report.not_run))
    yield whole
    failing = report.failing
    for cause in report.causes:
        name = f"{cause.change.value} {cause.id}"
        case = ET.Element("testcase", classname=f"gate.{cause.kind.value}", name=_plain(name))
        if cause in failing:
            failure = ET.SubElement(
                case, "failure", message=_plain(_evidence(cause)), type=cause.change.value
            )
            failure.text = _plain(f"{_consequences(cause)}\nreproduce: {report.reproduce(cause)}".strip())
        elif cause.covered is not None:
            ET.SubElement(case, "skipped", message=_plain(cause.covered))
        yield case


def _plain(text: str) -> str:
    return _UNFIT_FOR_XML.sub("?", text)
