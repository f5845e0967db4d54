"""``ledger list|check``: the known findings, and whether they are what is observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from aiter_conformance import evidence, store
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.ledger import Entry, Fault, Observation, judge, not_looked_at, without_line
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.outcome import Kind

# A run of faults of one kind is one thing to mend; the first few say which.
_SHOWN = 5


@click.group("ledger")
def ledger_group() -> None:
    """Look at the ledger of known findings."""


@ledger_group.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the known findings."""
    entries = load_ledger()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    body = [[e.id, e.title, _releases(e), (e.page or "") if e.unreported else e.upstream] for e in entries]
    print_table(["id", "finding", "releases", "reported"], body, wrap=[1, 2])


def _releases(entry: Entry) -> str:
    windows = [f"{w.first} to before {w.before}" if w.before else f"from {w.first}" for w in entry.releases]
    return ", ".join(windows) or "all"


@ledger_group.command("check")
@root_option
@json_option
def check_command(root: Path, as_json: bool) -> int:
    """Hold the ledger against the checked-in evidence.

    Exit code 1 if an entry explains nothing, or something that it names looks otherwise than it says. An
    entry about releases of which no evidence is checked in is named, and is no fault.
    """
    place = store.checkout_place(root)
    entries = load_ledger()
    observations = list(_observations(place.reports))
    faults = judge(entries, observations, full=True)
    unseen = [entry.id for entry in not_looked_at(entries, observations)]
    if as_json:
        print_json({"faults": [asdict(fault) for fault in faults], "not_looked_at": unseen})
        return int(bool(faults))
    click.echo(f"{len(entries)} entries, {len(faults)} faults")
    for line in _fault_lines(faults):
        click.echo(f"  {line}")
    if unseen:
        click.echo(f"NOT LOOKED AT, for want of evidence of their releases: {', '.join(unseen)}")
    return int(bool(faults))


def _fault_lines(faults: list[Fault]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.entry, fault.kind.value), []).append(fault)
    for (entry, kind), group in groups.items():
        for fault in group[:_SHOWN]:
            yield f"{entry}: {kind}: {fault.message}"
        if len(group) > _SHOWN:
            yield f"{entry}: {kind}: {len(group) - _SHOWN} more"
        yield f"{entry}: {group[0].kind.advice}"


def _observations(reports: Path) -> Iterator[Observation]:
    """Yield what the checked-in evidence shows of this project's leaves and of releases.

    What a subject does by itself holds with every release, so it is told once for each of them.
    """
    records = [loaded.evidence for loaded in evidence.load(reports)]
    records = [r for r in records if r.subject is None or r.subject.startswith("impl@")]
    versions = sorted({r.release.version for r in records if r.release is not None})
    for record in records:
        for version in versions if record.release is None else [record.release.version]:
            for cell, outcome in record.outcomes.items():
                yield Observation(
                    version,
                    str(cell),
                    kind=outcome.kind,
                    reason=outcome.reason,
                    size=outcome.details.get("size"),
                    message=outcome.message,
                    level=record.level,
                    board=record.board,
                )
                for known in outcome.details.get("known", {}).values():  # single inputs
                    yield Observation(
                        version,
                        str(cell),
                        known["case"],
                        Kind.FAIL,
                        known["reason"],
                        known["size"],
                        level=record.level,
                        board=record.board,
                        alone=True,
                    )
            for finding in record.findings:
                yield Observation(
                    version,
                    path=without_line(finding.path),
                    reason=finding.code,
                    message=finding.message,
                    level=record.level,
                )
