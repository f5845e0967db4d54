"""The common dispatcher: from vLLM's terms to the one call of AITER's ``fused_moe``.

Nothing here waits for the device or lets a shape depend on data, so that calls can be captured in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import torch

from aiter_moe.activation import ActivationMethod, MoEActivation
from aiter_moe.bridge import current_bridge
from aiter_moe.pads import aiter_moe_pads
from aiter_moe.quant import QuantMethod
from aiter_moe.quant_config import FUSED_MOE_UNQUANTIZED_CONFIG

if TYPE_CHECKING:
    from torch import Tensor

    from aiter_moe.config import FusedMoEConfig
    from aiter_moe.quant_config import FusedMoEQuantConfig

# AITER's GateMode, as values: upstream imports that enum on every call, so that an AITER without it fails
# even where nothing is said about gates. Ours.
_INTERLEAVE: Final = "interleave"
_SEPARATED: Final = "separated"
_GATE_MODES: Final = {None: "", False: _SEPARATED, True: _INTERLEAVE}

_METHODS: Final = {MoEActivation.SILU: ActivationMethod.SILU, MoEActivation.GELU: ActivationMethod.GELU}
_AITER_NAMES: Final = {
    MoEActivation.SWIGLUOAI: "Swiglu",
    MoEActivation.SWIGLUOAI_UNINTERLEAVE: "Swiglu",
    MoEActivation.SITU: "Situv2",
}


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _constant_while_compiling(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have `function` answered while compiling: Dynamo reads neither environment nor context variables."""
    constant: Callable[_P, _T] = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return constant


def _resolve_aiter_activation(activation: MoEActivation) -> tuple[Any, bool | None]:
    """Return AITER's activation, and whether gate and up are interleaved where the activation says so.

    Returns:
        An `ActivationMethod`, or for Swiglu and Situv2 the member of AITER's own enum; and False for
        SWIGLUOAI_UNINTERLEAVE, else None.

    Raises:
        ValueError: No leaf does that activation, or the AITER at hand does not.
    """
    if activation in _METHODS:
        return _METHODS[activation], None
    if activation not in _AITER_NAMES:
        msg = f"Unsupported activation: {activation.value}"
        raise ValueError(msg)
    method = current_bridge().find_activation(_AITER_NAMES[activation])
    if method is None:
        msg = f"AITER does not support activation: {activation.value}"
        raise ValueError(msg)
    return method, False if activation is MoEActivation.SWIGLUOAI_UNINTERLEAVE else None


def derive_aiter_quant_method(quant_config: FusedMoEQuantConfig) -> QuantMethod:
    """Return the quantisation method that a configuration stands for; the first that applies."""
    if quant_config.use_mxfp4_w4a4 or quant_config.use_mxfp4_w4a16:
        return QuantMethod.BLOCK_1X32
    if not quant_config.use_fp8_w8a8:
        return QuantMethod.NO
    if quant_config.block_shape is not None:
        return QuantMethod.BLOCK_128x128
    if quant_config.per_out_ch_quant:
        return QuantMethod.PER_TOKEN
    return QuantMethod.PER_TENSOR


def mxfp4_w4a16_extra_kwargs(quant_config: FusedMoEQuantConfig, moe_config: FusedMoEConfig) -> dict[str, Any]:
    """Return what MXFP4 weights with unquantised activations add to `rocm_aiter_fused_experts`.

    That is the layout in which the weights were shuffled at load, and the biases, which are None where
    there are none. Empty for every other configuration.
    """
    if not quant_config.use_mxfp4_w4a16:
        return {}
    biases = {"bias1": quant_config.w1_bias, "bias2": quant_config.w2_bias}
    if moe_config.use_mxfp4_w4a4_dsv4:
        return {"gate_mode_override": _SEPARATED, "q_dtype_a": _aiter_fp4x2(), **biases}
    return {"gate_mode_override": _INTERLEAVE, **biases}


