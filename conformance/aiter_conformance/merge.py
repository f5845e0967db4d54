"""Evidence of several runners and shards as one: whatever the order, and nothing disagrees unseen.

Records of one level, board, subject and release are merged cell by cell. Where two of them saw a cell end
differently, the worse outcome stands and the disagreement is reported.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Evidence, Loaded, ReleaseId
from aiter_conformance.outcome import Kind, Outcome

# The worse comes first. What was not run says nothing, so that anything else goes before it.
_WORST_FIRST: Final = (
    Kind.CRASH, Kind.TIMEOUT, Kind.FAIL, Kind.REFUSED, Kind.SKIPPED, Kind.PASS, Kind.NOT_RUN,
)  # fmt: skip
# What stands between the values of an environment that runners differ in.
_BETWEEN: Final = " | "


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """What two or more records say otherwise of one thing.

    Attributes:
        record: Where the merged record is kept, relative to the folder of reports.
        about: The cell, or the release.
        said: What the records say, the one that stands first.
    """

    record: str
    about: str
    said: tuple[str, ...]


@dataclass(frozen=True)
class Merged:
    """What became of records that were merged.

    Attributes:
        records: One record for each level, board, subject and release, in the order of their paths.
        duplicates: (record, cell) of what more than one record saw alike.
        contradictions: What they disagree about; it is in none of the records unless an outcome stands.
    """

    records: tuple[Evidence, ...]
    duplicates: tuple[tuple[str, str], ...]
    contradictions: tuple[Disagreement, ...]


def merge(loaded: Iterable[Loaded]) -> Merged:
    """Merge records.

    Args:
        loaded: Records, in any order; the same record twice counts once.

    Records of one version about different content, and records of a real and of a simulated GPU, are reported
    as a contradiction, and none of them is merged.
    """
    groups: dict[str, dict[str, Evidence]] = defaultdict(dict)
    for one in loaded:
        groups[one.evidence.path.as_posix()][one.digest] = one.evidence
    identities: dict[str, set[ReleaseId]] = defaultdict(set)
    for by_digest in groups.values():
        for record in by_digest.values():
            if record.release is not None:
                identities[record.release.version].add(record.release)
    records, duplicates, contradictions = [], [], []
    for path, by_digest in sorted(groups.items()):
        release = next(iter(by_digest.values())).release
        found = set() if release is None else identities[release.version]
        if release is not None and len({one.identity for one in found}) > 1:
            said = tuple(sorted({f"{one.identity} ({one.kind})" for one in found}))
            contradictions.append(Disagreement(path, f"release {release.version}", said))
            continue
        if len({record.simulated for record in by_digest.values()}) > 1:
            contradictions.append(Disagreement(path, "GPU", ("real", "simulated")))
            continue
        record, twice, differing = _one(path, by_digest)
        records.append(record)
        duplicates += twice
        contradictions += differing
    return Merged(tuple(records), tuple(sorted(duplicates)), tuple(sorted(contradictions)))


def _one(
    path: str, by_digest: dict[str, Evidence]
) -> tuple[Evidence, list[tuple[str, str]], list[Disagreement]]:
    """Merge the records of one path; a single one is left as it is."""
    records = [record for _, record in sorted(by_digest.items())]
    if len(records) == 1:
        return records[0], [], []
    seen: dict[Cell, list[Outcome]] = defaultdict(list)
    for record in records:
        for cell, outcome in record.outcomes.items():
            seen[cell].append(outcome)
    places = {cell: place for place, cell in enumerate(load_axes().cells())}
    cells = sorted(seen, key=lambda cell: (places.get(cell, len(places)), str(cell)))
    twice, differing = [], []
    for cell in cells:
        ran = sorted((o for o in seen[cell] if o.kind is not Kind.NOT_RUN), key=_weight)
        said = tuple(dict.fromkeys(_said(outcome) for outcome in ran))
        if len(said) > 1:
            differing.append(Disagreement(path, str(cell), said))
        elif len(ran) > 1:
            twice.append((path, str(cell)))
    findings = {finding for record in records for finding in record.findings}
    merged = replace(
        records[0],
        release=min((r.release for r in records if r.release), key=lambda r: r.kind, default=None),
        observed=max(record.observed for record in records),
        harness=_joined(record.harness for record in records),
        environment=_environment(records),
        outcomes={cell: min(seen[cell], key=_weight) for cell in cells},
        findings=tuple(sorted(findings, key=lambda f: (f.code, f.path, f.message))),
        merged=tuple(sorted({d for digest, r in by_digest.items() for d in (r.merged or (digest,))})),
    )
    return merged, twice, differing


def _weight(outcome: Outcome) -> tuple[int, str]:
    """Return what sorts the outcome that stands first: the worst, of those alike the first by its text."""
    text = json.dumps([outcome.reason, outcome.message, outcome.details], sort_keys=True)
    return _WORST_FIRST.index(outcome.kind), text


def _said(outcome: Outcome) -> str:
    return outcome.kind.value if outcome.reason is None else f"{outcome.kind.value} ({outcome.reason.value})"


def _environment(records: Sequence[Evidence]) -> dict[str, str]:
    """Return every variable with all values that runners had, ``-`` where one did not have it."""
    names = sorted({name for record in records for name in record.environment})
    return {name: _joined(record.environment.get(name, "-") for record in records) for name in names}


def _joined(values: Iterable[str]) -> str:
    return _BETWEEN.join(sorted({part for value in values for part in value.split(_BETWEEN)}))
