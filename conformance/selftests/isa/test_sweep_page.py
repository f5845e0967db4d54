"""What a sweep is published as: a table of objects, and the page over the tables of several releases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa.judge import Judgement, Observation, Status
from aiter_conformance.isa.sweep import Result
from aiter_conformance.publish import sweep as published


def result(name: str, status: Status, share: float | None, *errors: float | None) -> Result:
    """What a sweep found of an object, a case for each error."""
    seen = tuple(
        Observation("few", "tokens=3", error, error, error, None, status is Status.RIGHT, 240.0, 10, 64 * i)
        for i, error in enumerate(errors)
    )
    reason = None if status is Status.RIGHT else f"few (tokens=3): {status.value}"
    return Result(
        f"hsa/gfx950/fmoe/silu/{name}.co", "gfx950", "0" * 64, Judgement(status, reason, share, seen)
    )


RESULTS = [
    result("fmoe_bf16_a_1tg_32x128", Status.RIGHT, 0.98765, 1.234e-3, 2.345e-3),
    result("fmoe_bf16_b_1tg_32x128", Status.WRONG, 0.5, 0.5),
    result("fmoe_bf16_b_1tg_32x256", Status.WRONG, 0.9, 0.5, None),
    result("fmoe_bf16_c_16x128", Status.NOT_EXECUTABLE, None),
]


class TestToCsv:
    """to_csv."""

    def test_by_hand(self) -> None:
        """One line an object; numbers rounded, NaN said, what was not observed left empty."""
        assert published.to_csv(RESULTS).splitlines() == [
            "object,status,share,error,scaled_to,over_read,reason",
            "gfx950/fmoe/silu/fmoe_bf16_a_1tg_32x128,right,0.988,2.3e-03,240,64,",
            "gfx950/fmoe/silu/fmoe_bf16_b_1tg_32x128,wrong,0.500,5.0e-01,240,,few (tokens=3): wrong",
            "gfx950/fmoe/silu/fmoe_bf16_b_1tg_32x256,wrong,0.900,nan,240,64,few (tokens=3): wrong",
            "gfx950/fmoe/silu/fmoe_bf16_c_16x128,not executable,,,,,few (tokens=3): not executable",
        ]


class TestFromCsv:
    """from_csv."""

    def test_round_trip(self) -> None:
        """What was written is read back."""
        assert published.from_csv(published.to_csv(RESULTS), "x") == [published.line(r) for r in RESULTS]

    @pytest.mark.parametrize("text", ["", "object,status\na,b\n", published.to_csv([]) + "a,b\n"])
    def test_other_columns(self, text: str) -> None:
        """Another table is refused."""
        with pytest.raises(InfrastructureError, match=r"x\.csv must have the columns"):
            published.from_csv(text, "x.csv")


class TestPage:
    """page."""

    def test_counts(self) -> None:
        """Results are counted by release and arch, with the median share and the objects below the limit."""
        lines = [published.line(r) for r in RESULTS]
        page = published.page({"0.1.7": lines, "0.1.20.post1": lines[:1]})
        assert "| 0.1.20.post1 | gfx950 | 1 | 0 | 0 | 0 | 0 | 98.8% | 0 |" in page
        assert "| 0.1.7 | gfx950 | 1 | 2 | 0 | 1 | 0 | 90.0% | 1 |" in page
        assert page.index("## 0.1.20.post1") < page.index("## 0.1.7\n")

    def test_wrong_in_the_last_case_alone(self) -> None:
        """Objects that are wrong at an odd multiple of 256 alone are counted and listed apart."""
        wrong = published.line(RESULTS[1])
        odd = replace(wrong, object=f"{wrong.object}_b", reason="odd (tokens=3): relative error 1")
        page = published.page({"0.1.7": [wrong, odd]})
        assert "| 0.1.7 | gfx950 | 0 | 1 | 1 | 0 | 0 |" in page
        assert page.index("### Wrong\n") < page.index("few (tokens=3): wrong")
        assert page.index("### Wrong at an odd multiple of 256 alone") < page.index("odd (tokens=3)")

    def test_kinds(self) -> None:
        """Wrong objects that differ in sizes only are one row; those of which little ran are listed."""
        page = published.page({"0.1.7": [published.line(r) for r in RESULTS]})
        assert "| gfx950 | `fmoe_bf16_b` | 2 | few (tokens=3): wrong |" in page
        assert "| 50% | wrong | `gfx950/fmoe/silu/fmoe_bf16_b_1tg_32x128` |" in page


class TestPublish:
    """publish."""

    def test_every_table_is_on_the_page(self, tmp_path: Path) -> None:
        """Publishing a release keeps the others, and the same results give the same bytes."""
        published.publish(tmp_path, "0.1.7", RESULTS)
        published.publish(tmp_path, "0.1.20", RESULTS[:1])
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert sorted(before) == ["0.1.20.csv", "0.1.7.csv", "README.md"]
        published.publish(tmp_path, "0.1.7", RESULTS)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
