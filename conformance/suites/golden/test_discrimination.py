"""Different requests give different numbers; what the contract gets wrong is wrong by a known size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from aiter_conformance.golden import Observation, apply_leaf, live, live_rows
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import pack
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, Verdict, judge
from aiter_conformance.protocols import KernelCall, Subject

ProblemOf = Callable[..., Problem]
Observed = Callable[..., Observation]

ACTIVATIONS = ("silu", "gelu", "swigluoai", "situ")


def verdict_on_changed_call(problem: Problem, subject: Subject, change: Mapping[str, Any]) -> Verdict:
    """Judge what the kernels make of the leaf's call with some arguments changed."""
    provider = provider_for(problem.case.cell)

    def compute(call: KernelCall) -> torch.Tensor:
        assert set(change) <= set(call.arguments)
        changed = KernelCall(call.entry, dict(call.arguments) | change)
        return provider.compute(changed, problem.case.cell.arch)

    output, _ = apply_leaf(problem, pack(problem), subject, compute)
    expect = live(expected(problem, nominal_pipeline(problem.case.cell)), problem)
    return judge(live_rows(output, problem), expect)


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
        self, parameter: dict[str, float], problem_of: ProblemOf, subject: Subject
    ) -> None:
        """AITER's stand-ins for beta and linear beta are not what was asked for."""
        assert not verdict_on_changed_call(
            problem_of("gfx950/mxfp4-w4a4/situ/out"), subject, parameter
        ).passed


class TestChangedCalls:
    """A call that differs in one argument gives other numbers: what the contract suite compares matters."""

    @pytest.mark.parametrize(
        ("cell", "numbers", "change"),
        [
            ("gfx950/mxfp4-w4a16/swigluoai/out", {}, {"gate_mode": "separated"}),
            ("gfx950/mxfp4-w4a16/swigluoai/out", {}, {"gate_mode": ""}),
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
            (
                "gfx950/bf16/silu/out",
                {"experts": 6, "ep": 2},
                {"expert_mask": torch.tensor([0, 0, 0, 1, 1, 1, 0])},
            ),
            ("gfx950/bf16/silu/out", {"experts": 6, "ep": 2}, {"expert_mask": torch.tensor([1] * 6 + [0])}),
            (
                "gfx950/bf16/silu/out",
                {"experts": 6, "ep": 2},
                {"expert_mask": torch.tensor([0, 1, 2, -1, -1, -1, -1])},
            ),
            ("gfx950/bf16/silu/out", {}, {"num_local_tokens": torch.tensor([5, 3])}),
        ],
        ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)) or "plain",
    )
    def test_is_called(
        self,
        cell: str,
        numbers: dict[str, int],
        change: dict[str, Any],
        problem_of: ProblemOf,
        subject: Subject,
    ) -> None:
        """The verdict is not a pass."""
        problem = problem_of(cell, **numbers)
        assert verdict_on_changed_call(problem, subject, {}).passed
        assert not verdict_on_changed_call(problem, subject, change).passed

    @pytest.mark.parametrize("missing", ["bias1", "bias2"])
    def test_biases(self, missing: str, problem_of: ProblemOf, subject: Subject) -> None:
        """A bias that is left out is called."""
        problem = problem_of("gfx950/mxfp4-w4a16/swigluoai/out", Features(biases=True))
        assert not verdict_on_changed_call(problem, subject, {missing: None}).passed


