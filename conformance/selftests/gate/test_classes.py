"""The table of classes: written down a second time, pair by pair, and what is built on it."""

from __future__ import annotations

import itertools

import pytest

from aiter_conformance.gate.classes import (
    FAILING,
    STANDING_OF_LEVEL,
    STANDING_OF_VERDICT,
    TABLE,
    ChangeClass,
    Standing,
    change_of_levels,
    change_of_verdicts,
)
from aiter_conformance.ledger import CHANGES
from aiter_conformance.outcome import Kind
from aiter_conformance.verdicts import Verdict

GOOD = {Verdict.DECLARED, Verdict.MODELLED, Verdict.EMULATED, Verdict.VALIDATED}
BAD = {Verdict.CONFLICT, Verdict.KNOWN_BAD}


class TestTable:
    """`TABLE`."""

    def test_it_is_whole(self) -> None:
        """Every pair of standings has a class."""
        assert set(TABLE) == set(itertools.product(Standing, Standing))

    @pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.UNKNOWN])
    def test_what_did_not_move_is_the_same(self, standing: Standing) -> None:
        """A thing that stands as before is the same."""
        assert TABLE[standing, standing] is ChangeClass.SAME

    @pytest.mark.parametrize("before", [s for s in Standing if s is not Standing.BAD])
    def test_what_is_bad_now_regressed(self, before: Standing) -> None:
        """Bad now and not known to be bad before is regressed, whatever it was."""
        assert TABLE[before, Standing.BAD] is ChangeClass.REGRESSED

    @pytest.mark.parametrize("before", [Standing.GOOD, Standing.BAD, Standing.REFUSED, Standing.UNCLAIMED])
    def test_known_to_unknown_is_lost(self, before: Standing) -> None:
        """What was known, and is not any more, is lost."""
        assert TABLE[before, Standing.UNKNOWN] is ChangeClass.LOST

    def test_unknown_twice_is_unknown(self) -> None:
        """What was never known is no change for the better or worse."""
        assert TABLE[Standing.UNKNOWN, Standing.UNKNOWN] is ChangeClass.UNKNOWN

    @pytest.mark.parametrize("now", [Standing.GOOD, Standing.REFUSED, Standing.UNCLAIMED, Standing.ABSENT])
    def test_what_was_bad_is_fixed(self, now: Standing) -> None:
        """Bad before, and good, honestly refused, or gone now."""
        assert TABLE[Standing.BAD, now] is ChangeClass.FIXED

    @pytest.mark.parametrize("now", [Standing.GOOD, Standing.REFUSED, Standing.UNCLAIMED])
    def test_what_was_not_there_is_new(self, now: Standing) -> None:
        """Not there before, and known now."""
        assert TABLE[Standing.ABSENT, now] is ChangeClass.NEW

    def test_what_fails(self) -> None:
        """Regressions, losses and breaks of the interface fail, and they are what is for the worse."""
        assert set(FAILING) == {found for found in ChangeClass if found.direction < 0}


class TestChangeOfVerdicts:
    """`change_of_verdicts`."""

    def test_every_verdict_has_a_standing(self) -> None:
        """No verdict is forgotten."""
        assert set(STANDING_OF_VERDICT) == set(Verdict)

    @pytest.mark.parametrize(("before", "now"), sorted(itertools.product(GOOD, BAD)))
    def test_good_to_bad(self, before: Verdict, now: Verdict) -> None:
        """A cell that worked and does not is regressed."""
        assert change_of_verdicts(before, now) is ChangeClass.REGRESSED

    @pytest.mark.parametrize(("before", "now"), sorted(itertools.product(BAD, GOOD)))
    def test_bad_to_good(self, before: Verdict, now: Verdict) -> None:
        """A cell that did not work and does is fixed."""
        assert change_of_verdicts(before, now) is ChangeClass.FIXED

    @pytest.mark.parametrize("before", [v for v in Verdict if v is not Verdict.UNKNOWN])
    def test_known_to_unknown(self, before: Verdict) -> None:
        """Whatever was known of a cell is lost when nothing is."""
        assert change_of_verdicts(before, Verdict.UNKNOWN) is ChangeClass.LOST

    @pytest.mark.parametrize(("weak", "strong"), list(itertools.combinations(
        [Verdict.DECLARED, Verdict.MODELLED, Verdict.EMULATED, Verdict.VALIDATED], 2
    )))  # fmt: skip
    def test_strength(self, weak: Verdict, strong: Verdict) -> None:
        """Weaker evidence for a good cell is a loss, stronger evidence is new knowledge."""
        assert change_of_verdicts(strong, weak) is ChangeClass.LOST
        assert change_of_verdicts(weak, strong) is ChangeClass.NEW

    def test_refusals(self) -> None:
        """A leaf that begins to refuse what worked is a regression; one that goes on is no change."""
        assert change_of_verdicts(Verdict.DECLARED, Verdict.UNSUPPORTED) is ChangeClass.REGRESSED
        assert change_of_verdicts(Verdict.UNSUPPORTED, Verdict.UNSUPPORTED) is ChangeClass.SAME
        assert change_of_verdicts(Verdict.UNSUPPORTED, Verdict.UNCLAIMED) is ChangeClass.NEW


class TestChangeOfLevels:
    """`change_of_levels`."""

    def test_every_kind_of_outcome_has_a_standing(self) -> None:
        """No way to end is forgotten."""
        assert set(STANDING_OF_LEVEL) == {kind.value for kind in Kind}

    @pytest.mark.parametrize(
        ("before", "now", "change"),
        [
            ({"inventory": "pass"}, {"inventory": "pass"}, "same"),
            ({"inventory": "pass"}, {"inventory": "not_run"}, "lost"),
            ({"inventory": "not_run"}, {"inventory": "pass"}, "new"),
            ({"inventory": "not_run"}, {"inventory": "not_run"}, "same"),
            ({"inventory": "pass"}, {}, "lost"),
            ({"trace": "pass"}, {"trace": "fail"}, "regressed"),
            ({"trace": "pass"}, {"trace": "partial 1/2"}, "regressed"),
            ({"isa": "pass"}, {"isa": "ran 1/2"}, "lost"),
            ({"isa": "ran 1/2"}, {"isa": "fail"}, "regressed"),
            ({"trace": "pass", "inventory": "pass"}, {"trace": "crash", "inventory": "not_run"}, "regressed"),
            ({}, {}, "same"),
        ],
    )
    def test_the_worst_level_counts(self, before: dict[str, str], now: dict[str, str], change: str) -> None:
        """A level that fell from known to unknown is lost, one that fails is a regression."""
        assert change_of_levels(before, now) == change


def test_the_ledger_knows_what_only_a_comparison_shows() -> None:
    """Its words for that are those classes that fail and that no finding or reason code stands for."""
    assert {*CHANGES} == {found.value for found in FAILING} - {ChangeClass.REGRESSED.value}
