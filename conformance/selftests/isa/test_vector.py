"""Vector integer and float32 instructions, values by hand.

Source: the operations' pseudo code in "AMD Instinct MI300 Instruction Set Architecture" (VOP1, VOP2, VOP3
tables), and IEEE 754 for float32 results.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest

from aiter_conformance.isa.machine import Workgroup

Run = Callable[..., Workgroup]
KEEPING = 0xF0
"""MODE that keeps float32 denormals."""
INF, NAN = math.inf, math.nan
QUIET_NAN = 0x7FC00000


def bits(value: float) -> int:
    """Bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


# instruction; v1, v2, v3; v9
INTEGER = [
    ("v_mov_b32_e32 v9, v1", 5, 0, 0, 5),
    ("v_accvgpr_write_b32 a9, v1", 6, 0, 0, 6),
    ("v_accvgpr_read_b32 v9, a1", 7, 0, 0, 7),
    ("v_add_u32_e32 v9, v1, v2", 0xFFFFFFFF, 2, 0, 1),
    ("v_add_i32 v9, v1, v2", 0x7FFFFFFF, 1, 0, 0x80000000),  # wraps without clamp
    ("v_sub_u32_e32 v9, v1, v2", 1, 2, 0, 0xFFFFFFFF),
    ("v_subrev_u32_e32 v9, v1, v2", 1, 3, 0, 2),
    ("v_mul_lo_u32 v9, v1, v2", 0x10001, 0x10001, 0, 0x20001),
    ("v_mul_hi_u32 v9, v1, v2", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFE),
    ("v_mul_u32_u24_e32 v9, v1, v2", 0xFF000003, 0xFF000005, 0, 15),  # upper bytes ignored
    ("v_mul_i32_i24_e32 v9, v1, v2", 0x00FFFFFF, 3, 0, 0xFFFFFFFD),  # -1 * 3
    ("v_min_u32_e32 v9, v1, v2", 0x80000000, 1, 0, 1),
    ("v_and_b32_e32 v9, v1, v2", 0b1100, 0b1010, 0, 0b1000),
    ("v_or_b32_e32 v9, v1, v2", 0b1100, 0b1010, 0, 0b1110),
    ("v_xor_b32_e32 v9, v1, v2", 0b1100, 0b1010, 0, 0b0110),
    ("v_lshlrev_b32_e32 v9, v1, v2", 33, 3, 0, 6),  # count first, five bits of it
    ("v_lshrrev_b32_e32 v9, v1, v2", 31, 0x80000000, 0, 1),
    ("v_add3_u32 v9, v1, v2, v3", 0xFFFFFFFF, 1, 5, 5),
    ("v_lshl_add_u32 v9, v1, v2, v3", 3, 2, 5, 17),
    ("v_bfe_u32 v9, v1, v2, v3", 0xABCD, 4, 8, 0xBC),
    ("v_bfe_u32 v9, v1, v2, v3", 0xABCD, 4, 0, 0),  # no width
    # Selector bytes from the lowest: byte 0 of b, byte 4 = byte 0 of a, sign of b's low half, 0, and so on.
    ("v_perm_b32 v9, v1, v2, v3", 0x44332211, 0x88776655, 0x07040300, 0x44118855),
    ("v_perm_b32 v9, v1, v2, v3", 0x80008000, 0x7FFF8000, 0x0B0A0908, 0xFFFF00FF),
    ("v_perm_b32 v9, v1, v2, v3", 0, 0, 0xFF0D0C0C, 0xFFFF0000),
    ("v_mbcnt_lo_u32_b32 v9, v1, v2", 0xFFFFFFFF, 100, 0, 100),  # lane 0: no lane below
    ("v_mbcnt_hi_u32_b32 v9, v1, v2", 0xFFFFFFFF, 100, 0, 100),
]
# instruction; v1, v2, v3 as float32; result
FLOAT = [
    ("v_add_f32_e32 v9, v1, v2", 1.0, 2.0**-25, 0.0, 1.0),  # below half an ulp
    ("v_add_f32_e32 v9, v1, v2", 1.0, 2.0**-24, 0.0, 1.0),  # tie to even
    ("v_add_f32_e32 v9, v1, v2", 1.0 + 2.0**-23, 2.0**-24, 0.0, 1.0 + 2.0**-22),  # tie to even, upwards
    ("v_add_f32_e32 v9, v1, v2", INF, -INF, 0.0, NAN),
    ("v_add_f32_e64 v9, v1, -v2", 3.0, 1.0, 0.0, 2.0),
    ("v_mul_f32_e32 v9, v1, v2", 2.0**100, 2.0**100, 0.0, INF),
    ("v_mul_f32_e32 v9, v1, v2", 0.0, INF, 0.0, NAN),
    ("v_mul_f32_e32 v9, v1, v2", -0.0, 5.0, 0.0, -0.0),
    ("v_mul_f32_e64 v9, -|v1|, v2", 3.0, 2.0, 0.0, -6.0),
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: fused, its last bit survives the subtraction.
    ("v_fma_f32 v9, v1, v2, v3", 1.0 + 2.0**-12, 1.0 + 2.0**-12, -(1.0 + 2.0**-11), 2.0**-24),
    # A tie in float64 that double rounding gets wrong: 1 + 2^-24 + 2^-60 must round up.
    ("v_fma_f32 v9, v1, v2, v3", 2.0**-30, 2.0**-30, 1.0, 1.0),
    ("v_fma_f32 v9, v1, v2, v3", 1.0 + 2.0**-23, 2.0**-24, 1.0, 1.0 + 2.0**-23),
    ("v_max_f32_e32 v9, v1, v2", NAN, -5.0, 0.0, -5.0),  # IEEE mode off: the number wins
    ("v_max_f32_e32 v9, v1, v2", -5.0, NAN, 0.0, -5.0),
    ("v_max_f32_e32 v9, v1, v2", -0.0, 0.0, 0.0, 0.0),
    ("v_max_f32_e32 v9, v1, v2", 0.0, -0.0, 0.0, 0.0),
    ("v_max3_f32 v9, |v1|, |v2|, v3", -7.0, 2.0, 5.0, 7.0),
    ("v_max3_f32 v9, v1, v2, v3", NAN, NAN, NAN, NAN),
    ("v_exp_f32_e32 v9, v1", 3.0, 0.0, 0.0, 8.0),
    ("v_exp_f32_e32 v9, v1", -INF, 0.0, 0.0, 0.0),
    ("v_exp_f32_e32 v9, v1", 128.0, 0.0, 0.0, INF),
    ("v_exp_f32_e32 v9, v1", -127.0, 0.0, 0.0, 0.0),  # a denormal result is flushed
    ("v_rcp_f32_e32 v9, v1", 4.0, 0.0, 0.0, 0.25),
    ("v_rcp_f32_e32 v9, v1", -0.0, 0.0, 0.0, -INF),
    ("v_rcp_iflag_f32_e32 v9, v1", 3.0, 0.0, 0.0, float(np.float32(1) / np.float32(3))),
]


