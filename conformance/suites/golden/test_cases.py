"""Public reports whose harm is in the numbers, with their exact inputs where a small one has them.

The calls that they are about are checked in the contract and property suites; here is what a kernel makes of
them. Reports about tuned rows, split-k and refused pairs have no numbers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aiter_conformance.checks.properties_shared_experts import Buffers, initialise
from aiter_conformance.golden import Observation, apply_leaf, live_rows
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.formats import E8M0_NAN
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.layout import pack_scales, weight_layouts
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, Verdict, judge
from aiter_conformance.protocols import Subject

ProblemOf = Callable[..., Problem]
Observed = Callable[..., Observation]
Changed = Callable[[Problem, Mapping[str, Any]], Verdict]

GPT_OSS = "gfx950/mxfp4-w4a16/swigluoai/out"


class TestC2:
    """vllm-project/vllm#44679, #46201: gpt-oss padded to 256; no kernel masks more rows than are dead.

    One partition and expert parallelism, where the contract doubles the pad, are in the ledger.
    """

    @pytest.mark.parametrize("tp", [2, 4, 8])
    def test_partitions(self, tp: int, problem_of: ProblemOf, observed: Observed) -> None:
        """With tensor parallelism the pads that reach CK-Tile mask dead rows only."""
        problem = problem_of(GPT_OSS, intermediate=256 * tp, tp=tp, intermediate_pad=96, hidden_pad=64)
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message
        assert seen.calls[0].arguments["intermediate_pad"] == 64


class TestC3:
    """vllm-project/vllm#44893: w4a16 weights are shuffled interleaved, and the call says so."""

    @pytest.mark.parametrize("mode", ["", "separated"])
    def test_gate_mode(self, mode: str, problem_of: ProblemOf, changed: Changed) -> None:
        """Interleaved weights read as separated give wrong numbers, whether the mode is wrong or not said."""
        problem = problem_of(GPT_OSS)
        assert changed(problem, {"gate_mode": "interleave"}).passed
        assert changed(problem, {"gate_mode": mode}).broken is Rule.ELEMENT


class TestC4:
    """vllm-project/vllm#49758, #29773: 8 experts on 2 ranks, rank 1. Sums over ranks: test_invariants."""

    MASK = (0, 0, 0, 0, 1, 1, 1, 1)

    @pytest.mark.parametrize("shared", [0, 1])
    def test_mask(self, shared: int, problem_of: ProblemOf, observed: Observed) -> None:
        """The mask has the rank's own experts, shared ones, and 0 for the sentinel; the numbers are right."""
        problem = problem_of("gfx950/bf16/silu/out", Features(shared_experts=shared), 1, experts=8, ep=2)
        seen = observed(problem)
        assert seen.calls[0].arguments["expert_mask"].tolist() == [*self.MASK, *[1] * shared, 0]
        assert seen.verdict.passed, seen.verdict.message

    @pytest.mark.parametrize(
        "mask",
        [
            pytest.param([-1, -1, -1, -1, 0, 1, 2, 3, -1], id="index-map"),
            pytest.param([1] * 8 + [0], id="all-ones"),
            pytest.param([1, 1, 1, 1, 0, 0, 0, 0, 0], id="inverted"),
            pytest.param([0, 0, 0, 1, 1, 1, 1, 0, 0], id="shifted"),
        ],
    )
    def test_wrong_mask(self, mask: list[int], problem_of: ProblemOf, changed: Changed) -> None:
        """An expert map of vLLM's own, a mask of ones, and one of other experts are called."""
        problem = problem_of("gfx950/bf16/silu/out", rank=1, experts=8, ep=2)
        wrong = torch.tensor(mask, dtype=torch.int32)
        assert not changed(problem, {"expert_mask": wrong}).passed


class TestC5:
    """vllm-project/vllm#53261: tokens per expert [0, 5, 3, 0] of M 8 are no number of rows."""

    COUNTS = (0, 5, 3, 0)

    def test_every_row_counts(self, subject: Subject, problem_of: ProblemOf) -> None:
        """All eight rows are right; a subject that hands the counts on loses every one of them."""
        problem = problem_of("gfx950/bf16/silu/out", experts=4, tokens=8)
        provider = provider_for(problem.case.cell)
        output, _ = apply_leaf(
            problem,
            pack(problem),
            subject,
            lambda call: provider.compute(call, "gfx950"),
            expert_num_tokens=torch.tensor(self.COUNTS, dtype=torch.int32),
        )
        verdict = judge(live_rows(output, problem), expected(problem, nominal_pipeline(problem.case.cell)))
        if "num-local-tokens-vector" in subject.differences:
            assert verdict.broken is Rule.NOT_FINITE
        else:
            assert verdict.passed, verdict.message

    @pytest.mark.parametrize("count", [0, 5])
    def test_rows_beyond_are_lost(self, count: int, problem_of: ProblemOf, changed: Changed) -> None:
        """What reaches the kernel as a number of rows is taken for one."""
        problem = problem_of("gfx950/bf16/silu/out", experts=4, tokens=8)
        rows = torch.tensor([count, *self.COUNTS[1:]], dtype=torch.int32)
        assert changed(problem, {"num_local_tokens": rows}).broken is Rule.NOT_FINITE


class TestC6:
    """vllm-project/vllm#57036: ids [[-1, -1], [0, 3]] of 4 experts."""

    @pytest.mark.parametrize("ep", [1, 2])
    def test_padding_row(self, ep: int, subject: Subject, problem_of: ProblemOf, observed: Observed) -> None:
        """Row 0 is exactly zero and row 1 right, with and without an expert mask."""
        problem = problem_of("gfx950/bf16/silu/out", experts=4, tokens=2, ep=ep)
        problem.topk_ids[:] = [[-1, -1], [0, 3]]
        seen = observed(problem)
        if "negative-topk-ids" in subject.differences:
            assert seen.verdict.broken is Rule.NOT_ZERO
        else:
            assert seen.verdict.passed, seen.verdict.message
            assert not seen.output[0].any()


