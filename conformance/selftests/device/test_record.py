"""The record of the device contract: what it holds, its page, and that no matrix rests on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance import evidence, matrix
from aiter_conformance.axes import load_axes
from aiter_conformance.device.page import render
from aiter_conformance.device.record import DeviceRecord, from_json, load, to_json, write
from aiter_conformance.device.run import Observed, PlantedFault
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Evidence, Level, ReleaseId
from aiter_conformance.outcome import Kind, Outcome

ROOT = Path(__file__).parents[3]
CASE = "gfx950/bf16/silu/out@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0"


@pytest.fixture
def found() -> DeviceRecord:
    """A record with an outcome of each kind."""
    kinds = ((Kind.PASS, None), (Kind.FAIL, "token 3 is wrong"), (Kind.NOT_RUN, "no GPU"))
    checks = ("numbers", "copies", "graph")
    return DeviceRecord(
        board="Some GPU (1/2)",
        device={
            "arch": "sm_90",
            "multiprocessors": 7,
            "memory_mib": 1024,
            "driver": "1.2",
            "cuda": "13.0",
            "hip": None,
        },
        subject="impl@0.1.0",
        observed="2026-12-01",
        harness="0.1.0",
        commit="0" * 40,
        environment={"python": "3.12.3", "torch": "2.11.0"},
        outcomes=tuple(
            Observed("bf16", "AiterUnquantizedExperts", "fused_moe", CASE, check, kind, message)
            for check, (kind, message) in zip(checks, kinds, strict=True)
        ),
        planted=(
            PlantedFault("reads a value", "reads", Kind.FAIL, "read"),
            PlantedFault("reads a value", "graph", Kind.PASS, None),
        ),
    )


class TestDeviceRecord:
    """`DeviceRecord`."""

    def test_lies_in_a_folder_of_its_own(self, found: DeviceRecord) -> None:
        """The file is named after the board, in lower case and without odd characters."""
        assert found.path == Path("device", "some-gpu-1-2.json")

    def test_is_good_only_when_all_holds_and_all_is_caught(self, found: DeviceRecord) -> None:
        """A failure, a check that was not run and a fault that was missed each spoil it."""
        passed, failed, not_run = found.outcomes
        caught, missed = found.planted
        assert replace(found, outcomes=(passed,), planted=(caught,)).good
        assert not replace(found, outcomes=(passed, failed), planted=(caught,)).good
        assert not replace(found, outcomes=(passed, not_run), planted=(caught,)).good
        assert not replace(found, outcomes=(passed,), planted=(caught, missed)).good


class TestWriteAndLoad:
    """`write` and `load`."""

    def test_come_back_as_they_were(self, found: DeviceRecord, tmp_path: Path) -> None:
        """What is written is what is read, one line an outcome."""
        assert write(found, tmp_path) == tmp_path / found.path
        assert load(tmp_path) == [found]
        assert sum('"check"' in line for line in to_json(found).splitlines()) == 5

    def test_a_record_in_the_wrong_place_is_refused(self, found: DeviceRecord, tmp_path: Path) -> None:
        """A file under another board's name is not read as that board's."""
        write(found, tmp_path).rename(tmp_path / "device" / "other.json")
        with pytest.raises(InfrastructureError, match=r"lies in device/other\.json"):
            load(tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            {"kernels": "hardware"},
            {"outcomes": []},
            {"commit": "abc"},
            {"schema": evidence.SCHEMA},
        ],
        ids=["kernels of a release", "nothing looked at", "no commit", "evidence"],
    )
    def test_what_it_is_not_is_refused(self, found: DeviceRecord, change: dict[str, object]) -> None:
        """The schema takes no record that claims another kernel, nothing at all, or to be evidence."""
        text = json.dumps(json.loads(to_json(found)) | change)
        with pytest.raises(InfrastructureError, match="must obey the schema 'device'"):
            from_json(text, "x.json")

    def test_a_failure_without_a_sentence_is_refused(self, found: DeviceRecord) -> None:
        """Whatever did not pass says why."""
        data = json.loads(to_json(found))
        del data["outcomes"][1]["message"]
        with pytest.raises(InfrastructureError, match="outcomes/1"):
            from_json(json.dumps(data), "x.json")


class TestNoMatrixRestsOnIt:
    """A record of the device contract is no evidence."""

    def test_evidence_does_not_see_it(self, found: DeviceRecord, tmp_path: Path) -> None:
        """Evidence beside it is loaded without it."""
        write(found, tmp_path)
        assert evidence.load(tmp_path) == []

    def test_it_cannot_be_read_as_evidence(self, found: DeviceRecord) -> None:
        """Whoever moves it among the evidence is told, and no cell is raised."""
        with pytest.raises(InfrastructureError, match="must obey the schema 'evidence'"):
            evidence.from_json(to_json(found), "x.json")

    def test_the_matrix_is_the_same_with_it(self, found: DeviceRecord, tmp_path: Path) -> None:
        """A release's matrix, built with a perfect record beside its evidence, is the one without it."""
        cells = load_axes().cells()
        for level, release in ((Level.DECLARED, None), (Level.INVENTORY, "0.1.0")):
            for arch in load_axes().archs:
                evidence.write(
                    Evidence(
                        level=level,
                        board=arch,
                        subject=None if release else "impl@0.1.0",
                        release=ReleaseId(release, "sha256:" + "0" * 64, "wheel") if release else None,
                        observed="2026-12-01",
                        harness="0.1.0",
                        environment={},
                        outcomes={cell: Outcome(Kind.PASS) for cell in cells if cell.arch == arch},
                    ),
                    tmp_path,
                )
        before = matrix.build(evidence.load(tmp_path), "0.1.0", "impl@0.1.0")
        good = replace(found, outcomes=found.outcomes[:1], planted=found.planted[:1])
        assert good.good
        write(good, tmp_path)
        assert matrix.build(evidence.load(tmp_path), "0.1.0", "impl@0.1.0") == before


class TestPage:
    """`render`."""

    def test_says_what_it_is_and_what_did_not_hold(self, found: DeviceRecord) -> None:
        """The page says whose kernels ran, and shows each failure and each missed fault."""
        page = render([found])
        assert "**Nothing here says that AITER works.**" in page
        assert "1 of 3 checks hold; 1 of 2 checks of leaves with a planted fault catch it." in page
        assert "* bf16, copies: token 3 is wrong" in page
        assert "reads: caught, graph: **missed**" in page

    def test_is_the_one_that_is_committed(self) -> None:
        """The committed page is made of the committed records."""
        page = ROOT / "reports" / "device" / "README.md"
        if not page.is_file():
            pytest.skip("NOT RUN: this is no checkout with records of the device contract")
        assert page.read_text(encoding="utf-8") == render(load(ROOT / "reports"))
