"""``evidence collect|check|merge``: what a subject does by itself, whether it is still so, runners as one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from aiter_conformance import evidence, store, subjects
from aiter_conformance.cli.matrix import level_option, levels_to_run, root_option, subject_option
from aiter_conformance.cli.output import json_option, print_json, progress
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.merge import Merged, merge
from aiter_conformance.outcome import Kind
from aiter_conformance.recheck import compare_all
from aiter_conformance.release.artefact import open_release
from aiter_conformance.runner import collect

_LEVELS = [level.value for level in (Level.DECLARED, Level.CONTRACT, Level.REFERENCE)]


@click.group("evidence")
def evidence_group() -> None:
    """Collect evidence, hold what is checked in against the present, and merge that of several runners."""


@evidence_group.command("collect")
@subject_option
@click.option("--publish", is_flag=True, help="Write into reports/ of the checkout instead of build/.")
@click.option(
    "--level",
    "level_names",
    multiple=True,
    type=click.Choice(_LEVELS),
    default=_LEVELS[:2],
    show_default=True,
    help="Level to observe; may be given several times.",
)
@root_option
@json_option
def collect_command(
    subject_name: str, publish: bool, level_names: tuple[str, ...], root: Path, as_json: bool
) -> int:
    """Observe what a subject declares, calls and computes, on every arch, and write the evidence.

    Exit code 1 if the subject does not meet the contract somewhere, 3 if nothing could be run.
    """
    place = store.checkout_place(root) if publish else store.build_place(root)
    levels = levels_to_run(level_names)
    subject = subjects.load_subject(subject_name)
    with progress() as advance:
        records = collect(subject, levels=levels, progress=advance)
    written = [
        {
            "record": evidence.write(record, place.reports).relative_to(place.reports).as_posix(),
            "failed": sum(outcome.kind is Kind.FAIL for outcome in record.outcomes.values()),
            "cells": len(record.outcomes),
        }
        for record in records
    ]
    if as_json:
        print_json(written)
    else:
        for item in written:
            click.echo(f"{item['record']}: {item['cells']} cells, {item['failed']} not as the contract says")
    return int(any(item["failed"] for item in written))


@evidence_group.command("check")
@click.argument("release_text", metavar="RELEASE")
@subject_option
@level_option
@root_option
@json_option
def check_command(
    release_text: str, subject_name: str, levels: tuple[str, ...], root: Path, as_json: bool
) -> int:
    """Observe RELEASE again and compare with the evidence in the checkout; nothing is written there.

    Outcomes, reasons and kernels must be equal, measured numbers within a tenth; dates and hosts do not
    matter. Exit code 1 if something differs, 3 if no record is checked in for what was observed.
    """
    possible = levels_to_run(levels)
    recorded = [one.evidence for one in evidence.load(store.checkout_place(root).reports)]
    with open_release(release_text) as opened, progress() as advance:
        subject = subjects.load_subject(subject_name)
        cache = store.build_place(root).traces
        seen = collect(subject, opened, levels=possible, cache=cache, progress=advance)
    changes, unrecorded = compare_all(recorded, seen)
    compared = len(seen) - len(unrecorded)
    if not compared:
        msg = (
            f"NOT RUN: no record of {release_text} at these levels is checked in; `matrix publish` makes them"
        )
        raise InfrastructureError(msg)
    if as_json:
        found = [asdict(change) for change in changes]
        print_json({"compared": compared, "not_recorded": unrecorded, "changes": found})
        return int(bool(changes))
    for path in unrecorded:
        click.echo(f"NOT RECORDED {path}: nothing to compare with")
    for change in changes:
        click.echo(
            f"CHANGED {change.record}: {change.about}: {change.what}: {change.recorded} -> {change.seen}"
        )
    click.echo(f"{compared} records compared, {len(changes)} differences")
    return int(bool(changes))


@evidence_group.command("merge")
@click.argument(
    "folders",
    metavar="FOLDER...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of reports that the merged records are written to.",
)
@json_option
def merge_command(folders: tuple[Path, ...], output: Path, as_json: bool) -> int:
    """Merge the reports of several runners or shards; the order of the folders does not matter.

    Exit code 1 if they contradict each other: of two outcomes of a cell the worse one is written, and records
    about different content under one version are not written at all. 3 if there is no record.
    """
    loaded = [record for folder in folders for record in evidence.load(folder)]
    if not loaded:
        msg = "NOT RUN: there is no record in the folders, so nothing was merged"
        raise InfrastructureError(msg)
    merged = merge(loaded)
    for record in merged.records:
        evidence.write(record, output)
    if as_json:
        print_json(
            {
                "read": len(loaded),
                "records": [record.path.as_posix() for record in merged.records],
                "duplicates": [{"record": path, "cell": cell} for path, cell in merged.duplicates],
                "contradictions": [asdict(found) for found in merged.contradictions],
            }
        )
    else:
        _show_merged(len(loaded), merged)
    return int(bool(merged.contradictions))


def _show_merged(read: int, merged: Merged) -> None:
    click.echo(f"{read} records merged into {len(merged.records)}")
    counts: dict[str, int] = {}
    for path, _ in merged.duplicates:
        counts[path] = counts.get(path, 0) + 1
    for path, count in counts.items():
        click.echo(f"DUPLICATE {path}: {count} cells were seen alike more than once")
    for found in merged.contradictions:
        click.echo(f"CONTRADICTION {found.record}: {found.about}: {', '.join(found.said)}")
