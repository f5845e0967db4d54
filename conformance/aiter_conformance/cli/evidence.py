"""``evidence collect|merge``: what a subject does by itself, and evidence of several runners as one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from aiter_conformance import evidence, store, subjects
from aiter_conformance.cli.matrix import root_option, subject_option
from aiter_conformance.cli.output import json_option, print_json, progress
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.merge import Merged, merge
from aiter_conformance.outcome import Kind
from aiter_conformance.runner import collect, runnable

_LEVELS = [level.value for level in (Level.DECLARED, Level.CONTRACT, Level.REFERENCE)]


@click.group("evidence")
def evidence_group() -> None:
    """Collect evidence, and merge that of several runners."""


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
    levels, missing = runnable(Level(level) for level in level_names)
    for sentence in missing:
        click.echo(sentence, err=True)
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
