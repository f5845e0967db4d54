"""Merging evidence: the order plays no part, nothing is lost, and no disagreement stays unseen."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiter_conformance import evidence
from aiter_conformance.axes import load_axes
from aiter_conformance.evidence import Evidence, Finding, Level, Loaded, ReleaseId
from aiter_conformance.merge import Disagreement, merge
from aiter_conformance.outcome import Kind, Outcome, Reason

CELLS = load_axes().cells()[:6]
RELEASE = ReleaseId("0.1.18", "sha256:" + "1" * 64, "git")
PASS = Outcome(Kind.PASS, details={"kernels": ["a"]})
FAIL = Outcome(Kind.FAIL, Reason.NUMBERS_DIFFER, "They do.")
CRASH = Outcome(Kind.CRASH, Reason.NO_KERNEL, "It does.")
NOT_RUN = Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, "no memory")
RECORD = Evidence(
    level=Level.HARDWARE,
    board="gfx942:304",
    subject="impl@0.1.0",
    release=RELEASE,
    observed="2026-01-02",
    harness="0.1.0",
    environment={"python": "3.11.7", "host": "a"},
    outcomes={CELLS[0]: PASS},
    findings=(Finding("x", "y", "z"),),
)
PATH = "0.1.18/hardware-gfx942-304-impl@0.1.0.json"


def loaded(records: Iterable[Evidence]) -> list[Loaded]:
    """Return records as if they had been read from files."""
    texts = [(record, evidence.to_json(record)) for record in records]
    return [
        Loaded(record, record.path.as_posix(), "sha256:" + hashlib.sha256(text.encode()).hexdigest())
        for record, text in texts
    ]


outcomes = st.sampled_from(
    [PASS, FAIL, CRASH, NOT_RUN, replace(FAIL, message="Others do."), replace(PASS, details={})]
)
some_records = st.lists(
    st.builds(
        replace,
        st.just(RECORD),
        board=st.sampled_from(["gfx942:304", "gfx942:80"]),
        observed=st.sampled_from(["2026-01-02", "2026-02-01"]),
        harness=st.sampled_from(["0.1.0", "0.2.0"]),
        environment=st.dictionaries(st.sampled_from(["python", "host"]), st.sampled_from(["1", "2"])),
        outcomes=st.dictionaries(st.sampled_from(CELLS), outcomes),
        findings=st.lists(
            st.builds(Finding, st.sampled_from("ab"), st.just("p"), st.just("m")), max_size=2
        ).map(lambda found: tuple(dict.fromkeys(found))),
    ),
    min_size=1,
    max_size=5,
)


class TestOrder:
    """The order and the way of grouping play no part."""

    @given(some_records, st.randoms())
    def test_any_order(self, records: list[Evidence], chance: random.Random) -> None:
        """Records, duplicates and contradictions are the same whatever comes first."""
        shuffled = list(records)
        chance.shuffle(shuffled)
        assert merge(loaded(shuffled)) == merge(loaded(records))

    @given(some_records, some_records)
    def test_in_steps(self, first: list[Evidence], second: list[Evidence]) -> None:
        """Merging what was merged already gives what merging all at once gives."""
        in_steps = merge(loaded([*merge(loaded(first)).records, *merge(loaded(second)).records])).records
        at_once = merge(loaded([*first, *second])).records
        assert in_steps == at_once

    @given(some_records)
    def test_twice_the_same(self, records: list[Evidence]) -> None:
        """A record that comes twice counts once."""
        assert merge(loaded([*records, *records])) == merge(loaded(records))

    @given(some_records)
    def test_nothing_is_lost(self, records: list[Evidence]) -> None:
        """Every cell of every record is in the merged one, with an outcome of theirs; findings too."""
        merged = {record.board: record for record in merge(loaded(records)).records}
        for record in records:
            found = merged[record.board]
            assert set(record.findings) <= set(found.findings)
            for cell in record.outcomes:
                said = [r.outcomes[cell] for r in records if r.board == record.board and cell in r.outcomes]
                assert found.outcomes[cell] in said


class TestShards:
    """Shards, which have no cell in common."""

    def test_they_are_the_whole(self) -> None:
        """A record that is taken apart and merged again has the same cells, in the order of the axes."""
        whole = replace(RECORD, outcomes=dict.fromkeys(CELLS, PASS))
        shards = [replace(whole, outcomes=dict.fromkeys(CELLS[part::3], PASS)) for part in range(3)]
        (record,) = merge(loaded(shards)).records
        assert list(record.outcomes.items()) == list(whole.outcomes.items())
        assert len(record.merged) == 3
        assert replace(record, merged=()) == whole

    def test_one_record_is_left_as_it_is(self) -> None:
        """There is nothing to merge in a single one."""
        assert merge(loaded([RECORD])).records == (RECORD,)

    def test_environments_and_days(self) -> None:
        """What runners differ in is kept, all of it; the day is the last."""
        other = replace(
            RECORD, environment={"python": "3.11.7", "host": "b", "gpu": "x"}, observed="2026-03-01"
        )
        (record,) = merge(loaded([RECORD, other])).records
        assert record.environment == {"gpu": "- | x", "host": "a | b", "python": "3.11.7"}
        assert record.observed == "2026-03-01"


class TestDisagreements:
    """What is seen more than once."""

    def test_seen_alike(self) -> None:
        """It is a duplicate, and no contradiction."""
        merged = merge(loaded([RECORD, replace(RECORD, observed="2026-01-03")]))
        assert (merged.duplicates, merged.contradictions) == (((PATH, str(CELLS[0])),), ())

    @pytest.mark.parametrize("other", [FAIL, CRASH], ids=["fail", "crash"])
    def test_seen_otherwise(self, other: Outcome) -> None:
        """The worse one stands, and the contradiction is reported with both."""
        merged = merge(loaded([RECORD, replace(RECORD, outcomes={CELLS[0]: other})]))
        assert other.reason is not None
        said = (f"{other.kind.value} ({other.reason.value})", "pass")
        assert merged.contradictions == (Disagreement(PATH, str(CELLS[0]), said),)
        assert merged.records[0].outcomes[CELLS[0]] == other

    def test_what_was_not_run_contradicts_nothing(self) -> None:
        """A runner that could not try it leaves the word to the one that did."""
        merged = merge(loaded([RECORD, replace(RECORD, outcomes={CELLS[0]: NOT_RUN})]))
        assert (merged.duplicates, merged.contradictions) == ((), ())
        assert merged.records[0].outcomes[CELLS[0]] == PASS

    def test_one_version_of_two_contents(self) -> None:
        """Nothing of either is merged, on no level and board: which release would it be about?"""
        other = replace(RECORD, release=replace(RELEASE, identity="sha256:" + "2" * 64), board="gfx950:256")
        merged = merge(loaded([RECORD, other]))
        assert merged.records == ()
        assert [found.about for found in merged.contradictions] == ["release 0.1.18"] * 2

    def test_a_simulated_gpu_beside_a_real_one(self) -> None:
        """A rehearsal is never mixed with what a GPU did."""
        merged = merge(loaded([RECORD, replace(RECORD, environment={"simulated": "yes"})]))
        assert (merged.records, merged.contradictions) == (
            (),
            (Disagreement(PATH, "GPU", ("real", "simulated")),),
        )


class TestCommand:
    """``evidence merge``."""

    @pytest.fixture
    def run(
        self, invoke: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., tuple[int, str, str]]:
        """Run ``evidence merge`` in the folder of a test."""
        monkeypatch.chdir(tmp_path)
        return partial(invoke, "evidence", "merge")

    def test_two_runners(self, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
        """Shards are written as one record; a contradiction is named and ends with 1."""
        evidence.write(RECORD, tmp_path / "a")
        evidence.write(replace(RECORD, outcomes={CELLS[1]: FAIL}), tmp_path / "b")
        assert run("a", "b", "--output", "all")[:2] == (0, "2 records merged into 1\n")
        (one,) = evidence.load(tmp_path / "all")
        assert one.evidence.outcomes == {CELLS[0]: PASS, CELLS[1]: FAIL}
        evidence.write(replace(RECORD, outcomes={CELLS[0]: FAIL}), tmp_path / "c")
        code, out, _ = run("a", "c", "--output", "all", "--json")
        assert (code, [c["about"] for c in json.loads(out)["contradictions"]]) == (1, [str(CELLS[0])])
        assert (
            f"CONTRADICTION {PATH}: {CELLS[0]}: fail (numbers-differ), pass"
            in run("c", "a", "--output", "x")[1]
        )

    def test_an_older_version(self, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
        """Reports of an older harness are merged with those of this one."""
        sample = Path(__file__).parent / "samples" / "evidence-1.json"
        old = tmp_path / "old" / "0.1.7" / "inventory-gfx950.json"
        old.parent.mkdir(parents=True)
        old.write_bytes(sample.read_bytes())
        evidence.write(RECORD, tmp_path / "new")
        assert run("old", "new", "--output", "all")[0] == 0
        assert len(evidence.load(tmp_path / "all")) == 2

    def test_nothing_to_merge(self, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
        """No record is exit code 3, no such folder 2."""
        (tmp_path / "empty").mkdir()
        assert run("empty", "--output", "all")[0] == 3
        assert run("nowhere", "--output", "all")[0] == 2
        assert not (tmp_path / "all").exists()
