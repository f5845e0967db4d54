"""``trace run``: which kernels a release's own dispatch picks, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from aiter_conformance import modelfile, runner, store
from aiter_conformance.axes import load_axes
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table, progress
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.models import load_models
from aiter_conformance.outcome import Kind
from aiter_conformance.release.artefact import Release, open_release
from aiter_conformance.release.inventory import take_inventory
from aiter_conformance.release.tuned import read_tuned
from aiter_conformance.trace.board import Board, all_boards, parse_board
from aiter_conformance.trace.findings import Cause
from aiter_conformance.trace.tuned_calls import tuned_calls


@click.group("trace")
def trace_group() -> None:
    """Run a release's own dispatch code without a GPU."""


@trace_group.command("run")
@click.argument("release_text", metavar="RELEASE")
@click.option("--board", "board_text", default="gfx950:256", show_default=True, help="Arch, or arch:CUs.")
@click.option("--model", "model_name", help="A model of the catalogue, instead of every cell.")
@click.option(
    "--tuned", is_flag=True, help="The calls of the release's own tuned rows, instead of every cell."
)
@click.option("--publish", is_flag=True, help="Record the whole catalogue on every board in the checkout.")
@root_option
@json_option
def run_command(
    release_text: str,
    board_text: str,
    model_name: str | None,
    tuned: bool,
    publish: bool,
    root: Path,
    as_json: bool,
) -> int:
    """Show the kernels that RELEASE picks on a board: for every cell, or for a model of the catalogue.

    With --tuned, trace each tuned row for the board by the very call that it is for, and show what is wrong.

    Exit code 1 if a cell, the model or a tuned row fails, 3 if nothing could be traced.
    """
    if tuned and model_name is not None:
        msg = "--tuned must not be given with --model: each chooses the calls that are traced"
        raise UsageError(msg)
    board = parse_board(board_text)
    _, missing = runner.runnable((Level.TRACE,))
    if missing:
        raise InfrastructureError(missing[0])
    cache = store.build_place(root).traces
    with open_release(release_text) as release:
        if publish:
            return _publish(release, root, cache)
        if tuned:
            return _tuned(release, board, cache, as_json)
        if model_name is None:
            return _cells(release, board, cache, as_json)
        return _model(release, board, model_name, cache, as_json)


def _cells(release: Release, board: Board, cache: Path, as_json: bool) -> int:
    from aiter_conformance.levels.trace import observe

    seen = observe(release, board, load_axes().cells(), cache)
    traced = {cell: outcome for cell, outcome in seen.outcomes.items() if outcome.kind is not Kind.SKIPPED}
    if all(outcome.kind is Kind.NOT_RUN for outcome in traced.values()):
        message = next((outcome.message for outcome in traced.values()), "no cell has a call on this arch")
        msg = f"NOT RUN: {message}"
        raise InfrastructureError(msg)
    failed = any(outcome.kind is not Kind.PASS for outcome in traced.values())
    if as_json:
        print_json(
            {
                "release": release.version,
                "board": str(board),
                "cells": [{"cell": str(cell)} | asdict(outcome) for cell, outcome in traced.items()],
                "causes": [asdict(cause) for cause in seen.causes],
            }
        )
        return int(failed)
    click.echo(f"AITER {release.version} on {board}: {len(traced)} cells traced\n")
    body = [
        [
            str(cell),
            outcome.kind.value,
            ", ".join(outcome.details.get("kernels", {})) or "-",
            outcome.details.get("tuned", "-"),
            outcome.message or "-",
        ]
        for cell, outcome in traced.items()
    ]
    print_table(["cell", "outcome", "kernel families", "tuned", "what is wrong"], body, wrap=[2, 4])
    _print_causes(seen.causes)
    return int(failed)


def _model(release: Release, board: Board, name: str, cache: Path, as_json: bool) -> int:
    from aiter_conformance.trace.model_report import lines, report_models

    report = report_models(release, board, [load_models().find(name)], folder=cache)
    good = report.is_good(name)
    if as_json:
        print_json(
            {
                "release": release.version,
                "board": str(board),
                "model": name,
                "good": good,
                "lines": [asdict(line) for line in lines(report)],
                "causes": [asdict(cause) for cause in report.causes],
            }
        )
        return int(not good)
    verdict = "runs in every deployment of a scheme" if good else "no scheme runs in every deployment"
    click.echo(f"{name} with AITER {release.version} on {board}: {verdict}\n")
    body = [[x.scheme, x.divided, x.runs, x.tuned, x.kernels, x.wrong] for x in lines(report)]
    print_table(["scheme", "divided", "runs", "tuned", "kernels", "what is wrong"], body, wrap=[1, 4, 5])
    _print_causes(report.causes)
    return int(not good)


def _tuned(release: Release, board: Board, cache: Path, as_json: bool) -> int:
    from aiter_conformance.levels.trace import observe_tuned

    inventory = take_inventory(release)
    tables = read_tuned(release, inventory)
    asked = sum(1 for _ in tuned_calls(tables, board))
    if not asked:
        msg = f"NOT RUN: AITER {release.version} has no tuned row for {board} that a call can ask for"
        raise InfrastructureError(msg)
    causes = observe_tuned(release, board, cache, inventory=inventory, tuned=tables)
    if as_json:
        found = [asdict(cause) for cause in causes]
        print_json({"release": release.version, "board": str(board), "rows": asked, "causes": found})
        return int(bool(causes))
    click.echo(f"AITER {release.version} on {board}: {asked} tuned rows traced\n")
    _print_causes(causes)
    return int(bool(causes))


def _publish(release: Release, root: Path, cache: Path) -> int:
    from aiter_conformance.trace.model_report import record, report_models

    place = store.checkout_place(root)
    boards = all_boards()
    with progress() as advance:
        for number, board in enumerate(boards):
            advance("boards", number, len(boards))
            try:
                report = report_models(release, board, folder=cache)
            except InfrastructureError as error:
                click.echo(f"{board}: NOT RUN: {error}", err=True)
                continue
            made = record(report, runner.release_id(release))
            modelfile.write(made, place.reports)
            click.echo(f"{board}: {len(made.good)} models run")
    store.rebuild_published(root)
    return 0


def _print_causes(causes: tuple[Cause, ...]) -> None:
    click.echo("")
    for line in _lines(causes, 0):
        click.echo(line)


def _lines(causes: tuple[Cause, ...], depth: int) -> Iterator[str]:
    for cause in causes:
        yield f"{'  ' * depth}{cause.code.value} ({cause.calls} calls): {cause.message}"
        yield from _lines(cause.consequences, depth + 1)
