"""Quantisers: values by hand, and what holds of any values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiter_conformance.numerics.formats import E2M1, E4M3FN, E4M3FNUZ, ScaleRounding, encode_bf16
from aiter_conformance.numerics.quantise import (
    BLOCK_1X32,
    BLOCK_1X128,
    BLOCK_128X128,
    ROW,
    TENSOR,
    Block,
    as_bf16,
    block_amax,
    quantise_float,
    quantise_int4,
    quantise_mxfp4,
)

VALUES = hnp.arrays(np.float32, (2, 64), elements=st.floats(-1000, 1000, width=32))


class TestQuantiseFloat:
    """`quantise_float`."""

    def test_by_hand(self) -> None:
        """Rows of maximum 448 and 896 have scales 1 and 2; 3 is a code of the first, of the second 1.5 is."""
        q = quantise_float([[448.0, 3.0], [896.0, 3.0]], E4M3FN, ROW)
        assert q.scale_values().tolist() == [[1.0], [2.0]]
        assert q.elements().tolist() == [[448.0, 3.0], [448.0, 1.5]]
        assert q.values().tolist() == [[448.0, 3.0], [896.0, 3.0]]

    def test_fnuz_maximum(self) -> None:
        """The e4m3fnuz flavour is scaled to 240, as AITER's kernels do, not to 224."""
        assert quantise_float([[240.0, 1.0]], E4M3FNUZ, ROW).scale_values().tolist() == [[1.0]]

    def test_static_scale_saturates(self) -> None:
        """A fixed scale is used as it is: larger values become the maximum."""
        q = quantise_float([[1000.0, 2.0]], E4M3FN, TENSOR, np.array([[1.0]], np.float32))
        assert q.values().tolist() == [[448.0, 2.0]]

    def test_zero(self) -> None:
        """A block of zeros has scale 1 and stays zero."""
        q = quantise_float(np.zeros((1, 4)), E4M3FN, ROW)
        assert (q.scale_values().tolist(), q.values().tolist()) == ([[1.0]], [[0.0] * 4])

    @pytest.mark.parametrize(
        ("block", "shape"),
        [
            (TENSOR, (1, 1)),
            (ROW, (256, 1)),
            (BLOCK_1X128, (256, 3)),
            (BLOCK_128X128, (2, 3)),
            (BLOCK_1X32, (256, 12)),
        ],
    )
    def test_scale_follows_its_own_block(self, block: Block, shape: tuple[int, int]) -> None:
        """Each scale is the maximum of its own block over 448, and no other block's."""
        values = np.random.default_rng(1).standard_normal((256, 384)).astype(np.float32)
        rows, columns = 256 // shape[0], 384 // shape[1]
        expected = [
            [
                np.abs(values[r : r + rows, c : c + columns]).max() / np.float32(448)
                for c in range(0, 384, columns)
            ]
            for r in range(0, 256, rows)
        ]
        assert (quantise_float(values, E4M3FN, block).scale_values() == np.array(expected)).all()

    @given(VALUES)
    def test_error(self, values: np.ndarray) -> None:
        """No element is off by more than half a step of its magnitude, or of the smallest normal number."""
        q = quantise_float(values, E4M3FN, ROW)
        step = np.maximum(np.abs(values), q.scale_values() * 2.0**-6) * 2.0**-3
        assert (np.abs(q.values() - values) <= step / 2 * (1 + 1e-6)).all()

    def test_shape(self) -> None:
        """A block that does not divide the tensor is refused."""
        with pytest.raises(ValueError, match=r"multiples of the block 1x128 \(got shape \(2, 100\)\)"):
            quantise_float(np.zeros((2, 100)), E4M3FN, BLOCK_1X128)


class TestQuantiseMxfp4:
    """`quantise_mxfp4`."""

    def test_by_hand(self) -> None:
        """A block of maximum 7: floor clamps it to 6 at scale 1, rceil keeps 8 = 4 * 2."""
        values = np.zeros((1, 32))
        values[0, :3] = [7.0, 1.0, 0.5]
        floor, rceil = (quantise_mxfp4(values, mode) for mode in (ScaleRounding.FLOOR, ScaleRounding.RCEIL))
        assert (floor.scale_values().item(), floor.values()[0, :3].tolist()) == (1.0, [6.0, 1.0, 0.5])
        assert (rceil.scale_values().item(), rceil.values()[0, :3].tolist()) == (2.0, [8.0, 1.0, 0.0])

    @given(VALUES)
    def test_rceil_never_clamps(self, values: np.ndarray) -> None:
        """With rceil no element is off by more than half the largest step, 2, of its block's scale."""
        q = quantise_mxfp4(values, ScaleRounding.RCEIL)
        assert (np.abs(q.values() - values) <= np.repeat(q.scale_values(), 32, axis=1)).all()

    @given(VALUES)
    def test_codes(self, values: np.ndarray) -> None:
        """Codes are four bits and dequantise by their own block's scale."""
        q = quantise_mxfp4(values, ScaleRounding.EVEN)
        assert q.codes.max(initial=0) <= 15
        assert (q.values() == E2M1.decode(q.codes) * np.repeat(q.scale_values(), 32, axis=1)).all()


class TestQuantiseInt4:
    """`quantise_int4`."""

    def test_by_hand(self) -> None:
        """A block of maximum 7 has scale 1; 3.5 rounds to even 4, and -8 is never made."""
        values = np.zeros((1, 32))
        values[0, :4] = [-7.0, 3.5, 2.4, 0.4]
        q = quantise_int4(values)
        assert (q.scale_values().item(), q.values()[0, :4].tolist()) == (1.0, [-7.0, 4.0, 2.0, 0.0])

    def test_scale_is_rounded_after_use(self) -> None:
        """Codes come from the scale in float32; the stored scale is its bfloat16 rounding."""
        values = np.full((1, 32), 1.2345)
        q = quantise_int4(values)
        assert q.codes.tolist() == [[7] * 32]
        assert q.scales is not None
        assert q.scales.item() == encode_bf16(np.float32(1.2345) / np.float32(7)).item()

    @given(VALUES)
    def test_range(self, values: np.ndarray) -> None:
        """Codes lie in -7 .. 7."""
        codes = quantise_int4(values).codes
        assert codes.min() >= -7
        assert codes.max() <= 7


class TestAsBf16:
    """`as_bf16`."""

    def test_values(self) -> None:
        """Values are rounded to bfloat16 and have no scales."""
        q = as_bf16([[1.0, 1.00390625, 1.01171875]])
        assert q.scales is None
        assert q.values().tolist() == [[1.0, 1.0, 1.015625]]


class TestBlockAmax:
    """`block_amax`."""

    def test_no_rows(self) -> None:
        """No token is no scale per token, and 0 for a whole tensor."""
        assert block_amax(np.zeros((0, 64)), ROW).shape == (0, 1)
        assert block_amax(np.zeros((0, 64)), TENSOR).tolist() == [[0.0]]
