"""``matrix build|publish|check``: making the compatibility matrix of a release."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from aiter_conformance import evidence, factfile, store, subjects
from aiter_conformance.axes import load_axes
from aiter_conformance.cli.output import json_option, print_json, print_table, progress
from aiter_conformance.evidence import Level
from aiter_conformance.matrix import Matrix
from aiter_conformance.publish.tables import count_verdicts
from aiter_conformance.release.artefact import open_release
from aiter_conformance.runner import COLLECTED, QUICK, collect, collect_facts, runnable
from aiter_conformance.verdicts import Verdict

root_option = click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Checkout of this project (default: the current folder).",
)
subject_option = click.option(
    "--subject",
    "subject_name",
    type=click.Choice(tuple(subjects.SUBJECTS)),
    default="impl",
    show_default=True,
    help="Implementation that is asked what it declares.",
)
level_option = click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.Choice([level.value for level in COLLECTED]),
    default=[level.value for level in QUICK],
    show_default=True,
    help="Level to observe; may be given several times. Those that are left out keep their old evidence.",
)


@click.group("matrix")
def matrix_group() -> None:
    """Build, show, publish and check the compatibility matrix of an AITER release."""


@matrix_group.command()
@click.argument("release_text", metavar="RELEASE")
@subject_option
@level_option
@root_option
@json_option
def build(release_text: str, subject_name: str, levels: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Observe RELEASE and build its matrix under build/; nothing else is written.

    The exit code says whether a matrix was built, not whether it is good: that is for `matrix show`.
    """
    place = store.build_place(root)
    _report(_observe(release_text, subject_name, place, levels), place, as_json)


@matrix_group.command()
@click.argument("release_text", metavar="[RELEASE]", required=False)
@subject_option
@level_option
@root_option
@json_option
def publish(
    release_text: str | None, subject_name: str, levels: tuple[str, ...], root: Path, as_json: bool
) -> None:
    """Observe RELEASE and write evidence and matrix into the checkout, to be committed.

    Without RELEASE, nothing is observed: what is published is rebuilt from the evidence in the checkout.
    """
    place = store.checkout_place(root)
    if release_text is None:
        rebuilt = store.rebuild_published(root)
        if as_json:
            print_json(rebuilt)
        else:
            for file in rebuilt:
                click.echo(f"rebuilt {file}")
        return
    published = _observe(release_text, subject_name, place, levels)
    with open_release(release_text) as opened:
        factfile.write(collect_facts(opened), place.reports)
    store.rebuild_published(root)
    _report(published, place, as_json)


def levels_to_run(names: Iterable[str]) -> list[Level]:
    """Return the levels that can be run here, and say on standard error which cannot."""
    possible, missing = runnable(Level(name) for name in names)
    for sentence in missing:
        click.echo(sentence, err=True)
    return possible


def _observe(release_text: str, subject_name: str, place: store.Place, levels: tuple[str, ...]) -> Matrix:
    possible = levels_to_run(levels)
    with open_release(release_text) as opened, progress() as advance:
        subject = subjects.load_subject(subject_name)
        records = collect(subject, opened, levels=possible, cache=place.traces, progress=advance)
        for record in records:
            evidence.write(record, place.reports)
        return store.write_matrix(place, opened.version, f"{subject.name}@{subject.version}")


def _report(built: Matrix, place: store.Place, as_json: bool) -> None:
    if as_json:
        counts = {
            arch: {v.value: n for v, n in count_verdicts(built, arch).items()} for arch in load_axes().archs
        }
        print_json({"release": built.release.version, "identity": built.release.identity, "cells": counts})
        return
    click.echo(f"AITER {built.release.version} ({built.release.kind}), subject {built.subject}\n")
    verdicts = [v for v in Verdict if any(v in count_verdicts(built, a) for a in load_axes().archs)]
    body = [
        [arch, *(str(count_verdicts(built, arch).get(verdict, 0)) for verdict in verdicts)]
        for arch in load_axes().archs
    ]
    print_table(["cells", *(verdict.value for verdict in verdicts)], body, wrap=[])
    click.echo("")
    for verdict in verdicts:
        click.echo(f"{verdict.value:>12}  {verdict.meaning}")
    version = built.release.version
    click.echo(f"\n{_findings(built, (place.matrices / version).as_posix())}")
    # Without the version the newest matrix would be shown, which need not be this one.
    click.echo(f"Look closer: aiter-conformance matrix show {version} --arch gfx950 --scheme mxfp4-w4a16")


def _findings(built: Matrix, folder: str) -> str:
    """Return how many findings there are, and where they are named.

    That is the page: `release show` has those of reading alone, without sources that changed and dispatch.
    """
    number = len(built.findings)
    said = f"{number} finding{'' if number == 1 else 's'} in the release itself"
    if not number:
        return f"{said}."
    new = sum(finding.known is None for finding in built.findings)
    return f"{said}, {new or 'none'} of them new: see {folder}/README.md"


@matrix_group.command()
@root_option
@json_option
def check(root: Path, as_json: bool) -> int:
    """Rebuild every published matrix from the checked-in evidence and compare, byte for byte.

    Exit code 1 if a published file differs, 3 if nothing is published.
    """
    results = store.check_published(root)
    if as_json:
        print_json(
            [{"file": r.file, "same": r.difference is None, "difference": r.difference} for r in results]
        )
    else:
        for result in results:
            click.echo(f"{'same     ' if result.difference is None else 'DIFFERENT'} {result.file}")
            if result.difference is not None:
                click.echo(f"          {result.difference}")
    return int(any(result.difference is not None for result in results))
