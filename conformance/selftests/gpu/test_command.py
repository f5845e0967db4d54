"""The command ``gpu`` on a simulated runner: killed and gone on with, in shards, and never published."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from click.testing import CliRunner, Result

from aiter_conformance import matrix
from aiter_conformance.axes import load_axes
from aiter_conformance.cli import cli
from aiter_conformance.device.checks import make_checks
from aiter_conformance.device.run import Observed
from aiter_conformance.device.variants import load_variants
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId, load
from aiter_conformance.hardware import contract
from aiter_conformance.hardware.contract import Contract
from aiter_conformance.hardware.items import Tier
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.simulated_rocm.plan import Fault, Plan
from aiter_conformance.trace.board import Board

CELLS = ("gfx942/bf16/silu/out", "gfx942/bf16/gelu/out")
MACHINE = Machine(Board("gfx942", 304), 1, "simulated", 0, 0, {}, simulated=True)


def invoke(folder: Path, *words: str, plan: Plan | None = None) -> Result:
    """Run a command of ``gpu`` in this process; its workers, as always, are processes of their own."""
    variables: dict[str, str | None] = {} if plan is None else dict(plan.variables())
    words = ("gpu", *words, f"--root={folder}")
    return CliRunner().invoke(cli, words, env=variables, standalone_mode=False)  # for its return value


def lines(folder: Path) -> list[dict[str, object]]:
    """Return the attempts in the journal of a run's folder, in order."""
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]


