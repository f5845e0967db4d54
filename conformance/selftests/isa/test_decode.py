"""Programs: branch targets, errors with their place, and the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa import decode
from aiter_conformance.isa.assembly import UnknownInstructionError, parse
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.decode import KIND1, TARGET, VALUE0, VALUE1, lower
from aiter_conformance.isa.disasm import Line
from aiter_conformance.isa.opcodes import Op

# s_nop 0; s_branch -1 (to itself); s_cbranch_scc0 -3 (to the s_nop); s_endpgm
LOOP = bytes.fromhex("000080bfffff82bffdff84bf000081bf")


def code_object(code: bytes, arch: str = "gfx942", address: int = 0) -> CodeObject:
    """A code object without kernels."""
    return CodeObject(arch, bytes(address) + code, (address, len(code)), {})


class TestLower:
    """lower."""

    def test_columns(self) -> None:
        """Operands keep kind and value; constants are sign-extended."""
        row = lower(parse("v_add_u32_e32 v1, -16, v2", "gfx942"))
        assert row[[decode.OP, decode.DESTINATION, VALUE0, KIND1, VALUE1]].tolist() == [
            Op.V_ADD_U32,
            1,
            -16,
            1,
            2,
        ]

    def test_scale_selects_must_be_printed(self) -> None:
        """The default of op_sel_hi is not guessed."""
        text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], a[0:3], v[4:7], 0, v1, v2 cbsz:4 blgp:4"
        with pytest.raises(UnknownInstructionError, match="must print op_sel_hi"):
            lower(parse(text, "gfx950"))


class TestDecode:
    """decode."""

    @pytest.mark.usefixtures("disassembler")
    def test_branches(self) -> None:
        """Targets come from the encoding: 16 signed bits that count dwords from the next instruction."""
        (program,) = decode.decode([code_object(LOOP, address=64)])
        assert program.addresses.tolist() == [64, 68, 72, 76]
        assert program.table[1:3, TARGET].tolist() == [1, 0]

    def test_branch_into_an_instruction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A branch that goes to no instruction is an error with its pc."""
        lines = [Line(0, 8, "v_mov_b32_e32 v1, 0x1234"), Line(8, 4, "s_branch 65534")]
        monkeypatch.setattr(decode, "disassemble", lambda _: [lines])
        code = bytes(8) + bytes.fromhex("feff82bf")
        with pytest.raises(UnknownInstructionError, match=r"pc 0x8 must go to an instruction \(got 0x4\)"):
            decode.decode([code_object(code)])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("v_sin_f32_e32 v1, v2", r"cannot emulate 'v_sin_f32_e32 v1, v2'.*at pc 0x40"),
            ("", "the word 0x04030201 at pc 0x40"),
        ],
    )
    def test_unknown(self, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
        """An instruction that is not modelled, or no instruction, is an error that names it and its pc."""
        monkeypatch.setattr(decode, "disassemble", lambda _: [[Line(64, 4, text)]])
        with pytest.raises(UnknownInstructionError, match=words):
            decode.decode([code_object(b"\1\2\3\4", address=64)])


class TestCache:
    """The cache of decode."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Sizes of the jobs that reach the disassembler."""
        seen: list[int] = []

        def disassemble(jobs: list[object]) -> list[list[Line]]:
            seen.append(len(jobs))
            return [[Line(0, 4, "s_nop 0"), Line(4, 4, "s_endpgm")] for _ in jobs]

        monkeypatch.setattr(decode, "disassemble", disassemble)
        return seen

    def test_hit(self, calls: list[int], tmp_path: Path) -> None:
        """The second time nothing is disassembled, and the program is the same."""
        first = decode.decode([code_object(LOOP)], tmp_path)[0]
        second = decode.decode([code_object(LOOP)], tmp_path)[0]
        assert calls == [1]
        assert (first.texts, first.table.tolist()) == (second.texts, second.table.tolist())
        assert first.addresses.tolist() == second.addresses.tolist()

    def test_key(self, calls: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other code, architecture or decoder each miss; one call serves all that are missing."""
        decode.decode([code_object(LOOP), code_object(LOOP, "gfx950"), code_object(LOOP + LOOP)], tmp_path)
        monkeypatch.setattr(decode, "_version", lambda: b"another decoder")
        decode.decode([code_object(LOOP)], tmp_path)
        assert calls == [3, 1]
        assert len(list(tmp_path.iterdir())) == 4

    def test_damage(self, calls: list[int], tmp_path: Path) -> None:
        """A damaged entry is decoded again and replaced, and no temporary file stays."""
        decode.decode([code_object(LOOP)], tmp_path)
        (entry,) = tmp_path.iterdir()
        entry.write_bytes(entry.read_bytes()[:100])
        decode.decode([code_object(LOOP)], tmp_path)
        decode.decode([code_object(LOOP)], tmp_path)
        assert calls == [1, 1]
        assert list(tmp_path.iterdir()) == [entry]


class TestRow:
    """Program.row."""

    def test_rows(self, program: Callable[..., Any]) -> None:
        """Addresses of instructions have rows; others are an error."""
        code = program(["s_nop 0", "s_endpgm"], "gfx942")
        assert code.row(4) == 1
        for address in (2, 8):
            with pytest.raises(InfrastructureError, match="an instruction must start at"):
                code.row(address)
