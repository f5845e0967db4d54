"""Scripts that repeat a case rebuild its inputs on their own and judge an output as the harness does."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aiter_conformance.axes import load_axes  # noqa: E402 -- what follows needs torch
from aiter_conformance.case import Case  # noqa: E402
from aiter_conformance.golden import apply_leaf  # noqa: E402
from aiter_conformance.levels.reference import provider_for  # noqa: E402
from aiter_conformance.numerics.inputs import Features, Problem  # noqa: E402
from aiter_conformance.numerics.packed import pack  # noqa: E402
from aiter_conformance.protocols import Subject  # noqa: E402
from aiter_conformance.repro import script, write_script  # noqa: E402

Made = Callable[[Path], dict[str, Any]]

CASES = [
    ("gfx950/bf16/silu/out", {"tp": 2, "intermediate": 512}, Features(), 1),
    ("gfx942/fp8-block/silu/out", {}, Features(), 0),
    ("gfx942/fp8-channel/silu/in", {"topk": 1}, Features(), 0),
    ("gfx950/fp8-tensor-static/gelu/out", {}, Features(), 0),
    (
        "gfx950/mxfp4-w4a16/swigluoai/out",
        {"hidden_pad": 40, "intermediate_pad": 24},
        Features(biases=True),
        0,
    ),
    ("gfx950/mxfp4-w4a4/silu/out", {"experts": 6, "ep": 2}, Features(shared_experts=1), 1),
    ("gfx942/int4-w4a16/situ/out", {}, Features(), 0),
]


def problem_for(cell: str, numbers: dict[str, int], features: Features, rank: int) -> Problem:
    """Return a small problem."""
    return Problem(
        Case(load_axes().parse_cell(cell), **({"experts": 5, "tokens": 9} | numbers)), features, rank
    )


@pytest.mark.parametrize(("cell", "numbers", "features", "rank"), CASES, ids=[c[0] for c in CASES])
class TestScript:
    """`script` and `write_script`."""

    def test_inputs(
        self,
        cell: str,
        numbers: dict[str, int],
        features: Features,
        rank: int,
        subject: Subject,
        tmp_path: Path,
    ) -> None:
        """The script's own inputs have the digest of the harness's, and its tensors are the packed ones."""
        problem = problem_for(cell, numbers, features, rank)
        write_script(problem, subject, tmp_path / "repeat.py")
        names = runpy.run_path(str(tmp_path / "repeat.py"))
        tensors, digest = names["build"]()
        assert digest == problem.digest()
        packed = pack(problem)
        theirs = {"w1": packed.w1, "w2": packed.w2, "hidden_states": packed.hidden_states} | {
            {"w1_bias": "bias1", "w2_bias": "bias2"}.get(name, name): tensor
            for name, tensor in packed.quant.items()
        }
        for name, tensor in theirs.items():
            assert tensors[name].shape == tensor.shape, name
            assert tensors[name].dtype == tensor.dtype, name
            assert torch.equal(tensors[name].view(torch.uint8), tensor.view(torch.uint8)), name

    def test_verdict(
        self,
        cell: str,
        numbers: dict[str, int],
        features: Features,
        rank: int,
        subject: Subject,
        tmp_path: Path,
    ) -> None:
        """The right output exits 0; zeros, NaN and a wrong row exit 1."""
        problem = problem_for(cell, numbers, features, rank)
        provider = provider_for(problem.case.cell)
        output, _ = apply_leaf(
            problem, pack(problem), subject, lambda call: provider.compute(call, problem.case.cell.arch)
        )
        write_script(problem, subject, tmp_path / "repeat.py")
        compare = runpy.run_path(str(tmp_path / "repeat.py"))["compare"]
        right = output.to(torch.float64).numpy()
        assert compare(right) == 0
        assert compare(right * 0) == 1
        assert compare(right * float("nan")) == 1
        shifted = right.copy()
        shifted[0] *= 1.1
        assert compare(shifted) == 1


class TestScriptAlone:
    """A script as a user runs it."""

    def test_runs_without_the_harness(self, subject: Subject, tmp_path: Path) -> None:
        """It imports nothing of the harness, rebuilds its inputs, and says NOT RUN, exit 3, without AITER."""
        problem = problem_for("gfx950/bf16/silu/out", {}, Features(), 0)
        path = tmp_path / "repeat.py"
        write_script(problem, subject, path)
        assert "import aiter_conformance" not in path.read_text(encoding="utf-8")
        assert "from aiter_conformance" not in path.read_text(encoding="utf-8")
        inputs = subprocess.run(
            [sys.executable, path, "--inputs"], capture_output=True, text=True, check=False
        )
        assert (inputs.returncode, inputs.stderr) == (0, "")
        assert problem.digest() in inputs.stdout
        whole = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
        assert whole.returncode == 3
        assert "not run: ModuleNotFoundError" in whole.stdout

    def test_changed_inputs_are_not_run(self, subject: Subject, tmp_path: Path) -> None:
        """A script whose inputs are not those of its digest runs nothing."""
        text = script(problem_for("gfx950/bf16/silu/out", {}, Features(), 0), subject)
        path = tmp_path / "repeat.py"
        path.write_text(text.replace("0.625 * bell", "0.626 * bell"), encoding="utf-8")
        run = subprocess.run([sys.executable, path, "--inputs"], capture_output=True, text=True, check=False)
        assert run.returncode == 3
        assert "not run: the inputs must have the digest" in run.stdout

    def test_call(self, subject: Subject, tmp_path: Path) -> None:
        """The call is the leaf's: AITER's names, only what is not neutral, tensors by name."""
        problem = problem_for("gfx950/mxfp4-w4a16/swigluoai/out", {}, Features(biases=True), 0)
        path = tmp_path / "repeat.py"
        write_script(problem, subject, path)
        recipe = runpy.run_path(str(path))["RECIPE"]
        assert (recipe["module"], recipe["function"]) == ("aiter.fused_moe", "fused_moe")
        assert recipe["scalars"] == {
            "activation": 2,
            "quant_type": 3,
            "doweight_stage1": False,
            "dtype": "bfloat16",
            "gate_mode": "interleave",
        }
        same = {
            name: name for name in ("hidden_states", "w1", "w2", "w1_scale", "w2_scale", "bias1", "bias2")
        }
        assert recipe["tensors"] == same | {"topk_weight": "topk_weight", "topk_ids": "topk_ids"}
