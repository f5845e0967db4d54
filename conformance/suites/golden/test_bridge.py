"""The whole way: leaf, dispatcher, custom operator, bridge, and AITER's own functions, which compute here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aiter_conformance.golden import AITER_RELEASE, apply_leaf, live, live_rows
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import pack
from aiter_conformance.numerics.pipeline import pipeline_of
from aiter_conformance.numerics.verdict import judge
from aiter_conformance.protocols import KernelCall, Provider, Subject
from aiter_conformance.simulated_aiter import SimulatedAiter, simulate

ProblemOf = Callable[..., Problem]

# SPEC 7: AITER's names of the operators' parameters, where they differ.
NAMES = {
    "fused_moe": {
        "activation": "activation_method",
        "quant_type": "quant_method",
        "dtype": "output_dtype",
        "quant_dtype_a": "q_dtype_a",
    },
    "asm_moe_tkw1": {"activation": "activation_method", "topk_weight": "topk_weights"},
}

CASES = [
    ("gfx950/bf16/silu/out", Features(), {"experts": 6, "ep": 2}),
    ("gfx942/fp8-block/gelu/out", Features(), {}),
    ("gfx950/fp8-tensor-static/silu/in", Features(), {}),
    ("gfx942/fp8-tensor-dynamic/silu/out", Features(), {}),
    ("gfx950/fp8-channel/swigluoai/out", Features(), {}),
    ("gfx942/fp8-channel/silu/in", Features(), {}),
    ("gfx950/mxfp4-w4a16/swigluoai/out", Features(biases=True), {"tp": 2, "intermediate_pad": 64}),
    ("gfx950/mxfp4-w4a16/silu/out", Features(swiglu_limit=1.5), {}),
    ("gfx950/mxfp4-w4a4/situ/out", Features(), {}),
    ("gfx942/int4-w4a16/situ/out", Features(), {}),
]


def computing(provider: Provider, arch: str) -> SimulatedAiter:
    """Return a simulated AITER whose functions compute what they are called for."""
    installed = simulate(AITER_RELEASE)

    def wrapped(name: str, recorder: Any) -> Any:
        @functools.wraps(recorder)
        def function(*args: Any, **kwargs: Any) -> torch.Tensor:
            recorder(*args, **kwargs)
            given = installed.calls[-1].arguments
            arguments = {NAMES[name].get(key, key): value for key, value in given.items()}
            return provider.compute(KernelCall(name, arguments), arch)  # type: ignore[arg-type]

        return function

    for module, name in (("aiter.fused_moe", "fused_moe"), ("aiter.fused_moe_bf16_asm", "asm_moe_tkw1")):
        members = vars(installed.modules[module])
        members[name] = wrapped(name, members[name])
    return installed


@pytest.mark.parametrize(("cell", "features", "numbers"), CASES, ids=[case[0] for case in CASES])
class TestBridge:
    """One cell of each way through it."""

    def test_numbers(
        self,
        cell: str,
        features: Features,
        numbers: dict[str, int],
        problem_of: ProblemOf,
        subject: Subject,
    ) -> None:
        """AITER is called once, with its own names and what is not neutral, and the output is right."""
        sizes = {"intermediate": 512} if "tp" in numbers else {}
        problem = problem_of(cell, features, **(numbers | sizes))
        provider = provider_for(problem.case.cell, features)
        installed = computing(provider, problem.case.cell.arch)
        output, _ = apply_leaf(problem, pack(problem), subject, None, installed=installed)
        assert len(installed.calls) == 1
        expect = live(expected(problem, pipeline_of(problem)), problem)
        verdict = judge(live_rows(output, problem), expect)
        assert verdict.passed, verdict.message