class TestC8:
    """ROCm/aiter#2191: w4a4 with I384, whose 12 scale groups are padded to 16 (H3072 in the selftests)."""

    @pytest.mark.parametrize("tokens", [1, 33])
    def test_padded_groups(self, tokens: int, problem_of: ProblemOf, observed: Observed) -> None:
        """NaN in the groups and rows that are padding changes nothing."""
        problem = problem_of("gfx950/mxfp4-w4a4/silu/out", tokens=tokens, intermediate=384)
        packed = pack(problem)
        layouts = weight_layouts("mxfp4-w4a4", "silu")
        made = [problem.expert(expert) for expert in problem.held_experts]
        for name, layout in zip(("w1", "w2"), layouts, strict=True):
            scales = np.stack([np.asarray(getattr(weights, name).scales) for weights in made])
            packed.quant[f"{name}_scale"] = torch.from_numpy(pack_scales(scales, layout, fill=E8M0_NAN))
        assert packed.quant["w2_scale"].shape == (5 * 256, 16)
        assert int((packed.quant["w2_scale"] == E8M0_NAN).sum()) == 5 * 256 * 4
        seen = observed(problem, packed=packed)
        assert seen.verdict.passed, seen.verdict.message


# Intermediate size of a bf16 layer -> what is allocated for it.
C9 = {64: 64, 96: 128, 150: 192, 192: 192, 193: 256, 224: 256, 384: 384, 704: 768, 1408: 1408}


class TestC9:
    """vllm-project/vllm#55368: bf16 sizes as allocated."""

    @pytest.mark.parametrize(("width", "allocated"), C9.items())
    def test_padded(self, width: int, allocated: int, problem_of: ProblemOf, observed: Observed) -> None:
        """The rows that padding adds change nothing."""
        problem = problem_of(
            "gfx950/bf16/silu/out",
            experts=3,
            hidden=128,
            tokens=5,
            intermediate=allocated,
            intermediate_pad=allocated - width,
        )
        seen = observed(problem)
        assert seen.verdict.passed, seen.verdict.message


class TestC11:
    """ROCm/aiter#3807: fp8 of the arch's flavour, in every scheme that has fp8."""

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    @pytest.mark.parametrize(
        "scheme", ["fp8-block", "fp8-tensor-static", "fp8-tensor-dynamic", "fp8-channel"]
    )
    def test_flavour(self, arch: str, scheme: str, problem_of: ProblemOf, observed: Observed) -> None:
        """The arch's own flavour is right, the other one is called, though it differs by a factor alone."""
        problem = problem_of(f"{arch}/{scheme}/silu/out")
        packed = pack(problem)
        assert observed(problem, packed=packed).verdict.passed
        flavours = {torch.float8_e4m3fn, torch.float8_e4m3fnuz}
        (other,) = flavours - {packed.w1.dtype}
        weights = [w.view(other) for w in (packed.w1, packed.w2)]
        for weight in weights:
            vars(weight)["is_shuffled"] = True
        misread = replace(packed, w1=weights[0], w2=weights[1])
        assert observed(problem, packed=misread).verdict.broken in (Rule.ELEMENT, Rule.NOT_FINITE)


class TestC12:
    """vllm-project/vllm#54732: the shared-expert buffer, through which routed and shared experts go together.

    CASES' kind "slots never filled, weights skipped, id counted invalid" is here too.
    """

    def routed(self, subject: Subject, problem: Problem, spoil: str = "") -> Packed:
        """Return the problem's tensors, routing merged by the subject's own functions, a slot spoiled."""
        packed, case = pack(problem), problem.case
        with subject.environment(case.cell.arch):
            buffers = Buffers(case.experts, 1, case.topk, max_num_tokens=64)
            weights, ids = initialise(subject, buffers)
            merged = subject.api.inject_shared_expert_weights(
                packed.topk_weights[:, : case.topk].to(weights.device),
                packed.topk_ids[:, : case.topk].to(ids.device),
                case.topk,
                1,
            )
            found, named = (tensor.cpu().clone() for tensor in merged)
        if spoil == "slot-never-filled":
            found[:, -1] = 0.0
        if spoil == "weight-skipped":
            found[:, -1] = 0.5
        if spoil == "id-counted-invalid":
            named[:, -1] = -1
        if spoil == "expert-twice":
            named[:, 0], found[:, 0] = named[:, -1], found[:, -1]
        return replace(packed, topk_weights=found, topk_ids=named)

    def test_right(self, subject: Subject, problem_of: ProblemOf, observed: Observed) -> None:
        """What the buffers hold after routing is what the kernel needs for the right numbers."""
        problem = problem_of("gfx950/bf16/silu/out", Features(shared_experts=1))
        packed = self.routed(subject, problem)
        assert packed.topk_ids.tolist() == problem.topk_ids.tolist()
        assert observed(problem, packed=packed).verdict.passed

    @pytest.mark.parametrize(
        "spoil", ["slot-never-filled", "weight-skipped", "id-counted-invalid", "expert-twice"]
    )
    def test_spoiled(self, spoil: str, subject: Subject, problem_of: ProblemOf, observed: Observed) -> None:
        """A shared expert that is left out, weighed wrongly, counted invalid or run twice is called."""
        problem = problem_of("gfx950/bf16/silu/out", Features(shared_experts=1))
        assert not observed(problem, packed=self.routed(subject, problem, spoil)).verdict.passed
