"""The matrix: what the evidence says of every cell, by one table of verdicts.

A matrix is derived from evidence files alone, so that it can be rebuilt offline, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from aiter_conformance import documents
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Finding, Level, Loaded, ReleaseId
from aiter_conformance.ledger import Entry, Observation, explains, load_ledger
from aiter_conformance.outcome import Kind, Outcome

SCHEMA = "aiter-conformance/matrix/1"

_REFUSES = {Level.DECLARED: Kind.REFUSED.value}
_BROKEN = (Kind.REFUSED, Kind.FAIL, Kind.CRASH, Kind.TIMEOUT)


class Verdict(StrEnum):
    """What the matrix says of a cell."""

    KNOWN_BAD = "known-bad"
    CONFLICT = "conflict"
    UNCLAIMED = "unclaimed"
    UNSUPPORTED = "unsupported"
    VALIDATED = "validated"
    EMULATED = "emulated"
    MODELLED = "modelled"
    DECLARED = "declared"
    UNKNOWN = "unknown"

    @property
    def meaning(self) -> str:
        """What the verdict says, as one sentence for people."""
        return _MEANINGS[self]

    @property
    def strength(self) -> int:
        """How much stands behind a cell that is good: 0 for one that is not, more for stronger evidence."""
        return _GOOD.index(self) + 1 if self in _GOOD else 0


_GOOD = (Verdict.DECLARED, Verdict.MODELLED, Verdict.EMULATED, Verdict.VALIDATED)
_MEANINGS = {
    Verdict.KNOWN_BAD: "It fails as a known finding in the ledger says.",
    Verdict.CONFLICT: "The leaf accepts it, but the evidence says that it does not work with this release.",
    Verdict.UNCLAIMED: "The leaf refuses it, but the release's kernels were seen to work.",
    Verdict.UNSUPPORTED: "The leaf refuses it, with the reason given.",
    Verdict.VALIDATED: "The real kernel on the real GPU gave the right numbers.",
    Verdict.EMULATED: "The release's machine code, run by an emulator, gave the right numbers.",
    Verdict.MODELLED: "The numbers are right with modelled kernels, and the release picks those kernels.",
    Verdict.DECLARED: "The leaf accepts it and nothing seen speaks against it. Its numbers were not checked.",
    Verdict.UNKNOWN: "Nothing was observed.",
}


@dataclass(frozen=True)
class Observations:
    """Everything observed of one cell, by level; several boards of an arch may stand side by side.

    Attributes:
        by_level: The outcomes.
        known: The ledger's entry that explains the first broken one, or None.
    """

    by_level: dict[Level, list[Outcome]]
    known: Entry | None = None

    def kinds(self, level: Level) -> set[Kind]:
        """Return the kinds of outcome at a level; empty when it was never run."""
        return {outcome.kind for outcome in self.by_level.get(level, [])}

    def holds(self, level: Level) -> bool:
        """Return whether the level was run and every outcome passed."""
        return self.kinds(level) == {Kind.PASS}

    def launched_is_modelled(self) -> bool:
        """Return whether a trace launched only kernel families that level reference modelled."""
        launched = {name for o in self.by_level.get(Level.TRACE, []) for name in o.details.get("kernels", {})}
        modelled = {
            name for o in self.by_level.get(Level.REFERENCE, []) for name in o.details.get("families", [])
        }
        return launched <= modelled

    def worst(self) -> tuple[Level, Outcome] | None:
        """Return the first broken observation, the strongest level first, or None."""
        for level in reversed(Level):
            for outcome in self.by_level.get(level, []):
                if outcome.kind in _BROKEN:
                    return level, outcome
        return None


def _refused(seen: Observations) -> bool:
    return Kind.REFUSED in seen.kinds(Level.DECLARED)


def _works(seen: Observations) -> bool:
    return seen.holds(Level.HARDWARE) or seen.holds(Level.ISA)


def _modelled(seen: Observations) -> bool:
    return seen.holds(Level.REFERENCE) and seen.holds(Level.TRACE) and seen.launched_is_modelled()


# First that applies.
_TABLE: tuple[tuple[Verdict, Callable[[Observations], bool]], ...] = (
    (Verdict.KNOWN_BAD, lambda seen: seen.known is not None),
    (Verdict.CONFLICT, lambda seen: not _refused(seen) and seen.worst() is not None),
    (Verdict.UNCLAIMED, lambda seen: _refused(seen) and _works(seen)),
    (Verdict.UNSUPPORTED, _refused),
    (Verdict.VALIDATED, lambda seen: seen.holds(Level.HARDWARE)),
    (Verdict.EMULATED, lambda seen: seen.holds(Level.ISA)),
    (Verdict.MODELLED, _modelled),
    (Verdict.DECLARED, lambda seen: seen.holds(Level.DECLARED)),
    (Verdict.UNKNOWN, lambda _seen: True),
)


def judge(seen: Observations) -> Verdict:
    """Return the verdict of a cell: the first row of the table that applies."""
    return next(verdict for verdict, applies in _TABLE if applies(seen))


@dataclass(frozen=True)
class PeerState:
    """What another subject does with a cell, its release left aside.

    Attributes:
        levels: The levels that were run with it, each with the way it ended.
        message: What the strongest of them that did not pass said; None when all passed.
    """

    levels: dict[Level, str]
    message: str | None


@dataclass(frozen=True)
class CellState:
    """What the matrix says of one cell.

    Attributes:
        verdict: The verdict.
        levels: The levels that were run, each with the way it ended (``pass``, ``refused``, ``fail`` ...).
        reason: Reason code behind the verdict or, where nothing is wrong, behind the strongest level that
            could not be run; None when there is none.
        message: The same as a sentence.
        kernels: Kernel families that the release has for the cell, each with the number of sound code
            objects; 0 for a family that is compiled on first use.
        evidence: Records it rests on, as indices into the matrix's list.
        peers: What other subjects do with the cell, by ``name@version``; the verdict does not rest on it. One
            that refuses the cell, and so has no call to look at, is left out.
    """

    verdict: Verdict
    levels: dict[Level, str]
    reason: str | None
    message: str | None
    kernels: dict[str, int]
    evidence: tuple[int, ...]
    peers: dict[str, PeerState] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A record that the matrix rests on.

    Attributes:
        path: The record, relative to the folder of reports.
        digest: ``sha256:...`` of the record.
        level: Its level.
        board: Its board.
        subject: ``name@version`` of the subject that took part, or None.
        observed: The day of the observation.
    """

    path: str
    digest: str
    level: Level
    board: str
    subject: str | None
    observed: str


