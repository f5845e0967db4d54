"""How a layer is quantised: four descriptors, and what the leaves ask of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiter_moe.quant import PER_TENSOR, PER_TOKEN, DType, GroupShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


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
