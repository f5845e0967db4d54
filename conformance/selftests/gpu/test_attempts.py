"""Attempts, the journal that keeps them, and how a cell's inputs become its outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance.axes import load_axes
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.hardware.attempts import Attempt, attempt_from_json, decide
from aiter_conformance.hardware.items import Item, Tier, needed, parse_item, parse_shard, plan
from aiter_conformance.hardware.journal import Journal
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.levels.hardware import Ledger, cell_outcome
from aiter_conformance.models import load_models
from aiter_conformance.outcome import Kind, Outcome, Reason

CELL = load_axes().parse_cell("gfx942/bf16/silu/out")
PASS = Attempt("x", 1, Kind.PASS)
FAIL = Attempt("x", 1, Kind.FAIL, Reason.NUMBERS_DIFFER, "It is wrong.")
CRASH = Attempt("x", 1, Kind.CRASH, Reason.CRASHED, "It died.")
HANG = Attempt("x", 1, Kind.TIMEOUT, Reason.TIMED_OUT, "It did not end.")
MEMORY = Attempt("x", 1, Kind.NOT_RUN, Reason.OUT_OF_MEMORY, "It was too large.")
NO_LEDGER = Ledger((), "0.1.20", "gfx942:304")


class TestDecide:
    """`decide`."""

    @pytest.mark.parametrize("attempts", [[], [FAIL], [FAIL, PASS], [CRASH, CRASH], [MEMORY], [MEMORY, FAIL]])
    def test_runs_again(self, attempts: list[Attempt]) -> None:
        """Fewer than three runs decide nothing, unless the first one passes."""
        assert decide(attempts) is None

    @pytest.mark.parametrize(
        ("attempts", "expected"),
        [
            ([PASS], PASS.outcome),
            ([MEMORY, PASS], PASS.outcome),
            ([FAIL, FAIL, FAIL], FAIL.outcome),
            ([CRASH, FAIL, FAIL], CRASH.outcome),
            ([HANG, HANG, HANG], HANG.outcome),
            ([MEMORY, MEMORY, MEMORY], MEMORY.outcome),
            ([MEMORY, MEMORY, CRASH], CRASH.outcome),
        ],
    )
    def test_decides(self, attempts: list[Attempt], expected: Outcome) -> None:
        """A pass at once, or three runs alike; what is no fault of the kernel does not count."""
        assert decide(attempts) == expected

    @pytest.mark.parametrize(
        ("attempts", "share"),
        [([FAIL, PASS, PASS], "1/3"), ([CRASH, FAIL, PASS], "2/3"), ([FAIL, MEMORY, PASS], "1/2")],
    )
    def test_mixed_is_a_failure(self, attempts: list[Attempt], share: str) -> None:
        """Failures among passes are ``fail (k/n)`` with the first failure's reason."""
        found = decide(attempts)
        assert found is not None
        assert (found.kind, found.details["failed"]) == (Kind.FAIL, share)
        assert found.reason is attempts[0].reason

    @pytest.mark.parametrize("reason", [Reason.BUILD_FAILED, Reason.KERNELS_UNSEEN, Reason.OTHER_KERNEL])
    def test_some_failures_are_final(self, reason: Reason) -> None:
        """What another run cannot change is not run again."""
        attempt = replace(FAIL, kind=Kind.FAIL, reason=reason)
        assert decide([attempt]) == attempt.outcome


