"""``gpu show|run|case``: the real kernels on this machine's GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click

from aiter_conformance import documents, store, subjects
from aiter_conformance.axes import load_axes
from aiter_conformance.cli.matrix import root_option, subject_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.hardware.attempts import BAD
from aiter_conformance.hardware.contract import Contract
from aiter_conformance.hardware.items import Item, Tier, parse_item, parse_shard
from aiter_conformance.hardware.machine import Machine, find_machine
from aiter_conformance.models import load_models
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.release.artefact import Release


@click.group("gpu")
def gpu_group() -> None:
    """Run the real kernels on this machine's GPUs, with the torch and AITER that are installed here."""


@gpu_group.command("show")
@json_option
def show_command(as_json: bool) -> None:
    """Show what would be tested here. Exit code 3 and NOT RUN where nothing can be."""
    machine = find_machine()
    found = {"board": str(machine.board), "gpus": str(machine.gpus)} | machine.environment()
    if as_json:
        print_json(found)
    else:
        print_table(["what", "found"], [[name, value] for name, value in found.items()], wrap=[1])


@gpu_group.command("run")
@click.option(
    "--tier",
    type=click.Choice([tier.value for tier in Tier]),
    default=Tier.CELL.value,
    show_default=True,
    help="smoke: few inputs a cell, 5 minutes; cell: what the matrix asks for, 30; full: models too.",
)
@click.option("--cell", "cell_texts", multiple=True, metavar="CELL", help="Only this cell; may be repeated.")
@click.option(
    "--model", "model_names", multiple=True, metavar="NAME", help="Run this model's layers besides."
)
@click.option("--shard", "shard_text", default="1/1", metavar="i/n", help="The i-th of n parts of the cells.")
@click.option("--resume", is_flag=True, help="Go on with a run that was killed or ran out of time.")
@click.option(
    "--device-contract/--no-device-contract",
    "with_contract",
    default=True,
    show_default=True,
    help="Hold the leaves to the device contract first.",
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write results as JUnit XML.")
@subject_option
@root_option
@json_option
def run_command(
    tier: str,
    cell_texts: tuple[str, ...],
    model_names: tuple[str, ...],
    shard_text: str,
    resume: bool,
    with_contract: bool,
    junit: Path | None,
    subject_name: str,
    root: Path,
    as_json: bool,
) -> int:
    """Run inputs through leaf, bridge and AITER's kernels, judge them, and write evidence under build/.

    The device contract comes first, as a record of its own. Exit code 1 if an input or the contract fails,
    crashes or hangs, or an input is refused; 3 and NOT RUN if nothing could be run.
    """
    from aiter_conformance.hardware.run import Request, open_aiter, run

    axes, catalogue, shard = load_axes(), load_models(), parse_shard(shard_text)
    cells = [axes.parse_cell(text) for text in cell_texts] or list(axes.cells())
    models = [catalogue.find(name) for name in model_names]
    if tier == Tier.FULL and not models:
        models = list(catalogue.models.values())
    machine = find_machine()
    if not any(cell.arch == machine.board.arch for cell in cells):
        msg = f"--cell must be of this GPU's arch, {machine.board.arch} (got {', '.join(cell_texts)})"
        raise UsageError(msg)
    with open_aiter(machine) as release:
        folder, reports = _places(root, machine, release, shard)
        request = Request(tuple(cells), Tier(tier), tuple(models), shard, resume, contract=with_contract)
        subject = subjects.load_subject(subject_name)
        result = run(request, machine, subject, release, folder, reports, _tell)
    contract = result.contract
    if junit is not None:
        documents.write_text(junit, junit_xml(result.outcomes))
    bad = {item: outcome for item, outcome in result.outcomes.items() if outcome.kind in BAD}
    passed = sum(outcome.kind is Kind.PASS for outcome in result.outcomes.values())
    counts = {"planned": result.planned, "ended": len(result.outcomes), "passed": passed, "bad": len(bad)}
    if as_json:
        print_json(_document(machine, release, contract, result.path, counts, result.record.outcomes))
    else:
        _report(contract, bad, counts, result.path)
    if not passed and not bad:
        msg = "NOT RUN: no input gave a result; the workers' logs lie beside the journal"
        raise InfrastructureError(msg)
    return int(bool(bad) or (contract is not None and contract.kind in BAD))


@gpu_group.command("case")
@click.argument("input_text", metavar="INPUT")
@subject_option
@root_option
@json_option
def case_command(input_text: str, subject_name: str, root: Path, as_json: bool) -> int:
    """Run INPUT once, as `gpu run` names it (CASE/NAME/rRANK), in a process of its own; write no evidence.

    Exit code 1 if it fails, crashes, hangs or is refused; 3 if that could not be seen.
    """
    from aiter_conformance.hardware import process
    from aiter_conformance.hardware.run import open_aiter, worker_device, worker_variables
    from aiter_conformance.hardware.worker import Order

    item = parse_item(input_text)
    machine = find_machine()
    if item.case.cell.arch != machine.board.arch:
        msg = f"INPUT must be of this GPU's arch, {machine.board.arch} (got {item.case.cell.arch})"
        raise UsageError(msg)
    log = store.build_place(root).reports.parent / "gpu" / "case.log"
    with open_aiter(machine) as release:
        order = Order((str(item),), subject_name, release.version, worker_device(machine))
        variables = worker_variables(machine, 0)
        try:
            (attempt,) = process.attempts(order, variables, process.Limits(), log)
        except process.StartFailed as error:
            msg = f"NOT RUN: {error}; its log is build/gpu/{log.name}"
            raise InfrastructureError(msg) from error
    if as_json:
        print_json(attempt.to_json())
    else:
        click.echo(f"{attempt.kind.value}: {attempt.message or 'right'}")
        for name, value in attempt.details.items():
            click.echo(f"  {name}: {value}")
    if attempt.kind is Kind.NOT_RUN:
        raise InfrastructureError(str(attempt.message))
    return int(attempt.kind in BAD)


def _places(root: Path, machine: Machine, release: Release, shard: tuple[int, int]) -> tuple[Path, Path]:
    """Return the folder of the run and the folder of its evidence.

    Evidence of one shard is a part, to be merged; simulated evidence must not lie where matrices are built.
    """
    part = "" if shard == (1, 1) else f"-{shard[0]}-of-{shard[1]}"
    name = f"{release.version}-{str(machine.board).replace(':', '-')}{part}"
    folder = store.build_place(root).reports.parent / "gpu" / name
    apart = machine.simulated or part
    return folder, folder / "reports" if apart else store.build_place(root).reports


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)


