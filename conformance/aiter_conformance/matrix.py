"""The matrix: what the evidence says of every cell.

A matrix is derived from evidence files alone, so that it can be rebuilt offline, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Finding, Level, Loaded, ReleaseId
from aiter_conformance.ledger import Entry, Observation, explains, without_line
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.verdicts import Observations, Verdict, judge

_REFUSES = {Level.DECLARED: Kind.REFUSED.value}


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
        known: Entries of the ledger that single inputs show at level reference, each with the number of
            inputs that are wrong as it says; the level passes all the same.
    """

    verdict: Verdict
    levels: dict[Level, str]
    reason: str | None
    message: str | None
    kernels: dict[str, int]
    evidence: tuple[int, ...]
    peers: dict[str, PeerState] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)


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
        InfrastructureError: Two records about the version are about different content, or one is simulated.
    """
    entries = load_ledger() if ledger is None else ledger
    loaded = list(records)
    for record in loaded:
        if record.evidence.simulated:
            msg = f"evidence must come from a real GPU (got a simulated one in {record.path}): delete it"
            raise InfrastructureError(msg)
    used = about(loaded, release, subject)
    releases = {r.evidence.release for r in used if r.evidence.release is not None}
    identities = {each.identity for each in releases}
    if not identities:
        msg = f"evidence of release {release} must be there (got none): run `aiter-conformance matrix build`"
        raise UsageError(msg)
    if len(identities) > 1:
        found = ", ".join(sorted(f"{each.identity} ({each.kind})" for each in releases))
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
        state = _state(with_known(Observations(seen), entries, release, cell, used), tuple(evidence))
        states = {who: _peer_state(by_level) for who, by_level in sorted(peers.items())}
        cells[cell] = replace(state, peers={who: s for who, s in states.items() if s.levels != _REFUSES})
    return Matrix(
        # The same content may have been read as a wheel here and, installed, have run on a GPU there.
        release=min(releases, key=lambda each: (each.kind == "installed", each.kind)),
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


def about(records: Iterable[Loaded], release: str, subject: str) -> list[Loaded]:
    """Return the evidence that a matrix rests on: of the release, and of subjects without a release.

    What another subject did with the release is left out.
    """
    return [
        record
        for record in records
        if record.evidence.release is None
        or (record.evidence.release.version == release and record.evidence.subject in (None, subject))
    ]


def with_known(
    seen: Observations, entries: Sequence[Entry], release: str, cell: Cell, records: Sequence[Loaded]
) -> Observations:
    """Return what was observed of a cell with the ledger's entry that explains the worst of it.

    Args:
        seen: What was observed.
        entries: The known findings.
        release: Version of the release.
        cell: The cell.
        records: The evidence that *seen* was taken from.
    """
    broken = seen.worst()
    if broken is None:
        return seen
    level, outcome = broken
    failed = Observation(
        release,
        str(cell),
        kind=outcome.kind,
        size=outcome.details.get("size"),
        reason=outcome.reason,
        message=outcome.message,
        level=level,
        board=next(r.evidence.board for r in records if r.evidence.outcomes.get(cell) is outcome),
    )
    return replace(seen, known=explains(entries, failed))


def _known_finding(entries: Sequence[Entry], release: str, finding: Finding) -> KnownFinding:
    seen = Observation(release, path=without_line(finding.path), reason=finding.code, message=finding.message)
    entry = explains(entries, seen)
    known = None if entry is None else f"{entry.id} ({entry.reported})"
    return KnownFinding(finding.code, finding.path, finding.message, known)


def _differences(records: Iterable[Loaded]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for record in records:
        if record.evidence.release is not None:
            continue
        for finding in record.evidence.findings:
            if finding.code == "difference":  # hazards of the contract are the ledger's
                found.setdefault(str(record.evidence.subject), {})[finding.path] = finding.message
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
    if verdict is Verdict.DECLARED and (unchecked := seen.unchecked()) is not None:
        message = f"{unchecked} {message}" if message else unchecked
    if seen.known is not None:
        message = f"{message} Known: {seen.known.title} ({seen.known.reported})."
    kernels: dict[str, int] = {}
    for outcome in seen.by_level.get(Level.INVENTORY, []):
        kernels |= outcome.details.get("kernels", {})
    known = {
        entry: counted["cases"]
        for outcome in seen.by_level.get(Level.REFERENCE, [])
        for entry, counted in outcome.details.get("known", {}).items()
    }
    return CellState(verdict, levels, reason, message, kernels, evidence, known=known)


def _peer_state(by_level: dict[Level, list[Outcome]]) -> PeerState:
    worst = Observations(by_level).worst()
    levels = {level: _combined(by_level[level]) for level in Level if level in by_level}
    return PeerState(levels, None if worst is None else worst[1].message)


def _combined(outcomes: list[Outcome]) -> str:
    """Return the way a level ended over several boards: the common one, or ``partial k/n``.

    ``ran k/n`` is said of a level that could execute k of its n inputs: all of those are right.
    """
    kinds = {outcome.kind for outcome in outcomes}
    if Kind.NOT_RUN in kinds and kinds <= {Kind.PASS, Kind.NOT_RUN}:
        ran, inputs = (sum(outcome.details.get(name, 0) for outcome in outcomes) for name in ("ran", "of"))
        if ran:
            return f"ran {ran}/{inputs}"
    if len(kinds) == 1:
        return kinds.pop().value
    passed = sum(outcome.kind is Kind.PASS for outcome in outcomes)
    return f"partial {passed}/{len(outcomes)}"
