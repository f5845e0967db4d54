"""Cells with more evidence, ledger entries, boards, downgrades: what the planted releases do not reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from aiter_conformance.axes import Cell
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import Evidence, Finding, Level
from aiter_conformance.gate import page, stubs
from aiter_conformance.gate.classes import FAILING, ChangeClass
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.gate.side import Side
from aiter_conformance.ledger import Entry
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.outcome import Kind, Outcome, Reason

Files = dict[str, bytes]
Gate = Callable[..., Report]
CELL = Cell("gfx942", "fp8-channel", "silu", "out")
MOE = "aiter/fused_moe.py"
GUARD = " and k_batch >= 2"


def traced(side: Side, outcome: Outcome, level: Level = Level.TRACE) -> Side:
    """Return a side with the outcome of a cell at one more level."""
    record = Evidence(level, "gfx942:304", None, side.release, "2026-01-01", "0", {}, {CELL: outcome})
    return side.with_records([record])


def kernels(**buckets: str) -> dict[str, Any]:
    """Return details as level trace gives them: what is launched for each token bucket."""
    return {"inputs": {"plain": buckets}, "kernels": {"asm": 1}, "tuned": "1/1"}


@pytest.fixture
def sides(subject: Any) -> Callable[..., Report]:
    """Compare two sides."""

    def sides(old: Side, new: Side) -> Report:
        name = f"{subject.name}@{subject.version}"
        return compare(old, new, labels=("old", "new"), subject=name, ledger=(), fail_on=FAILING)

    return sides


class TestTrace:
    """Evidence of level trace on both sides."""

    def test_the_same(self, good_side: Side, sides: Gate) -> None:
        """The same kernels are no change."""
        one = traced(good_side, Outcome(Kind.PASS, details=kernels(M16="asm 32x128")))
        report = sides(one, one)
        assert (report.causes, report.exit_code, report.levels[-1]) == ((), 0, "trace")

    def test_a_kernel_that_moved_alone(self, good_side: Side, sides: Gate) -> None:
        """Another kernel for one token bucket is named, and is no regression."""
        old = traced(good_side, Outcome(Kind.PASS, details=kernels(M16="asm 32x128", M64="asm 32x128")))
        new = traced(good_side, Outcome(Kind.PASS, details=kernels(M16="asm 32x128", M64="asm 32x256")))
        report = sides(old, new)
        (cause,) = report.causes
        assert (cause.id, cause.change, report.exit_code) == ("case:other sizes of asm", "kernel-changed", 0)
        assert [change.item.key for change in cause.changes] == [f"{CELL} gfx942:304 plain M64"]

    def test_a_kernel_that_is_wrong(self, good_side: Side, sides: Gate) -> None:
        """A cell whose trace fails now is a regression, and its inputs follow with both sides' kernels."""
        failed = Outcome(
            Kind.FAIL,
            Reason.WRONG_ACTIVATION,
            "It does Gelu.",
            kernels(M16="asm gelu; wrong: wrong-activation"),
        )
        old = traced(good_side, Outcome(Kind.PASS, details=kernels(M16="asm silu")))
        report = sides(old, traced(good_side, failed))
        (cause,) = report.failing
        assert (cause.id, cause.change, report.exit_code) == ("dispatch:wrong-activation", "regressed", 1)
        (case,) = cause.consequences
        assert case.before is not None
        assert (case.before.text, case.item.text) == ("asm silu", "asm gelu; wrong: wrong-activation")

    def test_an_input_of_a_bad_cell_that_got_worse(self, good_side: Side, sides: Gate) -> None:
        """In a cell that was bad already, an input that goes wrong now is a regression of its own."""
        failed = Outcome(Kind.FAIL, Reason.WRONG_ACTIVATION, "It does Gelu.")
        wrong = "asm gelu; wrong: wrong-activation"
        old = traced(good_side, replace(failed, details=kernels(M16=wrong, M64="asm silu")))
        new = traced(good_side, replace(failed, details=kernels(M16=wrong, M64=wrong)))
        (cause,) = sides(old, new).failing
        assert (cause.id, cause.change) == ("dispatch:wrong-activation", "regressed")
        (cause,) = sides(new, old).causes
        assert (cause.id, cause.change) == ("case:no longer wrong-activation", "fixed")

    @pytest.mark.parametrize(
        ("before", "now", "found"),
        [
            ("refused: ValueError", "asm in bf16, default; wrong: wrong-activation", "regressed"),
            (
                "asm in bf16, default; wrong: no-kernel",
                "asm in bf16, default; wrong: wrong-dtype",
                "regressed",
            ),
            ("refused: ValueError", "asm in bf16, default; wrong: no-kernel", "still-bad"),
            ("refused: ValueError", "asm in bf16, default; wrong: no-kernel, wrong-dtype", "still-bad"),
            (
                "asm in bf16, default; wrong: wrong-dtype",
                "asm in bf16, default; wrong: wrong-activation",
                "still-bad",
            ),
            (
                "asm in bf16, default; wrong: wrong-dtype",
                "died: killed; wrong: dispatch-died",
                "still-bad",
            ),
        ],
    )
    def test_who_is_told(self, good_side: Side, sides: Gate, before: str, now: str, found: str) -> None:
        """What failed for all to see and is silently wrong now got worse; other moves of failures did not."""
        failed = Outcome(Kind.FAIL, Reason.WRONG_DTYPE, "It does not.")
        old, new = (traced(good_side, replace(failed, details=kernels(M16=text))) for text in (before, now))
        assert [cause.change.value for cause in sides(old, new).causes] == [found]

    def test_wrong_in_another_way(self, good_side: Side, sides: Gate) -> None:
        """A call that raised and is quietly wrong now got worse; one that raises instead merely moved."""
        failed = Outcome(Kind.FAIL, Reason.DISPATCH_RAISES, "It raises.")
        loud = "raised: ZeroDivisionError; wrong: dispatch-raises"
        quiet = "asm 32x64 in bf16, default; wrong: wrong-activation"
        raises = traced(good_side, replace(failed, details=kernels(M16=loud)))
        wrong = traced(good_side, replace(failed, details=kernels(M16=quiet)))
        assert [c.id for c in sides(raises, wrong).failing] == ["dispatch:wrong-activation"]
        assert [c.change.value for c in sides(wrong, raises).causes] == ["still-bad"]
        text = page.render(sides(wrong, raises))
        assert "STILL BAD, otherwise (no regression, and not mended): 1 still-bad" in text
        assert "alone no regression" not in text

    def test_a_cell_that_is_bad_otherwise(self, good_side: Side, sides: Gate) -> None:
        """A cell that fails for another reason than before is neither the same nor a regression."""
        old, new = (
            traced(good_side, Outcome(Kind.FAIL, reason, "It fails."))
            for reason in (Reason.WRONG_ACTIVATION, Reason.NO_KERNEL)
        )
        report = sides(old, new)
        assert [(cause.id, cause.change.value) for cause in report.causes] == [(f"cell:{CELL}", "still-bad")]
        assert report.exit_code == 0
        assert sides(old, old).causes == ()

    def test_a_line_number_is_no_change(self, good_side: Side, sides: Gate) -> None:
        """What raises as before, some lines further down, is the same."""
        failed = Outcome(Kind.FAIL, Reason.DISPATCH_RAISES, "It raises.")
        texts = [f"raised: ZeroDivisionError in aiter/x.py:{n}: by zero" for n in (7, 12)]
        old, new = (traced(good_side, replace(failed, details=kernels(M16=text))) for text in texts)
        assert sides(old, new).causes == ()

    def test_what_is_wrong_with_inputs_can_be_explained(
        self, good_side: Side, subject: Any, completed: Callable[[str], tuple[Entry, ...]]
    ) -> None:
        """The stub for inputs that go wrong, completed, explains them on their board and level only."""
        failed = Outcome(Kind.FAIL, Reason.WRONG_ACTIVATION, "It does Gelu.")
        wrong = "asm gelu; wrong: wrong-activation"
        old = traced(good_side, replace(failed, details=kernels(M16=wrong, M64="asm silu")))
        new = traced(good_side, replace(failed, details=kernels(M16=wrong, M64=wrong)))

        def decide(ledger: tuple[Entry, ...]) -> Report:
            name = f"{subject.name}@{subject.version}"
            return compare(old, new, labels=("old", "new"), subject=name, ledger=ledger, fail_on=FAILING)

        (entry,) = completed(stubs.propose_ledger(decide(())))
        assert (entry.cells, entry.levels, entry.boards) == ((str(CELL),), ("trace",), ("gfx942:304",))
        assert [decide(ledger).exit_code for ledger in ((), (entry,))] == [1, 0]
        assert decide((replace(entry, boards=("gfx942:80",)),)).exit_code == 1

    @pytest.mark.parametrize(
        ("before", "now", "found"),
        [
            ("right: fmoe_a on E8, 3 waves", "right: fmoe_b on E8, 3 waves", "kernel-changed"),
            ("right: fmoe_a on E8, 3 waves", "wrong: fmoe_a on E8", "regressed"),
            ("right: fmoe_a on E8, 3 waves", "not run: no emulator for it", "lost"),
            ("not run: no emulator for it", "right: fmoe_a on E8, 3 waves", "new"),
        ],
    )
    def test_inputs_that_were_executed(
        self, good_side: Side, sides: Gate, before: str, now: str, found: str
    ) -> None:
        """An input whose machine code was executed is compared beside what a trace says of the same one."""
        texts = kernels(M16="asm 32x128 in bf16, default")
        both = traced(good_side, Outcome(Kind.PASS, details=texts))
        old, new = (
            traced(both, Outcome(Kind.PASS, details=kernels(M16=text)), Level.ISA) for text in (before, now)
        )
        report = sides(old, new)
        assert [cause.change.value for cause in report.causes] == [found]
        assert sum(report.counts[ItemKind.CASE].values()) == 2

    @pytest.mark.parametrize(
        ("dispatch", "causes"),
        [
            ("tuned-whatever-the-activation", ["anchor:tuned-key-activation"]),
            ("default", ["anchor:tuned-key-activation", "dispatch:wrong-activation"]),
        ],
    )
    def test_a_cell_under_what_its_inputs_come_from(
        self,
        good_side: Side,
        side: Callable[[Mapping[str, bytes], str], Side],
        release_files: Files,
        sides: Gate,
        dispatch: str,
        causes: list[str],
    ) -> None:
        """A cell whose inputs all go wrong by the blind lookup is under its anchor; by default it is not."""
        blind = release_files | {MOE: release_files[MOE].replace(b"str(activation)", b"activation")}
        wrong = f"asm gelu in bf16, {dispatch}; wrong: wrong-activation"
        failed = Outcome(Kind.FAIL, Reason.WRONG_ACTIVATION, "It does Gelu.", kernels(M16=wrong))
        old = traced(good_side, Outcome(Kind.PASS, details=kernels(M16="asm silu in bf16, tuned")))
        report = sides(old, traced(side(blind, "0.1.18.post1"), failed))
        assert [cause.id for cause in report.failing] == sorted(causes)

    def test_numbers_that_got_worse(self, good_side: Side, sides: Gate) -> None:
        """Where evidence says how far the numbers are from the oracle, another distance is named."""
        numbers = {"cases": 3, "bound_ratio": "<= 1", "row_error": "<= 0.25"}
        old = traced(good_side, Outcome(Kind.PASS, details=numbers), Level.ISA)
        new = traced(good_side, Outcome(Kind.PASS, details=numbers | {"row_error": "<= 0.5"}), Level.ISA)
        (cause,) = sides(old, new).causes
        assert (cause.id, cause.change) == ("case:numbers at level isa", "kernel-changed")

    def test_a_trace_that_could_not_run(self, good_side: Side, sides: Gate) -> None:
        """Infrastructure is no result: exit code 3, and it is said."""
        broken = Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, "the release cannot be imported")
        report = sides(traced(good_side, Outcome(Kind.PASS)), traced(good_side, broken))
        assert report.exit_code == 3
        assert report.not_run == ("trace on gfx942:304: the release cannot be imported",)

    def test_a_trace_that_could_not_run_on_another_board(self, good_side: Side, subject: Any) -> None:
        """Where one board is looked at, only what could not run there counts."""
        broken = traced(good_side, Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, "no import"))
        name = f"{subject.name}@{subject.version}"
        codes = [
            compare(
                broken, broken, labels=("a", "b"), subject=name, ledger=(), fail_on=FAILING, board=board
            ).exit_code
            for board in ("gfx942:304", "gfx942", "gfx942:80", "gfx950")
        ]
        assert codes == [3, 3, 0, 0]

    def test_what_a_trace_finds_besides(self, good_side: Side) -> None:
        """A lookup that never matches is named under the anchor that says so, and does not fail by itself."""
        record = Evidence(
            Level.TRACE,
            "gfx942:304",
            None,
            good_side.release,
            "2026-01-01",
            "0",
            {},
            {CELL: Outcome(Kind.PASS)},
            (Finding("tuned-lookup-never-matches", "gfx942:304", "It never does."),),
        )
        new = good_side.with_records([record])
        old = good_side.with_records([replace(record, findings=())])
        report = compare(old, new, labels=("a", "b"), subject="impl@0.1.0", ledger=(), fail_on=FAILING)
        (cause,) = report.causes
        assert (cause.id, cause.change.value, report.exit_code) == (
            "dispatch:tuned-lookup-never-matches on gfx942:304",
            "tuned-changed",
            0,
        )

    def test_evidence_that_only_one_side_has(self, good_side: Side, sides: Gate) -> None:
        """Hardware evidence of the old release alone is knowledge that the new one has not."""
        report = sides(traced(good_side, Outcome(Kind.PASS), Level.HARDWARE), good_side)
        (cause,) = report.failing
        assert (cause.id, cause.change) == (f"cell:{CELL}", "lost")

    def test_evidence_of_another_release_is_left_aside(self, good_side: Side) -> None:
        """A record about other content does not count."""
        other = replace(good_side.release, identity="sha256:" + "0" * 64)
        record = Evidence(
            Level.TRACE, "gfx942:304", None, other, "2026-01-01", "0", {}, {CELL: Outcome(Kind.PASS)}
        )
        assert good_side.with_records([record]) == good_side