class TestPads:
    """CASES C2: pads of gpt-oss, scaled down; a kernel never masks more rows than are dead."""

    @pytest.mark.parametrize("tp", [2, 4, 8])
    def test_partitions(self, tp: int, problem_of: ProblemOf, observed: Observed) -> None:
        """With tensor parallelism the pads that reach CK-Tile mask dead rows only."""
        problem = problem_of(
            "gfx950/mxfp4-w4a16/swigluoai/out",
            intermediate=256 * tp,
            tp=tp,
            intermediate_pad=96,
            hidden_pad=64,
        )
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message
        assert seen.calls[0].arguments["intermediate_pad"] == 64

    @pytest.mark.parametrize("deployment", [{"tp": 1}, {"ep": 2, "experts": 6}], ids=["tp1", "ep2"])
    def test_single_partition(
        self, deployment: dict[str, int], problem_of: ProblemOf, observed: Observed
    ) -> None:
        """At tp_size 1 the contract doubles the pad, and CK-Tile masks as many live rows as dead ones.

        A finding of the contract itself (expert parallelism included): wrong by the share of the rows masked.
        """
        problem = problem_of(
            "gfx950/mxfp4-w4a16/swigluoai/out", intermediate=512, intermediate_pad=64, **deployment
        )
        seen = observed(problem)
        assert seen.calls[0].arguments["intermediate_pad"] == 128
        assert seen.verdict.broken is Rule.ELEMENT
        assert 0.05 < seen.verdict.relative_error < 0.8

    def test_doubled_for_the_wrong_family(self, problem_of: ProblemOf, observed: Observed) -> None:
        """w4a4 SILU is not doubled by the contract: FlyDSL counts the pad in each half itself."""
        problem = problem_of("gfx950/mxfp4-w4a4/silu/out", intermediate=512, intermediate_pad=128)
        seen = observed(problem)
        assert seen.calls[0].arguments["intermediate_pad"] == 128
        assert seen.verdict.passed, seen.verdict.message


class TestLimit:
    """``swiglu_limit`` reaches FlyDSL's kernels only."""

    LIMIT = Features(swiglu_limit=1.5)

    @pytest.mark.parametrize(
        "cell",
        ["gfx950/mxfp4-w4a16/silu/out", "gfx950/mxfp4-w4a4/silu/out", "gfx950/mxfp4-w4a4/swigluoai/out"],
    )
    def test_taken(self, cell: str, problem_of: ProblemOf, observed: Observed, subject: Subject) -> None:
        """Where it is taken the numbers are right, and wrong without it."""
        problem = problem_of(cell, self.LIMIT)
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message
        assert not verdict_on_changed_call(problem, subject, {"swiglu_limit": 0.0}).passed

    @pytest.mark.parametrize(
        "cell", ["gfx950/bf16/silu/out", "gfx942/fp8-block/silu/out", "gfx950/mxfp4-w4a16/swigluoai/out"]
    )
    def test_dropped(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """CK, assembly and CK-Tile kernels never see it: a finding of AITER, wrong where it clamps."""
        seen = observed(problem_of(cell, self.LIMIT))
        assert seen.calls[0].arguments["swiglu_limit"] == 1.5
        assert seen.verdict.broken is Rule.ELEMENT
        assert 0.05 < seen.verdict.relative_error < 5

    def test_situ_is_clamped(self, problem_of: ProblemOf, observed: Observed) -> None:
        """SiTU is defined without a limit; AITER's kernels clamp with it all the same."""
        seen = observed(problem_of("gfx950/mxfp4-w4a4/situ/out", self.LIMIT))
        assert seen.verdict.broken is Rule.ELEMENT
        assert 0.02 < seen.verdict.relative_error < 1


class TestGateLayout:
    """Layout and gate mode of SiTU under its settings."""

    def test_a8w4_setting_on_separated_weights(self, problem_of: ProblemOf, subject: Subject) -> None:
        """With a8w4 every SiTU call says interleave, also for w4a4, whose loader separates: wrong numbers."""
        problem = problem_of("gfx950/mxfp4-w4a4/situ/out")
        provider = provider_for(problem.case.cell)
        env = {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a8w4"}
        output, calls = apply_leaf(
            problem, pack(problem), subject, lambda call: provider.compute(call, "gfx950"), env=env
        )
        assert calls[0].arguments["gate_mode"] == "interleave"
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        assert judge(live_rows(output, problem), expect).broken is Rule.ELEMENT

    def test_a8w4_loader(self, problem_of: ProblemOf, subject: Subject) -> None:
        """w4a16's own loader interleaves under a8w4, so its weights and call agree."""
        problem = problem_of("gfx950/mxfp4-w4a16/situ/out")
        provider = provider_for(problem.case.cell)
        env = {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a8w4"}
        packed = pack(problem, situ_interleaved=True)
        output, _ = apply_leaf(
            problem, packed, subject, lambda call: provider.compute(call, "gfx950"), env=env
        )
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        assert judge(live_rows(output, problem), expect).passed
        assert replace(packed).w1 is packed.w1
