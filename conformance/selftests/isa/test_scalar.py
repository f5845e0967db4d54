"""Scalar instructions, values by hand.

Source of each row: the operation's pseudo code in "AMD Instinct MI300 Instruction Set Architecture", SOP1,
SOP2, SOPK, SOPC tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aiter_conformance.isa.machine import SCC, VSKIP, Buffer, FaultKind, KernelFaultError, Workgroup

Run = Callable[..., Workgroup]

# instruction on s1, s2 -> s9; s1, s2, SCC before; s9, SCC after (None: unchanged)
TWO = [
    ("s_add_u32", 0xFFFFFFFF, 1, 0, 0, 1),  # carry out
    ("s_add_u32", 0x7FFFFFFF, 1, 1, 0x80000000, 0),  # signed overflow is no carry
    ("s_addc_u32", 0xFFFFFFFF, 0, 1, 0, 1),  # carry in
    ("s_addc_u32", 1, 2, 0, 3, 0),
    ("s_add_i32", 0x7FFFFFFF, 1, 0, 0x80000000, 1),  # signed overflow
    ("s_add_i32", 0xFFFFFFFF, 1, 1, 0, 0),  # -1 + 1
    ("s_sub_u32", 1, 2, 0, 0xFFFFFFFF, 1),  # borrow
    ("s_sub_u32", 2, 2, 1, 0, 0),
    ("s_sub_i32", 0x80000000, 1, 0, 0x7FFFFFFF, 1),  # signed overflow
    ("s_mul_i32", 0xFFFFFFFF, 3, 1, 0xFFFFFFFD, None),  # -1 * 3
    ("s_mul_hi_u32", 0x80000000, 6, 0, 3, None),
    ("s_and_b32", 0xF0F0, 0xFF00, 0, 0xF000, 1),
    ("s_and_b32", 0xF0, 0x0F, 1, 0, 0),
    ("s_or_b32", 0, 0, 1, 0, 0),
    ("s_or_b32", 1, 2, 0, 3, 1),
    ("s_lshl_b32", 3, 33, 0, 6, 1),  # only 5 bits of the shift count
    ("s_lshl_b32", 0x80000000, 1, 1, 0, 0),
    ("s_lshr_b32", 0x80000000, 31, 0, 1, 1),
    ("s_lshl1_add_u32", 0x80000000, 5, 0, 5, 1),  # carry out of the shift
    ("s_lshl1_add_u32", 3, 5, 1, 11, 0),
    ("s_cselect_b32", 7, 8, 1, 7, None),
    ("s_cselect_b32", 7, 8, 0, 8, None),
]
# instruction on s1, s2; values; SCC after
COMPARE = [
    ("s_cmp_eq_u32", 5, 5, 1),
    ("s_cmp_eq_u32", 5, 6, 0),
    ("s_cmp_ge_u32", 0x80000000, 1, 1),
    ("s_cmp_ge_u32", 1, 2, 0),
    ("s_cmp_gt_u32", 2, 2, 0),
    ("s_cmp_gt_u32", 0xFFFFFFFF, 2, 1),
    ("s_cmp_lt_u32", 1, 0xFFFFFFFF, 1),
    ("s_cmp_lt_u32", 2, 2, 0),
    ("s_cmp_lt_i32", 0xFFFFFFFF, 0, 1),  # -1 < 0
    ("s_cmp_lt_i32", 0, 0x80000000, 0),
]


class TestTwoSources:
    """SOP2."""

    @pytest.mark.parametrize(("name", "a", "b", "before", "result", "after"), TWO)
    def test_values(self, run: Run, name: str, a: int, b: int, before: int, result: int, after: int) -> None:
        """Result and SCC are those of the manual's pseudo code."""
        group = run(f"{name} s9, s1, s2", scalar={1: a, 2: b}, scc=before)
        assert int(group.scalar[0, 9]) == result
        assert int(group.status[0, SCC]) == (before if after is None else after)

    def test_pairs(self, run: Run) -> None:
        """64-bit operations use register pairs, and a negative constant is sign-extended."""
        scalar = {2: 0xFFFF0000, 3: 0x0000FFFF}
        group = run("s_and_b64 s[8:9], s[2:3], -16", scalar=scalar)
        assert group.scalar[0, 8:10].tolist() == [0xFFFF0000, 0x0000FFFF]
        assert int(group.status[0, SCC]) == 1
        group = run("s_cselect_b64 s[8:9], s[2:3], 0", scalar=scalar, scc=1)
        assert group.scalar[0, 8:10].tolist() == [0xFFFF0000, 0x0000FFFF]
        assert run("s_and_b64 s[8:9], s[2:3], 0", scalar=scalar, scc=1).status[0, SCC] == 0


