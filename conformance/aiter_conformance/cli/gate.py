"""``gate run``: what changes from one release to another, with an exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from aiter_conformance import documents, evidence, subjects
from aiter_conformance.cli.matrix import root_option, subject_option
from aiter_conformance.cli.output import progress
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.gate import formats, page, stubs
from aiter_conformance.gate.classes import FAILING, ChangeClass
from aiter_conformance.gate.pair import observe_pair
from aiter_conformance.gate.report import DEFAULT_LEVELS, Report, compare
from aiter_conformance.gate.scope import board_filter, model_filter
from aiter_conformance.gate.side import Side
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.runner import COLLECTED, runnable


@click.group("gate")
def gate_group() -> None:
    """Say what changes from one AITER release to another."""


def default_levels() -> list[Level]:
    """Return the levels that a decision rests on unless --level names others.

    Raises:
        InfrastructureError: One cannot be run here: a decision without it would pass what it is there to see.
    """
    possible, missing = runnable(DEFAULT_LEVELS)
    if missing:
        named = " ".join(f"--level {level.value}" for level in possible)
        msg = f"{'; '.join(missing)}. Nothing was compared; {named} decides without it, and says so"
        raise InfrastructureError(msg)
    return possible


def comparison_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments and options of `observe_and_compare`."""
    for option in reversed(
        (
            click.argument("old_text", metavar="OLD"),
            click.argument("new_text", metavar="NEW"),
            subject_option,
            click.option("--board", metavar="ARCH[:CUS]", help="Look at one arch or board alone."),
            click.option(
                "--model", metavar="NAME", help="Look at what can matter to one model of the catalogue alone."
            ),
            click.option(
                "--level",
                "level_names",
                multiple=True,
                type=click.Choice([level.value for level in COLLECTED]),
                help="Level to observe; may be given several times (default: declared, inventory, trace).",
            ),
            click.option(
                "--evidence",
                "folders",
                multiple=True,
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                help="Folder of more evidence about the two, such as reports/; may be given several times.",
            ),
            click.option(
                "--fail-on",
                "fail_on",
                metavar="CLASSES",
                default=",".join(found.value for found in FAILING),
                show_default=True,
                help="Classes of change that end with exit code 1, with commas between them.",
            ),
            root_option,
        )
    ):
        command = option(command)
    return command


def observe_and_compare(
    *,
    old_text: str,
    new_text: str,
    subject_name: str,
    board: str | None,
    model: str | None,
    level_names: Sequence[str],
    folders: Sequence[Path],
    fail_on: str,
    root: Path,
) -> tuple[Side, Side, Report]:
    """Return both sides and what a comparison makes of them.

    Raises:
        UsageError: A release, board, model or class is none.
        InfrastructureError: A level or a release could not be looked at.
    """
    classes = _classes(fail_on)
    board_filter(board), model_filter(model)  # refuse a wrong name before anything is read
    levels = _levels(level_names)
    with progress() as advance:
        old, new = observe_pair(
            (old_text, new_text),
            subject_name,
            levels,
            root / "build",
            advance,
            side_by_side=Level.TRACE in levels,  # the others take seconds
        )
    more = [loaded.evidence for folder in folders for loaded in evidence.load(folder)]
    old, new = old.with_records(more), new.with_records(more)
    report = compare(
        old,
        new,
        labels=(_label(old_text, old), _label(new_text, new)),
        subject=f"{subject_name}@{subjects.find_version(subject_name)}",
        ledger=load_ledger(),
        fail_on=classes,
        board=board,
        model=model,
        given=(old_text, new_text),
    )
    return old, new, report


@gate_group.command()
@comparison_options
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown for a pull request.")
@click.option("--summary", "form", flag_value="summary", help="Print a short Markdown summary for hosted CI.")
@click.option("--junit", "form", flag_value="junit", help="Print JUnit XML.")
@click.option("--propose-ledger", "form", flag_value="ledger", help="Print ledger stubs for what fails.")
@click.option("--json", "form", flag_value="json", help="Print JSON for machines.")
@click.option("--only", metavar="ID", help="Show one cause, in full.")
def run(form: str | None, only: str | None, **question: Any) -> int:
    """Compare two releases and say what got worse, what got better, and whether to go on.

    Exit code 1 if anything regressed, was lost or breaks callers, and no ledger entry explains it; 3 if
    something could not be tried. What is observed of a release is kept under build/gate.
    """
    _, _, report = observe_and_compare(**question)
    shown = report if only is None else report.only(only)
    click.echo(_rendered(shown, form, full=only is not None), nl=False)
    return shown.exit_code


def _classes(text: str) -> list[ChangeClass]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [found.value for found in ChangeClass if found is not ChangeClass.SAME]
    for name in names:
        if name not in known:
            msg = f"--fail-on must be some of {', '.join(known)} (got {name!r})"
            raise click.UsageError(msg)
    return [ChangeClass(name) for name in names]


def _levels(names: Sequence[str]) -> list[Level]:
    wanted = [Level(name) for name in names] or default_levels()
    possible, missing = runnable(wanted)
    if missing:
        msg = f"every level that is asked for must run ({'; '.join(missing)}): nothing was compared"
        raise InfrastructureError(msg)
    if not any(level.about_release for level in possible):
        msg = f"--level must name one that looks at a release (got {', '.join(wanted)})"
        raise click.UsageError(msg)
    return possible


def _label(text: str, side: Side) -> str:
    """Return how a release was given, without the folder that it lies in."""
    if text.startswith("git:"):
        return f"git:DIR@{text.rpartition('@')[2]}"
    return side.label if text != "installed" else text


def _rendered(report: Report, form: str | None, *, full: bool) -> str:
    forms = {
        "markdown": formats.to_markdown,
        "summary": formats.to_summary,
        "junit": formats.to_junit,
        "ledger": stubs.propose_ledger,
        "json": _as_json,
    }
    return page.render(report, full=full) if form is None else forms[form](report)


def _as_json(report: Report) -> str:
    text = report.to_json()
    documents.parse(text, schema="gate", source="the report")  # what breaks its own schema is not printed
    return text