@dataclass(frozen=True)
class Matrix:
    """The compatibility matrix of one release for one subject.

    Attributes:
        release: The release.
        subject: ``name@version`` of the implementation that the verdicts are about.
        harness: Version of the harness that observed.
        cells: Every cell.
        findings: What is wrong in the release besides.
        differences: For each subject the differences from the contract that showed, id to consequence.
        sources: The records that all of this rests on.
    """

    release: ReleaseId
    subject: str
    harness: str
    cells: dict[Cell, CellState]
    findings: tuple[KnownFinding, ...]
    differences: dict[str, dict[str, str]]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding in the release, and what the ledger knows of it.

    Attributes:
        code: What kind of disagreement.
        path: Release-relative file, with ``:line`` where there is one.
        message: One sentence for people.
        known: ``id (where it is reported)`` of the ledger's entry, or None for a finding that is new.
    """

    code: str
    path: str
    message: str
    known: str | None


def build(
    records: Iterable[Loaded], release: str, subject: str, ledger: Sequence[Entry] | None = None
) -> Matrix:
    """Derive the matrix of a release from evidence.

    Args:
        records: Any evidence; what is about other releases is left aside.
        release: Version of the release.
        subject: ``name@version`` of the implementation that the verdicts are about. What others do without a
            release is shown beside it.
        ledger: The known findings; by default the project's own.

    Raises:
        UsageError: No evidence is about the release.
        InfrastructureError: Two records about the version are about different content.
    """
    entries = load_ledger() if ledger is None else ledger
    used = [
        r
        for r in records
        if (r.evidence.release is None or r.evidence.release.version == release)
        and (r.evidence.release is None or r.evidence.subject in (None, subject))
    ]
    identities = {r.evidence.release for r in used if r.evidence.release is not None}
    if not identities:
        msg = f"evidence of release {release} must be there (got none): run `aiter-conformance matrix build`"
        raise UsageError(msg)
    if len(identities) > 1:
        found = ", ".join(sorted(f"{i.identity} ({i.kind})" for i in identities))
        msg = f"evidence of {release} must be about one artefact (got {found}): delete what is not meant"
        raise InfrastructureError(msg)
    sources = tuple(
        Source(r.path, r.digest, r.evidence.level, r.evidence.board, r.evidence.subject, r.evidence.observed)
        for r in used
    )
    cells = {}
    for cell in load_axes().cells():
        seen: dict[Level, list[Outcome]] = {}
        peers: dict[str, dict[Level, list[Outcome]]] = {}
        evidence = []
        for index, record in enumerate(used):
            if cell not in record.evidence.outcomes:
                continue
            who, level = record.evidence.subject, record.evidence.level
            by_level = seen if who in (None, subject) else peers.setdefault(str(who), {})
            by_level.setdefault(level, []).append(record.evidence.outcomes[cell])
            if by_level is seen:
                evidence.append(index)
        known = _known(entries, release, cell, Observations(seen).worst())
        state = _state(Observations(seen, known), tuple(evidence))
        states = {who: _peer_state(by_level) for who, by_level in sorted(peers.items())}
        cells[cell] = replace(state, peers={who: s for who, s in states.items() if s.levels != _REFUSES})
    return Matrix(
        release=identities.pop(),
        subject=subject,
        harness=max(r.evidence.harness for r in used),
        cells=cells,
        findings=tuple(
            _known_finding(entries, release, f)
            for r in used
            if r.evidence.release
            for f in r.evidence.findings
        ),
        differences=_differences(used),
        sources=sources,
    )


def _known(
    entries: Sequence[Entry], release: str, cell: Cell, broken: tuple[Level, Outcome] | None
) -> Entry | None:
    if broken is None:
        return None
    level, outcome = broken
    seen = Observation(
        release, str(cell), None, outcome.kind, outcome.reason, message=outcome.message, level=level
    )
    return explains(entries, seen)


def _known_finding(entries: Sequence[Entry], release: str, finding: Finding) -> KnownFinding:
    path = finding.path.partition(":")[0]
    entry = explains(entries, Observation(release, path=path, reason=finding.code, message=finding.message))
    known = None if entry is None else f"{entry.id} ({entry.upstream})"
    return KnownFinding(finding.code, finding.path, finding.message, known)


def _differences(records: Iterable[Loaded]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for record in records:
        if record.evidence.release is None and record.evidence.findings:
            by_id = found.setdefault(str(record.evidence.subject), {})
            by_id.update({finding.path: finding.message for finding in record.evidence.findings})
    return {subject: dict(sorted(by_id.items())) for subject, by_id in sorted(found.items())}


def _state(seen: Observations, evidence: tuple[int, ...]) -> CellState:
    verdict = judge(seen)
    worst = seen.worst()
    if verdict is Verdict.UNSUPPORTED:
        because = next(o for o in seen.by_level[Level.DECLARED] if o.kind is Kind.REFUSED)
    elif worst is not None:
        because = worst[1]
    else:
        because = next(
            (o for level in reversed(Level) for o in seen.by_level.get(level, []) if o.kind is not Kind.PASS),
            Outcome(Kind.PASS),
        )
    levels = {level: _combined(seen.by_level[level]) for level in Level if level in seen.by_level}
    reason = None if because.reason is None else because.reason.value
    message = because.message
    if seen.known is not None:
        message = f"{message} Known: {seen.known.title} ({seen.known.upstream})."
    kernels: dict[str, int] = {}
    for outcome in seen.by_level.get(Level.INVENTORY, []):
        kernels |= outcome.details.get("kernels", {})
    return CellState(verdict, levels, reason, message, kernels, evidence)


def _peer_state(by_level: dict[Level, list[Outcome]]) -> PeerState:
    worst = Observations(by_level).worst()
    levels = {level: _combined(by_level[level]) for level in Level if level in by_level}
    return PeerState(levels, None if worst is None else worst[1].message)


def _combined(outcomes: list[Outcome]) -> str:
    """Return the way a level ended over several boards: the common one, or ``partial k/n``."""
    kinds = {outcome.kind for outcome in outcomes}
    if len(kinds) == 1:
        return kinds.pop().value
    passed = sum(outcome.kind is Kind.PASS for outcome in outcomes)
    return f"partial {passed}/{len(outcomes)}"


def to_json(matrix: Matrix) -> str:
    """Return the matrix as text, one line a cell; what is said of many cells is written once."""
    said = [(state.reason, state.message) for state in matrix.cells.values()]
    said += [(None, peer.message) for state in matrix.cells.values() for peer in state.peers.values()]
    because = list(dict.fromkeys(said))
    return documents.render(
        {
            "schema": SCHEMA,
            "release": asdict(matrix.release),
            "subject": matrix.subject,
            "harness": matrix.harness,
            "verdicts": {verdict.value: verdict.meaning for verdict in Verdict},
            "because": [{"reason": reason, "message": message} for reason, message in because],
            "cells": [
                {
                    "cell": str(cell),
                    "verdict": state.verdict.value,
                    "levels": state.levels,
                    "because": because.index((state.reason, state.message)),
                    "kernels": state.kernels,
                    "evidence": state.evidence,
                    "peers": {
                        who: {"levels": peer.levels, "because": because.index((None, peer.message))}
                        for who, peer in state.peers.items()
                    },
                }
                for cell, state in matrix.cells.items()
            ],
            "findings": [asdict(finding) for finding in matrix.findings],
            "differences": matrix.differences,
            "evidence": [asdict(source) for source in matrix.sources],
        }
    )


def from_json(text: str, source: str) -> Matrix:
    """Return the matrix that a text holds.

    Raises:
        InfrastructureError: The text is not a matrix that the schema accepts.
    """
    data = documents.parse(text, schema="matrix", source=source)
    axes = load_axes()
    cells = {
        axes.parse_cell(item["cell"]): CellState(
            Verdict(item["verdict"]),
            {Level(level): how for level, how in item["levels"].items()},
            data["because"][item["because"]]["reason"],
            data["because"][item["because"]]["message"],
            item["kernels"],
            tuple(item["evidence"]),
            {
                who: PeerState(
                    {Level(level): how for level, how in peer["levels"].items()},
                    data["because"][peer["because"]]["message"],
                )
                for who, peer in item["peers"].items()
            },
        )
        for item in data["cells"]
    }
    return Matrix(
        release=ReleaseId(**data["release"]),
        subject=data["subject"],
        harness=data["harness"],
        cells=cells,
        findings=tuple(KnownFinding(**finding) for finding in data["findings"]),
        differences=data["differences"],
        sources=tuple(Source(**(item | {"level": Level(item["level"])})) for item in data["evidence"]),
    )
