"""What the bench measures: each promise of the design, and how.

Every measurement is called in a fresh process; imports are in the functions, so that they count.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_TRACE: Final = ("torch", "einops", "pandas", "psutil", "pybind11")
_ISA: Final = ("numba", "rocm.llvm")
REPEATS: Final = 5


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
    ignored = [f"--ignore=conformance/selftests/{folder}" for folder in slow_selftests(root)]
    return _timed("pytest", "--quiet", "--numprocesses=2", *ignored, cwd=str(root))


def slow_selftests(root: Path) -> tuple[str, ...]:
    """Return the folders that the session ``tests`` leaves out, as noxfile.py has them."""
    for node in ast.parse((root / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SLOW_SELFTESTS":
            return tuple(ast.literal_eval(node.value))
    raise NotRun("noxfile.py must name SLOW_SELFTESTS")


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


def _isa(given: Given) -> Any:
    from aiter_conformance.isa_speed import measure_speed

    return measure_speed(given.wheel, Path(given.folder, "isa"))


def _isa_rate(given: Given) -> float:
    return float(_isa(given).rate) / 1e6


def _isa_stage1(given: Given) -> float:
    return float(_isa(given).first)


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
    Figure(
        "emulator, wave-instructions on one core",
        2,
        "M/s",
        _isa_rate,
        repeats=3,
        more=True,
        needs=_ISA,
        warm=True,
    ),
    Figure(
        "emulator, a stage-1 kernel at toy size, decoded anew",
        1,
        "s",
        _isa_stage1,
        repeats=3,
        needs=_ISA,
        warm=True,
    ),
)
# The last promise, about all of the above.
MEMORY: Final = Figure("memory, the most of any of these", 2, "GiB", lambda _: 0.0)
