"""Conversions, values by hand.

Sources: V_CVT opcodes of "AMD Instinct MI300 Instruction Set Architecture" and "AMD Instinct CDNA4
Instruction Set Architecture"; OCP 8-bit floating point and microscaling specifications; IEEE 754 for float16.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest

from aiter_conformance.isa.machine import Workgroup

Run = Callable[..., Workgroup]
SATURATING = 0xC0 | 1 << 23
INF, NAN = math.inf, math.nan


def bits(value: float) -> int:
    """Bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


ONE_SOURCE = [
    ("v_cvt_i32_f32_e32", bits(-2.9), 0xFFFFFFFE),  # towards zero
    ("v_cvt_i32_f32_e32", bits(3e9), 0x7FFFFFFF),  # saturates
    ("v_cvt_i32_f32_e32", bits(-INF), 0x80000000),
    ("v_cvt_i32_f32_e32", bits(NAN), 0),
    ("v_cvt_u32_f32_e32", bits(-1.0), 0),
    ("v_cvt_u32_f32_e32", bits(4294967040.0), 0xFFFFFF00),
    ("v_cvt_u32_f32_e32", bits(INF), 0xFFFFFFFF),
    ("v_cvt_f32_i32_e32", 0xFFFFFFFF, bits(-1.0)),
    ("v_cvt_f32_i32_e32", 0x01000001, bits(16777216.0)),  # 2^24 + 1: tie to even
    ("v_cvt_f32_u32_e32", 0xFFFFFFFF, bits(4294967296.0)),
    ("v_cvt_off_f32_i4_e32", 0xF7, bits(7 / 16)),  # only the low nibble
    ("v_cvt_off_f32_i4_e32", 0x8, bits(-0.5)),
    ("v_cvt_f16_f32_e32", bits(1.0), 0x3C00),
    ("v_cvt_f16_f32_e32", bits(1.0 + 2.0**-11), 0x3C00),  # tie to even
    ("v_cvt_f16_f32_e32", bits(1.0 + 3 * 2.0**-11), 0x3C02),
    ("v_cvt_f16_f32_e32", bits(65519.0), 0x7BFF),
    ("v_cvt_f16_f32_e32", bits(65520.0), 0x7C00),  # the tie beyond the largest goes to infinity
    ("v_cvt_f16_f32_e32", bits(-(2.0**-24)), 0x8001),  # float16 denormals are kept
    ("v_cvt_f16_f32_e32", bits(2.0**-25), 0x0000),
    ("v_cvt_f16_f32_e32", bits(NAN), 0x7E00),
]
# low, high; packed float16 towards zero
TOWARDS_ZERO = [
    (1.0 + 3 * 2.0**-11, -(1.0 + 3 * 2.0**-11), 0xBC013C01),
    (65535.0, 1e10, 0x7BFF7BFF),  # a finite value stays finite
    (INF, NAN, 0x7E007C00),
    (2.0**-24, 2.0**-25, 0x00000001),
]
# value; e4m3fnuz of gfx942, e4m3fn of gfx950
FP8 = [
    (1.0, 0x40, 0x38),
    (-1.0, 0xC0, 0xB8),
    (0.0, 0x00, 0x00),
    (-0.0, 0x00, 0x80),  # fnuz has no negative zero
    (240.0, 0x7F, 0x77),
    (247.9, 0x7F, 0x77),
    (248.0, 0x80, 0x78),  # past fnuz's rounding boundary: NaN; fn ties to 256
    (448.0, 0x80, 0x7E),
    (464.0, 0x80, 0x7E),  # ties to the even 448
    (464.5, 0x80, 0x7F),  # NaN
    (INF, 0x80, 0x7F),
    (NAN, 0x80, 0x7F),
    (1.0625, 0x40, 0x38),  # tie to even
    (1.1875, 0x42, 0x3A),  # tie to even, upwards
    (2.0**-10, 0x01, 0x00),  # smallest fnuz denormal; half of fn's smallest, tie to zero
    (2.0**-9, 0x02, 0x01),
    (-(2.0**-12), 0x00, 0x80),
    (2.0**-7 * 0.9999, 0x08, 0x04),  # rounds up to fnuz's smallest normal
]
# value over the scale; e2m1 code
FP4 = [
    (0.25, 0x0),  # ties to even: 0, 1, 1, 2, 2, 4, 4
    (0.75, 0x2),
    (1.25, 0x2),
    (1.75, 0x4),
    (2.5, 0x4),
    (3.5, 0x6),
    (5.0, 0x6),
    (5.1, 0x7),
    (100.0, 0x7),  # saturates
    (-0.26, 0x9),
    (-0.0, 0x8),
]


