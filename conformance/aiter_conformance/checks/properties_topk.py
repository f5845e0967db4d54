"""Properties of ``rocm_aiter_grouped_topk`` (SPEC 10): what reaches AITER's operator, and the whole path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from aiter_conformance.checks.properties import (
    Reads,
    Untouched,
    compare_refusal,
    compare_tensors,
    content,
    share_memory,
)
from aiter_conformance.checks.properties_shared_experts import (
    ARCH,
    INIT,
    POISON_ID,
    Buffers,
    initialise,
    poison,
)
from aiter_conformance.checks.properties_shared_refusals import ADVICE
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import ENABLED, Subject
from aiter_conformance.topk_oracle import OpCall, Routed, Scoring, grouped_topk, simulate_routing

FUSION = {**ENABLED, "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
# float32 against float64 over a softmax of some dozens of experts and a division.
TOLERANCE = 2e-6


@dataclass(frozen=True, slots=True)
class Routing:
    """One call of ``rocm_aiter_grouped_topk``.

    Attributes:
        logits: Router logits, a row a token.
        topk: Experts a token.
        renormalize: Whether the weights are divided by their sum.
        groups: ``num_expert_group``.
        topk_groups: ``topk_group``.
        scoring: ``scoring_func``.
        scale: ``routed_scaling_factor``.
        bias: ``e_score_correction_bias``, or None.
        dtype: torch name of the dtype of logits and bias.
        shared: Shared experts that are fused; 0 is none.
        is_ep: Whether the buffers have the sentinel column.
        spare_rows: Rows of the buffers beyond the tokens.
    """

    logits: tuple[tuple[float, ...], ...]
    topk: int
    renormalize: bool = True
    groups: int = 1
    topk_groups: int = 1
    scoring: Scoring = "softmax"
    scale: float = 1.0
    bias: tuple[float, ...] | None = None
    dtype: str = "float32"
    shared: int = 0
    is_ep: bool = False
    spare_rows: int = 2

    @property
    def experts(self) -> int:
        """Routed experts."""
        return len(self.logits[0])

    @property
    def buffers(self) -> Buffers:
        """The initialisation that the call needs where shared experts are fused."""
        rows = len(self.logits) + self.spare_rows
        return Buffers(self.experts, self.shared, self.topk, 0, 2, 0.5, rows, self.is_ep)

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits and bias in the call's dtype."""
        dtype = getattr(torch, self.dtype)
        bias = None if self.bias is None else torch.tensor(self.bias, dtype=dtype, device=device)
        return torch.tensor(self.logits, dtype=dtype, device=device), bias

    def oracle(self) -> Routed:
        """Return where the rule sends the tokens, from the logits and bias as the call's dtype holds them."""
        logits, bias = self.tensors(torch.device("cpu"))
        return grouped_topk(
            logits.double().numpy(),
            self.topk,
            renormalize=self.renormalize,
            groups=self.groups,
            topk_groups=self.topk_groups,
            # The biased operator scores by sigmoid, whatever scoring_func says.
            scoring=self.scoring if bias is None else "sigmoid",
            scale=self.scale,
            bias=None if bias is None else bias.double().numpy(),
        )


def _call(subject: Subject, routing: Routing, logits: torch.Tensor, bias: torch.Tensor | None) -> Any:
    hidden = torch.zeros(len(logits), 16, dtype=torch.bfloat16, device=logits.device)
    return subject.api.rocm_aiter_grouped_topk(
        hidden,
        logits,
        routing.topk,
        routing.renormalize,
        routing.groups,
        routing.topk_groups,
        routing.scoring,
        routing.scale,
        bias,
        routing.shared,
    )


