"""Disassembly in a child process."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa import disasm
from aiter_conformance.isa.disasm import Job, Line, disassemble


class TestLibrary:
    """library."""

    def test_absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the package the error says what to install."""
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(InfrastructureError, match=r"rocm-llvm-python \(not installed\).*pip install"):
            disasm.library()


class TestDisassemble:
    """disassemble."""

    @pytest.mark.usefixtures("disassembler")
    def test_jobs(self) -> None:
        """Jobs, addresses and lengths (encodings of the MI300 manual: SOPP, VOP1, a literal)."""
        code = bytes.fromhex("000080bf0203027eff02027e78563412000081bf")
        first, second = disassemble([Job("gfx942", 0x100, code), Job("gfx950", 0, code[:4])])
        assert first == [
            Line(0x100, 4, "s_nop 0"),
            Line(0x104, 4, "v_mov_b32_e32 v1, v2"),
            Line(0x108, 8, "v_mov_b32_e32 v1, 0x12345678"),
            Line(0x110, 4, "s_endpgm"),
        ]
        assert second == [Line(0, 4, "s_nop 0")]

    @pytest.mark.usefixtures("disassembler")
    def test_wrong_architecture(self) -> None:
        """A gfx950 instruction is no instruction of gfx942."""
        swap = bytes.fromhex("01b5007e")  # VOP1, opcode 0x5a
        assert disassemble([Job("gfx950", 0, swap)])[0][0].text == "v_permlane32_swap_b32_e32 v0, v1"
        assert disassemble([Job("gfx942", 0, swap)])[0] == [Line(0, 4, "")]

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("import os; os.abort()", "exit status -6"),
            ("raise SystemExit('broken library')", "exit status 1: broken library"),
            ("print()", "must answer 2 jobs"),
            ("import time; time.sleep(60)", "must end within 0.5 s"),
        ],
        ids=["abort", "error", "short", "hang"],
    )
    def test_child_fails(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
    ) -> None:
        """However the child ends, the parent goes on with an error of its own."""
        child = tmp_path / "child.py"
        child.write_text(script)
        monkeypatch.setattr(disasm, "_CHILD", child)
        monkeypatch.setattr(disasm, "library", lambda: Path("lib.so"))
        with pytest.raises(InfrastructureError, match=words):
            disassemble([Job("gfx942", 0, b""), Job("gfx942", 0, b"")], timeout=0.5)