class TestOneSource:
    """To and from integers, and to float16."""

    @pytest.mark.parametrize(("name", "source", "expected"), ONE_SOURCE)
    def test_values(self, run: Run, name: str, source: int, expected: int) -> None:
        """Rounding, saturation and NaN are those of the opcode's description."""
        assert int(run(f"{name} v9, v1", vector={1: source}).vector[0, 9, 0]) == expected

    def test_half_saturates(self, run: Run) -> None:
        """With FP16_OVFL a finite float16 overflow saturates; an infinity stays."""
        vector = {1: 1e6, 2: INF}
        group = run("v_cvt_f16_f32_e32 v9, v1", "v_cvt_f16_f32_e32 v8, v2", vector=vector, mode=SATURATING)
        assert group.vector[0, 8:10, 0].tolist() == [0x7C00, 0x7BFF]


class TestSelects:
    """SDWA: parts of registers."""

    def test_source_byte(self, run: Run) -> None:
        """A byte select reads that byte."""
        text = "v_cvt_off_f32_i4_sdwa v9, v1 dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2"
        assert int(run(text, vector={1: 0x00010203}).vector[0, 9, 0]) == bits(1 / 16)

    @pytest.mark.parametrize(
        ("unused", "expected"), [("UNUSED_PRESERVE", 0x3C001234), ("UNUSED_PAD", 0x3C000000)]
    )
    def test_destination_half(self, run: Run, unused: str, expected: int) -> None:
        """A destination select writes that half and keeps or clears the other."""
        text = f"v_cvt_f16_f32_sdwa v9, v1 dst_sel:WORD_1 dst_unused:{unused} src0_sel:DWORD"
        assert int(run(text, vector={1: 1.0, 9: 0xABCD1234}).vector[0, 9, 0]) == expected


class TestPackedHalf:
    """v_cvt_pkrtz_f16_f32."""

    @pytest.mark.parametrize(("low", "high", "expected"), TOWARDS_ZERO)
    def test_values(self, run: Run, low: float, high: float, expected: int) -> None:
        """Both halves are truncated."""
        group = run("v_cvt_pkrtz_f16_f32 v9, v1, v2", vector={1: float(low), 2: float(high)})
        assert int(group.vector[0, 9, 0]) == expected


class TestBf16:
    """v_cvt_pk_bf16_f32 of gfx950."""

    def test_values(self, run: Run) -> None:
        """To nearest even, infinity on overflow, 0x7fc0 for NaN."""
        vector = {1: 0x3F808000, 2: 0x3F818000, 3: 0x7F7FFFFF, 4: 0xFFC00001}
        lines = ("v_cvt_pk_bf16_f32 v8, v1, v2", "v_cvt_pk_bf16_f32 v9, v3, v4")
        group = run(*lines, arch="gfx950", vector=vector)
        assert group.vector[0, 8:10, 0].tolist() == [0x3F823F80, 0x7FC07F80]