def entry(**changes: str) -> tuple[Entry, ...]:
    """Return a ledger that explains the guard's loss."""
    fields = {
        "id": '"guard"', "title": '"The guard is gone"', "upstream": '"ROCm/aiter#3997"',
        "effect": '"expected-fail"', "reason": '"anchor-changed"', "paths": f'["{MOE}"]',
        "about": '"block-fp8-split-k-guard"', "releases": '[{ from = "0.1.18.post1" }]',
    } | changes  # fmt: skip
    return parse_ledger("[[entry]]\n" + "\n".join(f"{name} = {value}" for name, value in fields.items()))


class TestLedger:
    """A known finding does not fail, and nothing else is excused by it."""

    @pytest.fixture
    def unguarded(self, release_files: Files) -> Files:
        """The good release without the guard."""
        return release_files | {MOE: release_files[MOE].replace(GUARD.encode(), b"")}

    def test_it_explains(self, unguarded: Files, gate: Gate) -> None:
        """The cause is named with its entry, and the exit code is 0."""
        report = gate(unguarded, ledger=entry())
        (cause,) = report.causes
        assert (cause.covered, report.exit_code) == ("ledger: guard (ROCm/aiter#3997)", 0)

    def test_what_is_explained_is_on_the_line_of_the_decision(self, unguarded: Files, gate: Gate) -> None:
        """A pass says how much got worse all the same, and so does a failure."""
        said = page.decision(gate(unguarded, ledger=entry()))
        assert said.startswith("PASS (exit 0)")
        assert said.endswith("nothing fails that is not explained, and 1 explained")
        files = unguarded | {MOE: unguarded[MOE].replace(b"str(activation)", b"activation")}
        assert page.decision(gate(files, ledger=entry())) == "FAIL (exit 1): 1 regression, and 1 explained"

    def test_a_cell_that_an_entry_of_one_board_explains(self, good_side: Side, subject: Any) -> None:
        """The entry is named, though it asks for more than a cell and a reason; its cell is counted."""
        failed = Outcome(Kind.FAIL, Reason.WRONG_ACTIVATION, "It does Gelu.")
        fields = {
            "reason": '"wrong-activation"', "cells": f'["{CELL}"]', "levels": '["trace"]',
            "boards": '["gfx942:304"]', "about": '"Gelu"', "releases": '[{ from = "0.1.18" }]',
        }  # fmt: skip
        (known,) = entry(**fields)
        report = compare(
            traced(good_side, Outcome(Kind.PASS)),
            traced(good_side, failed),
            labels=("old", "new"),
            subject=f"{subject.name}@{subject.version}",
            ledger=(known,),
            fail_on=FAILING,
        )
        assert [cause.covered for cause in report.causes] == ["ledger: guard (ROCm/aiter#3997)"]
        assert page.decision(report).endswith(", and 1 explained: 1 cell")

    @pytest.mark.parametrize(
        "changes",
        [
            {"releases": '[{ from = "0.1.19" }]'},
            {"about": '"another-anchor"'},
            {"reason": '"import-unresolved"'},
            {"until": '"0.1.18.post1"'},
        ],
        ids=["another release", "another anchor", "another reason", "expired"],
    )
    def test_it_explains_nothing_else(self, unguarded: Files, gate: Gate, changes: dict[str, str]) -> None:
        """An entry about something else excuses nothing."""
        report = gate(unguarded, ledger=entry(**changes))
        assert (len(report.failing), report.exit_code) == (1, 1)

    def test_another_cause_still_fails(self, unguarded: Files, gate: Gate) -> None:
        """Beside a known finding, a new one fails."""
        files = unguarded | {MOE: unguarded[MOE].replace(b"str(activation)", b"activation")}
        report = gate(files, ledger=entry())
        assert [cause.id for cause in report.failing] == ["anchor:tuned-key-activation"]


