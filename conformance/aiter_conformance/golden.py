"""Runs one input through a leaf and a provider, and judges what comes out against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from aiter_conformance.contract import SCHEME_CONFIGS, leaf_of_scheme
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import Expected, expected
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.pipeline import Pipeline, pipeline_of
from aiter_conformance.numerics.verdict import Verdict, judge
from aiter_conformance.protocols import (
    ENABLED,
    FoundAiter,
    KernelCall,
    MoEConfigSpec,
    ParallelSpec,
    Provider,
    Subject,
)
from aiter_conformance.simulated_aiter import simulate

# AITER that a leaf finds: the newest whose interface takes every argument, so that only numbers decide.
AITER_RELEASE: Final = "0.1.20"

# The setting under which SiTU's kernels compute what the scheme's name says (SPEC 7).
SITU_SETTING: Final = {"mxfp4-w4a16": "a16w4", "mxfp4-w4a4": "a4w4", "int4-w4a16": "a16w4"}


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of one input.

    Attributes:
        output: The leaf's output, bfloat16 [M, K].
        calls: The kernel calls that the leaf made, one.
        expected: What the oracle says of the live columns.
        verdict: The verdict on them.
    """

    output: torch.Tensor
    calls: list[KernelCall]
    expected: Expected
    verdict: Verdict


def environment_of(problem: Problem) -> dict[str, str]:
    """Return the variables under which a leaf serves the problem."""
    cell = problem.case.cell
    setting = problem.features.situ or SITU_SETTING.get(cell.scheme)
    situ = setting if cell.activation == "situ" else None
    return dict(ENABLED) | ({} if situ is None else {"VLLM_ROCM_USE_AITER_MOE_SITUV2": situ})


def moe_config_spec(problem: Problem) -> MoEConfigSpec:
    """Return the ``FusedMoEConfig`` of the rank that a problem is about."""
    case, activation = problem.case, problem.activation
    ranks = max(case.tp, case.ep)
    return MoEConfigSpec(
        num_experts=case.experts,
        num_local_experts=len(problem.local_experts),
        experts_per_token=case.topk,
        hidden_dim=case.hidden,
        intermediate_size=case.intermediate,
        activation=case.cell.activation,
        parallel=ParallelSpec(tp=ranks, tp_rank=problem.rank, use_ep=case.ep > 1),
        hidden_dim_unpadded=problem.live_hidden,
        intermediate_size_per_partition_unpadded=problem.live_intermediate,
        swiglu_limit=problem.features.swiglu_limit,
        activation_situ_beta=activation.beta,
        activation_situ_linear_beta=activation.linear_beta,
        use_mxfp4_w4a4_dsv4=problem.features.dsv4,
    )


def apply_leaf(
    problem: Problem,
    packed: Packed,
    subject: Subject,
    result: Callable[[KernelCall], torch.Tensor] | None,
    *,
    env: Mapping[str, str] | None = None,
    installed: FoundAiter | None = None,
    expert_num_tokens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, list[KernelCall]]:
    """Call a leaf's ``apply`` with everything around it; the subject's own errors pass through.

    Args:
        problem: The input.
        packed: Its tensors.
        subject: The implementation.
        result: Computes the kernel call; None leaves it alone, so that it reaches the AITER that the
            subject finds.
        env: Variables; default those of `environment_of`.
        installed: The AITER that the subject finds; default a simulated one.
        expert_num_tokens: Tokens of each expert held here, int32 [E], as a modular kernel hands them on.

    Returns:
        (output, calls); no calls where they were left alone.
    """
    cell = problem.case.cell
    variables = environment_of(problem) if env is None else env
    with subject.environment(cell.arch, variables, installed or simulate(AITER_RELEASE)):
        api = subject.api
        config = subject.moe_config(moe_config_spec(problem))
        quant = subject.quant_config(SCHEME_CONFIGS[cell.scheme], packed.quant)
        leaf = getattr(api, leaf_of_scheme(cell.scheme).name)(config, quant)
        # Whatever is in the output beforehand must be overwritten.
        output = torch.full_like(packed.hidden_states, torch.nan)
        empty = packed.hidden_states.new_empty(0)
        counts = None
        if expert_num_tokens is not None:
            counts = api.ExpertTokensMetadata(expert_num_tokens, expert_num_tokens_cpu=None)
        with nullcontext([]) if result is None else subject.recording(result) as calls:
            leaf.apply(
                output=output,
                hidden_states=packed.hidden_states,
                w1=packed.w1,
                w2=packed.w2,
                topk_weights=packed.topk_weights,
                topk_ids=packed.topk_ids,
                activation=api.MoEActivation(cell.activation),
                global_num_experts=problem.case.experts,
                expert_map=packed.expert_mask,
                a1q_scale=None,
                a2_scale=packed.quant.get("a2_scale"),
                workspace13=empty,
                workspace2=empty,
                expert_tokens_meta=counts,
                apply_router_weight_on_input=cell.router == "in",
            )
    return output, list(calls)


def observe(
    problem: Problem,
    subject: Subject,
    provider: Provider,
    *,
    pipeline: Pipeline | None = None,
    packed: Packed | None = None,
) -> Observation:
    """Run a problem through a subject's leaf and a provider, and judge the live columns of the output.

    Args:
        problem: The input.
        subject: The implementation under test.
        provider: Who computes the kernel call.
        pipeline: How the kernel is to compute; default `pipeline_of` the problem.
        packed: Tensors to hand over instead of the problem's own.
    """
    arch = problem.case.cell.arch
    tensors = pack(problem) if packed is None else packed
    output, calls = apply_leaf(problem, tensors, subject, lambda call: provider.compute(call, arch))
    expect = live(expected(problem, pipeline or pipeline_of(problem)), problem)
    return Observation(output, calls, expect, judge(live_rows(output, problem), expect))


def live(expect: Expected, problem: Problem) -> Expected:
    """Return an expectation of the live columns only: what lies in dead ones concerns no one."""
    columns = slice(problem.live_hidden)
    return Expected(expect.tokens, expect.values[:, columns], expect.bound[:, columns], expect.fragile)


def live_rows(output: torch.Tensor, problem: Problem) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the live columns of an output as float64."""
    return output[:, : problem.live_hidden].to(torch.float64).numpy()
