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
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from tabulate import tabulate

REPEATS: Final = 5

_TRACE: Final = ("torch", "einops", "pandas", "psutil", "pybind11")
_ISA: Final = ("numba", "rocm_llvm")
# A kernel of stage 1 that AITER ships.
_STAGE1: Final = "hsa/gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_128x128_pf2.co"


class NotRun(Exception):  # noqa: N818 -- it is an answer, not an error
    """A figure cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Given:
    """What figures are measured on.

    Attributes:
        wheel: An AITER wheel.
        git: A clone of AITER for what needs two releases, or None.
        folder: Scratch folder that lives as long as the whole run, for what keeps caches between calls.
    """

    wheel: str
    git: str | None
    folder: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise and how to measure it.

    Attributes:
        name: What is measured.
        target: The promise: at most this, or at least where ``more`` says so.
        unit: Of both.
        measure: Returns one measurement; called in a fresh process. Raises `NotRun`.
        repeats: How often, each in a process of its own.
        more: Whether more is better.
        needs: Packages without which it is not run.
        warm: Whether a first measurement only fills caches, and does not count.
    """

    name: str
    target: float
    unit: str
    measure: Callable[[Given], float]
    repeats: int = REPEATS
    more: bool = False
    needs: tuple[str, ...] = ()
    warm: bool = False


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


# --------------------------------------------------------------------------- what is measured


def _timed(*command: str, cwd: str | None = None, codes: tuple[int, ...] = (0,)) -> float:
    """Return the seconds of a command of this project that ends with one of the codes."""
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, cwd=cwd, check=False
    )
    if run.returncode not in codes:
        tail = (run.stderr or run.stdout).strip().splitlines()
        reason = f"{command[0]} ended with {run.returncode}: {tail[-1] if tail else 'no output'}"
        raise NotRun(reason)
    return time.perf_counter() - start


def _main_job(given: Given) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _timed("aiter_conformance", "matrix", "build", given.wheel, "--json", "--root", folder)


def _suite(_given: Given) -> float:
    root = Path(__file__).parents[2]
    if not (root / "conformance" / "suites").is_dir():
        raise NotRun("the suites are in a checkout, and this is none")
    slow = ("faults", "fuzz", "gate", "isa", "numerics", "trace")  # as in the session tests
    ignored = [f"--ignore=conformance/selftests/{folder}" for folder in slow]
    return _timed("pytest", "--quiet", "--numprocesses=2", *ignored, cwd=str(root))


def _inventory(given: Given) -> float:
    from aiter_conformance.release.artefact import open_release
    from aiter_conformance.release.inventory import take_inventory

    start = time.perf_counter()
    with open_release(given.wheel) as release:
        take_inventory(release)
    return time.perf_counter() - start


def _trace(given: Given) -> Any:
    from aiter_conformance.release.artefact import open_release
    from aiter_conformance.trace.board import Board
    from aiter_conformance.trace.speed import measure_speed

    text = given.wheel if given.git is None else f"git:{given.git}@v0.1.20.post1"
    folder = Path(given.folder, "trace")
    folder.mkdir(exist_ok=True)
    with open_release(text) as release:
        return measure_speed(release, Board("gfx950", 256), folder)


def _trace_start(given: Given) -> float:
    return float(_trace(given).start)


def _trace_rate(given: Given) -> float:
    return float(_trace(given).rate)


def _gate(given: Given, folder: str) -> float:
    if given.git is None:
        raise NotRun("it needs two releases: give a clone of ROCm/aiter with --git")
    releases = [f"git:{given.git}@{tag}" for tag in ("v0.1.19", "v0.1.20.post1")]
    return _timed("aiter_conformance", "gate", "run", *releases, "--json", "--root", folder, codes=(0, 1))


def _gate_cold(given: Given) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _gate(given, folder)


def _gate_cached(given: Given) -> float:
    return _gate(given, given.folder)


