"""Stubs of ledger entries for what fails, for a person to complete."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator

from aiter_conformance.gate.calls import CALLS, cell_of
from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.gate.report import Report
from aiter_conformance.ledger import CHANGES, without_line


def propose_ledger(report: Report) -> str:
    """Return stubs of ledger entries for what fails, for a human to complete.

    The fields that only a human can fill are empty, so that the ledger refuses a stub that nobody completed.
    What no entry can explain is said in a comment.
    """
    lines = [f"# Stubs for what fails from {report.old.version} to {report.new.version}."]
    for cause in report.failing:
        stubs = [*_stubs(cause, report.new.version)]
        lines += ["", f"# {cause.change.value} {cause.id}"]
        lines += stubs or ["# No entry can explain this: it has neither a finding nor a reason code."]
    return "\n".join(lines) + "\n"


def _stubs(cause: Cause, version: str) -> Iterator[str]:
    cells = [change for change in cause.changes if change.item.kind is ItemKind.CELL]
    calls = [change for change in cause.changes if change.item.kind in CALLS]
    others = [change for change in cause.changes if change not in cells and change not in calls]
    if cause.change.value not in CHANGES:
        yield from _cell_stubs(cause, cells, version)
        yield from _call_stubs(cause, calls, version)
        yield from _finding_stubs(cause, others, version)
        return
    if cells:
        yield from _stub(cause, version, cause.change.value, f"cells = {_array(c.item.key for c in cells)}")
    if others:
        places = {without_line((c.before or c.item).where) or (c.before or c.item).id for c in others}
        yield from _stub(cause, version, cause.change.value, f"paths = {_array(places)}")
        yield f"about = {_string(cause.id)}"


def _finding_stubs(cause: Cause, changes: Iterable[Change], version: str) -> Iterator[str]:
    findings: dict[tuple[str, str], set[str]] = {}
    for change in changes:
        for finding in change.now.findings if change.now else ():
            about = change.item.key if change.item.kind is ItemKind.ANCHOR else ""
            findings.setdefault((finding.code, about), set()).add(without_line(finding.path))
    for (code, about), paths in sorted(findings.items()):
        yield from _stub(cause, version, code, f"paths = {_array(paths)}")
        if about:
            yield f"about = {_string(about)}"


def _cell_stubs(cause: Cause, changes: Iterable[Change], version: str) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for change in changes:
        if change.reason is not None:
            by_reason.setdefault(change.reason, []).append(change.item.key)
    for reason, cells in by_reason.items():
        yield from _stub(cause, version, reason, f"cells = {_array(cells)}")


def _call_stubs(cause: Cause, changes: Iterable[Change], version: str) -> Iterator[str]:
    """Yield stubs for calls that are wrong: about their cells, at level trace, on their boards."""
    codes: dict[str, list[tuple[str, str]]] = {}
    for change in changes:
        for finding in change.now.findings if change.now else ():
            codes.setdefault(finding.code, []).append((cell_of(change.item), finding.path))
    for code, places in sorted(codes.items()):
        yield from _stub(cause, version, code, f"cells = {_array({cell for cell, _ in places})}")
        yield 'levels = ["trace"]'
        yield f"boards = {_array({board for _, board in places})}"


def _stub(cause: Cause, version: str, reason: str, match: str) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", "-", cause.id.lower()).strip("-")[:48].strip("-")
    digest = hashlib.sha256(f"{reason} {cause.id} {match}".encode()).hexdigest()[:6]  # long names are cut
    yield "[[entry]]"
    yield f"id = {_string(f'{name}-{digest}')}"
    yield 'title = "" # one line for people'
    yield 'upstream = "" # owner/repo#number, or "unreported" with page = "reports/findings/..."'
    yield 'effect = "expected-fail"'
    yield f"reason = {_string(reason)}"
    yield match
    yield f"releases = [{{ from = {_string(version)} }}]"


def _array(texts: Iterable[str]) -> str:
    return "[" + ", ".join(_string(text) for text in sorted(texts)) + "]"


def _string(text: str) -> str:
    """Return a TOML basic string."""
    return json.dumps(text)