def _document(
    machine: Machine,
    release: Release,
    contract: Contract | None,
    path: Path,
    counts: dict[str, int],
    cells: dict[Any, Outcome],
) -> dict[str, Any]:
    return {
        "board": str(machine.board),
        "simulated": machine.simulated,
        "release": release.version,
        "device_contract": None if contract is None else contract.to_json(),
        "evidence": path.name,
        **counts,
        "cells": {
            str(cell): {"outcome": outcome.kind.value, "reason": outcome.reason, "message": outcome.message}
            for cell, outcome in cells.items()
        },
    }


def _report(contract: Contract | None, bad: dict[Item, Outcome], counts: dict[str, int], path: Path) -> None:
    if contract is not None:
        for wrong in contract.wrong:
            click.echo(f"FAIL device contract: {wrong}")
        kept = "" if contract.record is None else f"; record: {contract.record.name}"
        click.echo(f"device contract: {contract.kind.value}: {contract.message}{kept}")
    for item, outcome in bad.items():
        click.echo(f"{outcome.kind.value.upper()} {item.name}, rank {item.rank} of {item.case}")
        click.echo(f"  {outcome.message} ({outcome.reason})")
        click.echo(f"  again: aiter-conformance gpu case {item}")
    click.echo(
        f"{counts['passed']} of {counts['planned']} inputs passed, {counts['bad']} are wrong, "
        f"{counts['planned'] - counts['ended']} did not run; evidence: {path.name}"
    )


def junit_xml(outcomes: dict[Item, Outcome]) -> str:
    """Return outcomes as JUnit XML, one suite a cell; what says nothing of a kernel is a skipped test."""
    suites = ET.Element("testsuites")
    by_cell: dict[str, ET.Element] = {}
    for item, outcome in outcomes.items():
        cell = str(item.case.cell)
        if cell not in by_cell:
            by_cell[cell] = ET.SubElement(suites, "testsuite", name=cell)
        test = ET.SubElement(by_cell[cell], "testcase", classname=cell, name=str(item))
        if outcome.kind is not Kind.PASS:
            bad = outcome.kind in BAD
            mark = ET.SubElement(test, "failure" if bad else "skipped", message=str(outcome.message))
            mark.set("type", str(outcome.reason))
    for suite in by_cell.values():
        for name, tag in (
            ("tests", "testcase"),
            ("failures", "testcase/failure"),
            ("skipped", "testcase/skipped"),
        ):
            suite.set(name, str(len(suite.findall(tag))))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
