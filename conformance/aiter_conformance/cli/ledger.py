"""``ledger list|show|check``: the known findings, and whether they are what is observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

import click

from aiter_conformance import evidence, store
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.errors import UsageError
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
    body = [[e.id, e.title, _releases(e), e.reported] for e in entries]
    print_table(["id", "finding", "releases", "reported"], body, wrap=[1, 2])
    click.echo("\nOne in full: aiter-conformance ledger show ID")


@ledger_group.command("show")
@click.argument("id_", metavar="ID")
@json_option
def show_command(id_: str, as_json: bool) -> None:
    """Show one known finding: what it explains, in which releases, and where it is reported."""
    entries = {entry.id: entry for entry in load_ledger()}
    if id_ not in entries:
        near = [known for known in entries if id_ and id_ in known] or get_close_matches(id_, entries)
        meant = f"; did you mean {', '.join(near)}?" if near else "; `ledger list` has them all"
        msg = f"ID must be an entry of the ledger (got {id_!r}){meant}"
        raise UsageError(msg)
    entry = entries[id_]
    if as_json:
        print_json(asdict(entry))
        return
    click.echo(f"{entry.id}: {entry.title}")
    for name, said in (
        ("effect", entry.effect.value),
        ("releases", _releases(entry)),
        ("reason", entry.reason),
        ("cells", ", ".join(entry.cells)),
        ("levels", ", ".join(entry.levels) or ("all" if entry.cells else "")),
        ("boards", ", ".join(entry.boards) or ("all" if entry.cells else "")),
        ("cases", ", ".join(entry.cases)),
        ("paths", ", ".join(entry.paths)),
        ("message holds", entry.about),
        ("bound", "" if entry.bound is None else str(entry.bound)),
        ("gone from", entry.until or ""),
        ("reported", entry.reported),
        ("page", entry.page or ""),
    ):
        if said:
            click.echo(f"  {name}: {said}")


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
    entries: dict[str, dict[str, list[Fault]]] = {}
    for fault in faults:
        entries.setdefault(fault.entry, {}).setdefault(fault.kind.value, []).append(fault)
    for entry, kinds in entries.items():
        yield f"{entry}:"
        for kind, group in kinds.items():
            for fault in group[:_SHOWN]:
                yield f"  {kind}: {fault.message}"
            if len(group) > _SHOWN:
                yield f"  {kind}: {len(group) - _SHOWN} more"
            yield f"  {group[0].kind.advice}"


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
