"""Inputs of coverage.toml have ids that rebuild them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiter_conformance import contract, coverage
from aiter_conformance.axes import load_axes
from aiter_conformance.coverage import load_coverage, parse_problem, problem_id, problems
from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.inputs import Features
from aiter_conformance.outcome import Kind

CASE = "gfx950/mxfp4-w4a16/silu/out@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0"


class TestLoadCoverage:
    """`load_coverage`."""

    def test_names_are_unique(self) -> None:
        """An id names its input by name."""
        names = [planned.name for planned in load_coverage()]
        assert len(set(names)) == len(names)

    def test_unknown_word(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A misspelt word is refused and named."""
        text = '[base]\n[[input]]\nname = "a"\nlevels = []\nfor = "b"\nswiglu_limits = 1.0\n'
        (tmp_path / "coverage.toml").write_text(text, encoding="utf-8")
        monkeypatch.setattr(coverage, "spec_dir", lambda: tmp_path)
        with pytest.raises(UsageError, match=r"must have known words only \(got swiglu_limits\)"):
            load_coverage.__wrapped__()


class TestIds:
    """`problem_id` and `parse_problem`."""

    def test_round_trip(self) -> None:
        """Every input of every accepted cell is rebuilt from its id, rank and features included."""
        cells = [c for c in load_axes().cells() if contract.declaration(c).kind is Kind.PASS]
        for cell in cells:
            for name, problem in problems(cell, "reference"):
                assert parse_problem(problem_id(name, problem)) == problem

    def test_spelling(self) -> None:
        """A case's own id is one; a name brings features, a number after ~ the rank."""
        assert parse_problem(CASE).features == Features()
        assert parse_problem(f"{CASE}+limit").features.swiglu_limit == 1.5
        ranked = parse_problem(f"{CASE.replace('tp1', 'tp2')}+limit~1")
        assert (ranked.rank, ranked.features.swiglu_limit) == (1, 1.5)
        assert problem_id("limit", ranked) == f"{CASE.replace('tp1', 'tp2')}+limit~1"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (f"{CASE}+limits", r"must be one of coverage.toml's, tokens, .*\(got 'limits'\)"),
            (f"{CASE}~x", r"must be CASE, CASE\+NAME, CASE~RANK or CASE\+NAME~RANK"),
            (f"{CASE}~1", r"rank must be in 0 .. 0 \(got 1\)"),
            ("nonsense", "a case must be CELL@NUMBERS"),
        ],
    )
    def test_not_an_id(self, text: str, message: str) -> None:
        """Anything else is refused with what it must be."""
        with pytest.raises(UsageError, match=message):
            parse_problem(text)
