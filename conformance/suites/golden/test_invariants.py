"""What must hold between inputs: sums over ranks, shared experts, order, unread bytes, zero rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from aiter_conformance.golden import Observation, live
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import Expected, evaluate, expected
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, judge
from aiter_conformance.protocols import Subject

ProblemOf = Callable[..., Problem]
Observed = Callable[..., Observation]

# One cell of each scheme whose kernels do not refuse what these tests ask.
CELLS = [
    "gfx950/bf16/silu/out",
    "gfx942/fp8-block/silu/out",
    "gfx950/fp8-tensor-static/gelu/out",
    "gfx942/fp8-tensor-dynamic/silu/out",
    "gfx942/fp8-channel/silu/out",
    "gfx950/mxfp4-w4a16/swigluoai/out",
    "gfx950/mxfp4-w4a4/silu/out",
    "gfx942/int4-w4a16/situ/out",
]
ROWWISE = [cell for cell in CELLS if "tensor-dynamic" not in cell]  # no scale spans several rows


def as_float(output: torch.Tensor) -> np.ndarray:
    """Return an output as float64."""
    return output.to(torch.float64).numpy()


@pytest.mark.parametrize("cell", ROWWISE)
class TestExpertParallelism:
    """The ranks of expert parallelism."""

    @pytest.mark.parametrize("shared", [0, 1])
    def test_adds_up(self, cell: str, shared: int, problem_of: ProblemOf, observed: Observed) -> None:
        """The sum over ranks is the result without expert parallelism (CASES C4).

        A shared expert is held by each rank, and counted once: its ids are the sentinel on all ranks but one.
        """
        features = Features(shared_experts=shared)
        whole = problem_of(cell, features, experts=6)
        total, bound = np.zeros((17, 256)), np.zeros((17, 256))
        for rank in range(2):
            part = problem_of(cell, features, rank, experts=6, ep=2)
            if rank and shared:
                part.topk_ids[:, -1] = part.sentinel
            seen = observed(part)
            assert seen.verdict.passed, seen.verdict.message
            total += as_float(seen.output)
            bound += seen.expected.bound
        expect = expected(whole, nominal_pipeline(whole.case.cell))
        verdict = judge(total, replace(expect, bound=bound))
        assert verdict.passed, verdict.message


@pytest.mark.parametrize("cell", ROWWISE)
class TestSharedExperts:
    """Shared experts fused into the routed call."""

    def test_is_the_shared_expert_apart(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """The fused result is the routed one and the shared expert's own, computed apart, added."""
        fused = problem_of(cell, Features(shared_experts=1))
        routed = problem_of(cell)
        pipeline = nominal_pipeline(fused.case.cell)
        apart = evaluate(
            fused.hidden,
            fused.topk_ids[:, -1:],
            fused.topk_weights[:, -1:].astype(np.float64),
            {fused.sentinel - 1: fused.expert(fused.sentinel - 1)},
            fused.activation,
            pipeline,
            np.arange(fused.case.tokens),
            fused.static_scales,
        )
        alone = expected(routed, pipeline)
        both = Expected(
            alone.tokens,
            alone.values + apart.values,
            alone.bound + apart.bound,
            alone.fragile | apart.fragile,
        )
        verdict = judge(as_float(observed(fused).output), both)
        assert verdict.passed, verdict.message
        assert not judge(as_float(observed(routed).output), both).passed


def reordered(packed: Packed, order: torch.Tensor) -> Packed:
    """Return the input with its tokens in another order."""
    return replace(
        packed,
        hidden_states=packed.hidden_states[order].contiguous(),
        topk_ids=packed.topk_ids[order].contiguous(),
        topk_weights=packed.topk_weights[order].contiguous(),
    )


