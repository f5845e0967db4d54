"""The second kernel call, for fp8 experts whose router weights are applied on input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiter_moe.activation import MoEActivation
from aiter_moe.dispatch import activation_number, aiter_routing, check_single_router_weight, kernel, pads

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aiter_moe.config import FusedMoEConfig
    from aiter_moe.quant_config import FusedMoEQuantConfig


def tkw1_experts(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    moe_config: FusedMoEConfig,
    quant_config: FusedMoEQuantConfig,
    activation: MoEActivation,
    expert_mask: Tensor | None,
    a1q_scale: Tensor | None,
    output_dtype: torch.dtype,
) -> Tensor:
    """Run fp8 experts through AITER's ``asm_moe_tkw1``: one expert a token, weighted before the activation.

    This is the route of AiterFp8ChannelExperts. The operator knows no padding, no gate layout, no clamp, no
    activation scales, no biases and no output type. Ours: asking for any of them is an error; upstream
    drops them.

    Args:
        hidden_states: ``[M, K]``.
        w1: ``[E, 2N, K]`` fp8, shuffled.
        w2: ``[E, K, N]`` fp8, shuffled.
        topk_weights: Router weights ``[M, 1]``, cast to float32.
        topk_ids: Experts ``[M, 1]``, cast to int32; ids below 0 as in `rocm_aiter_fused_experts`.
        moe_config: The layer.
        quant_config: Scales of the weights.
        activation: What the experts compute.
        expert_mask: int32 0/1 over all experts, shared ones and the sentinel.
        a1q_scale: Must be None.
        output_dtype: Must be the type of the hidden states.

    Returns:
        ``[M, K]`` of the hidden states' type.

    Raises:
        ImportError: There is no AITER.
        ValueError: A bad argument, or something that the operator does not know.
    """
    check_single_router_weight(topk_weights)
    method, interleaved = activation_number(activation)
    hidden_pad, intermediate_pad = pads(hidden_states, activation, moe_config, quant_config)
    for name, value, neutral in (
        ("activation", activation.value, activation is not MoEActivation.SITU and interleaved is None),
        ("hidden_pad", hidden_pad, hidden_pad == 0),
        ("intermediate_pad", intermediate_pad, intermediate_pad == 0),
        ("swiglu_limit", moe_config.swiglu_limit, not moe_config.swiglu_limit),
        ("output dtype", output_dtype, output_dtype == hidden_states.dtype),
        ("a1q_scale", "a tensor", a1q_scale is None),
        ("w1_bias", "a tensor", quant_config.w1_bias is None),
        ("w2_bias", "a tensor", quant_config.w2_bias is None),
    ):
        if not neutral:
            msg = (
                f"{name} must be neutral for AiterFp8ChannelExperts with router weights on input: "
                f"asm_moe_tkw1 cannot take it (got {value})"
            )
            raise ValueError(msg)
    weights, ids = aiter_routing(topk_weights, topk_ids, expert_mask)
    return kernel("asm_moe_tkw1")(
        hidden_states,
        w1,
        w2,
        weights,
        ids,
        fc1_scale=quant_config.w1_scale,
        fc2_scale=quant_config.w2_scale,
        fc1_smooth_scale=None,
        fc2_smooth_scale=None,
        a16=False,
        per_tensor_quant_scale=None,
        expert_mask=expert_mask,
        activation_method=method,
    )
