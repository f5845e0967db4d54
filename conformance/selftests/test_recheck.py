"""Checked-in evidence against a new observation: equal is silent, and each kind of change is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance.axes import load_axes, spec_dir
from aiter_conformance.evidence import Evidence, Finding, Level, ReleaseId
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.recheck import Change, compare, compare_all
from aiter_conformance.release.samples import sample_files, write_tree

CELL, OTHER = load_axes().cells()[:2]
PASS = Outcome(Kind.PASS, details={"kernels": {"ck": 3}, "error": 1.5, "inputs": ["M=1", "M=64"]})
RECORD = Evidence(
    level=Level.TRACE,
    board="gfx942:304",
    subject="impl@0.1.0",
    release=ReleaseId("0.1.18", "sha256:" + "1" * 64, "git"),
    observed="2026-01-02",
    harness="0.1.0",
    environment={"python": "3.11.7"},
    outcomes={CELL: PASS},
    findings=(Finding("x", "y", "z"),),
)
PATH = "0.1.18/trace-gfx942-304-impl@0.1.0.json"


def with_outcome(outcome: Outcome) -> Evidence:
    """Return the record with another outcome of its cell."""
    return replace(RECORD, outcomes={CELL: outcome})


class TestCompare:
    """``compare``: what must be equal, and what need not be."""

    @pytest.mark.parametrize(
        "seen",
        [
            RECORD,
            replace(RECORD, observed="2027-01-01", harness="9", environment={}),
            replace(RECORD, release=replace(RECORD.release, kind="wheel")),  # type: ignore[type-var]
            replace(RECORD, findings=(Finding("x", "y", "in other words"),)),
            with_outcome(replace(PASS, details=PASS.details | {"error": 1.6})),
        ],
        ids=["same", "day-and-host", "way-it-was-given", "wording", "number-within-a-tenth"],
    )
    def test_equal(self, seen: Evidence) -> None:
        """Neither day, host, wording nor a number within the tolerance is a change."""
        assert compare(RECORD, seen) == []

    @pytest.mark.parametrize(
        ("seen", "expected"),
        [
            (
                with_outcome(Outcome(Kind.FAIL, Reason.NO_KERNEL, "None.", PASS.details)),
                [("outcome", "pass", "fail"), ("reason", "None", "no-kernel")],
            ),
            (
                with_outcome(replace(PASS, details=PASS.details | {"kernels": {"ck": 2, "asm": 1}})),
                [("kernels/ck", "3", "2"), ("kernels/asm", "nothing", "1")],
            ),
            (
                with_outcome(replace(PASS, details=PASS.details | {"error": 1.7})),
                [("error", "1.5", "1.7")],
            ),
            (
                with_outcome(replace(PASS, details=PASS.details | {"inputs": ["M=1"]})),
                [("inputs/1", "M=64", "nothing")],
            ),
        ],
        ids=["outcome", "kernel", "number", "input"],
    )
    def test_changed(self, seen: Evidence, expected: list[tuple[str, str, str]]) -> None:
        """A change of outcome, reason, kernel, number or input is named with both sides."""
        assert compare(RECORD, seen) == [Change(PATH, str(CELL), *change) for change in expected]

    def test_cells_that_only_one_has(self) -> None:
        """A cell that is no longer observed, and one that is new, are changes."""
        seen = replace(RECORD, outcomes={OTHER: Outcome(Kind.PASS)})
        changes = {(change.about, change.what, change.seen) for change in compare(RECORD, seen)}
        assert (str(CELL), "outcome", "nothing") in changes
        assert (str(OTHER), "outcome", "pass") in changes

    def test_findings_that_only_one_has(self) -> None:
        """A finding that went and one that came are changes."""
        seen = replace(RECORD, findings=(Finding("new", "y", "z"),))
        assert compare(RECORD, seen) == [
            Change(PATH, "findings", "new y", "nothing", "listed"),
            Change(PATH, "findings", "x y", "listed", "nothing"),
        ]

    def test_another_content_of_the_release(self) -> None:
        """The same version with other content is a change of the release."""
        other = ReleaseId("0.1.18", "sha256:" + "2" * 64, "git")
        assert compare(RECORD, replace(RECORD, release=other)) == [
            Change(PATH, "release", "content", "sha256:" + "1" * 64, "sha256:" + "2" * 64)
        ]

    def test_records_of_two_things(self) -> None:
        """Records of two boards cannot be compared."""
        with pytest.raises(ValueError, match="must be about one thing"):
            compare(RECORD, replace(RECORD, board="gfx942:80"))


class TestCompareAll:
    """``compare_all``: each observation with its own record."""

    def test_what_has_no_record_is_named(self) -> None:
        """An observation without a record is no change, and is not silent either."""
        seen = [RECORD, replace(RECORD, board="gfx942:80")]
        assert compare_all([RECORD], seen) == ([], ["0.1.18/trace-gfx942-80-impl@0.1.0.json"])


class TestCommand:
    """``evidence check``: against a checkout."""

    LEVELS = ("--level", "declared", "--level", "inventory")

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        """A checkout in which a small release is published."""
        root = tmp_path / "checkout"
        shutil.copytree(spec_dir(), root / "matrices" / "spec")
        return root

    def test_same_then_changed_then_unrecorded(
        self, invoke: Callable[..., Any], tmp_path: Path, checkout: Path
    ) -> None:
        """Code 3 without records, 0 where all is as recorded, 1 where a record says otherwise."""
        release = write_tree(tmp_path / "release", sample_files())
        asked = ("evidence", "check", release, *self.LEVELS, "--root", checkout)
        unrecorded = invoke(*asked)
        assert (unrecorded.code, "NOT RUN" in unrecorded.err) == (3, True)
        assert invoke("matrix", "publish", release, *self.LEVELS, "--root", checkout).code == 0
        same = invoke(*asked)
        assert (same.code, "6 records compared, 0 differences" in same.out) == (0, True)
        record = next((checkout / "reports").rglob("inventory-gfx950.json"))
        text = record.read_text(encoding="utf-8")
        record.write_text(text.replace('"outcome": "fail"', '"outcome": "crash"', 1), encoding="utf-8")
        changed = invoke(*asked, "--json")
        assert changed.code == 1
        shown = json.loads(changed.out)
        assert [(c["what"], c["recorded"], c["seen"]) for c in shown["changes"]] == [
            ("outcome", "crash", "fail")
        ]
