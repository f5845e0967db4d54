"""Grouped top-k routing: the rule in float64, and a simulated AITER whose operators follow it in torch.

The rule is DeepSeek's published one (DeepSeek-V2, arXiv 2405.04434, section 2.2; DeepSeek-V3, arXiv
2412.19437, section 2.1.2): experts are scored, groups are scored by their best expert (without a correction
bias) or by the sum of their best two (with one), experts outside of the best groups are out, the best experts
of what is left are chosen by biased score and weighted by unbiased score.

What this does and does not show. AITER's own operators run on AMD GPUs only, so in these checks they are
simulated: it is shown that a subject calls the right operator with the right arguments, that it hands over
the right columns, and that ids and weights of the whole path are those of the rule. That AITER's kernels
follow the rule is not shown, nor what they do at ties. AITER's own torch references (``*_torch`` in
aiter/ops/topk.py, v0.1.20.post1) agree with the rule where biased scores are positive; below zero they do not
keep to it, for they give dropped groups the score 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.simulated_aiter import simulate

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]
Scoring = Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class Routed:
    """Where the tokens go.

    Attributes:
        ids: (M, topk) expert ids, best first.
        weights: (M, topk) float64 router weights of those experts.
        margin: Smallest gap by which any decision was taken, in units of the score; inf without tokens. An
            implementation whose scores are off by less makes the same decisions.
    """

    ids: NDArray[np.int64]
    weights: Floats
    margin: float


def expert_scores(logits: Floats, scoring: Scoring) -> Floats:
    """Return the scores of logits (M, E): softmax over the experts, or sigmoid of each.

    Raises:
        ValueError: Another scoring function.
    """
    if scoring == "softmax":
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    if scoring == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
    msg = f"scoring must be softmax or sigmoid (got {scoring!r})"
    raise ValueError(msg)


def _best(values: Floats, n: int) -> tuple[list[int], float]:
    """Return the positions of the ``n`` largest values, largest first, and the gap to the next."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    # The order of the chosen does not matter, only who is chosen.
    gap = values[order[n - 1]] - values[order[n]] if n < len(order) else np.inf
    return order[:n], float(gap)


