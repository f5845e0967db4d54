"""Why the matrix says of a cell what it says: the chain of evidence, in words and in its order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aiter_conformance.axes import Cell
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId
from aiter_conformance.ledger import Entry
from aiter_conformance.matrix import about, with_known
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.verdicts import TABLE, Observations, Verdict, rule

# Details that are counts or margins, in the order in which they are told; the rest is too long for words.
_TOLD: Final = (
    "cases",
    "ran",
    "of",
    "wrong",
    "refused",
    "bound_ratio",
    "row_error",
    "size",
    "tuned",
    "failed",
)
_WIDTH: Final = 110
# Inputs of a trace that are shown.
_SHOWN: Final = 3


@dataclass(frozen=True)
class Step:
    """One observation of the cell.

    Attributes:
        level: The level that looked.
        board: The board.
        record: The record, relative to the folder of reports.
        by: What took part: subject, release, harness and day.
        outcome: How it ended.
        seen: What was seen besides, in words.
    """

    level: Level
    board: str
    record: str
    by: str
    outcome: Outcome
    seen: str


@dataclass(frozen=True)
class Explanation:
    """The chain of evidence behind a verdict.

    Attributes:
        cell: The cell.
        release: The release.
        subject: ``name@version`` of the implementation that the verdict is about.
        verdict: The verdict.
        applied: The row of the table of verdicts that applied, as a clause.
        passed_over: The rows before it, which did not apply, each as (verdict, clause).
        known: The ledger's entry that explains what is broken, or None.
        unchecked: Which kernels were not checked, where the verdict is no better for want of that; or None.
        steps: What was observed, level by level.
        never: Levels that were never tried.
        commands: What makes the observations again.
    """

    cell: Cell
    release: ReleaseId
    subject: str
    verdict: Verdict
    applied: str
    passed_over: tuple[tuple[Verdict, str], ...]
    known: Entry | None
    unchecked: str | None
    steps: tuple[Step, ...]
    never: tuple[Level, ...]
    commands: tuple[str, ...]


def explain(
    cell: Cell, records: Iterable[Loaded], release: str, subject: str, ledger: Sequence[Entry]
) -> Explanation:
    """Return why a cell has its verdict; the same rules apply as to the matrix.

    Args:
        cell: The cell.
        records: Any evidence.
        release: Version of the release.
        subject: ``name@version`` of the implementation that the verdict is about.
        ledger: The known findings.

    Raises:
        UsageError: No evidence is about the release.
    """
    used = [r for r in about(records, release, subject) if r.evidence.subject in (None, subject)]
    releases = [r.evidence.release for r in used if r.evidence.release is not None]
    if not releases:
        msg = f"evidence of release {release} must be there (got none): run `aiter-conformance matrix build`"
        raise UsageError(msg)
    steps: list[Step] = []
    seen: dict[Level, list[Outcome]] = {}
    for record in sorted(used, key=lambda r: (list(Level).index(r.evidence.level), r.path)):
        outcome = record.evidence.outcomes.get(cell)
        if outcome is not None:
            seen.setdefault(record.evidence.level, []).append(outcome)
            steps.append(_step(record, outcome))
    observed = with_known(Observations(seen), ledger, release, cell, used)
    applied = rule(observed)
    return Explanation(
        cell=cell,
        release=releases[0],
        subject=subject,
        verdict=applied.verdict,
        applied=applied.when,
        passed_over=tuple((row.verdict, row.when) for row in TABLE[: TABLE.index(applied)]),
        known=observed.known,
        unchecked=observed.unchecked() if applied.verdict is Verdict.DECLARED else None,
        steps=tuple(steps),
        never=tuple(level for level in Level if level not in seen),
        commands=tuple(_commands(cell, releases[0], subject, steps)),
    )


def _step(record: Loaded, outcome: Outcome) -> Step:
    one = record.evidence
    parts = [
        one.subject or "",
        f"AITER {one.release.version}" if one.release else "",
        f"harness {one.harness}",
    ]
    by = ", ".join([part for part in parts if part] + [one.observed])
    return Step(one.level, one.board, record.path, by, outcome, "; ".join(_seen(one, outcome)))


def _seen(record: Evidence, outcome: Outcome) -> Iterator[str]:
    """Yield what an outcome's details say, as clauses."""
    kernels = outcome.details.get("kernels")
    if kernels:
        yield f"kernels {', '.join(kernels)}"
    told = [f"{name.replace('_', ' ')} {outcome.details[name]}" for name in _TOLD if name in outcome.details]
    if told:
        yield ", ".join(told)
    inputs = [
        (f"{name} {bucket}: {text}", "; wrong: " in text)
        for name, buckets in outcome.details.get("inputs", {}).items()
        for bucket, text in buckets.items()
    ]
    chosen = [text for text, wrong in inputs if wrong] or [text for text, _ in inputs]
    yield from chosen[:_SHOWN]
    if len(chosen) > _SHOWN:
        yield f"and {len(chosen) - _SHOWN} inputs more in {record.board}'s record"