def _reference(_given: Given) -> float:
    """Return the milliseconds of the slowest scheme's kernel call, each the median of 9."""
    import torch

    from aiter_conformance import contract, subjects
    from aiter_conformance.axes import load_axes
    from aiter_conformance.case import Case
    from aiter_conformance.golden import apply_leaf
    from aiter_conformance.levels.reference import provider_for
    from aiter_conformance.numerics.inputs import Problem
    from aiter_conformance.numerics.packed import pack
    from aiter_conformance.outcome import Kind
    from aiter_conformance.protocols import KernelCall
    from aiter_conformance.providers.reference_families import FamilyRefusal

    torch.set_num_threads(1)
    subject, slowest, done = subjects.load_subject("impl"), 0.0, set()
    for cell in load_axes().cells():
        accepted = contract.declaration(cell).kind is Kind.PASS
        if not accepted or cell.router == "in" or (cell.scheme, cell.activation) in done:
            continue
        done.add((cell.scheme, cell.activation))
        problem = Problem(Case(cell))  # E 8, k 2, K = N = 256, M 64
        packed, calls = pack(problem), list[KernelCall]()

        def record(
            call: KernelCall, calls: list[KernelCall] = calls, like: torch.Tensor = packed.hidden_states
        ) -> torch.Tensor:
            calls.append(call)
            return torch.zeros_like(like)

        apply_leaf(problem, packed, subject, record)
        times = []
        for _ in range(9):
            start = time.perf_counter()
            try:
                provider_for(cell).compute(calls[0], cell.arch)
            except FamilyRefusal:
                break
            times.append(time.perf_counter() - start)
        slowest = max(slowest, statistics.median(times) if times else 0.0)
    return slowest * 1000


def _launch(given: Given) -> tuple[float, int]:
    """Return (seconds, wave-instructions) of a shipped kernel of stage 1 at toy size, compiled code warm."""
    from aiter_conformance.isa import launch, sweep, toy
    from aiter_conformance.isa.judge import BUDGET, SLACK, cases

    opened = sweep.open_object(given.wheel, _STAGE1, Path(given.folder, "isa"))
    problem = toy.problem(opened.kind, cases(opened.kind)[0].shape)
    seconds, instructions = 0.0, 0
    for _ in range(2):  # the first compiles
        start = time.perf_counter()
        result = launch.run(
            opened.code, opened.program, problem.launch, core=opened.core, slack=SLACK, budget=BUDGET
        )
        seconds, instructions = time.perf_counter() - start, result.execution.instructions
    return seconds, instructions


def _isa_rate(given: Given) -> float:
    seconds, instructions = _launch(given)
    return instructions / seconds / 1e6


def _isa_stage1(given: Given) -> float:
    return _launch(given)[0]


FIGURES: Final = (
    Figure("every cell of one release, from installed packages", 120, "s", _main_job, repeats=1),
    Figure("full test suite, two workers", 300, "s", _suite, repeats=1, needs=("torch", "xdist")),
    Figure("inventory of one release", 3, "s", _inventory),
    Figure("trace: start", 5, "s", _trace_start, repeats=3, needs=_TRACE, warm=True),
    Figure("trace: calls", 1000, "1/s", _trace_rate, repeats=3, more=True, needs=_TRACE, warm=True),
    Figure("gate between two releases, cold", 60, "s", _gate_cold, repeats=1),
    Figure("gate between two releases, cached", 5, "s", _gate_cached, repeats=3, warm=True),
    Figure(
        "reference kernels, slowest scheme, E 8, K = N = 256, M 64", 30, "ms", _reference, needs=("torch",)
    ),
    Figure("emulator, one core", 2, "M/s", _isa_rate, repeats=3, more=True, needs=_ISA, warm=True),
    Figure("emulator, a stage-1 kernel at toy size", 1, "s", _isa_stage1, repeats=3, needs=_ISA, warm=True),
)
# The last promise, about all of the above.
_MEMORY: Final = Figure("memory, the most of any of these", 2, "GiB", lambda _: 0.0)


# --------------------------------------------------------------------------- measuring


def run_one(index: int, given: Given) -> dict[str, Any]:
    """Measure one figure once, in this process: ``value`` and ``memory``, or why not under ``not_run``."""
    try:
        value = FIGURES[index].measure(given)
    except NotRun as reason:
        return {"not_run": str(reason)}
    used = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"value": value, "memory": max(used) / 2**20}


def measure(figure: Figure, given: Given) -> Measured:
    """Return the measurements of a figure, each from a process of its own."""
    missing = [name for name in figure.needs if importlib.util.find_spec(name) is None]
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
        return [*measured, Measured(_MEMORY, (), 0.0, "nothing was measured")]
    return [*measured, Measured(_MEMORY, (max(used),), max(used))]


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
