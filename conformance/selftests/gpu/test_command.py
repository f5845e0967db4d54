"""The command ``gpu`` on a simulated runner: killed and gone on with, in shards, and never published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from aiter_conformance import matrix
from aiter_conformance.axes import load_axes
from aiter_conformance.cli import cli
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId, load
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.simulated_rocm.plan import Fault, Plan

CELLS = ("gfx942/bf16/silu/out", "gfx942/bf16/gelu/out")


def command(folder: Path, *words: str) -> list[str]:
    """Return the command line of ``gpu run`` in a folder."""
    return [sys.executable, "-m", "aiter_conformance", "gpu", "run", f"--root={folder}", *words]


def variables(plan: Plan | None) -> dict[str, str]:
    """Return the environment of a command, simulated or not."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("AITER_")}
    return names | ({} if plan is None else plan.variables())


def run(folder: Path, *words: str, plan: Plan | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``gpu run`` to its end."""
    return subprocess.run(
        command(folder, *words), env=variables(plan), capture_output=True, text=True, check=False
    )


def lines(folder: Path) -> list[dict[str, object]]:
    """Return the attempts in the only journal below a folder, in order."""
    (journal,) = folder.glob("build/gpu/*/journal.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()[1:]]


def without_gpu() -> bool:
    """Return whether this machine has no AMD GPU."""
    return not Path("/dev/kfd").exists()


class TestNotRun:
    """Without a GPU."""

    @pytest.mark.skipif(not without_gpu(), reason="there is an AMD GPU here")
    def test_says_why_and_writes_nothing(self, tmp_path: Path) -> None:
        """Exit code 3, NOT RUN and the reason; no file is written."""
        done = run(tmp_path)
        assert done.returncode == 3
        assert "NOT RUN: there is no AMD GPU here" in done.stderr
        assert list(tmp_path.iterdir()) == []


class TestKilled:
    """A run that is killed and gone on with."""

    def test_nothing_is_lost_or_repeated(self, tmp_path: Path) -> None:
        """Each input is in the journal once, and what was there before the kill is still there as it was."""
        # The third input hangs until the run is killed, and no more after that.
        plan = Plan(state=str(tmp_path / "state"), faults=(Fault("hang", tokens=33, times=1),))
        words = ["--tier=smoke", f"--cell={CELLS[0]}"]
        first = subprocess.Popen(command(tmp_path, *words), env=variables(plan), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (tmp_path / "state" / "fault-0").exists():
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = lines(tmp_path)
        assert len(before) == 2

        junit = tmp_path / "junit.xml"
        resumed = run(tmp_path, *words, "--resume", f"--junit={junit}", plan=plan)
        assert resumed.returncode == 0
        after = lines(tmp_path)
        assert after[:2] == before
        assert len(after) == len({str(line["item"]) for line in after}) == 3
        (record,) = load(next(tmp_path.glob("build/gpu/*/reports")))
        assert record.evidence.level is Level.HARDWARE
        assert record.evidence.simulated
        assert {o.kind for o in record.evidence.outcomes.values()} == {Kind.NOT_RUN}  # smoke is a part only
        assert [s.get("tests") for s in ET.parse(junit).getroot()] == ["3"]  # noqa: S314 -- our own
        assert not (tmp_path / "build" / "reports").exists()


class TestCase:
    """One input alone."""

    def test_a_lie_is_found_again(self, tmp_path: Path) -> None:
        """``gpu case`` runs what ``gpu run`` named, says what is wrong and ends with 1."""
        plan = Plan(state=str(tmp_path / "state"), faults=(Fault("lie", tokens=17),))
        case = f"{CELLS[0]}@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0/tokens/r0"
        words = [sys.executable, "-m", "aiter_conformance", "gpu", "case", case, f"--root={tmp_path}"]
        done = subprocess.run(words, env=variables(plan), capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "fail: 3 of 3 calls are wrong; leaf, call 1: token 0, column 0" in done.stdout
        assert list(tmp_path.glob("build/**/*.json*")) == []


class TestShards:
    """Shards of one run."""

    def test_their_evidence_is_the_whole(self, tmp_path: Path) -> None:
        """Two shards share no cell, have all of them together, and lie in folders of their own."""
        plan = Plan(state=str(tmp_path / "state"), gpus=2)
        words = ["--tier=smoke", *(f"--cell={cell}" for cell in CELLS)]
        codes = [run(tmp_path, *words, f"--shard={i}/2", plan=plan).returncode for i in (1, 2)]
        assert codes == [0, 0]
        records = [load(folder)[0].evidence for folder in sorted(tmp_path.glob("build/gpu/*/reports"))]
        assert [len(record.outcomes) for record in records] == [1, 1]
        folders = map(str, tmp_path.glob("build/gpu/*/reports"))
        merged = tmp_path / "merged"
        done = CliRunner().invoke(cli, ["evidence", "merge", *folders, f"--output={merged}"])
        assert done.exit_code == 0, done.output
        (whole,) = load(merged)
        assert sorted(map(str, whole.evidence.outcomes)) == sorted(CELLS)
        assert whole.evidence.simulated


def loaded(evidence: Evidence) -> Loaded:
    """Return a record as if it had been read."""
    return Loaded(evidence, evidence.path.as_posix(), "sha256:0")


class TestPublished:
    """What a matrix takes."""

    RECORD = Evidence(
        level=Level.HARDWARE,
        board="gfx942:304",
        subject="impl@0.1.0",
        release=ReleaseId("0.1.20", "sha256:" + "0" * 64, "installed"),
        observed="2026-01-01",
        harness="0.1.0",
        environment={"gpu": "AMD Instinct MI300X"},
        outcomes={},
    )

    def with_cell(self, outcome: Outcome, **environment: str) -> Evidence:
        """Return hardware evidence of one cell."""
        cell = load_axes().parse_cell(CELLS[0])
        return replace(
            self.RECORD, outcomes={cell: outcome}, environment=self.RECORD.environment | environment
        )

    def test_hardware_validates(self) -> None:
        """A pass on a real GPU makes the cell validated, and no other cell."""
        built = matrix.build([loaded(self.with_cell(Outcome(Kind.PASS)))], "0.1.20", "impl@0.1.0", ())
        validated = [str(cell) for cell, state in built.cells.items() if state.verdict == "validated"]
        assert validated == [CELLS[0]]

    def test_simulated_evidence_is_refused(self) -> None:
        """The same record from a simulated GPU makes no matrix at all, whatever release it is about."""
        record = self.with_cell(Outcome(Kind.PASS), simulated="yes")
        for version in ("0.1.20", "0.1.19"):
            with pytest.raises(InfrastructureError, match=r"must come from a real GPU .*delete it"):
                matrix.build([loaded(record)], version, "impl@0.1.0", ())

    def test_an_installed_release_is_the_one_that_was_read(self) -> None:
        """Evidence of the same content, read as a wheel and installed, is about one release."""
        wheel = ReleaseId("0.1.20", "sha256:" + "0" * 64, "wheel")
        read = replace(self.RECORD, level=Level.INVENTORY, board="gfx942", subject=None, release=wheel)
        records = [loaded(self.with_cell(Outcome(Kind.PASS))), loaded(read)]
        assert matrix.build(records, "0.1.20", "impl@0.1.0", ()).release == wheel
