"""Assembly text to instructions."""

from __future__ import annotations

import pytest

from aiter_conformance.isa.assembly import (
    Instruction,
    Kind,
    Operand,
    UnknownInstructionError,
    parse,
    parse_operand,
)
from aiter_conformance.isa.opcodes import Op

V, S, C = Kind.VECTOR, Kind.SCALAR, Kind.CONSTANT
OPERANDS = [
    ("v7", Operand(V, 7)),
    ("a7", Operand(V, 263)),
    ("v[4:7]", Operand(V, 4, 4)),
    ("s[4:5]", Operand(S, 4, 2)),
    ("vcc", Operand(S, 106, 2)),
    ("exec", Operand(S, 126, 2)),
    ("m0", Operand(S, 124)),
    ("-16", Operand(C, -16)),
    ("0xffffffff", Operand(C, -1)),
    ("-4.0", Operand(C, -0x3F800000)),  # 0xc0800000
    ("1.0", Operand(C, 0x3F800000)),
    ("-v1", Operand(V, 1, negate=True)),
    ("|v1|", Operand(V, 1, absolute=True)),
    ("-|s1|", Operand(S, 1, negate=True, absolute=True)),
]
REFUSED = [
    ("v_frobnicate_b32 v1, v2", "gfx942", "no such instruction is modelled"),
    ("v_cvt_pk_bf16_f32 v1, v2, v3", "gfx942", "is not an instruction of gfx942"),
    ("v_mov_b32_e32 v1, v2 row_shl:1", "gfx942", r"modifiers \['row_shl'\] are not modelled"),
    ("v_mul_f32_dpp v1, v2, v3 row_newbcast:1 row_mask:0x3 bank_mask:0xf", "gfx942", "row_mask must be 0xf"),
    ("v_mov_b32_e32 v1, -v2", "gfx942", "sign modifiers are not modelled"),
    ("v_add_u32_e32 v1, v2", "gfx942", "must have 2 sources"),
    ("v_mov_b32_e32 v1, src_scc", "gfx942", "invalid literal"),
    ("s_mov_b64 s1, 0", "gfx942", "destination must span 2"),
    ("ds_write_b64 v1, v2", "gfx942", "a source must span 2 registers"),
    ("buffer_load_dword v1, v2, s[4:7], 0", "gfx942", "must be offen"),
    ("global_load_dword v1, v[2:3], off", "gfx942", "cannot emulate"),
    ("s_mov_b32 s1, 0x123456789", "gfx942", "32 bits"),
]


class TestOperand:
    """parse_operand."""

    @pytest.mark.parametrize(("text", "expected"), OPERANDS)
    def test_values(self, text: str, expected: Operand) -> None:
        """Registers, ranges, names, constants and sign modifiers."""
        assert parse_operand(text) == expected


class TestParse:
    """parse."""

    def test_modifiers(self) -> None:
        """Bracketed lists, numbers and flags are all found, in any order."""
        text = "buffer_load_dword v1, s[4:7], 0 offen offset:0x10 lds"
        expected = Instruction(
            Op.BUFFER_LOAD_DWORD,
            None,
            (Operand(V, 1), Operand(S, 4, 4), Operand(C, 0)),
            {"offset": 16, "offen": 1, "lds": 1},
        )
        assert parse(text, "gfx942") == expected

    def test_lists(self) -> None:
        """A list's commas do not divide operands."""
        found = parse("v_cvt_pk_fp8_f32 v1, v2, |v3| op_sel:[0,0,1]", "gfx942")
        assert found.modifiers == {"op_sel": (0, 0, 1)}
        assert found.sources == (Operand(V, 2), Operand(V, 3, absolute=True))

    def test_flag_after_modifier(self) -> None:
        """A flag is found behind an operand with an absolute value."""
        text = "v_mul_f32_dpp v1, v2, |v3| row_half_mirror row_mask:0xf bank_mask:0xf"
        assert parse(text, "gfx942").modifiers == {"row_half_mirror": 1, "row_mask": 15, "bank_mask": 15}

    def test_atomic_with_result(self) -> None:
        """An atomic that returns has one operand more."""
        plain = parse("global_atomic_add_f32 v1, v2, s[4:5]", "gfx942")
        returning = parse("global_atomic_add_f32 v9, v1, v2, s[4:5] sc0", "gfx942")
        assert (plain.destination, returning.destination) == (None, Operand(V, 9))
        assert plain.sources == returning.sources

    @pytest.mark.parametrize(("text", "arch", "words"), REFUSED)
    def test_refuses(self, text: str, arch: str, words: str) -> None:
        """What is not modelled is an error that has the text and says why."""
        with pytest.raises(UnknownInstructionError, match=words) as caught:
            parse(text, arch)
        assert f"cannot emulate '{text}' on {arch}" in str(caught.value)

    def test_scaled_matrix_formats(self) -> None:
        """A scaled matrix instruction of another format than fp4 is refused."""
        text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], a[0:3], v[4:7], 0, v1, v2 op_sel_hi:[0,0,0] cbsz:4"
        with pytest.raises(UnknownInstructionError, match="must both be fp4"):
            parse(text, "gfx950")
