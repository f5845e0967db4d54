"""Matrix instructions, values by hand.

Source of the layouts: "Matrix Arithmetic Instructions" of "AMD Instinct MI300 Instruction Set Architecture".
With one element of A and one of B set, the result has one element, at a place that the layout names.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aiter_conformance.isa.machine import Workgroup

Run = Callable[..., Workgroup]
# name, arch, dwords of an operand a lane, bits of an element, code of 1.0, result of 1 * 1
SHAPES = [
    ("v_mfma_f32_16x16x16_bf16", "gfx942", 2, 16, 0x3F80, 0x3F800000),
    ("v_mfma_f32_16x16x16_f16", "gfx942", 2, 16, 0x3C00, 0x3F800000),
    ("v_mfma_f32_16x16x32_fp8_fp8", "gfx942", 2, 8, 0x40, 0x3F800000),
    ("v_mfma_f32_16x16x32_fp8_fp8", "gfx950", 2, 8, 0x38, 0x3F800000),
    ("v_mfma_i32_16x16x32_i8", "gfx942", 2, 8, 0x01, 1),
    ("v_mfma_f32_16x16x128_f8f6f4", "gfx950", 8, 8, 0x38, 0x3F800000),
]
SCALED = (
    "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[0:3], v[16:19], v[40:43], v60, v61 "
    "op_sel_hi:[0,0,0] cbsz:4 blgp:4"
)


def _text(name: str, dwords: int, c: str = "v[40:43]") -> str:
    return f"{name} v[40:43], v[0:{dwords - 1}], v[16:{15 + dwords}], {c}"


def _one(code: int, bits: int, element: int, lane: int, first: int) -> dict[int, np.ndarray]:
    """Registers that are zero but for one element of one lane."""
    registers = np.zeros(64, np.int64)
    registers[lane] = code << (element * bits % 32)
    return {first + element * bits // 32: registers}


class TestLayout:
    """Where elements are."""

    @pytest.mark.parametrize(("name", "arch", "dwords", "bits", "code", "one"), SHAPES)
    @pytest.mark.parametrize(
        ("row", "column", "quarter", "element"), [(0, 0, 0, 0), (5, 9, 2, 3), (15, 14, 3, 1)]
    )
    def test_one_product(
        self,
        run: Run,
        name: str,
        arch: str,
        dwords: int,
        bits: int,
        code: int,
        one: int,
        row: int,
        column: int,
        quarter: int,
        element: int,
    ) -> None:
        """Lane l holds row (column) l % 16 and the l // 16-th quarter of k; D has row 4 * (l // 16) + r."""
        vector = _one(code, bits, element, quarter * 16 + row, 0) | _one(
            code, bits, element, quarter * 16 + column, 16
        )
        group = run(_text(name, dwords, "0"), arch=arch, vector=vector)
        result = group.vector[0, 40:44]
        expected = np.zeros((4, 64), np.uint32)
        expected[row % 4, row // 4 * 16 + column] = one
        assert result.tolist() == expected.tolist()

    @pytest.mark.parametrize(("name", "arch", "dwords", "bits", "code"), [s[:5] for s in SHAPES])
    def test_different_k(self, run: Run, name: str, arch: str, dwords: int, bits: int, code: int) -> None:
        """Elements of different k do not meet."""
        vector = _one(code, bits, 0, 3, 0) | _one(code, bits, 1, 3, 16)
        assert not run(_text(name, dwords, "0"), arch=arch, vector=vector).vector[0, 40:44].any()


class TestArithmetic:
    """Accumulation and rounding."""

    def test_accumulates(self, run: Run) -> None:
        """C is added: 16 products of 1 and 2.5."""
        vector = dict.fromkeys((0, 1, 16, 17), 1065369472) | {r: np.full(64, 2.5) for r in range(40, 44)}
        group = run(_text("v_mfma_f32_16x16x16_bf16", 2), vector=vector)
        assert group.vector[0, 40:44].view(np.float32).tolist() == [[18.5] * 64] * 4

    def test_inline_constant(self, run: Run) -> None:
        """C may be an inline constant."""
        group = run(_text("v_mfma_f32_16x16x16_bf16", 2, "1.0"))
        assert group.vector[0, 40:44].view(np.float32).tolist() == [[1.0] * 64] * 4

    def test_rounds_once(self, run: Run) -> None:
        """2^24 + 1 + 1 is exact before the one rounding to float32 (float32 steps would lose both)."""
        # k = 0: 2^12 * 2^12; k = 1 and 2: 1 * 1, as bf16.
        vector = {0: 0x3F804580, 1: 0x00003F80, 16: 0x3F804580, 17: 0x00003F80}
        vector = {r: np.where(np.arange(64) < 16, v, 0) for r, v in vector.items()}
        group = run(_text("v_mfma_f32_16x16x16_bf16", 2, "0"), vector=vector)
        assert float(group.vector[0, 40, 0:1].view(np.float32)[0]) == 2.0**24 + 2

    def test_exec_is_ignored(self, run: Run) -> None:
        """Matrix instructions work on all lanes."""
        vector = dict.fromkeys((0, 1, 16, 17), 1065369472)
        group = run(_text("v_mfma_f32_16x16x16_bf16", 2, "0"), vector=vector, active=0)
        assert group.vector[0, 40:44].view(np.float32).tolist() == [[16.0] * 64] * 4

    def test_denormals_are_kept(self, run: Run) -> None:
        """MODE's flushing does not reach matrix instructions: 2^-130 passes through C."""
        group = run(_text("v_mfma_f32_16x16x16_bf16", 2), vector=dict.fromkeys(range(40, 44), 524288))
        assert group.vector[0, 40:44].tolist() == [[0x00080000] * 64] * 4

    def test_nan(self, run: Run) -> None:
        """A NaN code makes its row NaN: 0x80 is one in gfx942's fp8, -0 in gfx950's."""
        vector = {0: np.where(np.arange(64) == 0, 0x80, 0)}
        for arch, expected in (("gfx942", 16), ("gfx950", 0)):
            group = run(_text("v_mfma_f32_16x16x32_fp8_fp8", 2, "0"), arch=arch, vector=vector)
            assert int(np.isnan(group.vector[0, 40:44].view(np.float32)).sum()) == expected

    def test_int8_wraps(self, run: Run) -> None:
        """int8 products are signed, and sums wrap at 32 bits: 32 * (-128)^2 + (2^31 - 1)."""
        vector = dict.fromkeys((0, 1, 16, 17), 2155905152) | dict.fromkeys(range(40, 44), 2147483647)
        group = run(_text("v_mfma_i32_16x16x32_i8", 2), vector=vector)
        assert group.vector[0, 40:44].tolist() == [[0x7FFFFFFF + (32 << 14)] * 64] * 4


class TestScaled:
    """v_mfma_scale_f32_16x16x128_f8f6f4 with fp4 operands."""

    def test_scales(self, run: Run) -> None:
        """Each lane's 32 elements have one e8m0 scale: 128 * (1 * 2^1) * (6 * 2^-2) over equal scales."""
        vector = (
            dict.fromkeys(range(4), 572662306) | dict.fromkeys(range(16, 20), 2004318071) | {60: 128, 61: 125}
        )
        group = run(SCALED, arch="gfx950", vector=vector)
        assert group.vector[0, 40:44].view(np.float32).tolist() == [[128 * 2 * 1.5] * 64] * 4

    def test_scale_of_one_lane(self, run: Run) -> None:
        """A lane's scale reaches its row (or column) and its quarter of k only."""
        scales = np.where(np.arange(64) == 16 + 3, 128, 127)
        vector = dict.fromkeys((*range(4), *range(16, 20)), 572662306) | {60: scales, 61: 127}
        result = run(SCALED, arch="gfx950", vector=vector).vector[0, 40:44].view(np.float32)
        expected = np.full((4, 64), 128.0)
        expected[3, :16] = 160.0  # row 3: one quarter of 32 counts twice
        assert result.tolist() == expected.tolist()

    @pytest.mark.parametrize(("low", "high", "byte"), [(0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3)])
    def test_scale_byte(self, run: Run, low: int, high: int, byte: int) -> None:
        """op_sel and op_sel_hi select the byte of each scale register."""
        text = SCALED.replace("op_sel_hi:[0,0,0]", f"op_sel:[{low},0,0] op_sel_hi:[{high},0,0]")
        vector = dict.fromkeys((*range(4), *range(16, 20)), 572662306) | {60: 0x82818079, 61: 127}
        group = run(text, arch="gfx950", vector=vector)
        exponent = (0x82818079 >> 8 * byte & 0xFF) - 127
        assert float(group.vector[0, 40].view(np.float32)[0]) == 128 * 2.0**exponent

    def test_nan_scale(self, run: Run) -> None:
        """Scale 255 is NaN (OCP microscaling specification)."""
        group = run(SCALED, arch="gfx950", vector={60: 255, 61: 127})
        assert bool(np.isnan(group.vector[0, 40:44].view(np.float32)).all())
