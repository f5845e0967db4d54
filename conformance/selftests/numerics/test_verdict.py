"""The verdict: each rule, its order, and that nothing else is a gate."""

from __future__ import annotations

import numpy as np
import pytest

from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.oracle import Expected
from aiter_conformance.numerics.verdict import MARGIN_BUCKETS, Rule, bucket, judge


def expectation(
    values: list[list[float]], bound: float = 0.01, fragile: list[bool] | None = None
) -> Expected:
    """Return an expectation with the same bound everywhere but on zero rows; tokens are 10, 11, ..."""
    ref = np.array(values, np.float64)
    b = np.where(ref.any(axis=1, keepdims=True), bound, 0.0) * np.ones_like(ref)
    marks = np.zeros(len(ref), bool) if fragile is None else np.array(fragile)
    return Expected(np.arange(10, 10 + len(ref)), ref, b, marks)


REF = [[1.0, -2.0], [0.0, 0.0], [100.0, 200.0]]


class TestJudge:
    """`judge`."""

    def test_right(self) -> None:
        """The reference itself passes, with no margin used."""
        verdict = judge(REF, expectation(REF))
        assert (verdict.passed, verdict.message) == (True, "")
        assert (verdict.bound_ratio, verdict.row_error, verdict.relative_error, verdict.logits_diff) == (
            0,
            0,
            0,
            0,
        )
        assert (verdict.rows_judged, verdict.rows_fragile, verdict.mismatch) == (2, 0, 0)

    @pytest.mark.parametrize("value", [1e-30, -1.0, float("nan")])
    def test_zero_rows(self, value: float) -> None:
        """Rule 0: a zero row must be zero, not merely small; NaN is not zero."""
        verdict = judge([REF[0], [0.0, value], REF[2]], expectation(REF))
        assert (verdict.broken, verdict.token, verdict.column) == (Rule.NOT_ZERO, 11, 1)

    def test_negative_zero(self) -> None:
        """The sign of a zero does not matter."""
        assert judge([REF[0], [-0.0, 0.0], REF[2]], expectation(REF)).passed

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    def test_not_finite(self, value: float) -> None:
        """Rule 1: no NaN or Inf that the oracle does not have, however loose the bound."""
        verdict = judge([[1.0, value], *REF[1:]], expectation(REF, bound=1e9))
        assert (verdict.broken, verdict.token, verdict.column) == (Rule.NOT_FINITE, 10, 1)
        assert verdict.details()["bound_ratio"] == "not finite"

    @pytest.mark.parametrize(
        ("off", "broken"), [(0.0199, None), (0.0201, Rule.ELEMENT), (-0.0201, Rule.ELEMENT)]
    )
    def test_element(self, off: float, broken: Rule | None) -> None:
        """Rule 2: an element may be off by twice its bound, no more."""
        verdict = judge([*REF[:2], [100.0, 200.0 + off]], expectation(REF))
        assert verdict.broken == broken
        assert verdict.bound_ratio == pytest.approx(abs(off) / 0.01)

    @pytest.mark.parametrize(("relative", "broken"), [(7.9e-3, None), (8.1e-3, Rule.ROW)])
    def test_row(self, relative: float, broken: Rule | None) -> None:
        """Rule 3: a row may be off by 8e-3, even where every element is within its bound."""
        out = [[1.0 + relative * np.sqrt(5), -2.0], *REF[1:]]
        assert judge(out, expectation(REF, bound=10)).broken == broken
        assert judge(out, expectation(REF, bound=10), output_dtype="float16").broken is None

    def test_fragile_rows(self) -> None:
        """Fragile rows are left to rule 2, and counted."""
        out = [[1.1, -2.0], *REF[1:]]
        verdict = judge(out, expectation(REF, bound=10, fragile=[True, True, False]))
        assert (verdict.passed, verdict.rows_judged, verdict.rows_fragile) == (True, 1, 1)
        assert judge(out, expectation(REF, bound=0.01, fragile=[True] * 3)).broken is Rule.ELEMENT

    def test_zeros(self) -> None:
        """All zeros never pass, unless nothing else is expected."""
        assert judge(np.zeros((3, 2)), expectation(REF)).broken is Rule.ELEMENT
        assert judge(np.zeros((1, 2)), expectation([[0.0, 0.0]])).passed

    def test_first_rule_wins(self) -> None:
        """The rules are tried in order."""
        out = [[np.nan, 9.0], [1.0, 0.0], [0.0, 0.0]]
        assert judge(out, expectation(REF)).broken is Rule.NOT_ZERO

    def test_message(self) -> None:
        """The message names token, column, expected, got and the bound."""
        message = judge([*REF[:2], [100.0, 201.0]], expectation(REF)).message
        assert message == (
            "token 12, column 1: must be 200 within 0.02 "
            "(got 201, 100 times the bound; 1 of 6 elements are off)"
        )

    def test_reported_only(self) -> None:
        """AITER's own measures are reported and never decide: a masked row is not seen by logits_diff."""
        rows = np.random.default_rng(0).standard_normal((256, 64))
        out = rows.copy()
        out[7] = 0
        verdict = judge(out, expectation(rows.tolist()))
        assert verdict.broken is Rule.ELEMENT
        assert 0 < verdict.logits_diff < 0.01
        assert verdict.mismatch == pytest.approx(1 / 256, rel=0.1)
        assert verdict.relative_error == pytest.approx(1 / 16, rel=0.2)

    def test_nothing(self) -> None:
        """No tokens pass."""
        assert judge(
            np.zeros((0, 4)), Expected(np.zeros(0, int), *[np.zeros((0, 4))] * 2, np.zeros(0, bool))
        ).passed

    def test_shape(self) -> None:
        """Another shape is refused, not broadcast."""
        with pytest.raises(
            UsageError, match=r"must have the shape \(3, 2\) of the reference \(got \(1, 2\)\)"
        ):
            judge([[0.0, 0.0]], expectation(REF))


class TestBucket:
    """`bucket`."""

    def test_buckets(self) -> None:
        """A margin is shown by the upper end of its bucket."""
        shown = [bucket(x) for x in (0.0, 0.1, 0.11, 99.0, 101.0, float("inf"), float("nan"))]
        assert shown == ["<= 0.1", "<= 0.1", "<= 0.25", "<= 100", "> 100", "not finite", "not finite"]

    def test_ascending(self) -> None:
        """The buckets ascend."""
        assert sorted(MARGIN_BUCKETS) == list(MARGIN_BUCKETS)
