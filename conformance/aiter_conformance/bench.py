"""Measures the figures that the design promises: ``python -m aiter_conformance.bench WHEEL``.

Each measurement runs in a fresh process, so that imports and caches count as they do for a user, and its
memory is seen. What cannot be measured here says NOT RUN and why; nothing is judged by the exit code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from aiter_conformance.bench_figures import FIGURES, MEMORY, Figure, Given, NotRun


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one figure.

    Attributes:
        figure: The figure.
        values: The measurements, in its unit; empty where it was not run.
        memory: Largest memory of one measurement, its children included, GiB.
        reason: Why it was not run; empty where it was.
    """

    figure: Figure
    values: tuple[float, ...]
    memory: float
    reason: str = ""

    @property
    def median(self) -> float | None:
        """The median, or None."""
        return statistics.median(self.values) if self.values else None

    @property
    def holds(self) -> bool | None:
        """Whether the promise holds; None where it was not measured."""
        if self.median is None:
            return None
        target = self.figure.target
        return self.median >= target if self.figure.more else self.median <= target


# --------------------------------------------------------------------------- measuring


def run_one(index: int, given: Given) -> dict[str, Any]:
    """Measure one figure once, in this process: ``value`` and ``memory``, or why not under ``not_run``."""
    try:
        value = FIGURES[index].measure(given)
    except NotRun as reason:
        return {"not_run": str(reason)}
    used = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"value": value, "memory": max(used) / 2**20}


def _found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # what it is a part of is not there
        return False


def measure(figure: Figure, given: Given) -> Measured:
    """Return the measurements of a figure, each from a process of its own."""
    missing = [name for name in figure.needs if not _found(name)]
    if missing:
        return Measured(figure, (), 0.0, f"it needs {', '.join(missing)}")
    code = (
        "import json, sys; from aiter_conformance import bench; "
        "print(json.dumps(bench.run_one(int(sys.argv[1]), bench.Given(*json.loads(sys.argv[2])))))"
    )
    command = [sys.executable, "-c", code, str(FIGURES.index(figure))]
    command.append(json.dumps([given.wheel, given.git, given.folder]))
    # The figures are of two cores with other work beside: no library may take threads of its own.
    quiet = dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    values, memory = [], 0.0
    for repeat in range(figure.repeats + figure.warm):
        run = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
        if run.returncode:
            lines = run.stderr.strip().splitlines() or ["no output"]
            return Measured(figure, (), 0.0, f"it ended with {run.returncode}: {lines[-1]}")
        seen = json.loads(run.stdout.splitlines()[-1])
        if "not_run" in seen:
            return Measured(figure, (), 0.0, seen["not_run"])
        memory = max(memory, seen["memory"])
        if repeat or not figure.warm:
            values.append(seen["value"])
    return Measured(figure, tuple(values), memory)


def with_memory(measured: list[Measured]) -> list[Measured]:
    """Return the measurements with the promise about memory behind them."""
    used = [one.memory for one in measured if one.values]
    if not used:
        return [*measured, Measured(MEMORY, (), 0.0, "nothing was measured")]
    return [*measured, Measured(MEMORY, (max(used),), max(used))]


def _row(one: Measured) -> list[str]:
    figure, sign = one.figure, ">=" if one.figure.more else "<="
    target = f"{sign} {figure.target:g} {figure.unit}"
    if one.median is None:
        return [figure.name, target, "NOT RUN", "", "", one.reason]
    low, high = min(one.values), max(one.values)
    held = "yes" if one.holds else "NO"
    return [figure.name, target, held, f"{one.median:.3g} {figure.unit}", f"{low:.3g} to {high:.3g}", ""]


def _document(one: Measured) -> dict[str, Any]:
    figure = one.figure
    return {
        "figure": figure.name,
        "unit": figure.unit,
        "target": figure.target,
        "better": "more" if figure.more else "less",
        "median": one.median,
        "all": list(one.values),
        "memory_gib": round(one.memory, 3),
        "holds": one.holds,
        "not_run": one.reason or None,
    }


@click.command()
@click.argument("wheel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--git",
    metavar="DIR",
    envvar="AITER_GIT_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Clone of ROCm/aiter, for what needs two releases.",
)
@click.option("--only", metavar="TEXT", default="", help="Only figures with this in their name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def main(wheel: Path, git: Path | None, only: str, as_json: bool) -> None:
    """Measure every figure on the AITER release in WHEEL. Informational: the exit code does not judge."""
    chosen = [figure for figure in FIGURES if only in figure.name]
    with tempfile.TemporaryDirectory() as folder:
        given = Given(str(wheel.resolve()), None if git is None else str(git.resolve()), folder)
        results = with_memory([measure(figure, given) for figure in chosen])
    if as_json:
        click.echo(json.dumps([_document(one) for one in results], indent=2))
        return
    headers = ["figure", "target", "holds", "median", "range", "why not"]
    click.echo(tabulate([_row(one) for one in results], headers=headers, tablefmt="simple"))


if __name__ == "__main__":
    main()