def rocm_aiter_fused_experts(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    moe_config: FusedMoEConfig,
    quant_method: QuantMethod,
    activation: MoEActivation = MoEActivation.SILU,
    apply_router_weight_on_input: bool = False,
    expert_mask: Tensor | None = None,
    quant_config: FusedMoEQuantConfig | None = None,
    a1q_scale: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    moe_sorting_dispatch_policy: int = 0,
    gate_mode_override: str | None = None,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    q_dtype_a: torch.dtype | None = None,
    shared_w1: Tensor | None = None,
    shared_w2: Tensor | None = None,
    shared_w1_scale: Tensor | None = None,
    shared_w2_scale: Tensor | None = None,
    shared_expert_id: int = -1,
) -> Tensor:
    """Run experts through AITER's ``fused_moe``. No input is changed.

    Args:
        hidden_states: ``[M, K]``, or packed ``[M, K / 2]`` of type ``float4_e2m1fn_x2``.
        w1: ``[E, 2N, K]``, gate and up, shuffled as the scheme wants (`prepare_weights`).
        w2: ``[E, K, N]``, likewise.
        topk_weights: Router weights ``[M, topk]``, cast to float32.
        topk_ids: Experts ``[M, topk]``, cast to int32. Ids below 0 mark padding, which contributes nothing:
            they become the sentinel of the mask, or without a mask expert 0 with weight 0. Ours: upstream
            passes them on. (Without a mask, weights on input and a bias together still make such a row
            non-zero.)
        moe_config: The layer.
        quant_method: How weights and activations are scaled.
        activation: What the experts compute.
        apply_router_weight_on_input: Whether router weights multiply before the activation; needs topk 1.
        expert_mask: int32 0/1 over all experts, shared ones and the sentinel (`make_expert_mask`).
        quant_config: Scales; unquantised when None.
        a1q_scale: Scales of hidden states that arrive quantised; those of `quant_config` when None.
        num_local_tokens: One element, the number of valid rows; None for all.
        output_dtype: Element type of the result; that of the hidden states when None.
        moe_sorting_dispatch_policy: AITER's sorting policy.
        gate_mode_override: Layout in which w1 was shuffled; SITU does not heed it.
        bias1: Bias of the first product.
        bias2: Bias of the second product.
        q_dtype_a: Type to which AITER quantises activations.
        shared_w1: w1 of a shared expert; the four shared tensors come all or none.
        shared_w2: Its w2.
        shared_w1_scale: Scales of its w1.
        shared_w2_scale: Scales of its w2.
        shared_expert_id: Its id, -1 without one.

    Returns:
        ``[M, K]``, weighted and reduced.

    Raises:
        ImportError: There is no AITER.
        RuntimeError: SITU, and AITER's environment no longer says what the bridge told it.
        ValueError: A bad argument, a bad combination, or one that the AITER at hand cannot take.
    """
    if quant_config is None:
        quant_config = FUSED_MOE_UNQUANTIZED_CONFIG
    method, interleaved = activation_number(activation)
    weights, ids = aiter_routing(topk_weights, topk_ids, expert_mask)
    if apply_router_weight_on_input:
        check_single_router_weight(topk_weights)
    hidden_pad, intermediate_pad = pads(hidden_states, activation, moe_config, quant_config)
    return kernel("fused_moe")(
        hidden_states,
        w1,
        w2,
        weights,
        ids,
        expert_mask=expert_mask,
        activation_method=method,
        quant_method=int(quant_method),
        doweight_stage1=apply_router_weight_on_input,
        w1_scale=quant_config.w1_scale,
        w2_scale=quant_config.w2_scale,
        a1_scale=quant_config.a1_scale if a1q_scale is None else a1q_scale,
        a2_scale=quant_config.a2_scale,
        num_local_tokens=num_local_tokens,
        output_dtype=output_dtype,
        hidden_pad=hidden_pad,
        intermediate_pad=intermediate_pad,
        gate_mode=_gate_mode(activation, gate_mode_override, interleaved),
        bias1=bias1,
        bias2=bias2,
        moe_sorting_dispatch_policy=moe_sorting_dispatch_policy,
        swiglu_limit=float(moe_config.swiglu_limit or 0.0),
        beta=moe_config.activation_situ_beta,
        linear_beta=moe_config.activation_situ_linear_beta,
        shared_w1=shared_w1,
        shared_w2=shared_w2,
        shared_w1_scale=shared_w1_scale,
        shared_w2_scale=shared_w2_scale,
        shared_expert_id=shared_expert_id,
        q_dtype_a=q_dtype_a,
    )


def check_single_router_weight(topk_weights: Tensor) -> None:
    """Check that there is one router weight a token, as on input it has to be.

    Raises:
        ValueError: `topk_weights` is not ``[M, 1]``.
    """
    if topk_weights.dim() != 2 or topk_weights.shape[1] != 1:
        msg = (
            "topk_weights must be 2-D with topk 1 when router weights are applied on input "
            f"(got shape {tuple(topk_weights.shape)})"
        )
        raise ValueError(msg)


