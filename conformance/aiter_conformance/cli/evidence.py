"""``evidence collect``: what a subject does by itself, whatever the release."""

from __future__ import annotations

from pathlib import Path

import click

from aiter_conformance import evidence, store, subjects
from aiter_conformance.cli.matrix import root_option, subject_option
from aiter_conformance.cli.output import json_option, print_json, progress
from aiter_conformance.evidence import Level
from aiter_conformance.outcome import Kind
from aiter_conformance.runner import collect, runnable

_LEVELS = [level.value for level in (Level.DECLARED, Level.CONTRACT, Level.REFERENCE)]


@click.group("evidence")
def evidence_group() -> None:
    """Collect evidence."""


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