class TestOptions:
    """Classes that fail, boards, and the direction."""

    def test_fail_on(self, release_files: Files, gate: Gate) -> None:
        """What is not among the classes that fail is named and does not fail."""
        files = release_files | {"aiter/configs/tuned_fmoe.csv": b""}
        assert gate(files).exit_code == 1
        report = gate(files, fail_on=[ChangeClass.REGRESSED])
        assert ({cause.change.value for cause in report.causes}, report.exit_code) == ({"lost"}, 0)

    @pytest.mark.parametrize(
        ("board", "failing"), [("gfx942", 1), ("gfx942:304", 1), ("gfx942:80", 0), ("gfx950", 0), (None, 1)]
    )
    def test_board(self, release_files: Files, gate: Gate, board: str | None, failing: int) -> None:
        """Only what is about the board counts."""
        tuned = release_files["aiter/configs/tuned_fmoe.csv"]
        kept = b"\n".join(line for line in tuned.split(b"\n") if not line.startswith(b"gfx942"))
        report = gate(release_files | {"aiter/configs/tuned_fmoe.csv": kept}, board=board)
        assert (len(report.failing), report.exit_code) == (failing, failing)

    @pytest.mark.parametrize("board", ["gfx90a", "gfx942:256", "gfx942:", ""])
    def test_a_board_that_there_is_not(self, release_files: Files, gate: Gate, board: str) -> None:
        """The message names the boards that there are."""
        with pytest.raises(UsageError, match=r"must be an arch, or one of gfx942:304, .* \(got"):
            gate(release_files, board=board)

    def test_there_and_back(
        self,
        release_files: Files,
        good_side: Side,
        side: Callable[[Mapping[str, bytes], str], Side],
        sides: Gate,
    ) -> None:
        """A downgrade is a question like any other: what was fixed is what regresses."""
        unguarded = release_files | {MOE: release_files[MOE].replace(GUARD.encode(), b"")}
        worse = side(unguarded, "0.1.18.post1")
        there, back = sides(good_side, worse), sides(worse, good_side)
        changes = [[(c.id, c.change.value) for c in report.causes] for report in (there, back)]
        assert changes == [
            [("anchor:block-fp8-split-k-guard", "regressed")],
            [("anchor:block-fp8-split-k-guard", "fixed")],
        ]
        assert (there.exit_code, back.exit_code) == (1, 0)

    def test_environments_that_differ(self, good_side: Side, sides: Gate) -> None:
        """A difference between the two observations is stated."""
        other = replace(good_side, environment=good_side.environment | {"AITER_X": "1"})
        assert ("AITER_X", None, "1") in sides(good_side, other).environment


class TestPageOfCells:
    """Cells without a cause below them, on the page."""

    def test_only_what_moved_is_shown(self, good_side: Side, sides: Gate) -> None:
        """Of a cell's token buckets, the page shows those that launch another kernel."""
        buckets = {"M16": "asm 32x128", "M64": "asm 32x128"}
        old = traced(good_side, Outcome(Kind.PASS, details=kernels(**buckets)))
        new = traced(good_side, Outcome(Kind.PASS, details=kernels(**(buckets | {"M64": "asm 32x256"}))))
        text = " ".join(page.render(sides(old, new)).split())
        assert f"kernel-changed 1 input, in one way 1 other sizes of asm: {CELL}" in text
        assert "inputs: 1 kernel-changed, 1 same" in text