class TestJournal:
    """`Journal`."""

    def test_what_was_kept_is_found_again(self, tmp_path: Path) -> None:
        """A second journal over the same file knows every attempt, with its details."""
        path, attempt = tmp_path / "j.jsonl", replace(FAIL, details={"kernels": ["a"]})
        first = Journal(path, {"board": "b"})
        first.add(attempt)
        first.close()
        second = Journal(path, {"board": "b"}, resume=True)
        assert second.of("x") == [attempt]
        second.close()

    def test_a_line_cut_off_is_dropped(self, tmp_path: Path) -> None:
        """A journal whose writer was killed mid-line goes on after its last whole line."""
        path = tmp_path / "j.jsonl"
        journal = Journal(path, {})
        journal.add(PASS)
        journal.close()
        with path.open("a") as file:
            file.write('{"item": "y", "num')
        resumed = Journal(path, {}, resume=True)
        resumed.add(replace(PASS, item="z"))
        resumed.close()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line.get("item") for line in lines] == [None, "x", "z"]

    def test_a_header_cut_off_is_written_anew(self, tmp_path: Path) -> None:
        """A run that was killed before its first line was whole can be gone on with."""
        path = tmp_path / "j.jsonl"
        path.write_text('{"bo')
        Journal(path, {"board": "b"}, resume=True).close()
        assert json.loads(path.read_text()) == {"board": "b"}

    def test_nothing_is_written_over(self, tmp_path: Path) -> None:
        """Without resume, a journal that is there is an error that says what to do."""
        path = tmp_path / "j.jsonl"
        Journal(path, {}).close()
        with pytest.raises(UsageError, match="give --resume to go on with it, or delete it"):
            Journal(path, {})

    def test_another_run_is_not_gone_on_with(self, tmp_path: Path) -> None:
        """A journal about another release is refused, and the message says what differs."""
        path = tmp_path / "j.jsonl"
        Journal(path, {"release": "1"}).close()
        with pytest.raises(UsageError, match="release was '1' and is '2'"):
            Journal(path, {"release": "2"}, resume=True)

    @pytest.mark.parametrize("line", ["nonsense", '{"item": "x"}', '{"item": "x", "number": 1, "kind": "?"}'])
    def test_damage_is_an_error(self, tmp_path: Path, line: str) -> None:
        """A line in the middle that is no attempt is an error, never left out in silence."""
        path = tmp_path / "j.jsonl"
        path.write_text("{}\n" + line + "\n" + json.dumps(PASS.to_json()) + "\n")
        with pytest.raises(InfrastructureError, match="delete it and run anew"):
            Journal(path, {}, resume=True)

    def test_attempts_survive_json(self) -> None:
        """An attempt is the same after being written and read."""
        for attempt in (PASS, CRASH, replace(FAIL, details={"a": [1]})):
            assert attempt_from_json(json.loads(json.dumps(attempt.to_json()))) == attempt


class TestPlan:
    """`plan` and the ids of its items."""

    CELLS = tuple(cell for cell in load_axes().cells() if cell.arch == "gfx942")

    def test_every_item_is_rebuilt_from_its_id(self) -> None:
        """The id names case, input and rank, whatever is planned."""
        models = load_models().models.values()
        items = [item for group in plan(self.CELLS, Tier.FULL, models=models) for item in group]
        assert [parse_item(str(item)) for item in items] == items
        assert len(set(items)) == len(items)

    def test_shards_share_nothing_and_are_everything(self) -> None:
        """Each cell is in exactly one of three shards."""
        whole = plan(self.CELLS, Tier.CELL)
        shards = [plan(self.CELLS, Tier.CELL, shard=(i, 3)) for i in (1, 2, 3)]
        assert sorted(str(group) for shard in shards for group in shard) == sorted(map(str, whole))

    def test_smoke_is_a_part_of_cell(self) -> None:
        """Smoke runs something of every cell, and nothing that the tier cell does not."""
        smoke, cell = plan(self.CELLS, Tier.SMOKE), plan(self.CELLS, Tier.CELL)
        assert [group[0].case.cell for group in smoke] == [group[0].case.cell for group in cell]
        assert all(set(few) < set(all_) for few, all_ in zip(smoke, cell, strict=True))

    def test_a_cell_that_is_refused_needs_nothing(self) -> None:
        """Where the leaf refuses there is no call to make."""
        assert needed(load_axes().parse_cell("gfx942/bf16/relu2/out")) == []

    @pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "-1/2"])
    def test_shards_are_checked(self, text: str) -> None:
        """A shard that is none is refused."""
        with pytest.raises(UsageError, match="must be i/n"):
            parse_shard(text)

    @pytest.mark.parametrize("text", ["", "x/y/r0", f"{CELL}@E8/tokens/r0", "a/b/rx"])
    def test_ids_are_checked(self, text: str) -> None:
        """An id that is none is refused."""
        with pytest.raises(UsageError):
            parse_item(text)


