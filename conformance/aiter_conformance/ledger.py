"""The ledger of known findings, and what it makes of what was observed.

An entry says which observations it explains, how they must look, and until which release. It never hides
anything else: another reason, another cause, a larger failure, a success and an observation after its release
are faults, and so is an entry that explains nothing at all where its releases were looked at.
``conformance/docs/ledger.md`` explains the rules to whoever writes an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from aiter_conformance.outcome import Kind
from aiter_conformance.release.version import version_key

# Code of the findings in which the contract's own hazards are recorded (`checks.hazards`).
HAZARD: Final = "contract-hazard"
# What only a comparison of two releases shows, as `gate.classes.ChangeClass` calls it: what was known before
# is not known any more, or callers meet another interface.
CHANGES: Final = ("lost", "api-changed")

# What stands for upstream's number where there is none; the entry has a page then.
UNREPORTED: Final = "unreported"

_FILE_AND_LINE: Final = re.compile(r"(.*[./].*):[0-9]+")


class Effect(StrEnum):
    """What an entry does to the cases that it matches."""

    EXPECTED_FAIL = "expected-fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Window:
    """A range of releases.

    Attributes:
        first: The first release in it.
        before: The first release after it; None for no end. States of main come after every release.
    """

    first: str
    before: str | None

    def __contains__(self, version: str) -> bool:
        key = version_key(version)
        return version_key(self.first) <= key and (self.before is None or key < version_key(self.before))


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one release: the outcome of a cell or case, or a finding.

    Attributes:
        release: Version of the release.
        cell: The cell, for an outcome.
        case: The case's id, if a single case ran.
        kind: How it ended, for an outcome.
        reason: The reason of the outcome, or the code of the finding; None for a pass.
        size: How large the failure is, in the unit of the check, if it has a size.
        path: For a finding, what it is about: a file, a board or a hazard.
        message: The sentence that came with it.
        level: The level of evidence.
        board: The board, or the arch at a level that does not ask for the number of CUs; None if unknown.
        alone: Whether it is one input of a cell that is observed as a whole besides: only entries that name
            cases are about it.
    """

    release: str
    cell: str | None = None
    case: str | None = None
    kind: Kind | None = None
    reason: str | None = None
    size: float | None = None
    path: str | None = None
    message: str | None = None
    level: str | None = None
    board: str | None = None
    alone: bool = False

    def __str__(self) -> str:
        where = f" on {self.board}" if self.board is not None and self.path is None else ""
        at = f" at level {self.level}" if self.level is not None else ""
        return f"{self.case or self.cell or self.path} of {self.release}{where}{at}"


def without_line(path: str) -> str:
    """Return what a finding is about without the line: ``a/b.py:12`` is ``a/b.py``, a board stays whole."""
    match = _FILE_AND_LINE.fullmatch(path)
    return match[1] if match else path


@dataclass(frozen=True, slots=True)
class Entry:
    """One known finding.

    Attributes:
        id: Its name, in small letters and hyphens.
        title: One line for people.
        upstream: ``owner/repo#n``, or ``unreported``.
        page: The finding's page in the repository, with a reproducer; needed when it is unreported.
        effect: What it does to cases.
        reason: The reason that its failures must have, or the code that its findings must have.
        releases: The releases that have it; empty for all.
        cells: Patterns of cells, ``*`` for any text; empty if it is about findings.
        levels: Levels of evidence at which its cells fail; empty for all.
        boards: Patterns of the boards on which its cells fail; empty for all.
        cases: Patterns of case ids within those cells; empty for all.
        paths: Patterns of what its findings are about; empty if it is about cells.
        about: A text that the message of each of its findings or failures holds; empty for any.
        bound: The largest failure that it explains, in the unit of the check; None if its failures have no
            size.
        until: The release from which on it must be gone; None while nobody has promised one.
    """

    id: str
    title: str
    upstream: str
    page: str | None
    effect: Effect
    reason: str
    releases: tuple[Window, ...]
    cells: tuple[str, ...]
    levels: tuple[str, ...]
    boards: tuple[str, ...]
    cases: tuple[str, ...]
    paths: tuple[str, ...]
    about: str
    bound: float | None
    until: str | None

    def matches(self, seen: Observation) -> bool:
        """Say whether the entry is about *seen*, whatever its outcome."""
        if not self.covers(seen.release):
            return False
        if seen.path is not None:
            about = self.about in (seen.message or "")
            return seen.reason == self.reason and about and _any(self.paths, seen.path)
        if seen.cell is None or not self.names(seen.cell):
            return False
        if self.levels and seen.level not in self.levels:
            return False
        if self.boards and seen.board is not None and not _any(self.boards, seen.board):
            return False
        if not self.cases:
            return not seen.alone
        return seen.case is not None and _any(self.cases, seen.case)

    def names(self, cell: str) -> bool:
        """Say whether one of its patterns is of a cell."""
        return _any(self.cells, cell)

    @property
    def unreported(self) -> bool:
        """Whether nobody has told upstream."""
        return self.upstream == UNREPORTED

    @property
    def reported(self) -> str:
        """Where upstream was told, for people."""
        return "not reported upstream" if self.unreported else self.upstream

    def covers(self, release: str) -> bool:
        """Say whether a release is in one of the entry's windows."""
        return not self.releases or any(release in window for window in self.releases)


