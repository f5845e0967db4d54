"""``python -m aiter_conformance.device``: the device contract on the GPU that torch sees.

Exit codes: 0 everything holds and every planted fault is caught; 1 something does not; 2 wrong usage;
3 NOT RUN, there is no GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiter_conformance import documents, subjects
from aiter_conformance.commands import run_command
from aiter_conformance.device.checks import CALLS
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import DEVICE_FOLDER
from aiter_conformance.outcome import Kind

if TYPE_CHECKING:
    from aiter_conformance.device.run import Observed


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--subject", "name", type=click.Choice(list(subjects.SUBJECTS)), default="impl", show_default=True
)
@click.option(
    "--calls", type=click.IntRange(1), default=CALLS, show_default=True, help="Calls of the check memory."
)
@click.option("--no-planted", is_flag=True, help="Do not plant faults.")
@click.option(
    "--reports", type=click.Path(path_type=Path), default=Path("build", "reports"), show_default=True
)
@click.option("--commit", help="Commit of the harness, where git cannot say.")
@click.option("--page", is_flag=True, help="Only make the page of the records in --reports anew.")
def device(name: str, calls: int, no_planted: bool, reports: Path, commit: str | None, page: bool) -> int:
    """Run the device contract, write the record and its page, and print what does not hold."""
    from aiter_conformance.device import page as pages
    from aiter_conformance.device import record as records
    from aiter_conformance.device.call import default_device
    from aiter_conformance.device.run import NEEDS_GPU, run_device_contract, run_planted

    def write_page() -> None:
        documents.write_text(reports / DEVICE_FOLDER / "README.md", pages.render(records.load(reports)))

    if page:
        write_page()
        return 0
    where = default_device()
    if where.type != "cuda":
        raise InfrastructureError(NEEDS_GPU)
    subject = subjects.load_subject(name)
    outcomes = run_device_contract(where, subject, calls=calls, progress=_tell)
    planted = [] if no_planted else list(run_planted(where, subject))
    found = records.record(where, subject, outcomes, planted, commit)
    target = records.write(found, reports)
    write_page()
    for outcome in outcomes:
        if outcome.outcome is not Kind.PASS:
            click.echo(f"{outcome.variant}: {outcome.check}: {outcome.outcome.value}: {outcome.message}")
    for fault in planted:
        if not fault.caught:
            said = f"{fault.outcome.value}: {fault.message}"
            click.echo(f"a leaf that {fault.fault}: {fault.check} must catch it (got {said})")
    passed = sum(outcome.outcome is Kind.PASS for outcome in outcomes)
    click.echo(f"{found.board}: {passed} of {len(outcomes)} checks hold, ", nl=False)
    click.echo(
        f"{sum(fault.caught for fault in planted)} of {len(planted)} planted faults are caught: {target}"
    )
    return 0 if found.good else 1


def _tell(found: Observed, done: int, total: int) -> None:
    said = "" if found.message is None else f": {found.message}"
    click.echo(f"{done}/{total} {found.variant}, {found.check}: {found.outcome.value}{said}", err=True)


def main() -> None:
    """Run the command and exit with its code; an error is one sentence on standard error."""
    sys.exit(run_command(device))


if __name__ == "__main__":
    main()
