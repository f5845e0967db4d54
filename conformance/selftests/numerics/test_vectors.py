"""Golden vectors are written whole, and an export holds a case in full."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from aiter_conformance import documents, vectors
from aiter_conformance.case import parse_case
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.numerics.formats import E2M1, decode_bf16, decode_e8m0
from aiter_conformance.numerics.inputs import Problem

CASE = "gfx950/mxfp4-w4a16/swigluoai/out@E3-k2-K64-N64-M2-tp1-ep1-hp0-ip0-s0"


class TestExport:
    """`export`."""

    def test_holds_everything(self, tmp_path: Path) -> None:
        """Hidden states, routing, every expert's codes and scales, output and bound, under their names."""
        vectors.export(CASE, tmp_path / "case.npz")
        problem = Problem(parse_case(CASE))
        with np.load(tmp_path / "case.npz") as arrays:
            assert (decode_bf16(arrays["hidden_bf16"]) == problem.hidden).all()
            assert (arrays["topk_ids"] == problem.topk_ids).all()
            assert (arrays["topk_weights"] == problem.topk_weights).all()
            for expert in range(3):
                values = E2M1.decode(arrays[f"w1.{expert}"])
                values *= np.repeat(decode_e8m0(arrays[f"w1_scale.{expert}"]), 32, axis=1)
                assert (values == problem.expert(expert).w1.values()).all()
            assert arrays["expected"].shape == arrays["bound"].shape == (2, 64)
            assert "expert_mask" not in arrays
        assert [path.name for path in tmp_path.iterdir()] == ["case.npz"]

    def test_biases(self, tmp_path: Path) -> None:
        """Biases and other features of an input are in it."""
        vectors.export(f"{CASE}+biases", tmp_path / "case.npz")
        with np.load(tmp_path / "case.npz") as arrays:
            assert arrays["b1.2"].shape == (128,)
            assert arrays["b2.0"].dtype == np.float32

    def test_bad_case(self, tmp_path: Path) -> None:
        """A text that names no case is refused and nothing is written."""
        with pytest.raises(UsageError, match="a case must be CELL@NUMBERS"):
            vectors.export("gfx950", tmp_path / "case.npz")
        assert list(tmp_path.iterdir()) == []

    def test_no_folder(self, tmp_path: Path) -> None:
        """A folder that is not there is an infrastructure error that names the file."""
        with pytest.raises(InfrastructureError, match=r"cannot write case.npz: No such file or directory"):
            vectors.export(CASE, tmp_path / "missing" / "case.npz")


class TestVectors:
    """`make_vectors` and `read_expected`."""

    def test_bytes(self) -> None:
        """Expected values come back from their bytes exactly."""
        made = vectors.make_vectors("gfx1250")
        assert made["dtype"] == "float64"
        first = made["vectors"][0]
        values = vectors.read_expected(first)
        assert values.shape == (2, 128)
        assert values.tobytes() == vectors.read_expected(dict(first)).tobytes()
        assert np.isfinite(values).all()


class TestCommand:
    """``python -m aiter_conformance.vectors``."""

    def test_makes_what_is_committed(self, tmp_path: Path) -> None:
        """What it writes has the inputs of what is committed, and its values to 1e-12."""
        result = CliRunner().invoke(vectors.main, [str(tmp_path), "--arch", "gfx1250"])
        assert (result.exit_code, result.output) == (0, "wrote gfx1250.json\n")
        committed = Path(__file__).parents[2] / "suites" / "golden" / "vectors" / "gfx1250.json"
        made, kept = (
            json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "gfx1250.json", committed)
        )
        assert [path.name for path in tmp_path.iterdir()] == ["gfx1250.json"]
        for one, other in zip(made["vectors"], kept["vectors"], strict=True):
            values = vectors.read_expected(one), vectors.read_expected(other)
            np.testing.assert_allclose(*values, rtol=0, atol=vectors.TOLERANCE * np.abs(values[1]).max())
            assert one | {"expected": ""} == other | {"expected": ""}
        assert documents.render(made) == (tmp_path / "gfx1250.json").read_text(encoding="utf-8")
