"""Case ids: one id a case, and nothing but possible inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.case import Case, parse_case
from aiter_conformance.errors import UsageError

CELL = Cell("gfx950", "mxfp4-w4a16", "swigluoai", "out")
TEXT = "gfx950/mxfp4-w4a16/swigluoai/out@E8-k2-K256-N256-M64-tp1-ep1-hp0-ip0-s0"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw any valid case."""
    cell = draw(st.sampled_from(load_axes().cells()))
    tp, ep = draw(st.sampled_from([(1, 1), (2, 1), (8, 1), (1, 2), (1, 8)]))
    partition, hidden = draw(st.integers(1, 5000)), draw(st.integers(1, 9000))
    experts = ep * draw(st.integers(1, 64))
    return Case(
        cell,
        experts=experts,
        topk=1 if cell.router == "in" else draw(st.integers(1, experts)),
        hidden=hidden,
        intermediate=partition * tp,
        tokens=draw(st.integers(0, 40000)),
        tp=tp,
        ep=ep,
        hidden_pad=draw(st.integers(0, hidden - 1)),
        intermediate_pad=draw(st.integers(0, partition - 1)),
        seed=draw(st.integers(0, 2**63)),
    )


class TestCase:
    """`Case` and its id."""

    def test_id(self) -> None:
        """The id is spelled as the documentation shows it."""
        assert str(Case(CELL)) == TEXT

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"experts": 0}, r"E \(experts in the model\) must be at least 1 \(got 0\)"),
            ({"tokens": -1}, r"M \(tokens\) must be at least 0 \(got -1\)"),
            ({"topk": 9}, r"k must be at most E = 8 \(got 9\)"),
            ({"tp": 3}, r"tp must divide N = 256 \(got 3\)"),
            ({"ep": 3}, r"ep must divide E = 8 \(got 3\)"),
            ({"tp": 2, "ep": 2}, r"tp must be 1 with expert parallelism.*\(got tp2, ep2\)"),
            ({"hidden_pad": 256}, r"hp must leave something of 256 alive \(got 256\)"),
            ({"tp": 2, "intermediate_pad": 128}, r"ip must leave something of 128 alive \(got 128\)"),
            ({"cell": replace(CELL, router="in")}, r"k must be 1 where router weights are on the input"),
        ],
    )
    def test_impossible(self, change: dict[str, int], message: str) -> None:
        """Numbers that describe no input are refused with the number and its bound."""
        with pytest.raises(UsageError, match=message):
            replace(Case(CELL), **change)


class TestParseCase:
    """`parse_case`."""

    @given(cases())
    def test_round_trip(self, case: Case) -> None:
        """An id gives back the case, and the case the id."""
        assert parse_case(str(case)) == case
        assert str(parse_case(str(case))) == str(case)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "gfx950/mxfp4-w4a16/swigluoai/out",
            TEXT.replace("@", "#"),
            TEXT.replace("k2", "k02"),
            TEXT.replace("k2", "k-2"),
            TEXT.replace("k2", "kk"),
            TEXT.replace("-k2-K256", "-K256-k2"),
            TEXT + "-x1",
            TEXT + "\n",
            TEXT.replace("M64", "M٦٤"),
        ],
    )
    def test_not_an_id(self, text: str) -> None:
        """Anything but the one spelling is refused with an example of it."""
        with pytest.raises(UsageError, match=r"E8-k2-K256-N256-M64-tp1-ep1-hp0-ip0-s0"):
            parse_case(text)

    def test_unknown_cell(self) -> None:
        """A cell outside the axes is refused by the axis that does not have it."""
        with pytest.raises(UsageError, match="scheme must be one of"):
            parse_case(TEXT.replace("mxfp4-w4a16", "mxfp5"))
