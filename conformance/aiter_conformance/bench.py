"""Measures the figures that the design promises: ``python -m aiter_conformance.bench WHEEL``.

Each figure is a median over fresh processes, so that imports and caches count as they do for a user.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from tabulate import tabulate

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise and how to measure it.

    Attributes:
        name: What is measured.
        target: The promise.
        unit: Of both.
        measure: Returns one measurement; called in a fresh process.
    """

    name: str
    target: float
    unit: str
    measure: Callable[[Path], float]


def _inventory(wheel: Path) -> float:
    from aiter_conformance.release.artefact import open_release
    from aiter_conformance.release.inventory import take_inventory

    start = time.perf_counter()
    with open_release(str(wheel)) as release:
        take_inventory(release)
    return time.perf_counter() - start


def _inventory_memory(wheel: Path) -> float:
    _inventory(wheel)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _matrix_build(wheel: Path) -> float:
    command = [sys.executable, "-m", "aiter_conformance", "matrix", "build", str(wheel), "--json"]
    command += ["--level", "declared", "--level", "inventory"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([*command, "--root", folder], check=True, capture_output=True)
        return time.perf_counter() - start


FIGURES = (
    Figure("inventory of one release", 3.0, "s", _inventory),
    Figure("memory for it", 2.0, "GiB", _inventory_memory),
    Figure("matrix build of a release without the calls", 10.0, "s", _matrix_build),
)


def measure(figure: Figure, wheel: Path) -> list[float]:
    """Return `REPEATS` measurements of a figure, each from a process of its own."""
    code = (
        "import sys; from pathlib import Path; from aiter_conformance import bench; "
        "print(bench.FIGURES[int(sys.argv[1])].measure(Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(FIGURES.index(figure)), str(wheel)]
    runs = (subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(REPEATS))
    return [float(run.stdout) for run in runs]


@click.command()
@click.argument("wheel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def main(wheel: Path, as_json: bool) -> None:
    """Measure every figure on the AITER release in WHEEL. Informational: the exit code does not judge."""
    results = [(figure, measure(figure, wheel)) for figure in FIGURES]
    if as_json:
        document = [
            {"figure": f.name, "unit": f.unit, "target": f.target, "median": statistics.median(m), "all": m}
            for f, m in results
        ]
        click.echo(json.dumps(document, indent=2))
        return
    rows = [
        [
            f.name,
            f"<= {f.target:g} {f.unit}",
            f"{statistics.median(m):.2f} {f.unit}",
            f"{min(m):.2f}-{max(m):.2f}",
        ]
        for f, m in results
    ]
    click.echo(
        tabulate(rows, headers=["figure", "target", f"median of {REPEATS}", "range"], tablefmt="simple")
    )


if __name__ == "__main__":
    main()
