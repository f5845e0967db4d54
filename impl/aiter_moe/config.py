"""The configurations that the leaves read: how the model is split, what the layer is, how it is quantised."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from aiter_moe.activation import MoEActivation
from aiter_moe.bridge import current_bridge
from aiter_moe.quant import PER_TENSOR, PER_TOKEN, DType, GroupShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

_TWO_SIDED: Final = ("flashinfer_all2allv", "flashinfer_nvlink_two_sided")
_ONE_SIDED: Final = ("flashinfer_nvlink_one_sided",)
_MORI: Final = ("mori_high_throughput", "mori_low_latency")
_SIZES: Final = ("tp_size", "pcp_size", "dp_size", "ep_size", "sp_size")
_RANKS: Final = ("tp", "pcp", "dp", "ep")


class RoutingMethodType(IntEnum):
    """How the router turns logits into expert weights, by upstream's numbers."""

    Default = 0
    Renormalize = 1
    DeepSeekV3 = 2
    Llama4 = 3
    RenormalizeNaive = 4
    TopK = 5
    Custom = 6
    Simulated = 7
    Unspecified = 8


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


@dataclass(frozen=True, eq=False)
class FusedMoEQuantDesc:
    """How one operand of one matrix product is quantised.

    Attributes:
        dtype: torch's type, the name of one, or the name of a packed format such as ``mxfp4``; None when
            unquantised.
        shape: What shares one scale; None when that is left open.
        scale: The scales, when they are known before the call.
        alpha_or_gscale: A second, global scale.
        zp: Zero points.
        bias: Bias added to the product.
    """

    dtype: torch.dtype | str | None = None
    shape: GroupShape | None = None
    scale: Tensor | None = None
    alpha_or_gscale: Tensor | None = None
    zp: Tensor | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class FusedMoEQuantConfig:
    """How the two activations (a1, a2) and the two weights (w1, w2) of a layer are quantised.

    `make` fills the four descriptors by upstream's rules; the properties are what the leaves ask.
    """

    _a1: FusedMoEQuantDesc
    _a2: FusedMoEQuantDesc
    _w1: FusedMoEQuantDesc
    _w2: FusedMoEQuantDesc

    @classmethod
    def make(
        cls,
        quant_dtype: torch.dtype | str | None = None,
        *,
        weight_dtype: torch.dtype | str | None = None,
        per_act_token_quant: bool = False,
        per_out_ch_quant: bool = False,
        block_shape: Sequence[int] | None = None,
        w1_scale: Tensor | None = None,
        w2_scale: Tensor | None = None,
        a1_scale: Tensor | None = None,
        a2_scale: Tensor | None = None,
        g1_alphas: Tensor | None = None,
        g2_alphas: Tensor | None = None,
        a1_gscale: Tensor | None = None,
        a2_gscale: Tensor | None = None,
        w1_bias: Tensor | None = None,
        w2_bias: Tensor | None = None,
        w1_zp: Tensor | None = None,
        w2_zp: Tensor | None = None,
    ) -> FusedMoEQuantConfig:
        """Return the configuration that the given flags describe.

        Args:
            quant_dtype: Type of the activations, None for unquantised ones.
            weight_dtype: Type of the weights; that of the activations when None.
            per_act_token_quant: One activation scale a token instead of one a tensor.
            per_out_ch_quant: One weight scale an output channel.
            block_shape: Two numbers, the block of weights that shares one scale. Activations get the same
                shape, as upstream has it, although their blocks have one row.
            w1_scale: Scales of w1.
            w2_scale: Scales of w2.
            a1_scale: Scales of the hidden states.
            a2_scale: Scales of the intermediate.
            g1_alphas: Global scale of w1.
            g2_alphas: Global scale of w2.
            a1_gscale: Global scale of the hidden states.
            a2_gscale: Global scale of the intermediate.
            w1_bias: Bias of the first product.
            w2_bias: Bias of the second product.
            w1_zp: Zero points of w1.
            w2_zp: Zero points of w2.

        Raises:
            ValueError: `block_shape` comes with a per-token or per-channel flag, or is not two numbers.
        """
        act_shape = None if quant_dtype is None else PER_TENSOR
        weight_shape = None
        if per_act_token_quant:
            act_shape = PER_TOKEN
        if per_out_ch_quant:
            weight_shape = PER_TOKEN
        if block_shape is not None:
            if per_act_token_quant or per_out_ch_quant or len(block_shape) != 2:
                msg = (
                    "block_shape must be two numbers, without per_act_token_quant and per_out_ch_quant "
                    f"(got {list(block_shape)}, {per_act_token_quant}, {per_out_ch_quant})"
                )
                raise ValueError(msg)
            act_shape = weight_shape = GroupShape(*block_shape)
        if weight_dtype is None:
            weight_dtype = quant_dtype
        return cls(
            FusedMoEQuantDesc(quant_dtype, act_shape, a1_scale, a1_gscale),
            FusedMoEQuantDesc(quant_dtype, act_shape, a2_scale, a2_gscale),
            FusedMoEQuantDesc(weight_dtype, weight_shape, w1_scale, g1_alphas, w1_zp, w1_bias),
            FusedMoEQuantDesc(weight_dtype, weight_shape, w2_scale, g2_alphas, w2_zp, w2_bias),
        )

    @property
    def a1_scale(self) -> Tensor | None:
        """Scales of the first product's activations."""
        return self._a1.scale

    @property
    def a2_scale(self) -> Tensor | None:
        """Scales of the second product's activations."""
        return self._a2.scale

    @property
    def w1_scale(self) -> Tensor | None:
        """Scales of w1."""
        return self._w1.scale

    @property
    def w2_scale(self) -> Tensor | None:
        """Scales of w2."""
        return self._w2.scale

    @property
    def w1_bias(self) -> Tensor | None:
        """Bias of the first product."""
        return self._w1.bias

    @property
    def w2_bias(self) -> Tensor | None:
        """Bias of the second product."""
        return self._w2.bias

    @property
    def per_act_token_quant(self) -> bool:
        """Whether activations have one scale a token."""
        return self._a1.shape == PER_TOKEN

    @property
    def per_out_ch_quant(self) -> bool:
        """Whether weights have one scale an output channel (shape (1, -1) here, (-1, 1) in the quant key)."""
        return self._w1.shape == PER_TOKEN

    @property
    def block_shape(self) -> list[int] | None:
        """The block of activations that shares one scale, or None where that is a tensor or a token."""
        shape = self._a1.shape
        return None if shape in (None, PER_TENSOR, PER_TOKEN) else list(shape)

    @property
    def use_fp8_w8a8(self) -> bool:
        """Whether activations are of the fp8 flavour of the current architecture."""
        return _dtype_name(self._a1.dtype) == DType.FP8.resolve()

    @property
    def use_int4_w4a16(self) -> bool:
        """Whether int4 weights meet unquantised activations."""
        return self._w1.dtype == "int4" and self._a1.dtype is None

    @property
    def use_mxfp4_w4a16(self) -> bool:
        """Whether MXFP4 weights meet unquantised activations."""
        return self._w1.dtype == "mxfp4" and self._a1.dtype is None

    @property
    def use_mxfp4_w4a4(self) -> bool:
        """Whether MXFP4 weights meet MXFP4 activations."""
        return self._w1.dtype == "mxfp4" and self._a1.dtype == "mxfp4"


