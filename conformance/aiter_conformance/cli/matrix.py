"""``matrix build|show|explain|query|publish|check``: the compatibility matrix of a release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from aiter_conformance import evidence, explain, factfile, modelfile, store, subjects
from aiter_conformance.axes import ROUTERS, load_axes
from aiter_conformance.cli.output import json_option, print_json, print_table, progress
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.matrix import Matrix
from aiter_conformance.models import load_models
from aiter_conformance.publish.page import why
from aiter_conformance.publish.tables import ROUTER_WORDS, count_verdicts, level_words, rows
from aiter_conformance.release.artefact import open_release
from aiter_conformance.release.version import version_key
from aiter_conformance.runner import COLLECTED, QUICK, collect, collect_facts, runnable
from aiter_conformance.trace.board import parse_board
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
    built = _observe(release_text, subject_name, store.build_place(root), levels)
    _report(built, as_json)


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
    _report(published, as_json)


def _observe(release_text: str, subject_name: str, place: store.Place, levels: tuple[str, ...]) -> Matrix:
    possible, missing = runnable(Level(level) for level in levels)
    for sentence in missing:
        click.echo(sentence, err=True)
    with open_release(release_text) as opened, progress() as advance:
        subject = subjects.load_subject(subject_name)
        records = collect(subject, opened, levels=possible, cache=place.traces, progress=advance)
        for record in records:
            evidence.write(record, place.reports)
        return store.write_matrix(place, opened.version, f"{subject.name}@{subject.version}")


def _report(built: Matrix, as_json: bool) -> None:
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
    click.echo(f"\n{len(built.findings)} findings in the release itself.")
    click.echo("Look closer: aiter-conformance matrix show --arch gfx950 --scheme mxfp4-w4a16")


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    axes = load_axes()
    for name, choices in (
        ("verdict", [v.value for v in Verdict]),
        ("router", list(ROUTERS)),
        ("activation", list(axes.activations)),
        ("scheme", list(axes.schemes)),
        ("arch", list(axes.archs)),
    ):
        command = click.option(f"--{name}", type=click.Choice(choices), help=f"Only cells of this {name}.")(
            command
        )
    return command


@matrix_group.command()
@click.argument("version", metavar="[VERSION]", required=False)
@_filters
@click.option(
    "--require",
    "required",
    type=click.Choice([v.value for v in Verdict if v.strength]),
    help="Exit with 1 unless every shown cell has at least this verdict.",
)
@root_option
@json_option
def show(
    version: str | None,
    arch: str | None,
    scheme: str | None,
    activation: str | None,
    router: str | None,
    verdict: str | None,
    required: str | None,
    root: Path,
    as_json: bool,
) -> int:
    """Show a matrix, or the part of it that the options choose.

    VERSION is a release that was built or published here; without it the newest one is shown. Exit code 1
    if a shown cell is in conflict with what its leaf accepts, or less than --require asks for.
    """
    loaded, where = store.find_matrix(root, version)
    chosen = [
        cell
        for cell, state in loaded.cells.items()
        if arch in (None, cell.arch)
        and scheme in (None, cell.scheme)
        and activation in (None, cell.activation)
        and router in (None, cell.router)
        and verdict in (None, state.verdict.value)
    ]
    verdicts = {loaded.cells[cell].verdict for cell in chosen}
    wanted = 0 if required is None else Verdict(required).strength
    bad = Verdict.CONFLICT in verdicts or any(v.strength < wanted for v in verdicts)
    if as_json:
        states = [
            {
                "cell": str(cell),
                "verdict": loaded.cells[cell].verdict.value,
                "levels": {level.value: how for level, how in loaded.cells[cell].levels.items()},
                "reason": loaded.cells[cell].reason,
                "message": loaded.cells[cell].message,
                "kernels": loaded.cells[cell].kernels,
            }
            for cell in chosen
        ]
        print_json(
            {"release": loaded.release.version, "subject": loaded.subject, "from": where, "cells": states}
        )
        return int(bad)
    click.echo(f"AITER {loaded.release.version}, subject {loaded.subject} (from {where})\n")
    found = rows(loaded, load_axes(), chosen)
    if not found:
        click.echo("no cell has all of these properties")
        return 0
    body = [
        [
            row.arch,
            row.scheme,
            ", ".join(row.activations),
            ", ".join(ROUTER_WORDS[r] for r in row.routers),
            row.state.verdict.value,
            level_words(row.state),
            why(row.state),
        ]
        for row in found
    ]
    header = ["arch", "scheme", "activations", "router weight on", "verdict", "levels", "why"]
    print_table(header, body, wrap=[2, 5, 6])
    click.echo("")
    for shown in Verdict:
        if any(row.state.verdict is shown for row in found):
            click.echo(f"{shown.value:>12}  {shown.meaning}")
    return int(bad)


@matrix_group.command("explain")
@click.argument("cell_text", metavar="CELL")
@click.argument("version", metavar="[VERSION]", required=False)
@root_option
@json_option
def explain_command(cell_text: str, version: str | None, root: Path, as_json: bool) -> None:
    """Say why CELL has its verdict: which levels were tried, by what, and the rule that applied.

    CELL is arch/scheme/activation/router, e.g. gfx950/mxfp4-w4a16/swigluoai/out. VERSION is a release that
    was built or published here; without it the newest one is meant.
    """
    cell = load_axes().parse_cell(cell_text)
    loaded, where = store.find_matrix(root, version)
    place = store.build_place(root) if where.startswith("build/") else store.checkout_place(root)
    records = evidence.load(place.reports)
    found = explain.explain(cell, records, loaded.release.version, loaded.subject, load_ledger())
    if not as_json:
        click.echo(explain.to_text(found), nl=False)
        return
    print_json(
        {
            "cell": str(cell),
            "release": loaded.release.version,
            "subject": found.subject,
            "verdict": found.verdict.value,
            "rule": found.applied,
            "known": None if found.known is None else found.known.id,
            "levels": [
                {
                    "level": step.level.value,
                    "board": step.board,
                    "outcome": step.outcome.kind.value,
                    "reason": None if step.outcome.reason is None else step.outcome.reason.value,
                    "message": step.outcome.message,
                    "details": step.outcome.details,
                    "by": step.by,
                    "record": step.record,
                }
                for step in found.steps
            ],
            "never": [level.value for level in found.never],
            "commands": list(found.commands),
        }
    )


@matrix_group.command()
@click.option("--model", required=True, help="A model of the catalogue, e.g. deepseek-v3.")
@click.option("--board", "board_text", required=True, help="Arch, or arch:CUs, e.g. gfx942:304.")
@click.option("--best", is_flag=True, help="Name only the newest release that is good for it.")
@root_option
@json_option
def query(model: str, board_text: str, best: bool, root: Path, as_json: bool) -> int:
    """Say which published releases run a model on a board, by the traces that are checked in.

    Exit code 1 if none does, 3 if no release was traced on the board.
    """
    load_models().find(model)
    board = str(parse_board(board_text))
    files = [f for f in modelfile.load(store.checkout_place(root).reports) if f.board == board]
    if not files:
        msg = f"NOT RUN: no published release was traced on {board}; `trace run RELEASE --publish` does so"
        raise InfrastructureError(msg)
    files.sort(key=lambda file: version_key(file.release.version), reverse=True)
    good = [file.release.version for file in files if model in file.good]
    newest = good[0] if good else None
    if as_json:
        traced = [file.release.version for file in files]
        print_json({"model": model, "board": board, "traced": traced, "good": good, "best": newest})
    elif best:
        click.echo(newest or f"none of {len(files)} traced releases")
    else:
        for file in files:
            schemes = {x.scheme for x in file.lines if x.model == model and x.runs == "yes"}
            said = "runs" if model in file.good else "not in every deployment"
            where = ", ".join(sorted(schemes)) or "-"
            click.echo(f"{file.release.version}: {said}; schemes that run somewhere: {where}")
    return int(not good)


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