class TestFp8:
    """v_cvt_pk_fp8_f32."""

    @pytest.mark.parametrize(("value", "fnuz", "ocp"), FP8)
    def test_values(self, run: Run, value: float, fnuz: int, ocp: int) -> None:
        """The flavour is the architecture's; overflow gives NaN without FP16_OVFL."""
        for arch, expected in (("gfx942", fnuz), ("gfx950", ocp)):
            group = run("v_cvt_pk_fp8_f32 v9, v1, v1", arch=arch, vector={1: float(value)})
            assert int(group.vector[0, 9, 0]) == expected | expected << 8

    @pytest.mark.parametrize(
        ("value", "fnuz", "ocp"), [(1e9, 0x7F, 0x7E), (-INF, 0xFF, 0xFE), (NAN, 0x80, 0x7F)]
    )
    def test_saturation(self, run: Run, value: float, fnuz: int, ocp: int) -> None:
        """With FP16_OVFL everything but NaN saturates."""
        for arch, expected in (("gfx942", fnuz), ("gfx950", ocp)):
            text = "v_cvt_pk_fp8_f32 v9, v1, v1"
            group = run(text, arch=arch, vector={1: float(value)}, mode=SATURATING)
            assert int(group.vector[0, 9, 0]) == expected | expected << 8

    def test_halves(self, run: Run) -> None:
        """op_sel's third bit selects the half of the destination; the other is kept."""
        vector = {1: 1.0, 2: 2.0, 9: 0xAAAABBBB, 8: 0xAAAABBBB}
        lines = ("v_cvt_pk_fp8_f32 v9, v1, v2", "v_cvt_pk_fp8_f32 v8, v1, v2 op_sel:[0,0,1]")
        group = run(*lines, arch="gfx950", vector=vector)
        assert group.vector[0, 8:10, 0].tolist() == [0x4038BBBB, 0xAAAA4038]


class TestFp4:
    """v_cvt_scalef32_pk_fp4_f32 of gfx950."""

    @pytest.mark.parametrize(("value", "code"), FP4)
    def test_values(self, run: Run, value: float, code: int) -> None:
        """To nearest even after division by the scale's power of two, whose mantissa is ignored."""
        vector = {1: float(value) * 8, 2: 0.0, 3: 8.0 * 1.5}
        group = run("v_cvt_scalef32_pk_fp4_f32 v9, v1, v2, v3", arch="gfx950", vector=vector)
        assert int(group.vector[0, 9, 0]) == code

    @pytest.mark.parametrize(
        ("select", "byte"), [("0,0,0,0", 0), ("0,0,1,0", 1), ("0,0,0,1", 2), ("0,0,1,1", 3)]
    )
    def test_bytes(self, run: Run, select: str, byte: int) -> None:
        """op_sel's last two bits select the byte; the second source goes to its upper nibble."""
        text = f"v_cvt_scalef32_pk_fp4_f32 v9, v1, v2, v3 op_sel:[{select}]"
        group = run(text, arch="gfx950", vector={1: 1.0, 2: -6.0, 3: 1.0, 9: 0x11111111})
        assert int(group.vector[0, 9, 0]) == 0x11111111 & ~(0xFF << 8 * byte) | 0xF2 << 8 * byte


class TestExhaustive:
    """Every fp8 code survives a round trip."""

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    def test_codes(self, run: Run, arch: str) -> None:
        """Encoding the value of a code gives the code back, for all that are numbers."""
        # e4m3 by its definition: sign, exponent, mantissa; bias 8 for fnuz, 7 for OCP.
        bias, nan = (8, {0x80}) if arch == "gfx942" else (7, {0x7F, 0xFF})
        for start in range(0, 256, 64):
            codes = np.arange(start, start + 64)
            exponent, mantissa = codes >> 3 & 15, codes & 7
            size = np.where(
                exponent > 0, (8 + mantissa) * 2.0 ** (exponent - bias - 3), mantissa * 2.0 ** (-bias - 2)
            )
            values = np.where(codes & 0x80, -size, size)
            got = run("v_cvt_pk_fp8_f32 v9, v1, v1", arch=arch, vector={1: values}).vector[0, 9] & 0xFF
            numbers = [code for code in codes.tolist() if code not in nan]
            assert [int(got[code - start]) for code in numbers] == numbers