class TestOneSource:
    """SOP1 and SOPK."""

    def test_moves(self, run: Run) -> None:
        """A 32-bit literal to a pair has a zero upper half; -1 fills both."""
        group = run(
            "s_mov_b64 s[4:5], 0xffff", "s_mov_b64 s[6:7], -1", "s_mov_b32 s8, 1.0", "s_mov_b32 m0, s8"
        )
        assert group.scalar[0, 4:9].tolist() == [0xFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0x3F800000]
        assert int(group.scalar[0, 124]) == 0x3F800000

    def test_count(self, run: Run) -> None:
        """s_bcnt1_i32_b64 counts both halves; SCC says that there was a bit."""
        group = run("s_bcnt1_i32_b64 s9, s[2:3]", scalar={2: 0x80000001, 3: 0x7})
        assert (int(group.scalar[0, 9]), int(group.status[0, SCC])) == (5, 1)
        group = run("s_bcnt1_i32_b64 s9, s[2:3]", scc=1)
        assert (int(group.scalar[0, 9]), int(group.status[0, SCC])) == (0, 0)

    @pytest.mark.parametrize(
        ("constant", "before", "result", "overflow"),
        [("0x100", 1, 0x101, 0), ("0xff00", 0x100, 0, 0), ("0x7fff", 0x7FFFFFFF, 0x80007FFE, 1)],
    )
    def test_add_constant(self, run: Run, constant: str, before: int, result: int, overflow: int) -> None:
        """s_addk_i32 sign-extends its 16-bit constant (0xff00 is -256); SCC is signed overflow."""
        group = run(f"s_addk_i32 s5, {constant}", scalar={5: before})
        assert (int(group.scalar[0, 5]), int(group.status[0, SCC])) == (result, overflow)


class TestCompare:
    """SOPC."""

    @pytest.mark.parametrize(("name", "a", "b", "after"), COMPARE)
    def test_values(self, run: Run, name: str, a: int, b: int, after: int) -> None:
        """SCC is the relation, whatever it was."""
        assert int(run(f"{name} s1, s2", scalar={1: a, 2: b}, scc=1 - after).status[0, SCC]) == after


class TestVskip:
    """s_setvskip."""

    def test_skips_vector_instructions_only(self, run: Run) -> None:
        """With VSKIP set, vector instructions do nothing and scalar ones run."""
        lines = ("s_setvskip s1, 3", "v_mov_b32_e32 v1, 7", "s_mov_b32 s9, 7", "v_readfirstlane_b32 s8, v0")
        group = run(*lines, scalar={1: 8, 8: 5})
        assert int(group.status[0, VSKIP]) == 1
        assert (int(group.vector[0, 1, 0]), group.scalar[0, 8:10].tolist()) == (0, [5, 7])

    def test_ends(self, run: Run) -> None:
        """``s_setvskip 0, 0`` ends it."""
        group = run("s_setvskip s1, 0", "s_setvskip 0, 0", "v_mov_b32_e32 v1, 7", scalar={1: 1})
        assert group.vector[0, 1].tolist() == [7] * 64


class TestLoad:
    """s_load."""

    def test_words(self, run: Run) -> None:
        """A load reads dwords at base + offset and ignores the low two address bits."""
        data = Buffer("data", np.array([10, 11, 12, 13], np.uint32))
        group = run(
            "s_load_dwordx2 s[4:5], s[90:91], 0x4",
            "s_load_dword s6, s[90:91], s7",
            buffers=[data],
            scalar={7: 14},
        )
        assert group.scalar[0, 4:7].tolist() == [11, 12, 13]

    def test_bounds(self, run: Run) -> None:
        """A load that reaches past an allocation is a fault that names it."""
        data = Buffer("data", np.zeros(4, np.uint32))
        with pytest.raises(
            KernelFaultError, match="nearest allocation 'data' has 16 bytes, this is byte 12"
        ) as caught:
            run("s_load_dwordx2 s[4:5], s[90:91], 0xc", buffers=[data])
        assert caught.value.kind == FaultKind.SCALAR_BOUNDS
