"""`Report`: what counts as a problem of a subject."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiter_conformance.checks.report import SHOWN, Report
from aiter_conformance.differences import DIFFERENCES
from aiter_conformance.protocols import Difference, Subject
from aiter_conformance.subjects.impl import ImplSubject
from aiter_conformance.subjects.vllm_differences import DIFFERENCES as VLLM_DIFFERENCES


def subject(*listed: str) -> Subject:
    """Return as much of a subject as a report looks at."""
    differences = {identity: Difference(identity, "it matters") for identity in listed}
    return cast("Subject", SimpleNamespace(name="toy", version="1.0", differences=differences))


class TestCompare:
    """`Report.compare`."""

    @pytest.mark.parametrize(("a", "b"), [(True, 1), (0.0, 0), (None, False), ("1", 1), ((1,), [1])])
    def test_types_count(self, a: Any, b: Any) -> None:
        """Values that are equal and of different types do not agree."""
        report = Report()
        assert report.compare("value", a, b) is False
        assert len(report.mismatches) == 1

    def test_equal(self) -> None:
        """Equal values agree, and are counted."""
        report = Report()
        assert report.compare("value", [1, None], [1, None]) is True
        assert (report.compared, report.mismatches) == (1, [])


class TestProblems:
    """`Report.problems`."""

    def test_nothing_compared(self) -> None:
        """A check that compared nothing does not pass."""
        assert Report().problems(subject()) == ["nothing was compared: the check proves nothing"]

    def test_mismatch(self) -> None:
        """A mismatch that nothing explains is a problem that says where, what and what instead."""
        report = Report()
        report.compare("the pad", 64, 128)
        assert report.problems(subject()) == ["the pad: must be 64 (got 128)"]

    def test_difference_of_another(self) -> None:
        """An id that the subject does not list explains nothing."""
        report = Report()
        report.compare("the pad", 64, 128, "odd-pads")
        assert report.problems(subject("even-pads")) == ["the pad: must be 64 (got 128)"]

    def test_listed_difference(self) -> None:
        """A mismatch under a listed id is none, and is known."""
        report = Report()
        report.compare("the pad", 64, 128, "odd-pads")
        assert report.problems(subject("odd-pads")) == []
        assert report.known(subject("odd-pads")) == {"odd-pads"}

    def test_stale_difference(self) -> None:
        """A listed difference that could have shown and did not is a problem."""
        report = Report()
        report.compare("the pad", 64, 64, "odd-pads")
        assert report.problems(subject("odd-pads")) == [
            "toy 1.0 lists 'odd-pads', which no longer shows: take it off"
        ]

    def test_not_exercised(self) -> None:
        """A listed difference that this check cannot show is left alone."""
        report = Report()
        report.compare("the pad", 64, 64)
        assert report.problems(subject("odd-pads")) == []

    def test_many(self) -> None:
        """Of very many mismatches the first are shown and all are counted."""
        report = Report()
        for i in range(SHOWN + 5):
            report.compare(f"value {i}", 0, 1)
        problems = report.problems(subject())
        assert len(problems) == SHOWN + 1
        assert problems[-1] == f"... and 5 more of {SHOWN + 5} comparisons"

    def test_merge(self) -> None:
        """A merged report has the comparisons, mismatches and ids of both."""
        whole, part = Report(), Report()
        whole.compare("a", 1, 1)
        part.compare("b", 1, 2, "odd-pads")
        whole.merge(part)
        assert (whole.compared, [m.where for m in whole.mismatches]) == (2, ["b"])
        assert whole.exercised == {"odd-pads"}


@pytest.mark.parametrize("listed", [ImplSubject.differences, VLLM_DIFFERENCES], ids=["impl", "vllm"])
def test_listed_ids_are_known(listed: Mapping[str, Difference]) -> None:
    """Every difference that a subject lists is one that the contract knows, under its own id."""
    assert set(listed) - set(DIFFERENCES) == set()
    assert [key for key, difference in listed.items() if key != difference.id] == []