def _commands(cell: Cell, release: ReleaseId, subject: str, steps: Iterable[Step]) -> Iterator[str]:
    """Yield what makes each observation again, once; ``RELEASE`` stands for what was looked at."""
    revision = f"v{release.version}"
    if release.version.startswith("main-"):
        revision = release.version.rpartition("-")[2]
    given = f"git:DIR@{revision}" if release.kind == "git" else "RELEASE"
    name = subject.partition("@")[0]
    option = "" if name == "impl" else f" --subject {name}"
    seen: set[str] = set()
    for step in steps:
        command = {
            Level.DECLARED: f"aiter-conformance evidence collect --level declared{option}",
            Level.CONTRACT: f"aiter-conformance evidence collect --level contract{option}",
            Level.REFERENCE: f"aiter-conformance case list {cell}  # then: case run CASE{option}",
            Level.INVENTORY: f"aiter-conformance matrix build {given} --level inventory{option}",
            Level.TRACE: f"aiter-conformance trace run {given} --board {step.board}",
            Level.ISA: f"aiter-conformance matrix build {given} --level isa{option}",
            Level.HARDWARE: f"aiter-conformance gpu run --cell {cell}{option}  # on {step.board}",
        }.get(step.level)  # nothing observes level compile yet
        if command is not None and command not in seen:
            seen.add(command)
            yield command


def to_text(found: Explanation, *, reports: str = "reports", origin: str | None = None) -> str:
    """Return the chain of evidence for people, ending in a newline.

    Args:
        found: The chain.
        reports: Folder of its records, relative to the checkout.
        origin: Where the matrix that shows the cell lies, to be named; None to leave that out.
    """
    lines = [
        f"{found.cell} with AITER {found.release.version}, subject {found.subject}: {found.verdict.value}",
        f"  {found.verdict.meaning}",
        f"  Rule: {found.applied}.",
        *([] if origin is None else [f"  From: {origin}."]),
    ]
    if found.passed_over:
        passed = "; ".join(f"{verdict.value} ({when})" for verdict, when in found.passed_over)
        lines.append(f"  It comes after rules that do not apply: {passed}.")
    if found.unchecked is not None:
        lines.append(f"  {found.unchecked}")
    if found.known is not None:
        lines.append(
            f"  Known: {found.known.id}: {found.known.title} ({found.known.page or found.known.upstream})."
        )
    for step in found.steps:
        lines += ["", f"{step.level.value} on {step.board}: {_ended(step.outcome)}"]
        lines.append(f"  asked: whether {step.level.meaning}")
        if step.outcome.message is not None:
            lines.append(f"  said: {step.outcome.message}")
        if step.seen:
            lines.append(f"  seen: {step.seen}")
        lines.append(f"  by {step.by}; {reports}/{step.record}")
    lines += ["", f"Never tried: {', '.join(level.value for level in found.never) or 'nothing'}.", ""]
    lines += ["To see it again:", *(f"  {command}" for command in found.commands)]
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    """Return a line as lines that are not too long; commands are left whole."""
    if line.startswith("  aiter-conformance"):
        return [line]
    return textwrap.wrap(
        line, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def _ended(outcome: Outcome) -> str:
    if outcome.kind is Kind.PASS:
        return "yes"
    reason = f" ({outcome.reason.value})" if outcome.reason is not None else ""
    return f"{outcome.kind.value.replace('_', ' ')}{reason}"
