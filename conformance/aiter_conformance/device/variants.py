"""Which calls the device contract looks at: every leaf, each route, and what changes the work around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from aiter_conformance.axes import load_axes
from aiter_conformance.case import Case
from aiter_conformance.checks.properties_shared_experts import Buffers
from aiter_conformance.contract import leaf_of_scheme
from aiter_conformance.golden import live
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import Expected, evaluate
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.protocols import Entry
from aiter_conformance.topk_oracle import grouped_topk

# How the routed variants route: DeepSeek V3's way, small.
GROUPS: Final = 4
TOPK_GROUPS: Final = 2
SCALE: Final = 2.5
SHARED_SCORE: Final = 1.0
# Rows of the shared-expert buffers beyond the tokens of a call.
SPARE_ROWS: Final = 5

_TOKENS: Final = 17
_MARGIN: Final = 1e-5  # between scores of a token: float32 then decides as float64 does


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of call.

    Attributes:
        name: Short name.
        problem: Its weights, sizes and features.
        counted: Whether the dispatch says how many rows are valid, in a tensor on the device.
        wide_ids: Whether ids come as int64, which the leaf has to cast.
        routed: Whether ids and weights come out of ``rocm_aiter_grouped_topk`` and
            ``inject_shared_expert_weights``, through the buffers that all layers share.
        corrected: Whether the routing has a correction bias, so that AITER's other operator does it.
    """

    name: str
    problem: Problem
    counted: bool = False
    wide_ids: bool = False
    routed: bool = False
    corrected: bool = False

    @property
    def leaf(self) -> str:
        """Name of the leaf that takes the call."""
        return leaf_of_scheme(self.problem.case.cell.scheme).name

    @property
    def entry(self) -> Entry:
        """The kernel entry that the leaf must call."""
        cell = self.problem.case.cell
        return "asm_moe_tkw1" if cell.scheme == "fp8-channel" and cell.router == "in" else "fused_moe"

    @property
    def shared_buffers(self) -> Buffers:
        """The arguments with which the routed variants make the buffers."""
        case = self.problem.case
        return Buffers(
            n_routed_experts=case.experts,
            n_shared_experts=self.problem.features.shared_experts,
            top_k=case.topk,
            tp_rank=self.problem.rank,
            tp_size=case.ep,
            shared_experts_score=SHARED_SCORE,
            max_num_tokens=case.tokens + SPARE_ROWS,
            is_EP=case.ep > 1,
        )

    def rows(self, seed: int) -> int:
        """Return how many rows of an input are valid."""
        return self.problem.case.tokens - (4 + seed if self.counted else 0)


@dataclass(frozen=True)
class Values:
    """One set of inputs of a variant, on the host, and what must come of it.

    Attributes:
        tensors: ``hidden_states``, ``topk_weights`` and ``topk_ids``; of counted variants
            ``num_local_tokens``; of routed ones ``logits``, ``gates`` and ``correction_bias`` too.
        expected: What the oracle says of the valid rows and live columns.
    """

    tensors: dict[str, torch.Tensor]
    expected: Expected


def values(variant: Variant, seed: int) -> Values:
    """Make inputs of a variant. Seeds differ in everything but the weights and the shapes."""
    problem = variant.problem
    source = replace(problem, case=replace(problem.case, seed=seed))
    rows = variant.rows(seed)
    tensors = {
        "hidden_states": torch.from_numpy(source.hidden_bits.view(np.int16).copy()).view(torch.bfloat16)
    }
    if variant.routed:
        tensors |= _route(variant, seed)
    else:
        tensors["topk_weights"] = torch.from_numpy(source.topk_weights.copy())
        tensors["topk_ids"] = torch.from_numpy(source.topk_ids.copy())
    ids, weights = tensors["topk_ids"].numpy(), tensors["topk_weights"].double().numpy()
    oracle = evaluate(
        source.hidden,
        ids,
        weights,
        {expert: problem.expert(expert) for expert in problem.held_experts},
        problem.activation,
        nominal_pipeline(problem.case.cell),
        np.arange(rows),
        problem.static_scales,
    )
    if variant.counted:  # rows that do not count hold what a dispatch leaves there
        tensors["hidden_states"][rows:] = torch.nan
        tensors["topk_ids"][rows:] = -1
        tensors["num_local_tokens"] = torch.tensor([rows], dtype=torch.int32)
    if variant.wide_ids:
        tensors["topk_ids"] = tensors["topk_ids"].long()
    return Values(tensors, live(oracle, problem))