def check_routing_by_rule(subject: Subject, routing: Routing) -> Report:
    """Ids and weights are those of the rule, in fresh tensors or in the first columns of the buffers."""
    report = Report()
    found = simulate_routing()
    where = f"routing of {routing}"
    with subject.environment(ARCH, FUSION, found):
        pair = initialise(subject, routing.buffers) if routing.shared else None
        device = torch.device("cpu") if pair is None else pair[0].device
        logits, bias = routing.tensors(device)
        inputs = Untouched({"gating_output": logits, "e_score_correction_bias": bias})
        if pair is not None:
            poison(pair)
        with Reads() as reads:
            weights, ids = _call(subject, routing, logits, bias)
        report.compare(f"{where}: operations that read a value", [], reads.seen)
        inputs.compare(report, where)
    _compare_operator(report, where, routing, found.calls, logits)
    if pair is not None:
        _compare_buffers(report, where, routing, pair, (weights, ids))
    tokens = len(logits)
    width = routing.buffers.width if routing.shared else routing.topk
    faces = [(tuple(t.shape), t.dtype) for t in (weights, ids)]
    if report.compare(where, [((tokens, width), torch.float32), ((tokens, width), torch.int32)], faces):
        _compare_with_rule(report, where, routing, weights[:, : routing.topk], ids[:, : routing.topk])
    return report


def _compare_operator(
    report: Report, where: str, routing: Routing, calls: list[OpCall], logits: torch.Tensor
) -> None:
    """Compare the one operator call, tensors that are written to excepted, with what SPEC 10 asks for."""
    operator = "grouped_topk" if routing.bias is None else "biased_grouped_topk"
    if not report.compare(f"{where}: operators called", [operator], [call.operator for call in calls]):
        return
    got = calls[0].arguments
    wanted = {
        "num_expert_group": routing.groups,
        "topk_group": routing.topk_groups,
        "need_renorm": routing.renormalize,
        "routed_scaling_factor": routing.scale,
    }
    if routing.bias is None:
        wanted["is_softmax"] = routing.scoring == "softmax"
    else:
        bias = torch.tensor(routing.bias, dtype=getattr(torch, routing.dtype))
        compare_tensors(
            report, f"{where}: correction_bias", bias.float(), got["correction_bias"].cpu().float()
        )
    report.compare(f"{where}: arguments of {operator}", wanted, {name: got[name] for name in wanted})
    report.compare(f"{where}: the logits go in as they are", True, got["gating_output"] is logits)


def _compare_buffers(report: Report, where: str, routing: Routing, pair: Any, answer: Any) -> None:
    """Compare the answer with full-width views of the buffers, and every other slot with the poison."""
    tokens, topk = len(routing.logits), routing.topk
    for name, buffer, got in zip(("weights", "ids"), pair, answer, strict=True):
        report.compare(f"{where}: {name} are a view of the buffer", True, share_memory(buffer, got))
        report.compare(f"{where}: strides of the {name}", buffer.stride(), got.stride())
        rest = torch.ones_like(buffer, dtype=torch.bool)
        rest[:tokens, :topk] = False
        others = buffer[rest]
        poison = float("nan") if buffer.is_floating_point() else POISON_ID
        compare_tensors(
            report, f"{where}: slots that are not routed", torch.full_like(others, poison), others
        )


def _compare_with_rule(
    report: Report, where: str, routing: Routing, weights: torch.Tensor, ids: torch.Tensor
) -> None:
    """Compare (id -> weight) of each token: the order in which a token's experts are named is free."""
    rule = routing.oracle()
    for token, (names, values) in enumerate(zip(ids.tolist(), weights.tolist(), strict=True)):
        wanted = dict(zip(rule.ids[token].tolist(), rule.weights[token].tolist(), strict=True))
        if report.compare(f"{where}: experts of token {token}", sorted(wanted), sorted(names)):
            got = dict(zip(names, values, strict=True))
            far = {
                expert: (wanted[expert], got[expert])
                for expert in wanted
                if not np.isclose(got[expert], wanted[expert], rtol=TOLERANCE, atol=0.0)
            }
            report.compare(f"{where}: weights of token {token} off the rule", {}, far)


def check_fusion_off(subject: Subject, routing: Routing) -> Report:
    """With fusion switched off the result is fresh and topk wide, and the buffers are not looked at."""
    report = Report()
    where = f"routing of {routing} with fusion off"
    with subject.environment(ARCH, ENABLED, simulate_routing()):
        pair = initialise(subject, routing.buffers)
        before = Untouched({"weights": pair[0], "ids": pair[1]})
        logits, bias = routing.tensors(pair[0].device)
        weights, ids = _call(subject, routing, logits, bias)
        before.compare(report, where)
    shape = (len(logits), routing.topk)
    faces = [(tuple(t.shape), t.dtype) for t in (weights, ids)]
    if report.compare(where, [(shape, torch.float32), (shape, torch.int32)], faces):
        _compare_with_rule(report, where, routing, weights, ids)
    return report


