"""The five experts classes, the leaves: what each accepts, and what it adds to the common call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiter_moe.experts import Accepts, AiterExperts
from aiter_moe.quant import (
    QuantMethod,
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockSym,
    kFp8StaticChannelSym,
    kFp8StaticTensorSym,
    kInt4Static32,
    kMxfp4Dynamic,
    kMxfp4Static,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aiter_moe.activation import MoEActivation
    from aiter_moe.modular import ExpertTokensMetadata


class AiterUnquantizedExperts(AiterExperts):
    """bf16 or fp16 weights and activations."""

    _AITER_QUANT_METHOD = QuantMethod.NO
    _ACCEPTS = (Accepts(None, None),)


class AiterFp8BlockExperts(AiterExperts):
    """fp8 weights in blocks of 128 x 128, fp8 activations in groups of 128."""

    _AITER_QUANT_METHOD = QuantMethod.BLOCK_128x128
    _SUPPORTS_ROUTER_WEIGHT_ON_INPUT = False
    _ACCEPTS = (Accepts(kFp8Static128BlockSym, kFp8Dynamic128Sym),)


class AiterFp8TensorExperts(AiterExperts):
    """fp8 weights and activations with one scale a tensor; the activations' is static or dynamic."""

    _AITER_QUANT_METHOD = QuantMethod.PER_TENSOR
    _ACCEPTS = (
        Accepts(kFp8StaticTensorSym, kFp8StaticTensorSym),
        Accepts(kFp8StaticTensorSym, kFp8DynamicTensorSym),
    )


class AiterFp8ChannelExperts(AiterExperts):
    """fp8 weights with one scale an output channel, fp8 activations with one a token.

    Router weights on input go through AITER's ``asm_moe_tkw1``. That takes no metadata, no padding, no clamp,
    no scales of activations and no output type, and neither SITU nor SWIGLUOAI_UNINTERLEAVE; asking for one
    of them is a ValueError.
    """

    _AITER_QUANT_METHOD = QuantMethod.PER_TOKEN
    _ACCEPTS = (Accepts(kFp8StaticChannelSym, kFp8DynamicTokenSym),)

    def _run(
        self,
        hidden_states: Tensor,
        w1: Tensor,
        w2: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        activation: MoEActivation,
        expert_mask: Tensor | None,
        a1q_scale: Tensor | None,
        expert_tokens_meta: ExpertTokensMetadata | None,
        apply_router_weight_on_input: bool,
        output_dtype: torch.dtype,
    ) -> Tensor:
        if not apply_router_weight_on_input:
            return super()._run(
                hidden_states,
                w1,
                w2,
                topk_weights,
                topk_ids,
                activation,
                expert_mask,
                a1q_scale,
                expert_tokens_meta,
                apply_router_weight_on_input,
                output_dtype,
            )
        from aiter_moe.tkw1 import tkw1_experts

        if expert_tokens_meta is not None:
            msg = f"expert_tokens_meta must be None with router weights on input (got {expert_tokens_meta})"
            raise ValueError(msg)
        return tkw1_experts(
            hidden_states,
            w1,
            w2,
            topk_weights,
            topk_ids,
            self.moe_config,
            self.quant_config,
            activation,
            expert_mask,
            a1q_scale,
            output_dtype,
        )


class AiterMxfp4Experts(AiterExperts):
    """MXFP4 weights with unquantised or MXFP4 activations; on gfx942, Kimi-K3's MXFP4 requantised to int4."""

    _AITER_QUANT_METHOD = QuantMethod.BLOCK_1X32
    _ACCEPTS = (
        Accepts(kMxfp4Static, None, "gfx950"),
        Accepts(kMxfp4Static, kMxfp4Dynamic, "gfx950"),
        Accepts(kInt4Static32, None, "gfx942"),
    )

    def _extra_fused_moe_kwargs(self) -> dict[str, Any]:
        from aiter_moe.dispatch import mxfp4_w4a16_extra_kwargs

        return mxfp4_w4a16_extra_kwargs(self.quant_config, self.moe_config)
