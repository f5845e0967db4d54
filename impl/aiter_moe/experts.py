"""The five experts classes, the leaves: what each accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from aiter_moe.activation import MoEActivation
from aiter_moe.arch import current_arch
from aiter_moe.bridge import current_bridge
from aiter_moe.modular import (
    FusedMoEActivationFormat,
    FusedMoEExpertsModular,
    Refusal,
    TopKWeightAndReduceNoOP,
)
from aiter_moe.quant import (
    QuantKey,
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
    from aiter_moe.config import FusedMoEConfig, FusedMoEParallelConfig
    from aiter_moe.modular import ExpertTokensMetadata

_ENABLE_HINT: Final = (
    "; AITER's fused MoE is not enabled, set VLLM_ROCM_USE_AITER=1 and VLLM_ROCM_USE_AITER_MOE=1 "
    "(it is not enabled because {obstacle})"
)
_ACTIVATIONS: Final = frozenset(
    {
        MoEActivation.SILU,
        MoEActivation.GELU,
        MoEActivation.SITU,
        MoEActivation.SWIGLUOAI,
        MoEActivation.SWIGLUOAI_UNINTERLEAVE,
    }
)


class _Accepts(NamedTuple):
    weight_key: QuantKey | None
    activation_key: QuantKey | None
    arch: str | None = None
    """The only architecture that has the kernels; None when each that gets past the device step does."""


class AiterExperts(FusedMoEExpertsModular):
    """What the leaves have in common.

    AITER takes an expert mask instead of a map, applies router weights and reduces by itself.
    """

    consumes_expert_mask: ClassVar[bool] = True
    _AITER_QUANT_METHOD: ClassVar[QuantMethod]
    _SUPPORTS_ROUTER_WEIGHT_ON_INPUT: ClassVar[bool] = True
    _ACCEPTS: ClassVar[tuple[_Accepts, ...]]

    @staticmethod
    def activation_format() -> FusedMoEActivationFormat:
        """Return the format in which hidden states arrive: one row a token."""
        return FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device() -> bool:
        return current_bridge().is_fused_moe_enabled()

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return False

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return activation in _ACTIVATIONS

    @classmethod
    def _supports_quant_scheme(cls, weight_key: QuantKey | None, activation_key: QuantKey | None) -> bool:
        arch = current_arch()
        return any(_Accepts(weight_key, activation_key, a) in cls._ACCEPTS for a in (None, arch))

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: FusedMoEParallelConfig) -> bool:
        return not (
            moe_parallel_config.use_fi_nvl_two_sided_kernels
            or moe_parallel_config.use_fi_nvl_one_sided_kernels
        )

    @classmethod
    def check_support(
        cls,
        moe_config: FusedMoEConfig,
        weight_key: QuantKey | None,
        activation_key: QuantKey | None,
        activation_format: FusedMoEActivationFormat,
    ) -> Refusal | None:
        """As the base, with a hint how to enable AITER's fused MoE where it is not enabled."""
        refusal = super().check_support(moe_config, weight_key, activation_key, activation_format)
        obstacle = current_bridge().fused_moe_obstacle()
        if refusal is None or obstacle is None:
            return refusal
        return Refusal(refusal.step, refusal.reason + _ENABLE_HINT.format(obstacle=obstacle))

    @property
    def expects_unquantized_inputs(self) -> bool:
        """Whether hidden states arrive unquantised: AITER quantises, except where MoRI did so on the way."""
        return not self.moe_config.use_mori_epv1_kernels

    def finalize_weight_and_reduce_impl(self) -> TopKWeightAndReduceNoOP:
        """Return what is left to do after the experts: nothing."""
        return TopKWeightAndReduceNoOP()

    def workspace_shapes(
        self,
        M: int,  # noqa: N803 -- upstream's names, here and below
        N: int,  # noqa: ARG002, N803
        K: int,  # noqa: N803
        topk: int,  # noqa: ARG002
        global_num_experts: int,  # noqa: ARG002
        local_num_experts: int,  # noqa: ARG002
        expert_tokens_meta: ExpertTokensMetadata | None,  # noqa: ARG002
        activation: MoEActivation,  # noqa: ARG002
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the two workspaces, which are empty, and of the output, ``(M, K)``.

        Where MoRI sends MXFP4 activations, the K that comes in counts bytes of two elements each, so the
        output has ``2 * K`` columns.
        """
        packed = self.moe_config.use_mori_epv1_kernels and self.quant_config.use_mxfp4_w4a4
        return (0,), (0,), (M, 2 * K if packed else K)


class AiterUnquantizedExperts(AiterExperts):
    """bf16 or fp16 weights and activations."""

    _AITER_QUANT_METHOD = QuantMethod.NO
    _ACCEPTS = (_Accepts(None, None),)


class AiterFp8BlockExperts(AiterExperts):
    """fp8 weights in blocks of 128 x 128, fp8 activations in groups of 128."""

    _AITER_QUANT_METHOD = QuantMethod.BLOCK_128x128
    _SUPPORTS_ROUTER_WEIGHT_ON_INPUT = False
    _ACCEPTS = (_Accepts(kFp8Static128BlockSym, kFp8Dynamic128Sym),)


class AiterFp8TensorExperts(AiterExperts):
    """fp8 weights and activations with one scale a tensor; the activations' is static or dynamic."""

    _AITER_QUANT_METHOD = QuantMethod.PER_TENSOR
    _ACCEPTS = (
        _Accepts(kFp8StaticTensorSym, kFp8StaticTensorSym),
        _Accepts(kFp8StaticTensorSym, kFp8DynamicTensorSym),
    )


class AiterFp8ChannelExperts(AiterExperts):
    """fp8 weights with one scale an output channel, fp8 activations with one a token."""

    _AITER_QUANT_METHOD = QuantMethod.PER_TOKEN
    _ACCEPTS = (_Accepts(kFp8StaticChannelSym, kFp8DynamicTokenSym),)


class AiterMxfp4Experts(AiterExperts):
    """MXFP4 weights with unquantised or MXFP4 activations; on gfx942, Kimi-K3's MXFP4 requantised to int4."""

    _AITER_QUANT_METHOD = QuantMethod.BLOCK_1X32
    _ACCEPTS = (
        _Accepts(kMxfp4Static, None, "gfx950"),
        _Accepts(kMxfp4Static, kMxfp4Dynamic, "gfx950"),
        _Accepts(kInt4Static32, None, "gfx942"),
    )
