"""Shared experts that ride along in the routed call: their columns in a buffer that all layers share."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from aiter_moe.bridge import current_bridge

_SCORING: Final = {"softmax": True, "sigmoid": False}


class _Layout(NamedTuple):
    """The arguments of `init_aiter_topK_meta_data`, which make the buffer what it is."""

    n_routed_experts: int
    n_shared_experts: int
    top_k: int
    tp_rank: int
    tp_size: int
    shared_experts_score: float
    max_num_tokens: int
    is_EP: bool  # noqa: N815 -- upstream's name

    @property
    def width(self) -> int:
        return self.top_k + self.n_shared_experts + self.is_EP


aiter_topK_meta_data: tuple[Tensor, Tensor] | None = None  # noqa: N816 -- upstream's name
"""Weights (float32) and ids (int32), ``[max_num_tokens, top_k + n_shared_experts (+ 1 with EP)]``."""
_layout: _Layout


def init_aiter_topK_meta_data(  # noqa: N802 -- upstream's name
    n_routed_experts: int,
    n_shared_experts: int,
    top_k: int,
    tp_rank: int,
    tp_size: int,
    shared_experts_score: float = 1.0,
    max_num_tokens: int = 32768,
    is_EP: bool = False,  # noqa: N803 -- upstream's name
) -> None:
    """Build the buffer `aiter_topK_meta_data` on the current accelerator, or on the CPU where there is none.

    Shared experts follow the routed ones: their ids are ``n_routed_experts`` and up, in the columns from
    `top_k` on. Under expert parallelism every rank holds the shared experts, so each token's run on one
    rank only: rows ``tp_rank, tp_rank + tp_size, ...`` have those ids, and a last column and all other rows
    have the sentinel ``n_routed_experts + n_shared_experts``, which the expert mask switches off. The same
    arguments again do nothing.

    Args:
        n_routed_experts: Routed experts of the model.
        n_shared_experts: Shared experts of the model.
        top_k: Routed experts per token.
        tp_rank: This rank among those that share the tokens.
        tp_size: How many they are.
        shared_experts_score: Weight of every shared expert, until other weights are injected.
        max_num_tokens: Rows of the buffer.
        is_EP: Whether experts are spread over ranks.

    Raises:
        RuntimeError: The buffer is there already and was built with other arguments.
        ValueError: A number is out of its range.
    """
    global aiter_topK_meta_data, _layout  # the contract's one buffer for all layers
    layout = _Layout(
        n_routed_experts,
        n_shared_experts,
        top_k,
        tp_rank,
        tp_size,
        shared_experts_score,
        max_num_tokens,
        is_EP,
    )
    if aiter_topK_meta_data is not None:
        if layout != _layout:
            msg = (
                "the shared-expert buffer must be initialised with the same arguments by every layer "
                f"(got {layout}, it has {_layout}); call reset_aiter_topK_meta_data() first to change it"
            )
            raise RuntimeError(msg)
        return
    _check_ranges(layout)
    aiter_topK_meta_data = _build(layout)
    _layout = layout


def reset_aiter_topK_meta_data() -> None:  # noqa: N802 -- named after what it resets
    """Forget the buffer, so that it can be built anew. Ours: upstream has no way to do so."""
    global aiter_topK_meta_data
    aiter_topK_meta_data = None


def inject_shared_expert_weights(
    topk_weights: Tensor,
    topk_ids: Tensor,
    topk: int,
    num_fused_shared_experts: int,
    shared_expert_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return router weights and ids with the shared experts' columns beside the routed ones.

    Routed columns alone are copied into the buffer, and views of its first rows are returned: every call
    reuses them. What is already as wide as the buffer is used in place. Nothing is written unless all
    arguments are good.

    Args:
        topk_weights: ``[M, topk]``, or ``[M, width of the buffer]``.
        topk_ids: Of the same shape.
        topk: Routed experts per token.
        num_fused_shared_experts: Shared experts that ride along; with 0 the inputs are returned as they are.
        shared_expert_weights: At least M rows, one column a shared expert: their weights. None leaves what
            the columns hold, which is what the last call wrote there.

    Returns:
        Weights and ids, ``[M, width of the buffer]``.

    Raises:
        RuntimeError: There is no buffer.
        ValueError: The buffer has too few rows, or a shape does not fit.
    """
    if num_fused_shared_experts == 0:
        return topk_weights, topk_ids
    if topk_weights.dim() != 2 or topk_weights.shape != topk_ids.shape:
        msg = (
            "topk_weights and topk_ids must be 2-D and of the same shape "
            f"(got {tuple(topk_weights.shape)} and {tuple(topk_ids.shape)})"
        )
        raise ValueError(msg)
    rows, columns = topk_weights.shape
    weights, ids = _buffer_rows(rows, topk, num_fused_shared_experts)
    width = weights.shape[1]
    if columns not in (topk, width):
        msg = f"topk_weights must be topk {topk} or the buffer's {width} columns wide (got {columns})"
        raise ValueError(msg)
    if shared_expert_weights is not None:
        _check_shared_weights(shared_expert_weights, rows, num_fused_shared_experts)
    if columns == width:
        weights, ids = topk_weights, topk_ids
    else:
        weights[:, :topk] = topk_weights
        ids[:, :topk] = topk_ids
    if shared_expert_weights is not None:
        weights[:, topk : topk + num_fused_shared_experts] = shared_expert_weights[:rows]
    return weights, ids


