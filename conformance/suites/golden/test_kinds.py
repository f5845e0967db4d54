"""Kinds of failure that were seen in public, where numbers show them and no other golden test has them.

conformance/docs/numerics.md lists all kinds with their tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aiter_conformance.contract import SCHEME_CONFIGS
from aiter_conformance.golden import (
    AITER_RELEASE,
    Observation,
    apply_leaf,
    environment_of,
    live_rows,
    moe_config_spec,
    observe,
)
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.formats import E4M3FN
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.layout import WeightLayout, pack_scales, pack_weights, shuffle_16x16
from aiter_conformance.numerics.oracle import evaluate, expected
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.pipeline import mx_pipeline
from aiter_conformance.numerics.quantise import quantise_mx
from aiter_conformance.numerics.verdict import Rule, Verdict, judge
from aiter_conformance.numerics.weights import WEIGHT_ROUNDING, ExpertWeights
from aiter_conformance.protocols import KernelCall, Subject
from aiter_conformance.providers.reference import ReferenceProvider
from aiter_conformance.providers.reference_families import FamilyRefusal
from aiter_conformance.simulated_aiter import simulate

ProblemOf = Callable[..., Problem]
Observed = Callable[..., Observation]
Changed = Callable[[Problem, Mapping[str, Any]], Verdict]


class TestShapeRule:
    """A shape that a scheme's kernels do not take (vllm#48173, ATOM#442, rocm-libraries#7920)."""

    @pytest.mark.parametrize(
        ("cell", "width", "message"),
        [
            ("gfx942/fp8-block/silu/out", 192, r"multiple of 128 \(got N = 192\)"),
            ("gfx950/bf16/silu/out", 96, r"multiple of 64 \(got N = 96\)"),
            ("gfx950/bf16/silu/out", 320, r"multiple of 128 \(got N = 320\)"),
        ],
    )
    def test_is_refused(
        self, cell: str, width: int, message: str, problem_of: ProblemOf, subject: Subject
    ) -> None:
        """The kernel model refuses it and says which multiple it must be: never numbers of some kind."""
        problem = problem_of(cell, intermediate=width if "bf16" in cell else 256)
        provider = provider_for(problem.case.cell)

        def compute(call: KernelCall) -> torch.Tensor:
            arguments = dict(call.arguments)
            for name, half in (("w1", 2 * width), ("w2", width)):
                axis = 1 if name == "w1" else 2
                arguments[name] = arguments[name].narrow(axis, 0, half)
            return provider.compute(KernelCall(call.entry, arguments), problem.case.cell.arch)

        with pytest.raises(FamilyRefusal, match=message):
            apply_leaf(problem, pack(problem), subject, compute)


class TestPads:
    """Pads doubled twice, or a convention of another family (vllm#42098, #45942, aiter#3401)."""

    @pytest.mark.parametrize(
        ("cell", "pads", "change"),
        [
            ("gfx950/mxfp4-w4a4/silu/out", {"intermediate_pad": 64}, {"intermediate_pad": 128}),
            ("gfx950/mxfp4-w4a16/situ/out", {"intermediate_pad": 64}, {}),
            ("gfx950/mxfp4-w4a4/silu/out", {"hidden_pad": 128}, {"hidden_pad": 192}),
        ],
        ids=["doubled", "not-read", "hidden"],
    )
    def test_convention(
        self, cell: str, pads: dict[str, int], change: dict[str, Any], problem_of: ProblemOf, changed: Changed
    ) -> None:
        """The leaf's own pads are right; more than is dead is called; SiTU's a16w4 kernels read none."""
        problem = problem_of(cell, **pads)
        assert changed(problem, {}).passed
        if change:
            assert changed(problem, change).broken is Rule.ELEMENT


class TestShuffle:
    """A tag that is lost, a second shuffle on reload (sglang#28244, #28963, vllm#31258).

    The lost tag: test_invariants, TestUnread.test_lost_mark.
    """

    @pytest.mark.parametrize("cell", ["gfx950/bf16/silu/out", "gfx942/fp8-block/silu/out"])
    @pytest.mark.parametrize("which", ["w1", "w2"])
    def test_shuffled_twice(self, cell: str, which: str, problem_of: ProblemOf, observed: Observed) -> None:
        """Weights that were shuffled on load and again on reload are called."""
        problem = problem_of(cell)
        packed = pack(problem)
        weight = getattr(packed, which)
        units = weight.view(torch.int16 if weight.element_size() > 1 else torch.uint8)
        twice = torch.from_numpy(shuffle_16x16(units.numpy())).view(weight.dtype)
        vars(twice)["is_shuffled"] = True
        assert observed(problem, packed=packed).verdict.passed
        assert observed(problem, packed=replace(packed, **{which: twice})).verdict.broken is Rule.ELEMENT


