"""One call of a leaf's ``apply`` from a description, and what it led to.

The two subjects share ``apply``; the dispatcher below it has another signature in vLLM 0.33.0. So everything
that is asserted of dispatch goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from aiter_conformance.checks.report import Report
from aiter_conformance.contract import SCHEME_CONFIGS, leaf_of_scheme
from aiter_conformance.protocols import ENABLED, FoundAiter, KernelCall, MoEConfigSpec, Subject
from aiter_conformance.simulated_aiter import simulate

# An AITER that has all that the generated calls need, SITU and gate modes among them.
NEWEST_KNOWN = "0.1.20"
# Arch on which the leaf of a scheme runs.
ARCH_OF_SCHEME = {"mxfp4-w4a16": "gfx950", "mxfp4-w4a4": "gfx950", "int4-w4a16": "gfx942"}
_FP8_OF_ARCH = {"gfx942": torch.float8_e4m3fnuz}


@cache
def found_aiter() -> FoundAiter:
    """Return the simulated AITER of these checks; the kernel calls are recorded before they reach it."""
    return simulate(NEWEST_KNOWN)


@dataclass(frozen=True, slots=True)
class LeafCase:
    """One call of ``apply``.

    Attributes:
        scheme: Name of a scheme; it decides leaf, arch and quant config.
        config: The layer. ``num_experts`` is the model's count, ``experts_per_token`` the width of the ids.
        ids: Expert ids, one row a token; negative ones mark padding rows.
        ids_dtype: torch name of the dtype of the ids.
        weights_dtype: torch name of the dtype of the router weights.
        masked: Whether an expert mask is given.
        on_input: Whether router weights apply to the input.
        local_tokens: Values of ``expert_num_tokens``; None: no metadata; ``()``: metadata without it.
        packed: Whether hidden states come as packed ``float4_e2m1fn_x2``.
        device: Device of all tensors; ``meta`` has no values, so that whoever reads one is found out.
    """

    scheme: str
    config: MoEConfigSpec
    ids: tuple[tuple[int, ...], ...]
    ids_dtype: str = "int32"
    weights_dtype: str = "float32"
    masked: bool = False
    on_input: bool = False
    local_tokens: tuple[int, ...] | None = None
    packed: bool = False
    device: str = "cpu"

    @property
    def arch(self) -> str:
        """Arch on which the case runs."""
        return ARCH_OF_SCHEME.get(self.scheme, "gfx950")

    @property
    def moe_tp_size(self) -> int:
        """The tp_size of the layer (SPEC 9): all ranks share the rows, or with EP none do."""
        where = self.config.parallel
        ranks = where.dp * where.pcp * where.tp
        return 1 if where.use_ep else ranks

    @property
    def intermediate(self) -> int:
        """Intermediate size per partition."""
        return self.config.intermediate_size // self.moe_tp_size

    @property
    def tokens(self) -> int:
        """Number of rows."""
        return len(self.ids)


@dataclass
class LeafRun:
    """What one call of ``apply`` was given, and what it led to.

    Attributes:
        inputs: Every tensor that the call was given, by name, plus the scales of the quant config.
        output: The tensor that the result was to be written to.
        calls: Kernel calls that were made.
        error: What ``apply`` raised, or None.
    """

    inputs: Mapping[str, torch.Tensor | None]
    output: torch.Tensor
    calls: list[KernelCall] = field(default_factory=list)
    error: Exception | None = None

    def compare_one_call(self, report: Report, where: str, entry: str = "fused_moe") -> bool:
        """Compare what ``apply`` did with one call of ``entry``, and say whether that is what it did."""
        wanted = f"one call of {entry}"
        made = ", ".join(f"one call of {call.entry}" for call in self.calls) or "no kernel call"
        got = made if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return report.compare(where, wanted, got)

    def outcome(self) -> list[KernelCall]:
        """Return the calls that ``apply`` made, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.calls


