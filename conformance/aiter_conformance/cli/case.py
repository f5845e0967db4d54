"""``case run|repro|export|list``: one input, through leaf and modelled kernels, against the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aiter_conformance import subjects
from aiter_conformance.axes import load_axes
from aiter_conformance.cli.matrix import subject_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.runner import runnable


@click.group("case")
def case_group() -> None:
    """Run one concrete input. CASE is an id such as those that `case list` prints.

    CASE+NAME has what the input NAME of coverage.toml has beyond numbers, such as biases or a limit.
    CASE~RANK is another rank of the group than the first.
    """


@case_group.command("list")
@click.argument("cell_text", metavar="CELL")
@json_option
def list_command(cell_text: str, as_json: bool) -> None:
    """List the inputs that level reference needs of CELL, with what each is for."""
    from aiter_conformance.coverage import load_coverage, problem_id, problems

    cell = load_axes().parse_cell(cell_text)
    reasons = {planned.name: planned.why for planned in load_coverage()}
    found = [(problem_id(name, problem), name) for name, problem in problems(cell, "reference")]
    if as_json:
        print_json([{"case": case, "input": name} for case, name in found])
        return
    print_table(["case", "what it is for"], [[case, reasons[name]] for case, name in found], wrap=[1])


@case_group.command("run")
@click.argument("case_text", metavar="CASE")
@subject_option
@json_option
def run_command(case_text: str, subject_name: str, as_json: bool) -> int:
    """Run CASE and judge its numbers. Exit code 1 if they are wrong, 3 if no kernel family does it."""
    _check_torch()
    from aiter_conformance.coverage import parse_problem
    from aiter_conformance.golden import observe
    from aiter_conformance.ledger import explains
    from aiter_conformance.ledgerfile import load_ledger
    from aiter_conformance.levels.reference import observation, provider_for
    from aiter_conformance.providers.reference_families import FamilyRefusal

    problem = parse_problem(case_text)
    subject = subjects.load_subject(subject_name)
    try:
        verdict = observe(problem, subject, provider_for(problem.case.cell, problem.features)).verdict
    except FamilyRefusal as refusal:
        msg = f"NOT RUN: {refusal}"
        raise InfrastructureError(msg) from refusal
    known = explains(load_ledger(), observation(problem.case.cell, case_text, verdict))
    if as_json:
        document: dict[str, Any] = {
            "case": case_text,
            "subject": f"{subject.name}@{subject.version}",
            "right": verdict.passed,
        }
        document |= {"bound_ratio": verdict.bound_ratio, "row_error": verdict.row_error}
        print_json(document | {"message": verdict.message, "known": None if known is None else known.id})
    else:
        click.echo(f"{case_text}: {'right' if verdict.passed else 'WRONG'}")
        click.echo(f"  largest error: {verdict.bound_ratio:.3g} of the bound (2 is the limit)")
        click.echo(f"  largest relative error of a row: {verdict.row_error:.3g}")
        if verdict.message:
            click.echo(f"  {verdict.message}")
        if known is not None:
            click.echo(f"  known: {known.title} ({known.id})")
    return int(not verdict.passed)


@case_group.command("repro")
@click.argument("case_text", metavar="CASE")
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@subject_option
def repro_command(case_text: str, target: Path, subject_name: str) -> None:
    """Write a script to FILE that repeats CASE's kernel call with numpy, torch and AITER alone."""
    _check_torch()
    from aiter_conformance.coverage import parse_problem
    from aiter_conformance.repro import write_script

    write_script(parse_problem(case_text), subjects.load_subject(subject_name), target)
    click.echo(f"wrote {target}; run it where AITER is installed: python {target}")


@case_group.command("export")
@click.argument("case_text", metavar="CASE")
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
def export_command(case_text: str, target: Path) -> None:
    """Write CASE's inputs, expected output and bound to FILE (.npz), for a test of a kernel of your own."""
    from aiter_conformance import vectors

    vectors.export(case_text, target)
    click.echo(f"wrote {target}; numpy.load({target.name!r}) has the arrays by name")


def _check_torch() -> None:
    _, missing = runnable((Level.REFERENCE,))
    if missing:
        raise InfrastructureError(missing[0])
