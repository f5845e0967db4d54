"""Formats: every code and every boundary, against gfloat, which shares nothing with the implementation."""

from __future__ import annotations

from fractions import Fraction

import gfloat
import ml_dtypes
import numpy as np
import pytest
from gfloat.formats import format_info_bfloat16, format_info_ocp_e2m1, format_info_ocp_e4m3
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiter_conformance.numerics.formats import (
    E2M1,
    E4M3FN,
    E4M3FNUZ,
    FloatFormat,
    ScaleRounding,
    decode_bf16,
    decode_e8m0,
    e8m0_scale,
    encode_bf16,
    int4_to_nibbles,
    pack_nibbles,
    round_bf16,
)

# gfloat has no ready description of AMD's fnuz flavour (NUMERICS 1).
FNUZ = gfloat.FormatInfo(
    "e4m3fnuz", 8, 4, bias=8, is_signed=True, domain=gfloat.Domain.Finite, has_nz=False, num_high_nans=0,
    has_subnormals=True, is_twos_complement=False,
)  # fmt: skip
FORMATS = [(E4M3FN, format_info_ocp_e4m3), (E4M3FNUZ, FNUZ), (E2M1, format_info_ocp_e2m1)]
IDS = [f.name for f, _ in FORMATS]


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compare values, signs of zeros and NaNs included."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def boundaries(values: np.ndarray) -> np.ndarray:
    """Return all finite values, the middles between them, what lies just beside both, and values beyond."""
    v = np.unique(values[np.isfinite(values)])
    points = np.concatenate([v, (v[1:] + v[:-1]) / 2]).astype(np.float32)
    top = np.float32(v.max())
    beyond = top * np.array([1.01, 1.03, 1.07, 1.5, 2, 1e30], np.float32)
    beside = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([points, *beside, beyond, -beyond])