@pytest.mark.parametrize("cell", CELLS)
class TestOrder:
    """Order of tokens, of slots and of experts."""

    def test_tokens(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Tokens in another order give the same rows, bit for bit."""
        problem = problem_of(cell)
        packed = pack(problem)
        order = torch.from_numpy(np.random.default_rng(0).permutation(17))
        straight = observed(problem, packed=packed).output
        turned = observed(problem, packed=reordered(packed, order)).output
        assert torch.equal(turned, straight[order])

    def test_slots(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Which of a token's slots names which of its experts does not matter."""
        problem = problem_of(cell)
        packed = pack(problem)
        swapped = replace(
            packed,
            topk_ids=packed.topk_ids.flip(1).contiguous(),
            topk_weights=packed.topk_weights.flip(1).contiguous(),
        )
        assert observed(problem, packed=swapped).verdict.passed

    def test_experts(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Experts in another order, with ids to match, give the right numbers; without, wrong ones."""
        problem = problem_of(cell)
        right = expected(problem, nominal_pipeline(problem.case.cell))
        ids = problem.topk_ids.copy()
        problem.topk_ids[:] = (problem.topk_ids + 1) % 5  # the next expert's weights for everyone
        packed = pack(problem)
        verdict = judge(as_float(observed(problem, packed=packed).output), right)
        assert verdict.broken is Rule.ELEMENT
        problem.topk_ids[:] = ids
        assert observed(problem, packed=replace(packed, topk_ids=torch.from_numpy(ids))).verdict.passed


@pytest.mark.parametrize("cell", CELLS)
class TestUnread:
    """Bytes that must not matter."""

    def test_inputs_are_left_alone(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """No input is changed (vllm-project/vllm#28942)."""
        problem = problem_of(cell)
        packed, before = pack(problem), pack(problem)
        observed(problem, packed=packed)
        for name in ("hidden_states", "topk_weights", "topk_ids", "w1", "w2"):
            now, then = (getattr(p, name).contiguous().view(torch.uint8) for p in (packed, before))
            assert torch.equal(now, then), name

    def test_output_is_overwritten(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """The output held NaN everywhere before, and holds none after."""
        assert torch.isfinite(observed(problem_of(cell)).output).all()

    def test_idle_experts(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Weights of an expert without tokens may be anything: NaN in its scales or bits changes nothing."""
        problem = problem_of(cell)
        clean, packed = pack(problem), pack(problem)
        assert 4 not in problem.topk_ids
        if "w1_scale" in packed.quant and packed.quant["w1_scale"].is_floating_point():
            for name in ("w1_scale", "w2_scale"):
                packed.quant[name][4] = torch.nan
        elif "w1_scale" in packed.quant:  # e8m0: rows of the last expert, whole tiles of 32
            for name, rows in (("w1_scale", 512), ("w2_scale", 256)):
                packed.quant[name][4 * rows : 5 * rows] = 255
        else:
            packed.w1[4] = torch.nan
        assert torch.equal(observed(problem, packed=packed).output, observed(problem, packed=clean).output)

    def test_scale_padding(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """NaN in the padding of e8m0 scales changes nothing: AITER leaves those bytes uninitialised."""
        problem = problem_of(cell, experts=3, intermediate=128, hidden=256)
        packed, clean = pack(problem), pack(problem)
        scale = packed.quant.get("w1_scale")
        if scale is not None and scale.dtype == torch.uint8 and scale.shape[0] > 3 * 256:
            scale[3 * 256 :] = 255
        assert torch.equal(observed(problem, packed=packed).output, observed(problem, packed=clean).output)

    def test_lost_mark(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Re-wrapped weights lose ``is_shuffled``: kernels that go by it read nonsense, and are called."""
        problem = problem_of(cell)
        packed = pack(problem)
        wrapped = replace(packed, w1=packed.w1.detach(), w2=packed.w2.detach())
        verdict = observed(problem, packed=wrapped).verdict
        reads_mark = "int4" not in cell
        assert verdict.passed != reads_mark


@pytest.mark.parametrize("cell", CELLS)
class TestZeroRows:
    """Rows without an expert."""

    def test_padding_rows(
        self, cell: str, subject: Subject, problem_of: ProblemOf, observed: Observed
    ) -> None:
        """A row of ids -1 is exactly zero, and its neighbours are right (CASES C6)."""
        problem = problem_of(cell)
        problem.topk_ids[3] = -1
        verdict = observed(problem).verdict
        if "negative-topk-ids" in subject.differences:
            assert verdict.broken is Rule.NOT_ZERO
        else:
            assert verdict.passed, verdict.message

    def test_rows_of_other_ranks(self, cell: str, problem_of: ProblemOf, observed: Observed) -> None:
        """A row whose experts are all held elsewhere, or are the sentinel, is exactly zero."""
        problem = problem_of(cell, rank=1, experts=6, ep=2)
        problem.topk_ids[2] = [0, 1]
        problem.topk_ids[5] = problem.sentinel
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message
        assert not seen.output[[2, 5]].any()


def test_live_columns_only(problem_of: ProblemOf) -> None:
    """Dead columns of the output are left out of the verdict."""
    problem = problem_of("gfx950/bf16/silu/out", hidden_pad=16)
    expect = expected(problem, nominal_pipeline(problem.case.cell))
    assert live(expect, problem).values.shape == (17, 240)
