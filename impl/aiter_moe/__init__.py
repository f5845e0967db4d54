"""AITER's fused mixture-of-experts leaves and their dispatcher, as vLLM defines them.

Everything public is importable from here. Importing the package needs no torch: what needs it is imported
when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from aiter_moe.activation import ActivationMethod, MoEActivation
from aiter_moe.arch import AITER_MOE_ARCHS, current_arch, detect_arch, is_fp8_fnuz, use_arch
from aiter_moe.bridge import AiterBridge, current_bridge, use_bridge
from aiter_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
from aiter_moe.experts import AiterExperts
from aiter_moe.leaves import (
    AiterFp8BlockExperts,
    AiterFp8ChannelExperts,
    AiterFp8TensorExperts,
    AiterMxfp4Experts,
    AiterUnquantizedExperts,
)
from aiter_moe.library import Aiter, find_aiter
from aiter_moe.modular import (
    ExpertTokensMetadata,
    FusedMoEActivationFormat,
    FusedMoEExpertsModular,
    Refusal,
    SupportStep,
    TopKWeightAndReduceNoOP,
)
from aiter_moe.pads import aiter_moe_pads, padded_sizes
from aiter_moe.quant import (
    PER_CHANNEL,
    PER_TENSOR,
    PER_TOKEN,
    QUANT_KEYS,
    DType,
    GroupShape,
    QuantKey,
    QuantMethod,
    ScaleDesc,
    Scheme,
    kFp8Dynamic64Sym,
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockE8M0Sym,
    kFp8Static128BlockSym,
    kFp8StaticChannelSym,
    kFp8StaticTensorSym,
    kFp8StaticTokenSym,
    kInt4Static,
    kInt4Static32,
    kInt4Static32Asym,
    kInt4StaticAsym,
    kInt4W4A8StaticChannelSym,
    kInt4W4A8StaticGroup32Sym,
    kInt4W4A8StaticGroup64Sym,
    kInt4W4A8StaticGroup128Sym,
    kInt4W4A8StaticGroupSym,
    kInt8Dynamic32Sym,
    kInt8DynamicTensorAsym,
    kInt8DynamicTensorSym,
    kInt8DynamicTokenAsym,
    kInt8DynamicTokenSym,
    kInt8Static,
    kInt8StaticChannelSym,
    kInt8StaticTensorAsym,
    kInt8StaticTensorSym,
    kMxfp4Dynamic,
    kMxfp4Static,
    kMxfp6E2M3Dynamic,
    kMxfp6E2M3Static,
    kMxfp6E3M2Dynamic,
    kMxfp6E3M2Static,
    kMxfp8Dynamic,
    kMxfp8Static,
    kNvfp4Dynamic,
    kNvfp4DynamicToken,
    kNvfp4Static,
)
from aiter_moe.quant_config import (
    FUSED_MOE_UNQUANTIZED_CONFIG,
    FusedMoEQuantConfig,
    FusedMoEQuantDesc,
    biased_moe_quant_config,
    fp8_w8a8_moe_quant_config,
    int4_w4a16_moe_quant_config,
    mxfp4_w4a16_moe_quant_config,
    ocp_mx_moe_quant_config,
)

if TYPE_CHECKING:
    from aiter_moe.checkpoint import ExpertWeights
    from aiter_moe.dispatch import (
        _resolve_aiter_activation,
        derive_aiter_quant_method,
        mxfp4_w4a16_extra_kwargs,
        rocm_aiter_fused_experts,
    )
    from aiter_moe.operators import asm_moe_tkw1, fused_moe
    from aiter_moe.result import write_result
    from aiter_moe.shared_experts import (
        aiter_topK_meta_data,
        init_aiter_topK_meta_data,
        inject_shared_expert_weights,
        reset_aiter_topK_meta_data,
        rocm_aiter_grouped_topk,
    )
    from aiter_moe.weights import (
        make_expert_mask,
        normalize_e4m3fn_to_e4m3fnuz,
        pack_gate_up,
        prepare_weights,
    )

__all__ = [
    "AITER_MOE_ARCHS",
    "FUSED_MOE_UNQUANTIZED_CONFIG",
    "PER_CHANNEL",
    "PER_TENSOR",
    "PER_TOKEN",
    "QUANT_KEYS",
    "ActivationMethod",
    "Aiter",
    "AiterBridge",
    "AiterExperts",
    "AiterFp8BlockExperts",
    "AiterFp8ChannelExperts",
    "AiterFp8TensorExperts",
    "AiterMxfp4Experts",
    "AiterUnquantizedExperts",
    "DType",
    "ExpertTokensMetadata",
    "ExpertWeights",
    "FusedMoEActivationFormat",
    "FusedMoEConfig",
    "FusedMoEExpertsModular",
    "FusedMoEParallelConfig",
    "FusedMoEQuantConfig",
    "FusedMoEQuantDesc",
    "GroupShape",
    "MoEActivation",
    "QuantKey",
    "QuantMethod",
    "Refusal",
    "RoutingMethodType",
    "ScaleDesc",
    "Scheme",
    "SupportStep",
    "TopKWeightAndReduceNoOP",
    "_resolve_aiter_activation",
    "aiter_moe_pads",
    "aiter_topK_meta_data",
    "asm_moe_tkw1",
    "biased_moe_quant_config",
    "current_arch",
    "current_bridge",
    "derive_aiter_quant_method",
    "detect_arch",
    "find_aiter",
    "fp8_w8a8_moe_quant_config",
    "fused_moe",
    "init_aiter_topK_meta_data",
    "inject_shared_expert_weights",
    "int4_w4a16_moe_quant_config",
    "is_fp8_fnuz",
    "kFp8Dynamic64Sym",
    "kFp8Dynamic128Sym",
    "kFp8DynamicTensorSym",
    "kFp8DynamicTokenSym",
    "kFp8Static128BlockE8M0Sym",
    "kFp8Static128BlockSym",
    "kFp8StaticChannelSym",
    "kFp8StaticTensorSym",
    "kFp8StaticTokenSym",
    "kInt4Static",
    "kInt4Static32",
    "kInt4Static32Asym",
    "kInt4StaticAsym",
    "kInt4W4A8StaticChannelSym",
    "kInt4W4A8StaticGroup32Sym",
    "kInt4W4A8StaticGroup64Sym",
    "kInt4W4A8StaticGroup128Sym",
    "kInt4W4A8StaticGroupSym",
    "kInt8Dynamic32Sym",
    "kInt8DynamicTensorAsym",
    "kInt8DynamicTensorSym",
    "kInt8DynamicTokenAsym",
    "kInt8DynamicTokenSym",
    "kInt8Static",
    "kInt8StaticChannelSym",
    "kInt8StaticTensorAsym",
    "kInt8StaticTensorSym",
    "kMxfp4Dynamic",
    "kMxfp4Static",
    "kMxfp6E2M3Dynamic",
    "kMxfp6E2M3Static",
    "kMxfp6E3M2Dynamic",
    "kMxfp6E3M2Static",
    "kMxfp8Dynamic",
    "kMxfp8Static",
    "kNvfp4Dynamic",
    "kNvfp4DynamicToken",
    "kNvfp4Static",
    "make_expert_mask",
    "mxfp4_w4a16_extra_kwargs",
    "mxfp4_w4a16_moe_quant_config",
    "normalize_e4m3fn_to_e4m3fnuz",
    "ocp_mx_moe_quant_config",
    "pack_gate_up",
    "padded_sizes",
    "prepare_weights",
    "reset_aiter_topK_meta_data",
    "rocm_aiter_fused_experts",
    "rocm_aiter_grouped_topk",
    "use_arch",
    "use_bridge",
    "write_result",
]

# Names that need torch, and the modules that have them.
_LAZY: Final = {
    "ExpertWeights": "checkpoint",
    "_resolve_aiter_activation": "dispatch",
    "aiter_topK_meta_data": "shared_experts",
    "asm_moe_tkw1": "operators",
    "derive_aiter_quant_method": "dispatch",
    "fused_moe": "operators",
    "init_aiter_topK_meta_data": "shared_experts",
    "inject_shared_expert_weights": "shared_experts",
    "make_expert_mask": "weights",
    "mxfp4_w4a16_extra_kwargs": "dispatch",
    "normalize_e4m3fn_to_e4m3fnuz": "weights",
    "pack_gate_up": "weights",
    "prepare_weights": "weights",
    "reset_aiter_topK_meta_data": "shared_experts",
    "rocm_aiter_fused_experts": "dispatch",
    "rocm_aiter_grouped_topk": "shared_experts",
    "write_result": "result",
}


def __getattr__(name: str) -> Any:
    # Nothing is kept here: aiter_topK_meta_data changes.
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
