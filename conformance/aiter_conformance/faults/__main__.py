"""``python -m aiter_conformance.faults``: plant every fault, and print who catches what.

Exit codes: 0 every fault planted by hand is caught, at least 95 % of the mutants are, and those that survive
are the listed ones; 1 otherwise; 2 wrong usage; 3 nothing could be tested.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from aiter_conformance.commands import run_command
from aiter_conformance.errors import UsageError
from aiter_conformance.faults.campaign import KILLED, Outcome, try_all
from aiter_conformance.faults.collected import with_suites
from aiter_conformance.faults.planted import load_faults, plant
from aiter_conformance.faults.survivors import load_survivors
from aiter_conformance.faults.trial import Trial
from aiter_conformance.faults.variant import Variant

PACKAGE: Final = "aiter_moe"
SUITES: Final = ("contract", "properties")
MUTATED: Final = (
    *("pads", "dispatch", "quant", "experts", "leaves", "library", "bridge", "calls", "env"),
    *("shared_experts", "tkw1", "result"),
)
# What every child would import for itself; the first part of a compilation takes seconds.
PRELOADED: Final = ("torch", "torch._dynamo")

_file = click.Path(exists=True, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--no-mutants", is_flag=True, help="Plant only the faults written by hand.")
@click.option("--no-planted", is_flag=True, help="Plant only mutants.")
@click.option("--module", "modules", multiple=True, default=MUTATED, help="Mutate this one instead of all.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes at a time.")
@click.option("--grace", type=float, default=30.0, show_default=True, help="Seconds before a hang is one.")
@click.option("--package", default=PACKAGE, show_default=True, help="The package to plant faults in.")
@click.option("--suites", "folders", multiple=True, type=_file, help="Its tests, instead of the project's.")
@click.option("--planted", "planted", type=_file, help="The faults, instead of the project's.")
@click.option("--survivors", "survivors", type=_file, help="Who may survive, instead of the project's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def faults(
    no_mutants: bool,
    no_planted: bool,
    modules: tuple[str, ...],
    workers: int,
    grace: float,
    package: str,
    folders: tuple[Path, ...],
    planted: Path | None,
    survivors: Path | None,
    as_json: bool,
) -> int:
    """Plant faults in a package, one at a time, and see which tests catch them."""
    # One thread each: the tensors are small, the processes are many, and no thread survives a fork.
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOADED if package == PACKAGE else ():
        importlib.import_module(name)
    by_hand = [] if no_planted else load_faults(planted)
    listed = load_survivors(survivors)
    outcome = with_suites(
        folders or _suites(),
        partial(
            try_all,
            package=package,
            planted=[plant(fault) for fault in by_hand],
            mutants=[] if no_mutants else _mutants([f"{package}.{module}" for module in modules]),
            listed=listed,
            workers=workers,
            grace=grace,
            say=partial(click.echo, err=True),
        ),
    )
    if as_json:
        click.echo(json.dumps(_document(outcome, listed), indent=2, ensure_ascii=False))
    else:
        _print(outcome, {fault.id: fault.breaks for fault in by_hand}, listed)
    return 0 if outcome.is_good else 1


def _suites() -> list[Path]:
    root = Path(__file__).parents[2] / "suites"
    if not root.is_dir():
        msg = "faults must be planted from a checkout of the project (got an installation without suites)"
        raise UsageError(msg)
    return [root / name for name in SUITES]


def _mutants(modules: Sequence[str]) -> list[Variant]:
    # Here, because whoever wants only the faults planted by hand needs no mutation-testing library.
    from aiter_conformance.faults.mutants import mutants

    return [mutant for module in modules for mutant in mutants(module)]


def _document(outcome: Outcome, reasons: Mapping[str, str]) -> dict[str, Any]:
    def entry(trial: Trial) -> dict[str, Any]:
        about = {"id": trial.variant.id, "module": trial.variant.module}
        reason = reasons.get(trial.variant.id)
        known = {} if reason is None or trial.noticed else {"reason": reason}
        return {**about, "verdict": trial.verdict, "by": trial.by, **known}

    return {
        "good": outcome.is_good,
        "killed": outcome.killed,
        "seconds": list(outcome.seconds),
        "planted": [entry(trial) for trial in outcome.planted],
        "mutants": [entry(trial) for trial in outcome.mutants],
        "unlisted": list(outcome.unlisted),
        "stale": list(outcome.stale),
    }


def _print(outcome: Outcome, breaks: Mapping[str, str], reasons: Mapping[str, str]) -> None:
    # Not earlier: the commands import the package under test, and then no fault could take its place.
    from aiter_conformance.cli.output import print_table

    if outcome.planted:
        rows = [(t.variant.id, breaks[t.variant.id], t.verdict, _short(t.by)) for t in outcome.planted]
        print_table(("fault", "breaks", "verdict", "by"), rows, wrap=(1, 3))
    if outcome.mutants:
        click.echo()
        print_table(
            ("module", "mutants", "caught", "timeout", "crash", "survived"), _by_module(outcome), wrap=()
        )
        survived = [trial.variant.id for trial in outcome.mutants if not trial.noticed]
        if survived:
            click.echo()
            why = [(mutant, reasons.get(mutant, "NOT LISTED")) for mutant in survived]
            print_table(("survivor", "why"), why, wrap=(0, 1))
    for mutant in outcome.stale:
        click.echo(f"listed as a survivor, but caught or no longer generated: {mutant}")
    click.echo()
    without, by_hand, generated = outcome.seconds
    click.echo(
        f"{sum(t.noticed for t in outcome.planted)} of {len(outcome.planted)} faults planted by hand and "
        f"{sum(t.noticed for t in outcome.mutants)} of {len(outcome.mutants)} mutants "
        f"({outcome.killed:.1%}, at least {KILLED:.0%} asked for) are noticed; "
        f"{len(outcome.unlisted)} survivors are not listed, {len(outcome.stale)} entries are stale; "
        f"{without:.0f} s without a fault, {by_hand:.0f} s and {generated:.0f} s with one"
    )


def _by_module(outcome: Outcome) -> list[tuple[str, ...]]:
    verdicts: dict[str, Counter[str]] = {}
    for trial in outcome.mutants:
        verdicts.setdefault(trial.variant.module, Counter())[trial.verdict] += 1
    names = ("caught", "timeout", "crash", "survived")
    return [
        (module, str(counts.total()), *(str(counts[name]) for name in names))
        for module, counts in verdicts.items()
    ]


def _short(test: str) -> str:
    """Return a node id without the folders that all have in common."""
    return test.removeprefix("conformance/suites/")


def main() -> None:
    """Run the command and exit with its code."""
    sys.exit(run_command(faults))


if __name__ == "__main__":
    main()
