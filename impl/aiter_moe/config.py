"""How a model is spread over devices, and what one fused MoE layer is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from aiter_moe.activation import MoEActivation
from aiter_moe.bridge import current_bridge
from aiter_moe.quant import DType

if TYPE_CHECKING:
    import torch

_TWO_SIDED: Final = ("flashinfer_all2allv", "flashinfer_nvlink_two_sided")
_ONE_SIDED: Final = ("flashinfer_nvlink_one_sided",)
_MORI: Final = ("mori_high_throughput", "mori_low_latency")
_SIZES: Final = ("tp_size", "pcp_size", "dp_size", "ep_size", "sp_size")
_RANKS: Final = ("tp", "pcp", "dp", "ep")


class RoutingMethodType(IntEnum):
    """How the router turns logits into expert weights, by the numbers of vLLM 0.33.0."""

    Default = 0
    Renormalize = 1
    DeepSeekV3 = 2
    Llama4 = 3
    RenormalizeNaive = 4
    TopK = 5
    SigmoidRenorm = 6
    MiniMax2 = 7
    Sigmoid = 8
    Unspecified = 9
    DeepseekV4 = 100
    Custom = 101
    Simulated = 102


@dataclass(frozen=True, kw_only=True)
class FusedMoEParallelConfig:
    """How the experts of one layer are spread over devices. `make` works it out from a deployment.

    Attributes:
        tp_size, pcp_size, dp_size, ep_size, sp_size: Degrees of tensor, prefill-context, data, expert and
            sequence parallelism as the experts see them; each at least 1.
        tp_rank, pcp_rank, dp_rank, ep_rank: This device's place in each.
        use_ep: Whether experts are spread whole instead of being cut.
        all2all_backend: Who carries tokens between devices.

    Raises:
        ValueError: A size is below 1 or a rank is outside its size.
    """

    tp_size: int = 1
    pcp_size: int = 1
    dp_size: int = 1
    ep_size: int = 1
    sp_size: int = 1
    tp_rank: int = 0
    pcp_rank: int = 0
    dp_rank: int = 0
    ep_rank: int = 0
    use_ep: bool = False
    all2all_backend: str = "allgather_reducescatter"

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                msg = f"{name} must be at least 1 (got {getattr(self, name)})"
                raise ValueError(msg)
        for name in _RANKS:
            rank, size = getattr(self, f"{name}_rank"), getattr(self, f"{name}_size")
            if not 0 <= rank < size:
                msg = f"{name}_rank must be at least 0 and below {name}_size {size} (got {rank})"
                raise ValueError(msg)

    @classmethod
    def make(
        cls,
        *,
        tp_size: int = 1,
        pcp_size: int = 1,
        dp_size: int = 1,
        sp_size: int = 1,
        tp_rank: int = 0,
        pcp_rank: int = 0,
        dp_rank: int = 0,
        enable_expert_parallel: bool = False,
        all2all_backend: str = "allgather_reducescatter",
    ) -> FusedMoEParallelConfig:
        """Return the experts' view of a deployment of the given sizes.

        All ``dp * pcp * tp`` devices work on each layer's experts: by expert parallelism when it is enabled
        and there is more than one device, otherwise by cutting each expert, also across data parallel ranks.

        Raises:
            ValueError: A size is below 1 or a rank is outside its size.
        """
        # Checked as given: flattened, a rank outside its size can look valid.
        deployment = cls(
            tp_size=tp_size,
            pcp_size=pcp_size,
            dp_size=dp_size,
            sp_size=sp_size,
            tp_rank=tp_rank,
            pcp_rank=pcp_rank,
            dp_rank=dp_rank,
            all2all_backend=all2all_backend,
        )
        devices = dp_size * pcp_size * tp_size
        rank = (dp_rank * pcp_size + pcp_rank) * tp_size + tp_rank
        if enable_expert_parallel and devices > 1:
            return replace(deployment, tp_size=1, tp_rank=0, ep_size=devices, ep_rank=rank, use_ep=True)
        return replace(deployment, tp_size=devices, tp_rank=rank)

    @property
    def use_all2all_kernels(self) -> bool:
        """Whether tokens travel to the devices that hold their experts."""
        return self.use_ep and (self.dp_size > 1 or self.pcp_size > 1 or self.sp_size > 1)

    @property
    def use_fi_nvl_two_sided_kernels(self) -> bool:
        """Whether FlashInfer's two-sided NVLink kernels carry the tokens."""
        return self.use_all2all_kernels and self.all2all_backend in _TWO_SIDED

    @property
    def use_fi_nvl_one_sided_kernels(self) -> bool:
        """Whether FlashInfer's one-sided NVLink kernels carry the tokens."""
        return self.use_all2all_kernels and self.all2all_backend in _ONE_SIDED

    @property
    def use_mori_epv1_kernels(self) -> bool:
        """Whether MoRI carries the tokens; it quantises them on the way."""
        return self.use_all2all_kernels and self.all2all_backend in _MORI


