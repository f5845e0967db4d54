"""Different requests give different numbers: what the contract suite compares matters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from aiter_conformance.golden import Observation, live_rows
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, Verdict, judge

ProblemOf = Callable[..., Problem]
Observed = Callable[..., Observation]
Changed = Callable[[Problem, Mapping[str, Any]], Verdict]

ACTIVATIONS = ("silu", "gelu", "swigluoai", "situ")


class TestActivations:
    """Each activation is told from each other (CASES: "activation silently another one")."""

    @pytest.mark.parametrize("scheme", ["gfx950/bf16", "gfx942/fp8-block", "gfx950/mxfp4-w4a4"])
    @pytest.mark.parametrize(("asked", "other"), list(itertools.permutations(ACTIVATIONS[:3], 2)))
    def test_pairs(
        self, scheme: str, asked: str, other: str, problem_of: ProblemOf, observed: Observed
    ) -> None:
        """The output for one activation does not pass for another."""
        output = observed(problem_of(f"{scheme}/{other}/out")).output
        problem = problem_of(f"{scheme}/{asked}/out")
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        assert judge(live_rows(output, problem), expect).broken is Rule.ELEMENT

    @pytest.mark.parametrize("other", ACTIVATIONS[:3])
    def test_situ(self, other: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Neither does SiTU pass for another, nor another for SiTU."""
        situ, plain = (problem_of(f"gfx950/mxfp4-w4a4/{name}/out") for name in ("situ", other))
        for asked, given in ((situ, plain), (plain, situ)):
            expect = expected(asked, nominal_pipeline(asked.case.cell))
            assert not judge(live_rows(observed(given).output, asked), expect).passed

    def test_swigluoai_is_its_uninterleaved_self(self, problem_of: ProblemOf, observed: Observed) -> None:
        """Once rows are packed, swigluoai and swigluoai_uninterleave are the same numbers."""
        first, second = (
            observed(problem_of(f"gfx950/bf16/{name}/out")).output
            for name in ("swigluoai", "swigluoai_uninterleave")
        )
        assert torch.equal(first, second)

    @pytest.mark.parametrize("parameter", [{"beta": 1.0}, {"linear_beta": 25.0}, {"linear_beta": 1.0}])
    def test_situ_parameters(
        self, parameter: dict[str, float], problem_of: ProblemOf, changed: Changed
    ) -> None:
        """AITER's stand-ins for beta and linear beta are not what was asked for."""
        assert not changed(problem_of("gfx950/mxfp4-w4a4/situ/out"), parameter).passed


class TestChangedCalls:
    """A call that differs in one argument gives other numbers: what the contract suite compares matters."""

    @pytest.mark.parametrize(
        ("cell", "numbers", "change"),
        [
            ("gfx950/mxfp4-w4a4/silu/out", {}, {"gate_mode": "interleave"}),
            ("gfx942/int4-w4a16/situ/out", {}, {"gate_mode": "interleave"}),
            ("gfx950/bf16/silu/out", {}, {"activation_method": 1}),
            ("gfx950/bf16/gelu/in", {}, {"doweight_stage1": False}),
            ("gfx950/bf16/silu/out", {"topk": 1}, {"doweight_stage1": True}),
            ("gfx950/mxfp4-w4a16/swigluoai/out", {}, {"intermediate_pad": 64}),
            ("gfx950/mxfp4-w4a16/swigluoai/out", {}, {"hidden_pad": 128}),
            ("gfx950/mxfp4-w4a4/silu/out", {}, {"intermediate_pad": 64}),
            ("gfx950/fp8-tensor-static/silu/out", {}, {"a1_scale": None}),
            ("gfx950/fp8-tensor-static/silu/out", {}, {"a2_scale": torch.tensor([1.0])}),
        ],
        ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)) or "plain",
    )
    def test_is_called(
        self,
        cell: str,
        numbers: dict[str, int],
        change: dict[str, Any],
        problem_of: ProblemOf,
        changed: Changed,
    ) -> None:
        """The verdict is not a pass."""
        problem = problem_of(cell, **numbers)
        assert changed(problem, {}).passed
        assert not changed(problem, change).passed

    @pytest.mark.parametrize("missing", ["bias1", "bias2"])
    def test_biases(self, missing: str, problem_of: ProblemOf, changed: Changed) -> None:
        """A bias that is left out is called."""
        problem = problem_of("gfx950/mxfp4-w4a16/swigluoai/out", Features(biases=True))
        assert not changed(problem, {missing: None}).passed


class TestLimit:
    """``swiglu_limit`` reaches FlyDSL's kernels only; what the others make of it is in the ledger."""

    LIMIT = Features(swiglu_limit=1.5)

    @pytest.mark.parametrize(
        "cell",
        ["gfx950/mxfp4-w4a16/silu/out", "gfx950/mxfp4-w4a4/silu/out", "gfx950/mxfp4-w4a4/swigluoai/out"],
    )
    def test_taken(self, cell: str, problem_of: ProblemOf, observed: Observed, changed: Changed) -> None:
        """Where it is taken the numbers are right, and wrong without it."""
        problem = problem_of(cell, self.LIMIT)
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message
        assert not changed(problem, {"swiglu_limit": 0.0}).passed
