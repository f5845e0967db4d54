"""Compares and moves between lanes, values by hand.

Source: VOPC and VOP3 tables of "AMD Instinct MI300 Instruction Set Architecture"; V_PERMLANE16_SWAP_B32 and
V_PERMLANE32_SWAP_B32 of "AMD Instinct CDNA4 Instruction Set Architecture".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from aiter_conformance.isa.machine import Workgroup

Run = Callable[..., Workgroup]
LANE = np.arange(64)


class TestCompare:
    """v_cmp."""

    @pytest.mark.parametrize(
        ("relation", "holds"),
        [
            ("eq", lambda lane: lane == 5),
            ("ne", lambda lane: lane != 5),
            ("lt", lambda lane: lane < 5),
            ("le", lambda lane: lane <= 5),
            ("gt", lambda lane: lane > 5),
        ],
    )
    def test_masks(self, run: Run, relation: str, holds: Callable[[int], bool]) -> None:
        """A bit per active lane; inactive lanes give 0."""
        active = 0xFFFFFFFFFFFFFFF0
        group = run(f"v_cmp_{relation}_u32_e64 s[4:5], v1, v2", vector={1: LANE, 2: 5}, active=active)
        expected = sum(1 << lane for lane in range(4, 64) if holds(lane))
        assert int(group.scalar[0, 4]) | int(group.scalar[0, 5]) << 32 == expected

    def test_unsigned(self, run: Run) -> None:
        """Compares of u32 are unsigned."""
        group = run("v_cmp_lt_u32_e32 vcc, v1, v2", vector={1: 1, 2: 0xFFFFFFFF})
        assert group.scalar[0, 106:108].tolist() == [0xFFFFFFFF, 0xFFFFFFFF]

    def test_unordered(self, run: Run) -> None:
        """v_cmp_u_f32 holds where either side is NaN."""
        values = np.where(LANE == 3, math.nan, 1.0)
        group = run("v_cmp_u_f32_e64 s[4:5], v1, v1", vector={1: values})
        assert group.scalar[0, 4:6].tolist() == [8, 0]


class TestScalarMoves:
    """Between lanes and scalars."""

    def test_first_active(self, run: Run) -> None:
        """v_readfirstlane takes the first active lane, lane 0 where none is."""
        for active, expected in ((0xFF00, 8), (0, 0)):
            assert (
                int(run("v_readfirstlane_b32 s9, v1", vector={1: LANE}, active=active).scalar[0, 9])
                == expected
            )

    def test_read(self, run: Run) -> None:
        """v_readlane ignores exec and takes six bits of the lane."""
        group = run(
            "v_readlane_b32 s9, v1, 63",
            "v_readlane_b32 s8, v1, s1",
            vector={1: LANE},
            scalar={1: 66},
            active=0,
        )
        assert group.scalar[0, 8:10].tolist() == [2, 63]

    def test_write(self, run: Run) -> None:
        """v_writelane changes one lane, active or not."""
        group = run("v_writelane_b32 v9, s1, 5", scalar={1: 77}, active=0)
        assert group.vector[0, 9].tolist() == [77 if lane == 5 else 0 for lane in range(64)]


class TestSwap:
    """v_permlane*_swap."""

    @pytest.mark.parametrize("row", [16, 32])
    def test_rows(self, run: Run, row: int) -> None:
        """Odd rows of the first register change places with even rows of the second."""
        vector = {1: LANE, 2: LANE + 100}
        group = run(f"v_permlane{row}_swap_b32_e32 v1, v2", arch="gfx950", vector=vector)
        odd = LANE // row % 2 == 1
        first = np.where(odd, LANE - row + 100, LANE)
        second = np.where(odd, LANE + 100, LANE + row)
        assert group.vector[0, 1].tolist() == first.tolist()
        assert group.vector[0, 2].tolist() == second.tolist()