def rocm_aiter_grouped_topk(
    hidden_states: Tensor,
    gating_output: Tensor,
    topk: int,
    renormalize: bool,
    num_expert_group: int = 0,
    topk_group: int = 0,
    scoring_func: str = "softmax",
    routed_scaling_factor: float = 1.0,
    e_score_correction_bias: Tensor | None = None,
    num_fused_shared_experts: int = 0,
) -> tuple[Tensor, Tensor]:
    """Route tokens with AITER's grouped top-k.

    With shared-expert fusion on and shared experts fused, the routed columns of the buffer are written and
    views of all its columns returned; otherwise fresh tensors are.

    Args:
        hidden_states: ``[M, K]``, of which only M counts.
        gating_output: The router's logits, ``[M, experts]``.
        topk: Routed experts per token.
        renormalize: Whether the weights of a token are made to sum to 1.
        num_expert_group: Groups of experts.
        topk_group: Groups that a token may choose from.
        scoring_func: ``softmax`` or ``sigmoid``; not read with a correction bias, which implies sigmoid.
        routed_scaling_factor: Factor on the weights.
        e_score_correction_bias: ``[experts]``, added to the scores for choosing only.
        num_fused_shared_experts: Shared experts that ride along.

    Returns:
        float32 weights and int32 ids, ``[M, topk]`` or ``[M, width of the buffer]``.

    Raises:
        ImportError: There is no AITER.
        RuntimeError: Shared experts are fused and there is no buffer.
        ValueError: The scoring function is another one, the buffer does not fit, or the numbers of tokens
            differ.
    """
    if e_score_correction_bias is None and scoring_func not in _SCORING:
        msg = f"scoring_func must be {' or '.join(_SCORING)} without a correction bias (got {scoring_func!r})"
        raise ValueError(msg)
    rows = hidden_states.shape[0]
    if gating_output.shape[0] != rows:
        msg = f"gating_output must have a row for each of {rows} hidden states (got {gating_output.shape[0]})"
        raise ValueError(msg)
    bridge = current_bridge()
    if num_fused_shared_experts > 0 and bridge.is_fusion_moe_shared_experts_enabled():
        weights, ids = _buffer_rows(rows, topk, num_fused_shared_experts)
    else:
        weights = torch.empty((rows, topk), dtype=torch.float32, device=gating_output.device)
        ids = torch.empty((rows, topk), dtype=torch.int32, device=gating_output.device)
    # By position: AITER renamed some of these parameters, but moved none.
    routed = weights[:, :topk], ids[:, :topk], num_expert_group, topk_group, renormalize
    if e_score_correction_bias is None:
        bridge.part("grouped_topk")(gating_output, *routed, _SCORING[scoring_func], routed_scaling_factor)
    else:
        # The kernel reads the bias as if it were of the type of the logits.
        bias = e_score_correction_bias.to(gating_output.dtype)
        bridge.part("biased_grouped_topk")(gating_output, bias, *routed, routed_scaling_factor)
    return weights, ids