@pytest.mark.parametrize(("fmt", "info"), FORMATS, ids=IDS)
class TestFloatFormat:
    """`FloatFormat`."""

    def test_decodes_every_code(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """Every code has the value that gfloat gives it."""
        codes = np.arange(2**info.k)
        theirs = np.array([gfloat.decode_float(info, int(code)).fval for code in codes])
        assert same(fmt.decode(codes), theirs).all()

    def test_encodes_every_boundary(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """Values, ties, their neighbours and what lies beyond round as gfloat's saturating rounding does."""
        points = boundaries(fmt.decode(np.arange(2**info.k)))
        theirs = gfloat.round_ndarray(info, points.astype(np.float64), sat=True)
        ours = fmt.round(points)
        # a format without negative zero gives +0 for what rounds to it
        assert ((ours == theirs) | same(ours, theirs)).all()

    def test_encode_is_the_inverse(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """Encoding the value of a code gives the code."""
        codes = np.arange(2**info.k)
        values = fmt.decode(codes)
        finite = np.isfinite(values)
        assert (fmt.encode(values[finite]) == codes[finite]).all()

    def test_saturates(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """Nothing beyond the maximum becomes NaN or infinity, which plain casts make of it."""
        assert fmt.round([1e30, -1e30, np.inf]).tolist() == [info.max, -info.max, info.max]

    def test_facts(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """Maximum, exponent and mantissa width are the format's own."""
        assert fmt.maximum == info.max
        assert fmt.max_exponent == int(np.floor(np.log2(info.max)))
        assert fmt.mantissa_bits == info.precision - 1

    def test_nan(self, fmt: FloatFormat, info: gfloat.FormatInfo) -> None:
        """NaN stays NaN, and is refused where the format has none."""
        assert fmt.has_nan == (info.num_nans > 0)
        if fmt.has_nan:
            assert np.isnan(fmt.round([np.nan])).all()
        else:
            with pytest.raises(ValueError, match="must not hold NaN, which e2m1 cannot express"):
                fmt.encode([np.nan])


class TestFlavours:
    """The two fp8 flavours beside each other."""

    def test_fn_is_twice_fnuz(self) -> None:
        """A code read as e4m3fn is twice what it is as e4m3fnuz, but for NaN, the last codes and 0x80."""
        codes = np.arange(256)
        fn, fnuz = E4M3FN.decode(codes), E4M3FNUZ.decode(codes)
        differ = np.flatnonzero(~(fn == 2 * fnuz))
        assert differ.tolist() == [0x7F, 0x80, 0xFF]
        assert np.isnan(fn[[0x7F, 0xFF]]).all()
        assert fnuz[[0x7F, 0xFF]].tolist() == [240.0, -240.0]
        assert np.isnan(fnuz[0x80])

    def test_negative_zero(self) -> None:
        """What rounds to -0 is code 0 in e4m3fnuz, never 0x80, which is its NaN."""
        assert E4M3FNUZ.encode([-0.0, -1e-9]).tolist() == [0, 0]
        assert E4M3FN.encode([-0.0]).tolist() == [0x80]


class TestBf16:
    """`round_bf16`, `encode_bf16`, `decode_bf16`."""

    def test_every_code(self) -> None:
        """Every code decodes and encodes as in ml_dtypes."""
        codes = np.arange(65536, dtype=np.uint16)
        values = decode_bf16(codes)
        with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
            theirs = codes.view(ml_dtypes.bfloat16).astype(np.float64)
        assert same(values, theirs).all()
        real = ~np.isnan(values)
        assert (encode_bf16(values[real]) == codes[real]).all()

    def test_every_boundary(self) -> None:
        """Ties go to even and their neighbours to their own side, subnormals and overflow included."""
        values = decode_bf16(np.arange(0x7F80, dtype=np.uint16))
        middles = (values[1:] + values[:-1]) / 2
        even = values[:-1].copy()
        even[1::2] = values[2::2]
        assert (round_bf16(middles) == even).all()
        assert (round_bf16(np.nextafter(middles, 0)) == values[:-1]).all()
        assert (round_bf16(np.nextafter(middles, np.inf)) == values[1:]).all()

    def test_agrees_with_gfloat(self) -> None:
        """A spread of float64 values, overflow included, rounds as gfloat rounds them."""
        rng = np.random.default_rng(0)
        values = np.ldexp(rng.standard_normal(2000), rng.integers(-140, 127, 2000))
        assert (round_bf16(values) == gfloat.round_ndarray(format_info_bfloat16, values)).all()
        assert round_bf16([3.4e38, -3.4e38, np.inf]).tolist() == [np.inf, -np.inf, np.inf]
        assert np.isnan(round_bf16([np.nan])).all()


def scale_by_definition(amax: float, fmt: FloatFormat, rounding: ScaleRounding) -> float:
    """Return the scale from the definition, by exact integers instead of bits."""
    exact = Fraction(amax)

    def floor_log2(x: Fraction) -> int:
        guess = x.numerator.bit_length() - x.denominator.bit_length()
        return guess if Fraction(2) ** guess <= x else guess - 1

    def ceil_log2(x: Fraction) -> int:
        low = floor_log2(x)
        return low if Fraction(2) ** low == x else low + 1

    if rounding is ScaleRounding.FLOOR:
        power = floor_log2(exact) - fmt.max_exponent
    elif rounding is ScaleRounding.CEIL:
        power = ceil_log2(exact) - fmt.max_exponent
    elif rounding is ScaleRounding.RCEIL:
        power = ceil_log2(exact / Fraction(fmt.maximum))
    else:
        low = floor_log2(exact)
        # half a step of the element's mantissa below the next power of two
        carries = exact >= Fraction(2) ** low * (2 - Fraction(1, 2 ** (fmt.mantissa_bits + 1)))
        power = low + carries - fmt.max_exponent
    return 2.0 ** max(power, -127)


class TestE8m0Scale:
    """`e8m0_scale` and `decode_e8m0`."""

    @pytest.mark.parametrize("fmt", [E2M1, E4M3FN, E4M3FNUZ], ids=lambda f: f.name)
    @pytest.mark.parametrize("rounding", list(ScaleRounding))
    def test_boundaries(self, fmt: FloatFormat, rounding: ScaleRounding) -> None:
        """Beside and on every power of two and every boundary of a mode, the scale is what the mode says."""
        mantissas = [1.0, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875]
        points = np.array([m * 2.0**e for m in mantissas for e in (-120, -3, 0, 1, 2, 7, 8, 100)], np.float32)
        points = np.concatenate([points, *[np.nextafter(points, np.float32(s)) for s in (0, np.inf)]])
        ours = decode_e8m0(e8m0_scale(points, fmt, rounding))
        assert ours.tolist() == [scale_by_definition(float(p), fmt, rounding) for p in points]

    @given(st.floats(2.0**-100, 2.0**100, width=32), st.sampled_from(list(ScaleRounding)))
    def test_any(self, amax: float, rounding: ScaleRounding) -> None:
        """The same for any magnitude."""
        assert decode_e8m0(e8m0_scale(amax, E2M1, rounding)) == scale_by_definition(amax, E2M1, rounding)

    def test_by_hand(self) -> None:
        """6 and 7 in MXFP4: 6 fits scale 1, 7 needs 2 to fit, and even rounds 7 up to 8."""
        amax = [4.0, 6.0, 7.0, 8.0]
        scales = {mode: decode_e8m0(e8m0_scale(amax, E2M1, mode)).tolist() for mode in ScaleRounding}
        assert scales == {
            "floor": [1, 1, 1, 2],
            "ceil": [1, 2, 2, 2],
            "rceil": [1, 1, 2, 2],
            "even": [1, 1, 2, 2],
        }

    def test_edges(self) -> None:
        """0 and what is too small give 2^-127, infinity and NaN give NaN, negative magnitudes are refused."""
        codes = e8m0_scale([0.0, 1e-45, 2.0**-126, np.inf, np.nan], E2M1, ScaleRounding.FLOOR)
        assert codes.tolist() == [0, 0, 0, 255, 255]
        assert np.isnan(decode_e8m0([255])).all()
        with pytest.raises(ValueError, match=r"amax must be the largest magnitude of a block, >= 0 \(got -1"):
            e8m0_scale([-1.0], E2M1, ScaleRounding.FLOOR)

    def test_decodes_every_code(self) -> None:
        """Every code is the power of two that ml_dtypes gives."""
        codes = np.arange(256, dtype=np.uint8)
        assert same(decode_e8m0(codes), codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)).all()


class TestNibbles:
    """Packing of four-bit codes."""

    def test_even_element_is_low(self) -> None:
        """The even element lies in the low nibble."""
        assert pack_nibbles(np.array([[1, 2, 15, 0]])).tolist() == [[0x21, 0x0F]]

    @given(hnp.arrays(np.uint8, (3, 8), elements=st.integers(0, 15)))
    def test_keeps_every_code(self, codes: np.ndarray) -> None:
        """Low nibbles are the even elements, high nibbles the odd ones."""
        packed = pack_nibbles(codes)
        assert (packed % 16 == codes[:, ::2]).all()
        assert (packed // 16 == codes[:, 1::2]).all()

    def test_int4(self) -> None:
        """Every int4 value has its two's complement nibble."""
        values = np.arange(-8, 8)
        assert int4_to_nibbles(values).tolist() == [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]

    def test_bad_input(self) -> None:
        """Odd rows, codes of more than four bits and integers out of range are refused."""
        with pytest.raises(ValueError, match="last axis must be even"):
            pack_nibbles(np.zeros((2, 3)))
        with pytest.raises(ValueError, match=r"codes must fit four bits \(got 16\)"):
            pack_nibbles(np.array([[16, 0]]))
        with pytest.raises(ValueError, match=r"int4 values must lie in -8 .. 7 \(got -9 .. 0\)"):
            int4_to_nibbles(np.array([-9, 0]))