def _dtype_name(dtype: torch.dtype | str | None) -> str:
    if dtype == DType.FP8:
        return DType.FP8.resolve()
    return str(dtype).removeprefix("torch.")


FUSED_MOE_UNQUANTIZED_CONFIG: Final = FusedMoEQuantConfig.make()


def biased_moe_quant_config(w1_bias: Tensor | None, w2_bias: Tensor | None) -> FusedMoEQuantConfig:
    """Return the configuration of unquantised experts with biases."""
    return FusedMoEQuantConfig.make(w1_bias=w1_bias, w2_bias=w2_bias)


def fp8_w8a8_moe_quant_config(
    w1_scale: Tensor,
    w2_scale: Tensor,
    a1_scale: Tensor | None = None,
    a2_scale: Tensor | None = None,
    w1_bias: Tensor | None = None,
    w2_bias: Tensor | None = None,
    *,
    per_act_token_quant: bool = False,
    per_out_ch_quant: bool = False,
    block_shape: Sequence[int] | None = None,
) -> FusedMoEQuantConfig:
    """Return the configuration of fp8 weights and activations, of the current architecture's flavour.

    Raises:
        ValueError: As `FusedMoEQuantConfig.make`.
    """
    return FusedMoEQuantConfig.make(
        DType.FP8,
        per_act_token_quant=per_act_token_quant,
        per_out_ch_quant=per_out_ch_quant,
        block_shape=block_shape,
        w1_scale=w1_scale,
        w2_scale=w2_scale,
        a1_scale=a1_scale,
        a2_scale=a2_scale,
        w1_bias=w1_bias,
        w2_bias=w2_bias,
    )


def mxfp4_w4a16_moe_quant_config(
    w1_scale: Tensor, w2_scale: Tensor, w1_bias: Tensor | None = None, w2_bias: Tensor | None = None
) -> FusedMoEQuantConfig:
    """Return the configuration of MXFP4 weights and unquantised activations.

    Kimi-K3's experts, requantised to int4 at load, use it too.
    """
    return FusedMoEQuantConfig.make(
        weight_dtype="mxfp4", w1_scale=w1_scale, w2_scale=w2_scale, w1_bias=w1_bias, w2_bias=w2_bias
    )


def ocp_mx_moe_quant_config(
    quant_dtype: str,
    w1_scale: Tensor,
    w2_scale: Tensor,
    weight_dtype: str | None = None,
    a1_scale: Tensor | None = None,
    a2_scale: Tensor | None = None,
    w1_bias: Tensor | None = None,
    w2_bias: Tensor | None = None,
) -> FusedMoEQuantConfig:
    """Return the configuration of OCP microscaling types, e.g. ``mxfp4`` for both weights and activations."""
    return FusedMoEQuantConfig.make(
        quant_dtype,
        weight_dtype=weight_dtype,
        w1_scale=w1_scale,
        w2_scale=w2_scale,
        a1_scale=a1_scale,
        a2_scale=a2_scale,
        w1_bias=w1_bias,
        w2_bias=w2_bias,
    )


def int4_w4a16_moe_quant_config(
    w1_scale: Tensor,
    w2_scale: Tensor,
    w1_zp: Tensor | None = None,
    w2_zp: Tensor | None = None,
    block_shape: Sequence[int] | None = None,
) -> FusedMoEQuantConfig:
    """Return the configuration of int4 weights in groups and unquantised activations.

    `block_shape` is that of the weights, e.g. ``[1, 32]``.

    Raises:
        ValueError: As `FusedMoEQuantConfig.make`.
    """
    return FusedMoEQuantConfig.make(
        weight_dtype="int4",
        block_shape=block_shape,
        w1_scale=w1_scale,
        w2_scale=w2_scale,
        w1_zp=w1_zp,
        w2_zp=w2_zp,
    )
