"""The ledger of known findings: ``matrices/spec/ledger.toml``, and what it makes of what was observed.

An entry says which observations it explains, how they must look, and until which release. It never hides
anything
else: another reason, a larger failure, a success and an observation after its release are errors, and so is
    an entry
that explains nothing at all when everything was looked at.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.release.findings import FindingCode
from aiter_conformance.release.version import version_key

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_UPSTREAM = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_UNREPORTED = "unreported"


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
        cases: Patterns of case ids within those cells; empty for all.
        paths: Patterns of the files that its findings lie in; empty if it is about cases.
        about: A text that its findings' messages hold; empty for any.
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
    cases: tuple[str, ...]
    paths: tuple[str, ...]
    about: str
    bound: float | None
    until: str | None

    def matches(self, seen: Observation) -> bool:
        """Say whether the entry is about *seen*, whatever its outcome."""
        if self.releases and not any(seen.release in window for window in self.releases):
            return False
        if seen.path is not None:
            about = self.about in (seen.message or "")
            return seen.reason == self.reason and about and _any(self.paths, seen.path)
        if seen.cell is None or not _any(self.cells, seen.cell):
            return False
        if self.levels and seen.level not in self.levels:
            return False
        return not self.cases or (seen.case is not None and _any(self.cases, seen.case))


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one release: the outcome of a cell or case, or a finding about a file.

    Attributes:
        release: Version of the release.
        cell: The cell, for an outcome.
        case: The case's id, if a single case ran.
        kind: How it ended, for an outcome.
        reason: The reason of the outcome, or the code of the finding; None for a pass.
        size: How large the failure is, in the unit of the check, if it has a size.
        path: The file, for a finding.
        message: The sentence that came with it.
        level: The level of evidence, for an outcome.
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

    def __str__(self) -> str:
        return f"{self.case or self.cell or self.path} of {self.release}"


class FaultKind(StrEnum):
    """What is wrong between the ledger and what was observed."""

    UNEXPECTED_PASS = "unexpected-pass"  # noqa: S105 -- not a password
    OTHER_REASON = "other-reason"
    BEYOND_BOUND = "beyond-bound"
    LAUNCHED = "launched"
    EXPIRED = "expired"
    UNMATCHED = "unmatched"


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


def load_ledger(path: Path | None = None) -> tuple[Entry, ...]:
    """Read the ledger, in the order of the file.

    Args:
        path: The file; by default the project's own.

    Raises:
        InfrastructureError: It is not there, is not TOML, or an entry breaks a rule; the message names the
            entry.
    """
    file = path or spec_dir() / "ledger.toml"
    try:
        return parse_ledger(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the ledger must be a readable UTF-8 file ({type(error).__name__}: {file.name})"
        raise InfrastructureError(msg) from error


def parse_ledger(text: str) -> tuple[Entry, ...]:
    """Read a ledger's text; see `load_ledger`."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        msg = f"the ledger must be TOML ({error})"
        raise InfrastructureError(msg) from error
    raw = data.pop("entry", [])
    if data or not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        msg = (
            "the ledger must be a list of [[entry]] tables and nothing else (got "
            f"{', '.join(data) or 'no list'})"
        )
        raise InfrastructureError(msg)
    entries = tuple(_Reader(item).entry() for item in raw)
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            msg = f"the id of a ledger entry must be its own (got {entry.id!r} twice)"
            raise InfrastructureError(msg)
        seen.add(entry.id)
    return entries


def judge(entries: Sequence[Entry], observations: Iterable[Observation], *, full: bool) -> list[Fault]:
    """Hold observations against the ledger.

    Args:
        entries: The ledger.
        observations: What was seen, of whatever releases.
        full: Whether that is everything that there is to see: only then is an entry without a match a fault.
    """
    faults: list[Fault] = []
    matched: set[str] = set()
    for seen in observations:
        for entry in entries:
            if entry.matches(seen):
                matched.add(entry.id)
                faults += _faults(entry, seen)
    if full:
        for entry in entries:
            if entry.id not in matched:
                message = "an entry must explain something that was observed (nothing matches it)"
                faults.append(Fault(entry.id, FaultKind.UNMATCHED, message))
    return faults


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
    if entry.bound is not None and (seen.size is None or not seen.size <= entry.bound):
        message = f"its failures must be at most {entry.bound} ({seen}: {seen.size})"
        faults.append(Fault(entry.id, FaultKind.BEYOND_BOUND, message))
    if entry.until is not None and version_key(seen.release) >= version_key(entry.until):
        message = f"it must be gone from {entry.until} on ({seen} still has it)"
        faults.append(Fault(entry.id, FaultKind.EXPIRED, message))
    return faults


