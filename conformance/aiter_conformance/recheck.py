"""Checked-in evidence held against a new observation: what was seen once must be seen again.

Outcomes, reasons, kernels and whatever else is a text or a count must be equal; measured numbers agree within
`TOLERANCE`. Days, hosts, versions of the harness and the wording of messages are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiter_conformance.evidence import Evidence
from aiter_conformance.outcome import Outcome

# Relative. Records round what they measure to two digits, so that equal numbers may differ by a tenth.
TOLERANCE: Final = 0.1


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One thing that was observed otherwise than the checked-in record says.

    Attributes:
        record: The record's path below the folder of reports, in POSIX form.
        about: A cell, ``release``, or ``findings``.
        what: ``outcome``, ``reason``, or the path of a detail, such as ``kernels/ck``.
        recorded: What the record says; "nothing" where it has no such thing.
        seen: What was observed now.
    """

    record: str
    about: str
    what: str
    recorded: str
    seen: str


def compare(recorded: Evidence, seen: Evidence) -> list[Change]:
    """Return what differs between two records of one level, board, subject and release.

    Raises:
        ValueError: The records are about different things.
    """
    if recorded.path != seen.path:
        msg = f"records must be about one thing (got {recorded.path.as_posix()}, {seen.path.as_posix()})"
        raise ValueError(msg)
    path = recorded.path.as_posix()
    changes = []
    if recorded.release and seen.release and recorded.release.identity != seen.release.identity:
        changes.append(Change(path, "release", "content", recorded.release.identity, seen.release.identity))
    for cell in dict.fromkeys((*recorded.outcomes, *seen.outcomes)):
        old, new = _flat(recorded.outcomes.get(cell)), _flat(seen.outcomes.get(cell))
        changes += [Change(path, str(cell), *difference) for difference in _differences(old, new)]
    old, new = (
        {f"{f.code} {f.path}": number for number, f in enumerate(one.findings)} for one in (recorded, seen)
    )
    for finding in sorted(old.keys() ^ new.keys()):
        said = ("listed", "nothing") if finding in old else ("nothing", "listed")
        changes.append(Change(path, "findings", finding, *said))
    return changes


def compare_all(recorded: Iterable[Evidence], seen: Iterable[Evidence]) -> tuple[list[Change], list[str]]:
    """Compare what was observed now with the records of it.

    Returns:
        What differs, and the paths of observations that no record is checked in for.
    """
    by_path = {record.path: record for record in recorded}
    changes: list[Change] = []
    unrecorded = []
    for one in seen:
        old = by_path.get(one.path)
        if old is None:
            unrecorded.append(one.path.as_posix())
        else:
            changes += compare(old, one)
    return changes, unrecorded


def _flat(outcome: Outcome | None) -> dict[str, Any]:
    """Return what an outcome says, by name; details as paths to their innermost values."""
    if outcome is None:
        return {}
    reason = None if outcome.reason is None else outcome.reason.value
    return {"outcome": outcome.kind.value, "reason": reason, **dict(_leaves("", outcome.details))}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{path}/{name}" if path else name, inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}/{number}", inner)
    else:
        yield path, value


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new or not _same(old[name], new[name]):
            yield name, str(old.get(name, "nothing")), str(new.get(name, "nothing"))


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, float) or isinstance(new, float):
        numbers = isinstance(old, int | float) and isinstance(new, int | float)
        return numbers and math.isclose(old, new, rel_tol=TOLERANCE)
    return bool(old == new)