@dataclass(kw_only=True)
class FusedMoEConfig:
    """One fused MoE layer. Sizes are in elements; ``None`` for an unpadded size means "no padding".

    Attributes:
        num_experts: Experts of the model, counting redundant copies.
        num_local_experts: Experts held here.
        num_logical_experts: Experts of the checkpoint.
        experts_per_token: Routed experts per token (topk).
        hidden_dim: Hidden size as allocated (K).
        intermediate_size: Intermediate size as allocated, of all tensor-parallel ranks together.
        activation: What the experts compute.
        in_dtype: Element type of the hidden states.
        device: Where the layer lives; for information.
        routing_method: How tokens were routed.
        router_logits_dtype: Element type of the router's logits; `in_dtype` when None.
        has_hash_routing: Experts come from a table of token ids.
        require_decomposed_backend: Routing has to happen outside the experts.
        is_lora_enabled: Adapters are applied to the experts.
        moe_parallel_config: How the layer is spread.
        hidden_dim_unpadded: Hidden size of the model.
        intermediate_size_per_partition_unpadded: Intermediate size of the model on this rank.
        intermediate_pad: Padding of the intermediate size to report; None to derive it from the two sizes.
        swiglu_limit: Clamp of the activation; None or 0 for its own default.
        activation_situ_beta, activation_situ_linear_beta: Parameters of SITU.
        use_mxfp4_w4a4_dsv4: DeepSeek V4.1's opt-in to MXFP4 activations. A plain field here: upstream sets it
            from ``VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4`` for that model.

    Raises:
        ValueError: The intermediate size does not divide among the ranks, or MoRI is used although AITER's
            fused MoE is off or shared-expert fusion is on.
    """

    num_experts: int
    experts_per_token: int
    hidden_dim: int
    intermediate_size: int
    num_local_experts: int
    num_logical_experts: int
    activation: MoEActivation
    in_dtype: torch.dtype | str = DType.BFLOAT16
    device: torch.device | str = "cuda"
    routing_method: RoutingMethodType = RoutingMethodType.Default
    router_logits_dtype: torch.dtype | str | None = None
    has_hash_routing: bool = False
    require_decomposed_backend: bool = False
    is_lora_enabled: bool = False
    moe_parallel_config: FusedMoEParallelConfig = field(default_factory=FusedMoEParallelConfig)
    hidden_dim_unpadded: int | None = None
    intermediate_size_per_partition_unpadded: int | None = None
    intermediate_pad: int | None = None
    swiglu_limit: float | None = None
    activation_situ_beta: float | None = None
    activation_situ_linear_beta: float | None = None
    use_mxfp4_w4a4_dsv4: bool = False

    def __post_init__(self) -> None:
        if self.intermediate_size % self.tp_size:
            msg = (
                f"intermediate_size must be a multiple of tp_size {self.tp_size} "
                f"(got {self.intermediate_size}); pad it or choose another tensor parallel size"
            )
            raise ValueError(msg)
        if self.router_logits_dtype is None:
            self.router_logits_dtype = self.in_dtype
        if self.hidden_dim_unpadded is None:
            self.hidden_dim_unpadded = self.hidden_dim
        if self.intermediate_size_per_partition_unpadded is None:
            self.intermediate_size_per_partition_unpadded = self.intermediate_size_per_partition
        if self.use_mori_epv1_kernels:
            _check_mori()

    @property
    def is_act_and_mul(self) -> bool:
        """Whether w1 holds gate and up."""
        return self.activation.is_gated

    @property
    def intermediate_size_per_partition(self) -> int:
        """Intermediate size as allocated on this rank (N)."""
        return self.intermediate_size // self.tp_size

    @property
    def tp_size(self) -> int:
        """Into how many parts each expert is cut; 1 under expert parallelism."""
        return self.moe_parallel_config.tp_size

    @property
    def use_mori_epv1_kernels(self) -> bool:
        """Whether MoRI carries the tokens."""
        return self.moe_parallel_config.use_mori_epv1_kernels


def _check_mori() -> None:
    bridge = current_bridge()
    obstacle = bridge.fused_moe_obstacle()
    if obstacle is not None:
        msg = f"MoRI must be used with AITER's fused MoE enabled (got it disabled: {obstacle})"
        raise ValueError(msg)
    if bridge.is_fusion_moe_shared_experts_enabled():
        msg = (
            "MoRI must be used without shared-expert fusion (got it enabled); "
            "set VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0"
        )
        raise ValueError(msg)