def _route(variant: Variant, seed: int) -> dict[str, torch.Tensor]:
    """Return router logits, gates of the shared experts, and the weights and ids that follow by the rule."""
    problem, buffers = variant.problem, variant.shared_buffers
    tokens, experts = problem.case.tokens, problem.case.experts
    random = np.random.default_rng([seed, 0xD31CE])
    # Well apart, so that float32 decides as float64 does.
    logits = random.permuted(np.tile(np.linspace(-2.0, 2.0, experts), (tokens, 1)), axis=1)
    gates = random.integers(1, 64, (tokens, problem.features.shared_experts)) / 64
    # The weights of the chosen must not have the bias in them, the choice must: it turns some of them over.
    bias = (
        random.permutation(np.linspace(-0.3, 0.3, experts)).astype(np.float32) if variant.corrected else None
    )
    routed = grouped_topk(
        logits.astype(np.float32).astype(np.float64),
        problem.case.topk,
        renormalize=True,
        groups=GROUPS,
        topk_groups=TOPK_GROUPS,
        scoring="softmax" if bias is None else "sigmoid",
        scale=SCALE,
        bias=None if bias is None else bias.astype(np.float64),
    )
    if routed.margin < _MARGIN:
        msg = f"decisions must be at least {_MARGIN:g} apart (got {routed.margin:g}, seed {seed})"
        raise ValueError(msg)
    sentinel = np.full((tokens, int(buffers.is_EP)), SHARED_SCORE)
    ids = np.concatenate([routed.ids, np.asarray(buffers.shared_ids())[:tokens]], axis=1)
    correction = {} if bias is None else {"correction_bias": torch.from_numpy(bias)}
    return correction | {
        "logits": torch.from_numpy(logits.astype(np.float32)),
        "gates": torch.from_numpy(gates.astype(np.float32)),
        "topk_ids": torch.from_numpy(ids.astype(np.int32)),
        "topk_weights": torch.from_numpy(
            np.concatenate([routed.weights, gates, sentinel], axis=1).astype(np.float32)
        ),
    }


def _variant(
    name: str, cell: str, features: Features | None = None, rank: int = 0, **numbers: Any
) -> Variant:
    names = ("counted", "wide_ids", "routed", "corrected")
    switches = {key: numbers.pop(key) for key in names if key in numbers}
    found = load_axes().parse_cell(cell)
    sizes = {"experts": 5, "topk": 1 if found.router == "in" else 2, "tokens": _TOKENS} | numbers
    return Variant(name, Problem(Case(found, **sizes), features or Features(), rank), **switches)


def load_variants() -> tuple[Variant, ...]:
    """Return the variants that every check is run on."""
    biased, shared = Features(biases=True), Features(shared_experts=1)
    pads: dict[str, Any] = {"intermediate": 512, "tp": 2, "hidden_pad": 128, "intermediate_pad": 64}
    ranks: dict[str, Any] = {"experts": 6, "ep": 2}
    routed: dict[str, Any] = {"experts": 8, "routed": True}
    return (
        _variant("bf16", "gfx950/bf16/silu/out"),
        _variant("bf16-counted", "gfx942/bf16/gelu/out", counted=True, wide_ids=True),
        _variant("bf16-on-input", "gfx950/bf16/silu/in"),
        _variant("bf16-shared-experts", "gfx950/bf16/silu/out", shared, **routed),
        _variant("fp8-block", "gfx942/fp8-block/silu/out"),
        _variant(
            "fp8-block-shared-experts-ep",
            "gfx950/fp8-block/silu/out",
            shared,
            1,
            ep=2,
            corrected=True,
            **routed,
        ),
        _variant("fp8-tensor-static", "gfx942/fp8-tensor-static/silu/out"),
        _variant("fp8-tensor-dynamic", "gfx950/fp8-tensor-dynamic/gelu/out"),
        _variant("fp8-channel", "gfx950/fp8-channel/silu/out"),
        _variant("fp8-channel-tkw1", "gfx942/fp8-channel/silu/in"),
        _variant("mxfp4-w4a16-pads-biases", "gfx950/mxfp4-w4a16/swigluoai/out", biased, **pads),
        _variant("mxfp4-w4a16-uninterleave", "gfx950/mxfp4-w4a16/swigluoai_uninterleave/out"),
        _variant("mxfp4-w4a16-situ", "gfx950/mxfp4-w4a16/situ/out"),
        _variant("mxfp4-w4a4-ep", "gfx950/mxfp4-w4a4/silu/out", **ranks),
        _variant("int4-w4a16-situ", "gfx942/int4-w4a16/situ/out"),
    )