class TestInteger:
    """Integer and bit operations."""

    @pytest.mark.parametrize(("text", "a", "b", "c", "expected"), INTEGER)
    def test_values(self, run: Run, text: str, a: int, b: int, c: int, expected: int) -> None:
        """Results are those of the manual's pseudo code."""
        group = run(text, vector={1: a, 257: a, 2: b, 3: c})
        assert int(group.vector[0, 265 if " a9" in text else 9, 0]) == expected

    def test_lane_counts(self, run: Run) -> None:
        """The two mbcnt halves together count the mask's bits below each lane."""
        lines = ("v_mbcnt_lo_u32_b32 v9, s1, 0", "v_mbcnt_hi_u32_b32 v9, s2, v9")
        group = run(*lines, scalar={1: 0xF, 2: 0x3})
        expected = [min(lane, 4) + min(max(lane - 32, 0), 2) for lane in range(64)]
        assert group.vector[0, 9].tolist() == expected

    def test_conditional_mask(self, run: Run) -> None:
        """v_cndmask takes source 1 where the mask has a bit."""
        scalar = {4: 0b10, 5: 1 << 31}
        group = run("v_cndmask_b32_e64 v9, 1, 0, s[4:5]", scalar=scalar)
        assert group.vector[0, 9].tolist() == [0 if lane in (1, 63) else 1 for lane in range(64)]

    def test_exec(self, run: Run) -> None:
        """Only active lanes change, and an instruction may read what it overwrites."""
        group = run("v_add_u32_e32 v1, v1, v1", vector={1: np.arange(64)}, active=0x8000000000000005)
        expected = [2 * lane if lane in (0, 2, 63) else lane for lane in range(64)]
        assert group.vector[0, 1].tolist() == expected

    def test_nop(self, run: Run) -> None:
        """v_nop changes no register."""
        assert not run("v_nop").vector[0, :512].any()


