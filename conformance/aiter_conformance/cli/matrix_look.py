"""``matrix show|explain|query``: reading what was built or published."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from aiter_conformance import evidence, explain, modelfile, store
from aiter_conformance.axes import ROUTERS, Cell, load_axes
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.commands import Findings
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.matrix import CellState
from aiter_conformance.models import load_models
from aiter_conformance.publish.tables import ROUTER_WORDS, Row, rows
from aiter_conformance.release.version import version_key
from aiter_conformance.trace.board import parse_board
from aiter_conformance.verdicts import Verdict

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


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


@click.command()
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
    if a shown cell is in conflict with what its leaf accepts, or less than --require asks for; a cell that is
    known-bad is no reason without --require.
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
    if required is not None and not chosen:
        msg = f"--require {required} must be asked of a cell (no cell has all of these properties)"
        raise UsageError(msg)
    ending = _ending([loaded.cells[cell].verdict for cell in chosen], required)
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
        return ending
    release = loaded.release.version
    click.echo(f"AITER {release}, subject {loaded.subject} (from {_origin(root, release, where)})\n")
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
            _first_sentence(row.state),
            ", ".join(_known(row, release)) or "-",
        ]
        for row in found
    ]
    header = ["arch", "scheme", "activations", "router weight on", "verdict", "why", "ledger"]
    print_table(header, body, wrap=[2, 5, 6])
    click.echo("")
    for shown in Verdict:
        if any(row.state.verdict is shown for row in found):
            click.echo(f"{shown.value:>12}  {shown.meaning}")
    click.echo("\nAll that is known of a cell: aiter-conformance matrix explain CELL [VERSION]")
    return ending


def _ending(verdicts: Sequence[Verdict], required: str | None) -> int:
    """Return the exit code; 1 comes with the sentence that says why."""
    conflicts = sum(verdict is Verdict.CONFLICT for verdict in verdicts)
    if required is not None:
        weak = [verdict for verdict in verdicts if verdict.strength < Verdict(required).strength]
        if weak:
            names = ", ".join(verdict.value for verdict in Verdict if verdict in weak)
            cells = "1 cell is" if len(weak) == 1 else f"{len(weak)} of {len(verdicts)} cells are"
            return Findings(f"{cells} less than --require {required} asks for ({names})")
    if conflicts:
        cells = "1 cell is" if conflicts == 1 else f"{conflicts} cells are"
        return Findings(f"{cells} in conflict: the leaf accepts, and the evidence says that it does not work")
    return 0


def _first_sentence(state: CellState) -> str:
    return "-" if state.message is None else _SENTENCE.split(state.message)[0]


def _known(row: Row, release: str) -> list[str]:
    """Return the ids of the ledger's entries behind a row: a matrix names those of whole cells by title."""
    message = row.state.message or ""
    cell = Cell(row.arch, row.scheme, row.activations[0], row.routers[0])
    whole = [
        entry.id
        for entry in load_ledger()
        if f"Known: {entry.title} (" in message and entry.covers(release) and entry.names(str(cell))
    ]
    single = [] if row.state.verdict is Verdict.UNSUPPORTED else row.state.known
    return list(dict.fromkeys([*whole, *single]))


def _origin(root: Path, version: str, where: str) -> str:
    """Return where a matrix was found, and that another is published where a local build goes before it."""
    if where == store.BUILT and store.is_published(root, version):
        return f"{where}/{version}, built here; it goes before {store.PUBLISHED}/{version}"
    return f"{where}/{version}"


@click.command("explain")
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
    place = store.build_place(root) if where == store.BUILT else store.checkout_place(root)
    records = evidence.load(place.reports)
    found = explain.explain(cell, records, loaded.release.version, loaded.subject, load_ledger())
    if not as_json:
        reports = place.reports.relative_to(root).as_posix()
        origin = _origin(root, loaded.release.version, where)
        click.echo(explain.to_text(found, reports=reports, origin=origin), nl=False)
        return
    print_json(
        {
            "cell": str(cell),
            "release": loaded.release.version,
            "subject": found.subject,
            "from": where,
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


@click.command()
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
        click.echo(f"{newest or f'none of {len(files)} traced releases'} runs {model} on {board}")
    else:
        click.echo(f"{model} on {board}:")
        for file in files:
            schemes = {x.scheme for x in file.lines if x.model == model and x.runs == "yes"}
            said = "runs" if model in file.good else "no scheme runs in every deployment"
            where = ", ".join(sorted(schemes)) or "-"
            click.echo(f"{file.release.version}: {said}; schemes that run somewhere: {where}")
    return int(not good)