def check_routing_then_injection(subject: Subject, routing: Routing) -> Report:
    """Routing into the buffers and then injecting gates fills every shared slot, in the same memory."""
    report = Report()
    where = f"injection after routing of {routing}"
    shared = slice(routing.topk, routing.topk + routing.shared)
    with subject.environment(ARCH, FUSION, simulate_routing()):
        pair = initialise(subject, routing.buffers)
        pair[0].fill_(float("nan"))
        logits, bias = routing.tensors(pair[0].device)
        answer = _call(subject, routing, logits, bias)
        gates = torch.arange(len(logits) * routing.shared, device=logits.device).reshape(len(logits), -1) / 8
        api = subject.api
        weights, ids = api.inject_shared_expert_weights(*answer, routing.topk, routing.shared, gates)
        for name, buffer, got in zip(("weights", "ids"), pair, (weights, ids), strict=True):
            report.compare(f"{where}: {name} are a view of the buffer", True, share_memory(buffer, got))
        compare_tensors(report, f"{where}: gates", gates.float(), weights[:, shared].clone())
        wanted = [row[: routing.shared] for row in routing.buffers.shared_ids()[: len(logits)]]
        report.compare(f"{where}: ids of the shared experts", wanted, ids[:, shared].tolist())
    _compare_with_rule(report, where, routing, weights[:, : routing.topk], ids[:, : routing.topk])
    return report


def check_routing_errors(subject: Subject, routing: Routing) -> Report:
    """Missing and too small buffers are refused before an operator runs, and nothing is written."""
    report = Report()
    found = simulate_routing()
    tokens = len(routing.logits)
    with subject.environment(ARCH, FUSION, found):
        logits, bias = routing.tensors(torch.device("cpu"))
        compare_refusal(
            report,
            subject,
            f"routing of {routing} without buffers",
            RuntimeError,
            lambda: _call(subject, routing, logits, bias),
            says=(INIT,),
        )
    rows = tokens - 1
    where = f"routing of {tokens} tokens into {rows} rows"
    with subject.environment(ARCH, FUSION, found):
        pair = initialise(subject, replace(routing.buffers, max_num_tokens=rows))
        poison(pair)
        before = [content(buffer) for buffer in pair]
        logits, bias = routing.tensors(pair[0].device)
        compare_refusal(
            report,
            subject,
            where,
            ValueError,
            lambda: _call(subject, routing, logits, bias),
            says=(str(rows), str(tokens)),
            advises=(INIT, "max_num_tokens"),
            advice_difference=ADVICE,
        )
        report.compare(f"{where}: buffers unchanged", True, before == [content(buffer) for buffer in pair])
    report.compare(f"operators called by {routing}", 0, len(found.calls))
    return report


def check_scoring(subject: Subject, routing: Routing, scoring: str) -> Report:
    """Any other scoring function is refused without a bias and not read with one."""
    report = Report()
    found = simulate_routing()
    with subject.environment(ARCH, FUSION, found):
        logits, bias = routing.tensors(torch.device("cpu"))

        def call(correction: torch.Tensor | None) -> Any:
            return subject.api.rocm_aiter_grouped_topk(
                torch.zeros(len(logits), 16),
                logits,
                routing.topk,
                routing.renormalize,
                routing.groups,
                routing.topk_groups,
                scoring,
                routing.scale,
                correction,
            )

        compare_refusal(report, subject, f"scoring_func {scoring!r}", ValueError, lambda: call(None))
        report.compare(f"operators called with scoring_func {scoring!r}", 0, len(found.calls))
        call(torch.zeros(routing.experts) if bias is None else bias)
        names = [made.operator for made in found.calls]
        report.compare(
            f"operators called with scoring_func {scoring!r} and a bias", ["biased_grouped_topk"], names
        )
    return report