class TestNotRun:
    """Without a GPU."""

    @pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there is an AMD GPU here")
    def test_says_why_and_writes_nothing(self, tmp_path: Path) -> None:
        """Exit code 3, NOT RUN and the reason; no file is written."""
        command = [sys.executable, "-m", "aiter_conformance", "gpu", "run", f"--root={tmp_path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "NOT RUN: there is no AMD GPU here" in done.stderr
        assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Shards:
    """Two shards of one run.

    Attributes:
        root: Folder of both.
        before: Journal of the first one, when it was killed.
        resumed: What going on with it gave, beside a device contract that fails.
        second: What the second one gave, as JSON, beside the device contract itself.
    """

    root: Path
    before: list[dict[str, object]]
    resumed: Result
    second: Result

    def folder(self, number: int) -> Path:
        """Return the folder of a shard."""
        (found,) = self.root.glob(f"build/gpu/*-{number}-of-2")
        return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Kill the first shard at its third input, which hangs once, go on with it, and run the second."""
    root = tmp_path_factory.mktemp("shards")
    plan = Plan(state=str(root / "state"), gpus=2, faults=(Fault("hang", tokens=33, times=1),))
    words = ["run", "--tier=smoke", *(f"--cell={cell}" for cell in CELLS)]
    command = [sys.executable, "-m", "aiter_conformance", "gpu", *words, "--shard=1/2", f"--root={root}"]
    killed = subprocess.Popen(
        [*command, "--no-device-contract"], env=os.environ | plan.variables(), stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (root / "state" / "fault-0").exists():
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (journal,) = root.glob("build/gpu/*/journal.jsonl")
    before = lines(journal.parent)
    with pytest.MonkeyPatch.context() as patch:
        wrong = Contract(
            Kind.FAIL, "1 of 2 checks hold on the CPU, 0 did not run", ("bf16, reads: it reads",)
        )
        patch.setattr("aiter_conformance.hardware.run.device_contract", lambda *_words: wrong)
        resumed = invoke(root, *words, "--shard=1/2", "--resume", f"--junit={root / 'junit.xml'}", plan=plan)
    return Shards(root, before, resumed, invoke(root, *words, "--shard=2/2", "--json", plan=plan))


class TestKilled:
    """A run that is killed and gone on with."""

    def test_nothing_is_lost_or_repeated(self, shards: Shards) -> None:
        """Each input is in the journal once, and what was there before the kill is still there as it was."""
        after = lines(shards.folder(1))
        assert len(shards.before) == 2
        assert after[:2] == shards.before
        assert len(after) == len({str(line["item"]) for line in after}) == 3

    def test_evidence_is_marked(self, shards: Shards) -> None:
        """It is simulated, lies apart from what matrices are built of, and tier smoke validates nothing."""
        (record,) = load(shards.folder(1) / "reports")
        assert record.evidence.level is Level.HARDWARE
        assert record.evidence.simulated
        assert {o.kind for o in record.evidence.outcomes.values()} == {Kind.NOT_RUN}
        assert not (shards.root / "build" / "reports").exists()

    def test_junit_has_every_input(self, shards: Shards) -> None:
        """One test an input, those before the kill among them."""
        suites = ET.parse(shards.root / "junit.xml").getroot()  # noqa: S314 -- our own
        assert [suite.get("tests") for suite in suites] == ["3"]


class TestContract:
    """The device contract beside a run."""

    def test_a_failure_fails_the_command(self, shards: Shards) -> None:
        """Every input passes, and the command ends with 1 and names the check."""
        assert shards.resumed.return_value == 1
        assert "3 of 3 inputs passed, 0 are wrong" in shards.resumed.output
        assert "FAIL device contract: bf16, reads: it reads" in shards.resumed.output

    def test_a_simulated_runner_runs_what_a_cpu_can_show(self, shards: Shards) -> None:
        """The checks that need a GPU did not run, the others hold, and there is no record of a board."""
        assert shards.second.return_value == 0, shards.second.output
        found = json.loads(shards.second.stdout)["device_contract"]
        assert (found["outcome"], found["record"], found["wrong"]) == ("pass", None, [])
        held, total, left = map(int, re.findall(r"\d+", found["message"]))
        assert held > 0
        assert left == len(load_variants()) * sum(check.gpu for check in make_checks(1).values())
        assert held + left == total
        assert not (shards.folder(2) / "reports" / "device").exists()

    def test_without_it(self, shards: Shards) -> None:
        """``--no-device-contract`` starts no process for it."""
        assert not (shards.folder(1) / "logs" / "device.log").exists()
        assert (shards.folder(2) / "logs" / "device.log").exists()

    def test_a_check_that_fails_is_told(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """What the process prints of a failed check is read as a failure with its sentence."""
        seen = Observed("bf16", "leaf", "fused_moe", "case", "reads", Kind.FAIL, "it reads")
        monkeypatch.setattr("aiter_conformance.device.run.run_device_contract", lambda *_, **__: [seen])
        monkeypatch.setattr("aiter_conformance.device.call.default_device", lambda: torch.device("cpu"))
        contract.main(Tier.SMOKE, "impl", tmp_path)
        found = contract.read_answer(json.loads(capsys.readouterr().out), tmp_path)
        assert (found.kind, found.wrong) == (Kind.FAIL, ("bf16, reads: it reads",))

    def test_a_process_that_hangs_or_dies(self, tmp_path: Path) -> None:
        """It is a timeout or a crash of the contract, with the last words of its process."""
        hung = contract.device_contract(Tier.SMOKE, MACHINE, "impl", tmp_path, seconds=0.01)
        assert hung.kind is Kind.TIMEOUT
        died = contract.device_contract(Tier.SMOKE, MACHINE, "nobody", tmp_path)
        assert (died.kind, "ended with 1" in died.message, "nobody" in died.message) == (
            Kind.CRASH,
            True,
            True,
        )


class TestCase:
    """One input alone."""

    def test_a_lie_is_found_again(self, tmp_path: Path) -> None:
        """``gpu case`` runs what ``gpu run`` named, says what is wrong and ends with 1."""
        plan = Plan(state=str(tmp_path / "state"), faults=(Fault("lie", tokens=17),))
        done = invoke(
            tmp_path, "case", f"{CELLS[0]}@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0/tokens/r0", plan=plan
        )
        assert done.return_value == 1
        assert "fail: 3 of 3 calls are wrong; leaf, call 1: token 0, column 0" in done.output
        assert list(tmp_path.glob("build/**/*.json*")) == []


class TestShards:
    """Shards of one run."""

    def test_their_evidence_is_the_whole(self, shards: Shards, tmp_path: Path) -> None:
        """Two shards share no cell, have all of them together, and lie in folders of their own."""
        folders = [shards.folder(number) / "reports" for number in (1, 2)]
        assert [len(load(folder)[0].evidence.outcomes) for folder in folders] == [1, 1]
        done = CliRunner().invoke(cli, ["evidence", "merge", *map(str, folders), f"--output={tmp_path}"])
        assert done.exit_code == 0, done.output
        (whole,) = load(tmp_path)
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
