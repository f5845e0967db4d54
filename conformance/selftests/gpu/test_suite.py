"""The suite ``gpu`` under pytest-xdist: on two simulated GPUs, and where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiter_conformance.axes import load_axes
from aiter_conformance.cli import cli
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import load
from aiter_conformance.hardware.items import Tier
from aiter_conformance.hardware.items import plan as plan_items
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.hardware.part import opened
from aiter_conformance.hardware.run import Request, open_aiter
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.simulated_rocm.plan import Fault, Plan
from aiter_conformance.subjects import load_subject
from aiter_conformance.trace.board import Board

CHECKOUT = Path(__file__).parents[3]
CELLS = ("gfx942/bf16/silu/out", "gfx942/bf16/gelu/out")


def run_suite(root: Path, *words: str, plan: Plan | None = None) -> subprocess.CompletedProcess[str]:
    """Run the suite in a process of its own, which knows nothing of the pytest that runs this."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "conformance/suites/gpu", "-p", "no:cacheprovider"),
            *("--color=no", f"--gpu-root={root}", *words),
        ],
        env=names | ({} if plan is None else plan.variables()),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class Suite:
    """A run of the suite.

    Attributes:
        folder: What its workers wrote.
        code: Its exit code.
        output: What it printed.
    """

    folder: Path
    code: int
    output: str


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Two cells on two GPUs: the input of 33 tokens runs another kernel, that of 17 leaves it unnamed."""
    root = tmp_path_factory.mktemp("suite")
    faults = (Fault("other-kernel", tokens=33), Fault("say-nothing", tokens=17))
    plan = Plan(state=str(root / "state"), gpus=2, faults=faults)
    cells = [f"--gpu-cell={cell}" for cell in CELLS]
    done = run_suite(root, "-n2", "--testrunuid=run", *cells, plan=plan)
    return Suite(root / "build" / "gpu" / "pytest-run", done.returncode, done.stdout)


class TestTwoGpus:
    """Two workers, a GPU each."""

    def test_every_input_is_a_test(self, suite: Suite) -> None:
        """A right one passes, a wrong one fails, and one that shows nothing is skipped: no pass."""
        assert suite.code == 1, suite.output
        assert "2 failed, 2 passed, 2 skipped" in suite.output

    def test_a_failure_says_all(self, suite: Suite) -> None:
        """Outcome, message and reason, and the command that runs the input once more."""
        assert "fail: The numbers are right, but by other kernels: the trace launches ck" in suite.output
        assert "(other-kernel)" in suite.output
        item = f"{CELLS[0]}@E5-k2-K256-N256-M33-tp1-ep1-hp0-ip0-s0/tokens/r0"
        assert f"\nagain: aiter-conformance gpu case {item}\n" in suite.output

    def test_what_shows_nothing_says_why(self, suite: Suite) -> None:
        """The reason of a skipped test is the outcome's."""
        assert "not_run: The numbers are right, but neither profiler nor log names a kernel" in suite.output

    def test_each_worker_has_its_own_gpu(self, suite: Suite) -> None:
        """What touches the device saw the GPU of its pytest worker, and no other."""
        for number in (0, 1):
            logs = (suite.folder / f"gw{number}" / "logs").glob("*.log")
            seen = {line for log in logs for line in log.read_text().splitlines() if "simulated GPU" in line}
            assert seen == {f"simulated GPU {number}"}

    def test_a_cell_is_of_one_worker(self, suite: Suite) -> None:
        """Each input was run once, all of a cell by one worker, in few processes."""
        parts = [load(suite.folder / f"gw{number}" / "reports")[0].evidence for number in (0, 1)]
        assert sorted(str(cell) for part in parts for cell in part.outcomes) == sorted(CELLS)
        for number in (0, 1):
            attempts = (suite.folder / f"gw{number}" / "journal.jsonl").read_text().splitlines()[1:]
            assert len(attempts) == 3
            assert (suite.folder / f"gw{number}" / "logs" / "gpu-0.log").read_text().count(
                "simulated GPU"
            ) == 1

    def test_parts_merge(self, suite: Suite, tmp_path: Path) -> None:
        """The evidence of both is the whole, by the command that merges shards."""
        folders = [str(suite.folder / f"gw{number}" / "reports") for number in (0, 1)]
        done = CliRunner().invoke(cli, ["evidence", "merge", *folders, f"--output={tmp_path}"])
        assert done.exit_code == 0, done.output
        (whole,) = load(tmp_path)
        assert sorted(map(str, whole.evidence.outcomes)) == sorted(CELLS)
        assert "build/gpu/pytest-run/*/reports" in suite.output


class TestOpened:
    """`opened`."""

    def test_more_workers_than_gpus(self, tmp_path: Path) -> None:
        """A third worker beside two GPUs has none of its own, and writes nothing."""
        machine = Machine(Board("gfx942", 304), 2, "simulated", 0, 0, {}, simulated=True)
        subject = load_subject("impl")
        with (
            open_aiter(machine) as release,
            pytest.raises(UsageError, match=r"at most the number of GPUs, 2 \(this is worker 3\)"),
            opened(Request(()), machine, subject, release, tmp_path, 2),
        ):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_a_gpu_without_workers_is_not_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the package kills who imports it, no input has a result, and later cells start nothing."""
        plan = Plan(state=str(tmp_path / "state"), faults=(Fault("import-dies"),))
        for name, value in plan.variables().items():
            monkeypatch.setenv(name, value)
        machine = Machine(Board("gfx942", 304), 1, "simulated", 0, 0, {}, simulated=True)
        cells = tuple(load_axes().parse_cell(text) for text in CELLS)
        request = Request(cells, Tier.SMOKE)
        first, second = (group[:1] for group in plan_items(cells, Tier.SMOKE))
        with (
            open_aiter(machine) as release,
            opened(request, machine, load_subject("impl"), release, tmp_path / "run", 0) as part,
        ):
            found = part.outcome(first[0], first)
            log = tmp_path / "run" / "gw0" / "logs" / "gpu-0.log"
            size = log.stat().st_size
            assert part.outcome(second[0], second) == found
            assert log.stat().st_size == size
        assert (found.kind, found.reason) == (Kind.NOT_RUN, Reason.INFRASTRUCTURE)
        assert "a worker died of SIGABRT outside any input" in str(found.message)
        assert "workers do not start on it" in str(found.message)


class TestNoGpu:
    """Nothing to run on."""

    @pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there is an AMD GPU here")
    def test_is_not_run(self, tmp_path: Path) -> None:
        """One skipped test says NOT RUN and why; no file is written."""
        done = run_suite(tmp_path)
        assert (done.returncode, "1 skipped" in done.stdout) == (0, True)
        assert "NOT RUN: there is no AMD GPU here" in done.stdout
        assert list(tmp_path.iterdir()) == []