def leaf_inputs(case: LeafCase) -> dict[str, torch.Tensor | None]:
    """Build every tensor of a case; router weights are distinct, so that a moved one shows."""
    experts = case.config.num_experts
    hidden, intermediate = case.config.hidden_dim, case.intermediate
    width = case.config.experts_per_token
    fp8 = _FP8_OF_ARCH.get(case.arch, torch.float8_e4m3fn)
    if case.scheme == "bf16":
        weight_dtype, packing = torch.bfloat16, 1
    else:
        weight_dtype, packing = (torch.uint8, 2) if "4" in case.scheme else (fp8, 1)
    with torch.device(case.device):
        states = torch.zeros(case.tokens, hidden, dtype=torch.bfloat16)
        if case.packed:
            states = torch.zeros(case.tokens, hidden // 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        weights = (
            torch.arange(1, case.tokens * width + 1, dtype=torch.float64).reshape(case.tokens, width) / 256
        )
        scales = None if case.scheme == "bf16" else torch.ones(experts, 1, 1)
        local_tokens = torch.tensor(case.local_tokens, dtype=torch.int32) if case.local_tokens else None
        return {
            "hidden_states": states,
            "w1": torch.zeros(experts, 2 * intermediate, hidden // packing, dtype=weight_dtype),
            "w2": torch.zeros(experts, hidden, intermediate // packing, dtype=weight_dtype),
            "topk_weights": weights.to(getattr(torch, case.weights_dtype)),
            "topk_ids": torch.tensor(case.ids, dtype=getattr(torch, case.ids_dtype)).reshape(
                case.tokens, width
            ),
            "expert_map": torch.tensor([1] * experts + [0], dtype=torch.int32) if case.masked else None,
            "w1_scale": scales,
            "w2_scale": None if scales is None else scales.clone(),
            "expert_num_tokens": local_tokens,
        }


def run_leaf(
    subject: Subject, case: LeafCase, inputs: Mapping[str, torch.Tensor | None] | None = None
) -> LeafRun:
    """Call ``apply`` of the leaf of the case's scheme in an environment with AITER on, kernels recorded.

    Args:
        subject: The subject.
        case: The call.
        inputs: Tensors instead of those of `leaf_inputs`.
    """
    given = leaf_inputs(case) if inputs is None else inputs
    hidden = case.config.hidden_dim
    run = LeafRun(given, torch.empty(case.tokens, hidden, dtype=torch.bfloat16, device=case.device))
    with (
        subject.environment(case.arch, ENABLED, found_aiter()),
        subject.recording() as run.calls,
    ):
        try:
            _apply(subject, case, run)
        except Exception as error:  # the check says whether it should have come
            run.error = error
    return run


def _apply(subject: Subject, case: LeafCase, run: LeafRun) -> None:
    api, given = subject.api, run.inputs
    named = ((name, given[name]) for name in ("w1_scale", "w2_scale"))
    scales = {name: scale for name, scale in named if scale is not None}
    moe_config = subject.moe_config(case.config)
    quant_config = subject.quant_config(SCHEME_CONFIGS[case.scheme], scales)
    leaf = getattr(api, leaf_of_scheme(case.scheme).name)(moe_config, quant_config)
    metadata: Any = None
    if case.local_tokens is not None:
        metadata = api.ExpertTokensMetadata(
            expert_num_tokens=given["expert_num_tokens"], expert_num_tokens_cpu=None
        )
    empty = torch.empty(0, device=case.device)
    leaf.apply(
        output=run.output,
        hidden_states=given["hidden_states"],
        w1=given["w1"],
        w2=given["w2"],
        topk_weights=given["topk_weights"],
        topk_ids=given["topk_ids"],
        activation=api.MoEActivation(case.config.activation),
        global_num_experts=case.config.num_experts,
        expert_map=given["expert_map"],
        a1q_scale=None,
        a2_scale=None,
        workspace13=empty,
        workspace2=empty,
        expert_tokens_meta=metadata,
        apply_router_weight_on_input=case.on_input,
    )