class TestFloat:
    """Float32 arithmetic."""

    @pytest.mark.parametrize(("text", "a", "b", "c", "expected"), FLOAT)
    def test_values(self, run: Run, text: str, a: float, b: float, c: float, expected: float) -> None:
        """Results are rounded once, to nearest even; a NaN result is the canonical one."""
        group = run(text, vector={1: float(a), 2: float(b), 3: float(c)})
        wanted = QUIET_NAN if math.isnan(expected) else bits(expected)
        assert int(group.vector[0, 9, 0]) == wanted

    @pytest.mark.parametrize(
        ("text", "a", "b", "keeping", "flushing"),
        [
            ("v_mul_f32_e32 v9, v1, v2", 0x00400000, bits(1.0), 0x00400000, 0),  # denormal source
            ("v_mul_f32_e32 v9, v1, v2", 0x80400000, bits(1.0), 0x80400000, 0x80000000),  # keeps its sign
            ("v_mul_f32_e32 v9, v1, v2", bits(2.0**-100), bits(2.0**-27), 0x00400000, 0),  # denormal result
            ("v_add_f32_e32 v9, v1, v2", 0x00800000, 0x80400000, 0x00400000, 0x00800000),
            ("v_max_f32_e32 v9, v1, v2", 0x00400000, 0x80400000, 0x00400000, 0),
            ("v_exp_f32_e32 v9, v1", bits(-127.0), 0, 0x00400000, 0),
            ("v_rcp_f32_e32 v9, v1", bits(2.0**127), 0, 0x00400000, 0),
            ("v_rcp_f32_e32 v9, v1", 0x00400000, 0, bits(2.0**127), 0x7F800000),
        ],
    )
    def test_denormals(self, run: Run, text: str, a: int, b: int, keeping: int, flushing: int) -> None:
        """MODE's single-precision denormal bits decide for sources and results."""
        for mode, expected in ((KEEPING, keeping), (0xC0, flushing)):
            assert int(run(text, vector={1: a, 2: b}, mode=mode).vector[0, 9, 0]) == expected

    def test_moves_keep_bits(self, run: Run) -> None:
        """A move neither flushes nor quiets."""
        assert int(run("v_mov_b32_e32 v9, v1", vector={1: 0x7F800001}).vector[0, 9, 0]) == 0x7F800001
        assert int(run("v_mov_b32_e32 v9, v1", vector={1: 0x00000001}).vector[0, 9, 0]) == 1


class TestPacked:
    """Packed float32 on register pairs."""

    def test_halves(self, run: Run) -> None:
        """Low works with low, high with high; scalar sources are pairs."""
        vector = {2: 2.0, 3: 3.0, 4: 5.0, 5: 7.0}
        group = run("v_pk_mul_f32 v[8:9], v[2:3], v[4:5]", vector=vector)
        assert group.vector[0, 8:10, 0].view(np.float32).tolist() == [10.0, 21.0]
        lines = "v_pk_fma_f32 v[8:9], v[2:3], s[6:7], v[4:5]"
        group = run(lines, vector=vector, scalar={6: bits(10.0), 7: bits(100.0)})
        assert group.vector[0, 8:10, 0].view(np.float32).tolist() == [25.0, 307.0]

    def test_overlap(self, run: Run) -> None:
        """Both halves read their sources before either is written."""
        group = run("v_pk_mul_f32 v[2:3], v[3:4], v[3:4]", vector={3: 3.0, 4: 4.0})
        assert group.vector[0, 2:4, 0].view(np.float32).tolist() == [9.0, 16.0]


class TestLanePermutation:
    """DPP."""

    @pytest.mark.parametrize(
        ("control", "source"),
        [
            ("row_newbcast:3", lambda lane: lane // 16 * 16 + 3),
            ("quad_perm:[1,2,3,0]", lambda lane: lane // 4 * 4 + (lane + 1) % 4),
            ("row_half_mirror", lambda lane: lane // 8 * 8 + 7 - lane % 8),
        ],
    )
    def test_sources(self, run: Run, control: str, source: Callable[[int], int]) -> None:
        """Only source 0 is permuted ("DPP control" table of the manual)."""
        text = f"v_mul_f32_dpp v9, v1, v2 {control} row_mask:0xf bank_mask:0xf"
        group = run(text, vector={1: np.arange(64.0), 2: np.full(64, 2.0)})
        expected = [2.0 * source(lane) for lane in range(64)]
        assert group.vector[0, 9].view(np.float32).tolist() == expected

    def test_inactive_source(self, run: Run) -> None:
        """A lane whose source lane is off is not written (no bound control)."""
        text = "v_mul_f32_dpp v9, v1, v2 row_newbcast:3 row_mask:0xf bank_mask:0xf"
        active = ((1 << 64) - 1) & ~(1 << 3)
        group = run(text, vector={1: np.full(64, 3.0), 2: np.full(64, 2.0)}, active=active)
        expected = [0.0] * 16 + [6.0] * 48
        assert group.vector[0, 9].view(np.float32).tolist() == expected