def grouped_topk(
    logits: Floats,
    topk: int,
    *,
    renormalize: bool,
    groups: int,
    topk_groups: int,
    scoring: Scoring,
    scale: float = 1.0,
    bias: Floats | None = None,
) -> Routed:
    """Route tokens by the rule, one token at a time.

    Args:
        logits: (M, E) float64.
        topk: Experts a token.
        renormalize: Whether the chosen weights are divided by their sum.
        groups: Number of groups; it divides E.
        topk_groups: Groups that a token may use.
        scoring: Scoring function; with a bias it is sigmoid.
        scale: ``routed_scaling_factor``; every weight is multiplied by it, at the end.
        bias: (E,) correction bias of the choice, or None.

    Raises:
        ValueError: The groups do not divide the experts, or hold too few of them.
    """
    tokens, experts = logits.shape
    if groups < 1 or experts % groups or not 0 < topk_groups <= groups:
        msg = f"groups must divide {experts} experts and hold topk_groups (got {groups} and {topk_groups})"
        raise ValueError(msg)
    size = experts // groups
    if topk > topk_groups * size:
        msg = f"topk must be at most {topk_groups * size}, the experts of {topk_groups} groups (got {topk})"
        raise ValueError(msg)
    scores = expert_scores(logits, scoring)
    ids = np.zeros((tokens, topk), dtype=np.int64)
    weights = np.zeros((tokens, topk))
    margin = np.inf
    for token in range(tokens):
        choice = scores[token] if bias is None else scores[token] + bias
        in_group = [np.sort(choice[g * size : (g + 1) * size])[::-1] for g in range(groups)]
        worth = np.array([best[0] if bias is None else best[:2].sum() for best in in_group])
        kept, group_gap = _best(worth, topk_groups)
        allowed = [expert for expert in range(experts) if expert // size in kept]
        chosen, expert_gap = _best(choice[allowed], topk)
        ids[token] = [allowed[i] for i in chosen]
        own = scores[token, ids[token]]
        weights[token] = (own / own.sum() if renormalize else own) * scale
        margin = min(margin, group_gap, expert_gap)
    return Routed(ids, weights, float(margin))


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of a simulated routing operator: its name, and every argument by parameter name."""

    operator: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class RoutingAiter:
    """A simulated AITER with the two routing operators, which compute and record."""

    version: str
    modules: Mapping[str, ModuleType]
    calls: list[OpCall] = field(default_factory=list)


def _route(
    choice: torch.Tensor,
    scores: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    worth: torch.Tensor,
    topk_groups: int,
) -> None:
    """Write the chosen ids and their scores into the given tensors, which also say how many."""
    import torch

    groups = worth.shape[1]
    kept = torch.zeros_like(worth, dtype=torch.bool)
    kept.scatter_(1, worth.topk(topk_groups, dim=1).indices, True)
    allowed = kept.repeat_interleave(choice.shape[1] // groups, dim=1)
    chosen = choice.masked_fill(~allowed, float("-inf")).topk(ids.shape[1], dim=1).indices
    ids.copy_(chosen)
    weights.copy_(scores.gather(1, chosen))


def _finish(weights: torch.Tensor, need_renorm: bool, scale: float) -> None:
    if need_renorm:
        weights.div_(weights.sum(dim=1, keepdim=True))
    weights.mul_(scale)


def _grouped_topk(
    gating_output: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    need_renorm: bool,
    is_softmax: bool = True,
    routed_scaling_factor: float = 1.0,
) -> None:
    logits = gating_output.float()
    scores = logits.softmax(dim=1) if is_softmax else logits.sigmoid()
    worth = scores.reshape(len(scores), num_expert_group, -1).amax(dim=2)
    _route(scores, scores, topk_weights, topk_ids, worth, topk_group)
    _finish(topk_weights, need_renorm, routed_scaling_factor)


def _biased_grouped_topk(
    gating_output: torch.Tensor,
    correction_bias: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    need_renorm: bool,
    routed_scaling_factor: float = 1.0,
) -> None:
    scores = gating_output.float().sigmoid()
    choice = scores + correction_bias.float()
    by_group = choice.reshape(len(choice), num_expert_group, -1)
    worth = by_group.topk(min(2, by_group.shape[2]), dim=2).values.sum(dim=2)
    _route(choice, scores, topk_weights, topk_ids, worth, topk_group)
    _finish(topk_weights, need_renorm, routed_scaling_factor)


OPERATORS: Mapping[str, Callable[..., None]] = {
    "grouped_topk": _grouped_topk,
    "biased_grouped_topk": _biased_grouped_topk,
}


def simulate_routing(version: str = "0.1.20") -> RoutingAiter:
    """Build a simulated AITER with both routing operators, in ``aiter`` and in ``aiter.ops.topk``.

    Their parameters are those of v0.1.7 to v0.1.20.post1, which have not changed (aiter/ops/topk.py).
    """
    base = simulate(version)
    topk = ModuleType("aiter.ops.topk")
    calls: list[OpCall] = []

    def recorded(name: str, compute: Callable[..., None]) -> Callable[..., None]:
        def operator(*args: Any, **kwargs: Any) -> None:
            bound = signature(compute).bind(*args, **kwargs)
            bound.apply_defaults()
            calls.append(OpCall(name, dict(bound.arguments)))
            compute(*args, **kwargs)

        return operator

    for name, compute in OPERATORS.items():
        operator = recorded(name, compute)
        setattr(topk, name, operator)
        setattr(base.modules["aiter"], name, operator)
    return RoutingAiter(base.version, {**base.modules, "aiter.ops.topk": topk}, calls)
