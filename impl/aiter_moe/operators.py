"""The two kernel calls as plain functions, and as torch operators over them.

Importing this module registers the operators ``aiter_moe_conf::fused_moe`` and
``aiter_moe_conf::asm_moe_tkw1``; the dispatcher does so at its first call. The namespace is ours, so that
they live beside vLLM's.
"""

# A fake has the parameters of its operator but needs few of them.
# ruff: noqa: ARG001

import torch
from torch import Tensor

from aiter_moe.bridge import current_bridge


def fused_moe(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weight: Tensor,
    topk_ids: Tensor,
    expert_mask: Tensor | None = None,
    activation_method: int = 0,
    quant_method: int = 0,
    doweight_stage1: bool = False,
    w1_scale: Tensor | None = None,
    w2_scale: Tensor | None = None,
    a1_scale: Tensor | None = None,
    a2_scale: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    hidden_pad: int = 0,
    intermediate_pad: int = 0,
    gate_mode: str = "",
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    moe_sorting_dispatch_policy: int = 0,
    swiglu_limit: float = 0.0,
    beta: float | None = None,
    linear_beta: float | None = None,
    shared_w1: Tensor | None = None,
    shared_w2: Tensor | None = None,
    shared_w1_scale: Tensor | None = None,
    shared_w2_scale: Tensor | None = None,
    shared_expert_id: int = -1,
    q_dtype_a: torch.dtype | None = None,
) -> Tensor:
    """Run experts through AITER's ``fused_moe``, by way of the current bridge.

    Args:
        hidden_states: ``[M, K]``; ``float4_e2m1fn_x2`` packs two elements each, so ``[M, K / 2]``.
        w1: ``[E, 2N, K]``, gate and up, shuffled; packed types halve the last axis.
        w2: ``[E, K, N]``, likewise.
        topk_weight: Router weights, float32 ``[M, topk]``.
        topk_ids: Experts, int32 ``[M, topk]``.
        expert_mask: int32 0/1 over all experts, shared ones and the sentinel; None without expert
            parallelism.
        activation_method: Number of a member of AITER's ``ActivationType``.
        quant_method: A `QuantMethod`.
        doweight_stage1: Whether router weights multiply before the activation.
        w1_scale: Scales of w1, in the layout of the scheme.
        w2_scale: Scales of w2.
        a1_scale: Scales of the hidden states.
        a2_scale: Scales of the intermediate.
        num_local_tokens: One element, the number of valid rows; None for all.
        output_dtype: Element type of the result; that of the hidden states when None.
        hidden_pad: Padding of the hidden size.
        intermediate_pad: Padding of the intermediate size, as `aiter_moe_pads` gives it.
        gate_mode: A value of AITER's ``GateMode``, naming how w1 was shuffled; "" says nothing.
        bias1: Bias of the first product.
        bias2: Bias of the second product.
        moe_sorting_dispatch_policy: AITER's sorting policy, 0, 1 or 2.
        swiglu_limit: Clamp of the activation; 0 is none.
        beta: SITU's beta.
        linear_beta: SITU's linear beta.
        shared_w1: w1 of a shared expert that AITER runs on its own.
        shared_w2: Its w2.
        shared_w1_scale: Scales of its w1.
        shared_w2_scale: Scales of its w2.
        shared_expert_id: Its id; -1 when there is none.
        q_dtype_a: Type to which activations are quantised.

    Returns:
        ``[M, K]``, weighted and reduced.

    Raises:
        ImportError: There is no AITER.
        RuntimeError: SITU, and AITER's environment no longer says what the bridge told it.
        ValueError: Arguments that contradict each other, or that this AITER cannot take.
    """
    return current_bridge().fused_moe(locals())


def fused_moe_fake(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weight: Tensor,
    topk_ids: Tensor,
    expert_mask: Tensor | None = None,
    activation_method: int = 0,
    quant_method: int = 0,
    doweight_stage1: bool = False,
    w1_scale: Tensor | None = None,
    w2_scale: Tensor | None = None,
    a1_scale: Tensor | None = None,
    a2_scale: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    hidden_pad: int = 0,
    intermediate_pad: int = 0,
    gate_mode: str = "",
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    moe_sorting_dispatch_policy: int = 0,
    swiglu_limit: float = 0.0,
    beta: float | None = None,
    linear_beta: float | None = None,
    shared_w1: Tensor | None = None,
    shared_w2: Tensor | None = None,
    shared_w1_scale: Tensor | None = None,
    shared_w2_scale: Tensor | None = None,
    shared_expert_id: int = -1,
    q_dtype_a: torch.dtype | None = None,
) -> Tensor:
    """Return an empty tensor like the result of `fused_moe`, whose arguments are the same."""
    rows, columns = hidden_states.shape
    if hidden_states.dtype is torch.float4_e2m1fn_x2:
        columns *= 2
    return hidden_states.new_empty((rows, columns), dtype=output_dtype or hidden_states.dtype)


def asm_moe_tkw1(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    fc1_scale: Tensor | None = None,
    fc2_scale: Tensor | None = None,
    fc1_smooth_scale: Tensor | None = None,
    fc2_smooth_scale: Tensor | None = None,
    a16: bool = False,
    per_tensor_quant_scale: Tensor | None = None,
    expert_mask: Tensor | None = None,
    activation_method: int = 0,
) -> Tensor:
    """Run experts through AITER's ``asm_moe_tkw1``: one expert a token, weighted before the activation.

    Args:
        hidden_states: ``[M, K]``.
        w1: ``[E, 2N, K]`` fp8, gate and up, shuffled.
        w2: ``[E, K, N]`` fp8, shuffled.
        topk_weights: Router weights, float32 ``[M, 1]``.
        topk_ids: Experts, int32 ``[M, 1]``.
        fc1_scale: Scales of w1, one a row.
        fc2_scale: Scales of w2, one a row.
        fc1_smooth_scale: Smoothing of the hidden states, for int8.
        fc2_smooth_scale: Smoothing of the intermediate, for int8.
        a16: Whether activations stay unquantised.
        per_tensor_quant_scale: One scale for all hidden states.
        expert_mask: int32 0/1 over all experts, shared ones and the sentinel; None without expert
            parallelism.
        activation_method: Number of a member of AITER's ``ActivationType``.

    Returns:
        ``[M, K]`` of the hidden states' type.

    Raises:
        ImportError: There is no AITER.
        ValueError: Arguments that this AITER cannot take.
    """
    return current_bridge().asm_moe_tkw1(locals())


def asm_moe_tkw1_fake(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    fc1_scale: Tensor | None = None,
    fc2_scale: Tensor | None = None,
    fc1_smooth_scale: Tensor | None = None,
    fc2_smooth_scale: Tensor | None = None,
    a16: bool = False,
    per_tensor_quant_scale: Tensor | None = None,
    expert_mask: Tensor | None = None,
    activation_method: int = 0,
) -> Tensor:
    """Return an empty tensor like the result of `asm_moe_tkw1`, whose arguments are the same."""
    return torch.empty_like(hidden_states)


fused_moe_operator = torch.library.custom_op("aiter_moe_conf::fused_moe", fused_moe, mutates_args=())
fused_moe_operator.register_fake(fused_moe_fake)
asm_moe_tkw1_operator = torch.library.custom_op("aiter_moe_conf::asm_moe_tkw1", asm_moe_tkw1, mutates_args=())
asm_moe_tkw1_operator.register_fake(asm_moe_tkw1_fake)
