"""The ledger's file, ``matrices/spec/ledger.toml``: its rules, and its only reader.

Every rule that an entry can break has a sentence that names the entry, what must be there and what is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.ledger import CHANGES, HAZARD, UNREPORTED, Effect, Entry, Window
from aiter_conformance.outcome import Reason
from aiter_conformance.release.findings import FindingCode
from aiter_conformance.release.version import version_key
from aiter_conformance.trace.findings import Code

_ID: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_UPSTREAM: Final = re.compile(r"[\w.-]+/[\w.-]+#\d+")
# What a finding can be: of a release's reader, of a trace, of the contract itself, or of a comparison.
_CODES: Final = frozenset({*FindingCode, *Code, HAZARD, *CHANGES})
# What a cell can fail with, or be reported with when two releases are compared.
_REASONS: Final = frozenset({*Reason, *CHANGES})


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


class _Reader:
    """Reads one entry, and names it in every complaint."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = dict(raw)
        self._id = self._raw.get("id")

    def entry(self) -> Entry:
        upstream = self._text("upstream")
        page = self._text("page", optional=True) or None
        if upstream != UNREPORTED and not _UPSTREAM.fullmatch(upstream):
            raise self._broken(f"upstream must be owner/repo#number or {UNREPORTED!r} (got {upstream!r})")
        if upstream == UNREPORTED and page is None:
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
            boards=self._texts("boards"),
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
        if not entry.cells and not entry.paths:
            raise self._broken("it must be about cells, about paths, or about both")
        if (entry.levels or entry.boards or entry.cases) and not entry.cells:
            raise self._broken("levels, boards and cases restrict cells, and it has none")
        unknown = set(entry.levels) - set(Level)
        if unknown:
            raise self._broken(f"levels must be known (got {', '.join(sorted(unknown))})")
        if entry.cells and entry.reason not in _REASONS:
            raise self._broken(f"reason must be one that a cell can fail with (got {entry.reason!r})")
        if entry.paths and entry.reason not in _CODES:
            raise self._broken(f"reason must be the code of a finding (got {entry.reason!r})")
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
