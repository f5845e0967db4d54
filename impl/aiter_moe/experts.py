"""What the experts classes, the leaves, have in common: what they are asked, and the call they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from aiter_moe.activation import MoEActivation
from aiter_moe.arch import current_arch
from aiter_moe.bridge import current_bridge
from aiter_moe.modular import (
    FusedMoEActivationFormat,
    FusedMoEExpertsModular,
    Refusal,
    TopKWeightAndReduceNoOP,
)
from aiter_moe.quant import QuantKey, QuantMethod

if TYPE_CHECKING:
    from collections.abc import Container

    import torch
    from torch import Tensor

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


class Accepts(NamedTuple):
    """One quantisation scheme that a leaf accepts."""

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
    _ACCEPTS: ClassVar[tuple[Accepts, ...]]

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
        return any(Accepts(weight_key, activation_key, a) in cls._ACCEPTS for a in (None, arch))

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

    def apply(
        self,
        output: Tensor,
        hidden_states: Tensor,
        w1: Tensor,
        w2: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        activation: MoEActivation,
        global_num_experts: int,  # noqa: ARG002 -- AITER counts the mask
        expert_map: Tensor | None,
        a1q_scale: Tensor | None,
        a2_scale: Tensor | None,  # noqa: ARG002 -- static scales are in the quantisation configuration
        workspace13: Tensor,  # noqa: ARG002 -- AITER allocates its own, so both are empty
        workspace2: Tensor,  # noqa: ARG002
        expert_tokens_meta: ExpertTokensMetadata | None,
        apply_router_weight_on_input: bool,
    ) -> None:
        """Run the experts and write the weighted, reduced result into `output`.

        Compiled, the call is one graph: environment and bridge are asked while compiling, and the result is
        copied into `output`, whose storage is otherwise replaced where that is safe (`write_result`).

        Args:
            output: ``[M, K]``, written.
            hidden_states: ``[M, K]``, or packed ``[M, K / 2]`` of type ``float4_e2m1fn_x2``.
            w1: ``[E, 2N, K]``, shuffled as the scheme wants.
            w2: ``[E, K, N]``, likewise.
            topk_weights: Router weights ``[M, topk]``.
            topk_ids: Experts ``[M, topk]``.
            activation: What the experts compute.
            global_num_experts: Not used.
            expert_map: An expert mask, see `make_expert_mask`; None without expert parallelism.
            a1q_scale: Scales of hidden states that arrive quantised.
            a2_scale: Not used.
            workspace13: Not used.
            workspace2: Not used.
            expert_tokens_meta: Counts of valid rows; only a single number is passed on.
            apply_router_weight_on_input: Whether router weights multiply before the activation.

        Raises:
            ImportError: There is no AITER.
            RuntimeError: SITU, and AITER's environment no longer says what the bridge told it.
            ValueError: A bad argument, a bad combination, or one that the AITER at hand cannot take.
        """
        from aiter_moe.result import write_result

        result = self._run(
            hidden_states,
            w1,
            w2,
            topk_weights,
            topk_ids,
            activation,
            expert_map,
            a1q_scale,
            expert_tokens_meta,
            apply_router_weight_on_input,
            output.dtype,
        )
        write_result(output, result)

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
        """Return what `apply` writes, from those of its arguments that are used."""
        from aiter_moe.dispatch import dispatch_policy, rocm_aiter_fused_experts

        if apply_router_weight_on_input and not self._SUPPORTS_ROUTER_WEIGHT_ON_INPUT:
            msg = f"apply_router_weight_on_input must be False for {type(self).__name__} (got True)"
            raise ValueError(msg)
        extra = self._extra_fused_moe_kwargs()
        self._check_biases(extra)
        return rocm_aiter_fused_experts(
            hidden_states,
            w1,
            w2,
            topk_weights,
            topk_ids,
            moe_config=self.moe_config,
            quant_method=self._AITER_QUANT_METHOD,
            activation=activation,
            apply_router_weight_on_input=apply_router_weight_on_input,
            expert_mask=expert_mask,
            quant_config=self.quant_config,
            a1q_scale=a1q_scale,
            num_local_tokens=_num_local_tokens(expert_tokens_meta),
            output_dtype=output_dtype,
            moe_sorting_dispatch_policy=dispatch_policy(),
            **extra,
        )

    def _extra_fused_moe_kwargs(self) -> dict[str, Any]:
        """Return what the leaf adds to the common call."""
        return {}

    def _check_biases(self, extra: Container[str]) -> None:
        """Refuse a bias that the call would not carry. Ours: upstream drops it."""
        for name, bias, keyword in (
            ("w1_bias", self.quant_config.w1_bias, "bias1"),
            ("w2_bias", self.quant_config.w2_bias, "bias2"),
        ):
            if bias is not None and keyword not in extra:
                msg = (
                    f"{name} must be None for {type(self).__name__}: AITER takes biases only with MXFP4 "
                    "weights and unquantised activations (got a tensor)"
                )
                raise ValueError(msg)


def _num_local_tokens(expert_tokens_meta: ExpertTokensMetadata | None) -> Tensor | None:
    """Return the number of valid rows, where the metadata is one number.

    Ours: upstream also passes a count per expert, of which AITER takes the first for the number of rows.
    """
    counts = None if expert_tokens_meta is None else expert_tokens_meta.expert_num_tokens
    return counts if counts is not None and counts.numel() == 1 else None
