"""``case run|list``: what a user sees of one input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aiter_conformance.cli import main

pytest.importorskip("torch")

NUMBERS = "@E2-k1-K64-N64-M2-tp1-ep1-hp0-ip0-s0"
SILU = f"gfx950/bf16/silu/out{NUMBERS}"


def invoke(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["aiter-conformance", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


class TestRun:
    """``case run``."""

    def test_right(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Right numbers end with 0."""
        code, out, _ = invoke("case", "run", SILU, capsys=capsys)
        assert (code, out.splitlines()[0]) == (0, f"{SILU}: right")

    def test_known(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Wrong numbers end with 1, and an entry of the ledger that explains them is named."""
        code, out, _ = invoke("case", "run", f"{SILU}+limit", "--json", capsys=capsys)
        seen = json.loads(out)
        assert (code, seen["right"], seen["known"]) == (1, False, "swiglu-limit-dropped")
        assert seen["case"] == f"{SILU}+limit"

    def test_not_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A cell that no kernel computes is not run, and ends with 3."""
        code, _, err = invoke("case", "run", f"gfx950/bf16/situ/out{NUMBERS}", capsys=capsys)
        assert code == 3
        assert "NOT RUN: no kernel family of AITER computes gfx950/bf16/situ/out" in err

    def test_no_case(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A text that names no input ends with 2."""
        code, _, err = invoke("case", "run", f"{SILU}+limits", capsys=capsys)
        assert code == 2
        assert "an input must be one of coverage.toml's" in err


class TestExport:
    """``case export``."""

    def test_written(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """The file holds the arrays that the sentence promises."""
        code, out, _ = invoke("case", "export", SILU, str(tmp_path / "a.npz"), capsys=capsys)
        assert (code, out.startswith("wrote ")) == (0, True)
        with np.load(tmp_path / "a.npz") as arrays:
            assert arrays["expected"].shape == (2, 64)


class TestList:
    """``case list``."""

    def test_ids(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Every id can be run: features and ranks are in it."""
        code, out, _ = invoke("case", "list", "gfx950/mxfp4-w4a16/swigluoai/out", "--json", capsys=capsys)
        ids = {entry["input"]: entry["case"] for entry in json.loads(out)}
        assert code == 0
        assert ids["biases"].endswith("-s0+biases")
        assert ids["expert-parallel"].endswith("-ep2-hp0-ip0-s0~1")