class TestCellOutcome:
    """`cell_outcome`."""

    ITEMS = needed(CELL)

    def outcomes(self, **changed: Outcome) -> dict[Item, Outcome]:
        """Return a pass of every input but those named."""
        good = Outcome(Kind.PASS, details={"kernels": ["k"], "source": "profiler", "trace": "same"})
        return {item: changed.get(item.name.replace("-", "_"), good) for item in self.ITEMS}

    def test_all_passed(self) -> None:
        """A cell passes when every needed input did; kernels and their source are recorded."""
        found = cell_outcome(self.ITEMS, self.outcomes(), NO_LEDGER)
        count = len(self.ITEMS)
        assert found.kind is Kind.PASS
        assert found.details == {
            "cases": count,
            "passed": count,
            "kernels": {"k": count},
            "source": ["profiler"],
            "packed": [],
            "as_traced": count,
        }

    def test_what_else_was_seen_is_recorded(self) -> None:
        """Outputs that differ bit by bit, and a layout of AITER's own, are no failure and are not hidden."""
        seen = Outcome(Kind.PASS, details={"deterministic": False, "layout_differs": ["w1"]})
        found = cell_outcome(self.ITEMS, self.outcomes(rectangular=seen), NO_LEDGER)
        assert found.kind is Kind.PASS
        assert (found.details["not_deterministic"], found.details["layout_differs"]) == (1, ["w1"])
        assert found.details["as_traced"] == len(self.ITEMS) - 1

    def test_one_that_did_not_run(self) -> None:
        """One input less is no pass: ``partial k/n``, and what is missing."""
        outcomes = self.outcomes()
        del outcomes[self.ITEMS[-1]]
        found = cell_outcome(self.ITEMS, outcomes, NO_LEDGER)
        count = len(self.ITEMS)
        assert (found.kind, found.reason) == (Kind.NOT_RUN, Reason.INCOMPLETE)
        assert str(found.message) == f"partial {count - 1}/{count}: not run: {self.ITEMS[-1].name}"

    @pytest.mark.parametrize(
        "bad", [FAIL, CRASH, Attempt("x", 1, Kind.TIMEOUT, Reason.TIMED_OUT, "It hung.")]
    )
    def test_one_that_is_bad(self, bad: Attempt) -> None:
        """One bad input is enough, even where others did not run."""
        outcomes = self.outcomes(pads=bad.outcome)
        del outcomes[self.ITEMS[-1]]
        found = cell_outcome(self.ITEMS, outcomes, NO_LEDGER)
        assert (found.kind, found.reason) == (bad.kind, bad.reason)

    def test_one_that_is_quarantined(self) -> None:
        """An input that never launches leaves the cell without a pass, and says why."""
        kept = Outcome(Kind.SKIPPED, Reason.QUARANTINED, "The ledger keeps it from running.")
        found = cell_outcome(self.ITEMS, self.outcomes(pads=kept), NO_LEDGER)
        assert (found.kind, found.reason) == (Kind.SKIPPED, Reason.QUARANTINED)

    def test_a_failure_that_the_ledger_expects(self) -> None:
        """It counts as known where it is just as the entry says, and not where its reason is another."""
        entry = """
            [[entry]]
            id = "one-expert-wrong"
            title = "One expert is wrong"
            upstream = "ROCm/aiter#1"
            effect = "expected-fail"
            reason = "numbers-differ"
            cells = ["gfx942/bf16/*"]
            cases = ["*+one-expert"]
            levels = ["hardware"]
        """
        ledger = Ledger(parse_ledger(entry), "0.1.20", "gfx942:304")
        one_expert = next(item for item in self.ITEMS if item.name == "one-expert")
        assert ledger.quarantine(one_expert) is None
        wrong = Outcome(Kind.FAIL, Reason.NUMBERS_DIFFER, "It is wrong.")
        found = cell_outcome(self.ITEMS, self.outcomes(one_expert=wrong), ledger)
        assert (found.kind, found.details["known"]) == (Kind.PASS, {"one-expert-wrong": 1})
        other = Outcome(Kind.CRASH, Reason.CRASHED, "It died.")
        assert cell_outcome(self.ITEMS, self.outcomes(one_expert=other), ledger).kind is Kind.CRASH

    def test_a_quarantine_of_the_ledger(self) -> None:
        """An entry with that effect keeps its inputs from launching, and no others."""
        entry = """
            [[entry]]
            id = "pads-hang"
            title = "Pads hang"
            upstream = "ROCm/aiter#1"
            effect = "quarantine"
            reason = "timed-out"
            cells = ["gfx942/bf16/*"]
            cases = ["*-hp128-*"]
            boards = ["gfx942:304"]
        """
        kept = {}
        for board in ("gfx942:304", "gfx942:80"):
            ledger = Ledger(parse_ledger(entry), "0.1.20", board)
            kept[board] = {item.name for item in self.ITEMS if ledger.quarantine(item) is not None}
        assert kept == {"gfx942:304": {"pads"}, "gfx942:80": set()}
