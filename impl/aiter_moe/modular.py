"""What every modular experts class is: its declarations, and the cascade that asks them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

from aiter_moe import env
from aiter_moe.arch import current_arch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aiter_moe.activation import MoEActivation
    from aiter_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
    from aiter_moe.quant import QuantKey
    from aiter_moe.quant_config import FusedMoEQuantConfig


class FusedMoEActivationFormat(Enum):
    """How hidden states arrive: one row a token, or one padded batch an expert."""

    Standard = "standard"
    BatchedExperts = "batched_experts"


@dataclass(frozen=True, eq=False)
class ExpertTokensMetadata:
    """What a dispatch knows about the tokens it brought.

    Attributes:
        expert_num_tokens: int32; one element is the number of valid rows, a vector counts per expert.
        expert_num_tokens_cpu: The same on the host.
    """

    expert_num_tokens: Tensor | None
    expert_num_tokens_cpu: Tensor | None = None


@dataclass(frozen=True)
class TopKWeightAndReduceNoOP:
    """Says that the experts weight and reduce by themselves, so that nothing is left to do."""


class SupportStep(StrEnum):
    """The steps of the support cascade, in the order in which they are taken."""

    DEVICE = "device"
    ACT_AND_MUL = "act-and-mul"
    ACTIVATION = "activation"
    SCHEME = "scheme"
    PARALLEL_CONFIG = "parallel-config"
    HASH_ROUTING = "hash-routing"
    RE_ROUTING = "re-routing"
    ROUTING_METHOD = "routing-method"
    ROUTER_LOGITS_DTYPE = "router-logits-dtype"
    HIDDEN_DIM = "hidden-dim"
    ACTIVATION_FORMAT = "activation-format"
    BATCH_INVARIANCE = "batch-invariance"
    LORA = "lora"


@dataclass(frozen=True)
class Refusal:
    """Why a class does not support a configuration.

    Attributes:
        step: The step of the cascade that failed.
        reason: The same for people, in one sentence.
    """

    step: SupportStep
    reason: str


class _Scheme(NamedTuple):
    weight_key: QuantKey | None
    activation_key: QuantKey | None

    def __str__(self) -> str:
        weights, activations = (key or "unquantised" for key in self)
        return f"weights {weights} with activations {activations}"


def _arch() -> str:
    return current_arch() or "a machine without a ROCm GPU"


class FusedMoEExpertsModular(ABC):
    """Base of the experts classes that take routed tokens and leave routing to others.

    Raises:
        ValueError: ``max_num_tokens`` or ``num_dispatchers`` is given: tokens come in the standard format.
    """

    def __init__(
        self,
        moe_config: FusedMoEConfig,
        quant_config: FusedMoEQuantConfig,
        max_num_tokens: int | None = None,
        num_dispatchers: int | None = None,
    ) -> None:
        for name, value in (("max_num_tokens", max_num_tokens), ("num_dispatchers", num_dispatchers)):
            if value is not None:
                msg = f"{name} must be None: {type(self).__name__} takes tokens unbatched (got {value})"
                raise ValueError(msg)
        self.moe_config = moe_config
        self.quant_config = quant_config

    @staticmethod
    @abstractmethod
    def activation_format() -> FusedMoEActivationFormat:
        """Return the format in which hidden states arrive."""

    @staticmethod
    def is_monolithic() -> bool:
        """Whether routing happens inside the experts."""
        return False

    @staticmethod
    @abstractmethod
    def _supports_current_device() -> bool:
        """Whether the class works on the current device, as the environment has it."""

    @staticmethod
    @abstractmethod
    def _supports_no_act_and_mul() -> bool:
        """Whether activations that are not gated are supported."""

    @staticmethod
    @abstractmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        """Whether `activation` is supported."""

    @classmethod
    @abstractmethod
    def _supports_quant_scheme(cls, weight_key: QuantKey | None, activation_key: QuantKey | None) -> bool:
        """Whether the pair of keys is supported; None is "unquantised"."""

    @staticmethod
    @abstractmethod
    def _supports_parallel_config(moe_parallel_config: FusedMoEParallelConfig) -> bool:
        """Whether the way in which the experts are spread is supported."""

    @staticmethod
    def _supports_routing_method(
        routing_method: RoutingMethodType,  # noqa: ARG004
        weight_key: QuantKey | None,  # noqa: ARG004
        activation_key: QuantKey | None,  # noqa: ARG004
    ) -> bool:
        return True

    @staticmethod
    def _supports_router_logits_dtype(
        router_logits_dtype: torch.dtype | str | None,  # noqa: ARG004
        routing_method: RoutingMethodType,  # noqa: ARG004
    ) -> bool:
        return True

    @staticmethod
    def _supports_shape(hidden_dim: int) -> bool:  # noqa: ARG004
        return True

    @staticmethod
    def _supports_batch_invariance() -> bool:
        return False

    @staticmethod
    def supports_lora() -> bool:
        """Whether adapters can be applied to the experts."""
        return False

    @classmethod
    def check_support(
        cls,
        moe_config: FusedMoEConfig,
        weight_key: QuantKey | None,
        activation_key: QuantKey | None,
        activation_format: FusedMoEActivationFormat,
    ) -> Refusal | None:
        """Return the first step of the cascade that refuses the configuration, or None when none does."""
        refused = cls._first_refusal(moe_config, weight_key, activation_key, activation_format)
        return refused and Refusal(refused[0], f"{cls.__name__} does not support {refused[1]}")

    @classmethod
    def _first_refusal(
        cls,
        moe_config: FusedMoEConfig,
        weight_key: QuantKey | None,
        activation_key: QuantKey | None,
        activation_format: FusedMoEActivationFormat,
    ) -> tuple[SupportStep, str] | None:
        """Return the step that refuses and what it is that is not supported."""
        parallel = moe_config.moe_parallel_config
        routing = moe_config.routing_method
        logits = moe_config.router_logits_dtype
        activation = moe_config.activation
        scheme = _Scheme(weight_key, activation_key)
        if not cls._supports_current_device():
            return SupportStep.DEVICE, f"the current device ({_arch()})"
        if not (moe_config.is_act_and_mul or cls._supports_no_act_and_mul()):
            return SupportStep.ACT_AND_MUL, f"the activation {activation.value}, which is not gated"
        if not cls._supports_activation(activation):
            return SupportStep.ACTIVATION, f"the activation {activation.value}"
        if not cls._supports_quant_scheme(weight_key, activation_key):
            return SupportStep.SCHEME, f"{scheme} on {_arch()}"
        if not cls._supports_parallel_config(parallel):
            return SupportStep.PARALLEL_CONFIG, f"the all-to-all backend {parallel.all2all_backend}"
        if cls.is_monolithic() and moe_config.has_hash_routing:
            return SupportStep.HASH_ROUTING, "hash routing: it routes by itself"
        if cls.is_monolithic() and moe_config.require_decomposed_backend:
            return SupportStep.RE_ROUTING, "routing by others: it routes by itself"
        if not cls._supports_routing_method(routing, weight_key, activation_key):
            return SupportStep.ROUTING_METHOD, f"the routing method {routing.name} with {scheme}"
        if not cls._supports_router_logits_dtype(logits, routing):
            return SupportStep.ROUTER_LOGITS_DTYPE, f"router logits of type {logits} with {routing.name}"
        if not cls._supports_shape(moe_config.hidden_dim):
            return SupportStep.HIDDEN_DIM, f"the hidden size {moe_config.hidden_dim}"
        if activation_format is not cls.activation_format():
            taken = cls.activation_format().value
            return SupportStep.ACTIVATION_FORMAT, f"the format {activation_format.value}: it takes {taken}"
        if env.is_on("VLLM_BATCH_INVARIANT", default=False) and not cls._supports_batch_invariance():
            return SupportStep.BATCH_INVARIANCE, "batch-invariant results (VLLM_BATCH_INVARIANT)"
        if moe_config.is_lora_enabled and not cls.supports_lora():
            return SupportStep.LORA, "LoRA"
        return None

    @staticmethod
    def is_supported_config(
        cls: type[FusedMoEExpertsModular],
        moe_config: FusedMoEConfig,
        weight_key: QuantKey | None,
        activation_key: QuantKey | None,
        activation_format: FusedMoEActivationFormat,
    ) -> tuple[bool, str | None]:
        """Return ``(True, None)``, or False and the reason in words. `check_support` also names the step."""
        refusal = cls.check_support(moe_config, weight_key, activation_key, activation_format)
        return (True, None) if refusal is None else (False, refusal.reason)