class TestQuantisedInSilence:
    """Activations that another type is made of than the scheme's name says (w4a16 from 256 tokens on)."""

    @pytest.mark.parametrize(
        ("cell", "tokens", "activations"),
        [
            ("gfx950/mxfp4-w4a16/swigluoai/out", 255, "bf16"),
            ("gfx950/mxfp4-w4a16/swigluoai/out", 256, "fp8"),
            ("gfx950/mxfp4-w4a16/silu/out", 257, "fp8"),
            ("gfx950/mxfp4-w4a4/swigluoai/out", 255, "bf16"),
            ("gfx950/mxfp4-w4a4/swigluoai/out", 256, "fp4"),
        ],
    )
    def test_pipeline(
        self, cell: str, tokens: int, activations: str, problem_of: ProblemOf, subject: Subject
    ) -> None:
        """On both sides of the bound the numbers are those of one pipeline and of no other."""
        problem = problem_of(cell, Features(dispatched=True), tokens=tokens, hidden=128, intermediate=128)
        provider = ReferenceProvider("dispatched")
        right = mx_pipeline(problem.case.cell, activations)
        seen = observe(problem, subject, provider, pipeline=right)
        assert seen.verdict.passed, seen.verdict.message
        others = {"bf16", "fp8", "fp4"} - {activations}
        verdicts = [
            judge(live_rows(seen.output, problem), expected(problem, mx_pipeline(problem.case.cell, other)))
            for other in sorted(others)
        ]
        assert [verdict.broken for verdict in verdicts] == [Rule.ELEMENT, Rule.ELEMENT]


class TestSharedApart:
    """A shared expert in tensors of its own: MXFP8 weights beside MXFP4 ones (aiter/fhmoe.py)."""

    def shared(self, problem: Problem) -> ExpertWeights:
        """Return a shared expert's weights, quantised to MXFP8: finer than the problem's own."""
        cell = replace(problem.case.cell, scheme="bf16")
        fine = replace(problem, case=replace(problem.case, cell=cell))
        made = fine.expert(problem.shared_experts[0])
        w1, w2 = (quantise_mx(w.values(), E4M3FN, WEIGHT_ROUNDING) for w in (made.w1, made.w2))
        return ExpertWeights(w1, w2, None, None)

    def tensors(self, weights: ExpertWeights, interleaved: bool) -> dict[str, torch.Tensor]:
        """Return the four tensors and the id of the dispatcher's call."""
        tensors: dict[str, torch.Tensor] = {}
        for name, part, apart in (("w1", weights.w1, interleaved), ("w2", weights.w2, False)):
            layout = WeightLayout("fp8", apart, "e8m0")
            codes = pack_weights(part.codes[None], layout)
            tensors[f"shared_{name}"] = torch.from_numpy(codes).view(torch.float8_e4m3fn)
            scales = pack_scales(np.asarray(part.scales)[None], layout)
            tensors[f"shared_{name}_scale"] = torch.from_numpy(scales)
        return tensors

    def call(self, subject: Subject, problem: Problem, packed: Packed, **more: Any) -> torch.Tensor:
        """Return what the dispatcher makes of a call with the leaf's own configuration and more arguments."""
        cell = problem.case.cell
        provider = provider_for(cell)
        with subject.environment(cell.arch, environment_of(problem), simulate(AITER_RELEASE)):
            api = subject.api
            mode = "interleave" if cell.scheme == "mxfp4-w4a16" else "separated"
            with subject.recording(lambda call: provider.compute(call, cell.arch)):
                result: torch.Tensor = api.rocm_aiter_fused_experts(
                    **{name: getattr(packed, name) for name in ("hidden_states", "w1", "w2")},
                    **{name: getattr(packed, name) for name in ("topk_weights", "topk_ids")},
                    moe_config=subject.moe_config(moe_config_spec(problem)),
                    quant_config=subject.quant_config(SCHEME_CONFIGS[cell.scheme], packed.quant),
                    quant_method=api.QuantMethod.BLOCK_1X32,
                    activation=api.MoEActivation.SILU,
                    gate_mode_override=mode,
                    **more,
                )
        return result

    @pytest.mark.parametrize(("scheme", "activations"), [("mxfp4-w4a16", "fp8"), ("mxfp4-w4a4", "fp4")])
    def test_is_the_mixture(
        self, scheme: str, activations: str, problem_of: ProblemOf, subject: Subject
    ) -> None:
        """The result is the mixture with the shared expert's own weights; without them it is not."""
        if "one-dispatcher" in subject.differences:
            pytest.skip(f"{subject.name} {subject.version} is listed to have no such parameters")
        problem = problem_of(f"gfx950/{scheme}/silu/out", Features(shared_experts=1))
        packed, shared = pack(problem), self.shared(problem)
        experts = {expert: problem.expert(expert) for expert in problem.held_experts}
        last = problem.shared_experts[0]
        expect = evaluate(
            problem.hidden,
            problem.topk_ids,
            problem.topk_weights.astype(np.float64),
            experts | {last: shared},
            problem.activation,
            mx_pipeline(problem.case.cell, activations),
            np.arange(problem.case.tokens),
        )
        own = self.tensors(shared, scheme == "mxfp4-w4a16") | {"shared_expert_id": last}
        right = self.call(subject, problem, packed, **own)
        verdict = judge(live_rows(right, problem), expect)
        assert verdict.passed, verdict.message
        assert not judge(live_rows(self.call(subject, problem, packed), problem), expect).passed
        with pytest.raises(FamilyRefusal, match="shared_expert_id must be that of the last"):
            self.call(subject, problem, packed, **(own | {"shared_expert_id": 0}))
