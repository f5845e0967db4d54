"""Loading the fast core."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa import fast
from aiter_conformance.isa.opcodes import Op


class TestLoad:
    """load."""

    def test_absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without numba the error says what to install."""

        def no_numba(name: str) -> object:
            raise ImportError(name)

        monkeypatch.setattr(importlib, "import_module", no_numba)
        with pytest.raises(InfrastructureError, match=r"needs numba \(not installed\).*pip install"):
            fast.load()

    def test_numba_settings_stay(self, fast_core: fast.FastCore, tmp_path: Path) -> None:
        """Loading leaves numba's own cache folder as it was."""
        numba = importlib.import_module("numba")
        before = numba.config.CACHE_DIR
        assert fast.load(tmp_path) == fast_core
        assert before == numba.config.CACHE_DIR

    @pytest.mark.parametrize("named", [True, False])
    def test_folder_without_one(self, tmp_path: Path, named: bool) -> None:
        """Without a folder compiled code is kept by version too: numba would run what is out of date."""
        pytest.importorskip("numba")
        name = "NUMBA_CACHE_DIR" if named else "XDG_CACHE_HOME"
        code = (
            "from aiter_conformance.isa import fast; import pathlib; "
            "cached = fast.load().entry._cache._cache_path; print(pathlib.Path(cached).parent)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_CACHE_DIR": "", name: str(tmp_path)},
        )
        kept = tmp_path if named else tmp_path / "aiter-conformance"
        assert Path(done.stdout.strip()) == kept / fast._version()


class TestCompiledIn:
    """COMPILED_IN."""

    def test_names_every_module(self) -> None:
        """The cache key has every module of the emulator that the compiled functions import."""
        folder = Path(fast.__file__).parent
        imported = set()
        for path in folder.glob("*.py"):
            if path.name == "__init__.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.ImportFrom)
                    and node.module
                    and node.module.startswith("aiter_conformance")
                ):
                    imported.add(node.module.removeprefix("aiter_conformance.isa."))
        constants = {name for name in imported if not name.startswith("fast.")}
        assert constants >= {"decode", "machine", "opcodes"}
        assert constants - {name.removesuffix(".py") for name in fast.COMPILED_IN} == set()


class TestWithout:
    """FastCore.without."""

    def test_leaves_out(self, fast_core: fast.FastCore) -> None:
        """It is the same loop with opcodes left to the reference."""
        changed = fast_core.without([Op.V_NOP])
        assert (changed.entry, changed.leave_out) == (fast_core.entry, frozenset({Op.V_NOP}))