class FaultKind(StrEnum):
    """What is wrong between the ledger and what was observed."""

    UNEXPECTED_PASS = "unexpected-pass"  # noqa: S105 -- not a password
    OTHER_REASON = "other-reason"
    BEYOND_BOUND = "beyond-bound"
    LAUNCHED = "launched"
    EXPIRED = "expired"
    UNMATCHED = "unmatched"

    @property
    def advice(self) -> str:
        """What to do about it, one sentence."""
        return _ADVICE[self]


_ADVICE: Final = {
    FaultKind.UNEXPECTED_PASS: "If it is mended, end the window at this release; if not, narrow the entry.",
    FaultKind.OTHER_REASON: "This is another finding: narrow the entry, and look at what is new.",
    FaultKind.BEYOND_BOUND: "This is worse than what is known: look at it before the bound is raised.",
    FaultKind.LAUNCHED: "What is in quarantine must not run: find out what launched it.",
    FaultKind.EXPIRED: "Ask upstream what became of it, then move until, or report that it was not mended.",
    FaultKind.UNMATCHED: "Delete the entry if it is gone for good; otherwise mend what it matches.",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One disagreement between an entry and what was observed.

    Attributes:
        entry: The entry's id.
        kind: What is wrong.
        message: One sentence: what was expected, what came.
    """

    entry: str
    kind: FaultKind
    message: str


def judge(entries: Sequence[Entry], observations: Iterable[Observation], *, full: bool) -> list[Fault]:
    """Hold observations against the ledger.

    Args:
        entries: The ledger.
        observations: What was seen, of whatever releases.
        full: Whether that is everything that there is to see of those releases and levels: only then is an
            entry without a match a fault, unless it is `not_looked_at`.
    """
    seen = list(observations)
    faults: list[Fault] = []
    matched: set[str] = set()
    for one in seen:
        for entry in entries:
            if entry.matches(one):
                matched.add(entry.id)
                faults += _faults(entry, one)
    if full:
        unseen = {entry.id for entry in not_looked_at(entries, seen)}
        for entry in entries:
            if entry.id not in matched | unseen:
                message = "an entry must explain something that was observed (nothing matches it)"
                faults.append(Fault(entry.id, FaultKind.UNMATCHED, message))
    return faults


def not_looked_at(entries: Sequence[Entry], observations: Iterable[Observation]) -> list[Entry]:
    """Return the entries that are about releases or levels of which nothing at all was observed.

    What only a comparison of releases shows is among them: no evidence of a single release does.
    """
    looked_at = {(one.release, one.level) for one in observations}
    return [
        entry
        for entry in entries
        if entry.reason in CHANGES
        or not any(
            entry.covers(release) and (not entry.levels or level in entry.levels)
            for release, level in looked_at
        )
    ]


def explains(entries: Sequence[Entry], seen: Observation) -> Entry | None:
    """Return the first entry that explains *seen*: a failure or finding just as the entry says, or None."""
    if seen.kind in (Kind.PASS, Kind.NOT_RUN, Kind.SKIPPED):
        return None
    return next((entry for entry in entries if entry.matches(seen) and not _faults(entry, seen)), None)


def _faults(entry: Entry, seen: Observation) -> list[Fault]:
    if seen.kind in (Kind.NOT_RUN, Kind.SKIPPED):
        return []
    if seen.kind is not None and entry.effect is Effect.QUARANTINE:
        return [Fault(entry.id, FaultKind.LAUNCHED, f"a quarantined case must not run ({seen}: {seen.kind})")]
    if seen.kind is Kind.PASS:
        message = f"it must fail with {entry.reason} ({seen} passed: has it been mended?)"
        return [Fault(entry.id, FaultKind.UNEXPECTED_PASS, message)]
    faults = []
    if seen.reason != entry.reason:
        message = f"it must fail with {entry.reason} ({seen} failed with {seen.reason})"
        faults.append(Fault(entry.id, FaultKind.OTHER_REASON, message))
    elif entry.about not in (seen.message or ""):
        message = f"its failures must speak of {entry.about!r} ({seen}: {seen.message})"
        faults.append(Fault(entry.id, FaultKind.OTHER_REASON, message))
    if entry.bound is not None and (seen.size is None or not seen.size <= entry.bound):
        message = f"its failures must be at most {entry.bound} ({seen}: {seen.size})"
        faults.append(Fault(entry.id, FaultKind.BEYOND_BOUND, message))
    if entry.until is not None and version_key(seen.release) >= version_key(entry.until):
        message = f"it must be gone from {entry.until} on ({seen} still has it)"
        faults.append(Fault(entry.id, FaultKind.EXPIRED, message))
    return faults


def _any(patterns: Sequence[str], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