def _any(patterns: Sequence[str], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


class _Reader:
    """Reads one entry, and names it in every complaint."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = dict(raw)
        self._id = self._raw.get("id")

    def entry(self) -> Entry:
        upstream = self._text("upstream")
        page = self._text("page", optional=True) or None
        if upstream != _UNREPORTED and not _UPSTREAM.fullmatch(upstream):
            raise self._broken(f"upstream must be owner/repo#number or {_UNREPORTED!r} (got {upstream!r})")
        if upstream == _UNREPORTED and page is None:
            raise self._broken("an unreported finding must have a page")
        effect = self._text("effect")
        if effect not in set(Effect):
            raise self._broken(f"effect must be one of {', '.join(Effect)} (got {effect!r})")
        entry = Entry(
            id=self._text("id"),
            title=self._text("title"),
            upstream=upstream,
            page=page,
            effect=Effect(effect),
            reason=self._text("reason"),
            releases=self._windows(),
            cells=self._texts("cells"),
            levels=self._texts("levels"),
            cases=self._texts("cases"),
            paths=self._texts("paths"),
            about=self._text("about", optional=True),
            bound=self._number("bound"),
            until=self._version(self._raw.pop("until", None), "until"),
        )
        if self._raw:
            raise self._broken(f"keys must be known (got {', '.join(sorted(self._raw))})")
        if not _ID.fullmatch(entry.id):
            raise self._broken(f"id must be small letters, digits and hyphens (got {entry.id!r})")
        if bool(entry.cells) == bool(entry.paths):
            raise self._broken("it must be about cells or about paths, one of them")
        unknown = set(entry.levels) - set(Level)
        if unknown:
            raise self._broken(f"levels must be known (got {', '.join(sorted(unknown))})")
        known = set(Reason) if entry.cells else set(FindingCode)
        if entry.reason not in known:
            raise self._broken(
                f"reason must be a known {'reason' if entry.cells else 'code'} (got {entry.reason!r})"
            )
        return entry

    def _text(self, key: str, *, optional: bool = False) -> str:
        value = self._raw.pop(key, "" if optional else None)
        if not isinstance(value, str) or not (value.strip() or optional):
            raise self._broken(f"{key} must be a text (got {value!r})")
        return value

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._raw.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self._broken(f"{key} must be a list of texts (got {value!r})")
        return tuple(value)

    def _number(self, key: str) -> float | None:
        value = self._raw.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._broken(f"{key} must be a positive number (got {value!r})")
        return float(value)

    def _windows(self) -> tuple[Window, ...]:
        value = self._raw.pop("releases", [])
        windows = []
        for item in value if isinstance(value, list) else [None]:
            if not isinstance(item, dict) or not {"from"} <= item.keys() <= {"from", "before"}:
                raise self._broken("releases must be a list of {from = ..., before = ...}")
            first, before = self._version(item["from"], "from"), self._version(item.get("before"), "before")
            if first is None or (before is not None and version_key(first) >= version_key(before)):
                raise self._broken(f"a window of releases must not be empty (got {first} to {before})")
            windows.append(Window(first, before))
        return tuple(windows)

    def _version(self, value: object, key: str) -> str | None:
        if value is None:
            return None
        try:
            version_key(str(value))
        except UsageError as error:
            raise self._broken(f"{key}: {error}") from error
        return str(value)

    def _broken(self, why: str) -> InfrastructureError:
        return InfrastructureError(f"ledger entry {self._id!r}: {why}; mend matrices/spec/ledger.toml")