def _check_ranges(layout: _Layout) -> None:
    for name, least in (
        ("n_routed_experts", 1),
        ("n_shared_experts", 0),
        ("top_k", 1),
        ("max_num_tokens", 1),
    ):
        value = getattr(layout, name)
        if value < least:
            msg = f"{name} must be at least {least} (got {value})"
            raise ValueError(msg)
    if not 0 <= layout.tp_rank < layout.tp_size:
        msg = f"tp_rank must be at least 0 and below tp_size {layout.tp_size} (got {layout.tp_rank})"
        raise ValueError(msg)


def _build(layout: _Layout) -> tuple[Tensor, Tensor]:
    # Ours: upstream says "cuda", which fails where there is no GPU.
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    shape = layout.max_num_tokens, layout.width
    weights = torch.empty(shape, dtype=torch.float32, device=device)
    weights[:, layout.top_k :] = layout.shared_experts_score
    sentinel = layout.n_routed_experts + layout.n_shared_experts
    shared_ids = torch.arange(layout.n_routed_experts, sentinel + layout.is_EP, device=device)
    ids = torch.empty(shape, dtype=torch.int32, device=device)
    if layout.is_EP:
        ids[:, layout.top_k :] = sentinel
        ids[layout.tp_rank :: layout.tp_size, layout.top_k :] = shared_ids
    else:
        ids[:, layout.top_k :] = shared_ids
    return weights, ids


def _buffer_rows(rows: int, topk: int, num_fused_shared_experts: int) -> tuple[Tensor, Tensor]:
    """Return views of the first rows of the buffer, or say what is wrong with it."""
    if aiter_topK_meta_data is None:
        msg = (
            "the shared-expert buffer must be initialised before shared experts are fused (got none); call "
            f"init_aiter_topK_meta_data with top_k={topk}, n_shared_experts={num_fused_shared_experts} and "
            f"max_num_tokens of at least {rows}"
        )
        raise RuntimeError(msg)
    if rows > _layout.max_num_tokens:
        msg = (
            f"the shared-expert buffer must have a row for each token (got {rows} tokens, it has "
            f"{_layout.max_num_tokens} rows); call reset_aiter_topK_meta_data and then "
            f"init_aiter_topK_meta_data with max_num_tokens of at least {rows}"
        )
        raise ValueError(msg)
    if _layout.width != topk + num_fused_shared_experts + _layout.is_EP:
        msg = (
            "topk and num_fused_shared_experts must fit the shared-expert buffer, which has "
            f"{_layout.top_k} routed, {_layout.n_shared_experts} shared and {int(_layout.is_EP)} sentinel "
            f"columns (got {topk} and {num_fused_shared_experts})"
        )
        raise ValueError(msg)
    weights, ids = aiter_topK_meta_data
    return weights[:rows], ids[:rows]


def _check_shared_weights(shared_expert_weights: Tensor, rows: int, columns: int) -> None:
    shape = tuple(shared_expert_weights.shape)
    if len(shape) != 2 or shape[0] < rows or shape[1] != columns:
        msg = f"shared_expert_weights must have at least {rows} rows and {columns} columns (got {shape})"
        raise ValueError(msg)