def aiter_routing(
    topk_weights: Tensor, topk_ids: Tensor, expert_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return float32 weights and int32 ids that are experts: an id below 0 becomes one that adds nothing.

    Neither argument is changed, and nothing waits for the device (SPEC 4, step 3).

    Args:
        topk_weights: Router weights [M, topk].
        topk_ids: Ids of experts [M, topk], below 0 in padding rows.
        expert_mask: Mask [E_global + shared + 1] of the experts that are held here, or None without expert
            parallelism. With it an id below 0 becomes its last index, the sentinel; without it expert 0,
            whose weight becomes 0.

    Raises:
        ValueError: Weights and ids differ in shape.
    """
    if topk_weights.shape != topk_ids.shape:
        msg = (
            f"topk_weights and topk_ids must have the same shape "
            f"(got {tuple(topk_weights.shape)} and {tuple(topk_ids.shape)})"
        )
        raise ValueError(msg)
    weights, ids = topk_weights.to(torch.float32), topk_ids.to(torch.int32)
    padding = ids < 0
    if expert_mask is None:
        return weights.masked_fill(padding, 0.0), ids.masked_fill(padding, 0)
    return weights, ids.masked_fill(padding, expert_mask.numel() - 1)


def pads(
    hidden_states: Tensor,
    activation: MoEActivation,
    moe_config: FusedMoEConfig,
    quant_config: FusedMoEQuantConfig,
) -> tuple[int, int]:
    """Return the pads (hidden, intermediate) as AITER wants them: dead elements at the end, see SPEC 5.

    Args:
        hidden_states: The call's input [M, K], or [M, K / 2] where MXFP4 is packed two to a byte.
        activation: The activation.
        moe_config: Gives sizes with and without padding, the tensor parallel size, and an intermediate pad
            that goes before the one derived from the sizes.
        quant_config: Says whether weights and activations are both MXFP4.

    Raises:
        ValueError: An unpadded size is not set, a pad is negative, or the tensor parallel size is below 1.
    """
    hidden_unpadded = moe_config.hidden_dim_unpadded
    intermediate_unpadded = moe_config.intermediate_size_per_partition_unpadded
    if hidden_unpadded is None or intermediate_unpadded is None:
        msg = (
            "hidden_dim_unpadded and intermediate_size_per_partition_unpadded must be set "
            f"(got {hidden_unpadded} and {intermediate_unpadded})"
        )
        raise ValueError(msg)
    hidden = hidden_states.shape[1]
    if hidden_states.dtype is torch.float4_e2m1fn_x2:
        hidden *= 2
    intermediate_pad = moe_config.intermediate_pad
    if intermediate_pad is None:
        intermediate_pad = moe_config.intermediate_size_per_partition - intermediate_unpadded
    return aiter_moe_pads(
        hidden - hidden_unpadded,
        intermediate_pad,
        activation,
        quant_config.use_mxfp4_w4a4,
        moe_config.tp_size,
    )


def _gate_mode(activation: MoEActivation, override: str | None, interleaved: bool | None) -> str:
    if activation is MoEActivation.SITU:
        return _GATE_MODES[_situ_interleaved()]
    return _GATE_MODES[interleaved] if override is None else override


@_constant_while_compiling
def activation_number(activation: MoEActivation) -> tuple[int, bool | None]:
    """Return what `_resolve_aiter_activation` does, with AITER's number of the activation."""
    method, interleaved = _resolve_aiter_activation(activation)
    return int(method), interleaved


@_constant_while_compiling
def _situ_interleaved() -> bool:
    return current_bridge().is_fused_moe_situv2_gate_up_interleaved()


@_constant_while_compiling
def _aiter_fp4x2() -> torch.dtype:
    dtype: torch.dtype = current_bridge().part("dtypes").fp4x2
    return dtype


@_constant_while_compiling
def _uses_operators() -> bool:
    return current_bridge().use_operators


@_constant_while_compiling
def dispatch_policy() -> int:
    """Return the MoE sorting policy to pass to AITER.

    Raises:
        ValueError: ``VLLM_ROCM_AITER_MOE_DISPATCH_POLICY`` is not 0, 1 or 2.
    """
    return current_bridge().get_moe_dispatch_policy()


def kernel(name: str) -> Callable[..., Tensor]:
    """Return a kernel call, ``fused_moe`` or ``asm_moe_tkw1``: the operator, or the function under it."""
    from aiter_moe import operators

    function: Callable[..., Tensor] = getattr(
        torch.ops.aiter_moe_conf if _uses_operators() else operators, name
    )
    return function
