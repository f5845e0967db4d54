"""What the adapters of both subjects do alike; nothing here imports torch or a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiter_conformance.protocols import KernelCall, QuantSpec

if TYPE_CHECKING:  # declarations are asked for on machines without torch
    import torch


def make_quant_config(
    make: Callable[..., Any], spec: QuantSpec, tensors: Mapping[str, torch.Tensor], fp8: Callable[[], Any]
) -> Any:
    """Return the quantisation config of a specification.

    Args:
        make: The subject's ``FusedMoEQuantConfig.make``.
        spec: The specification.
        tensors: Scales and biases, by the names that *make* has for them.
        fp8: Returns the platform's flavour of fp8, as a loader passes it.
    """

    def dtype(name: str | None) -> Any:
        return fp8() if name == "fp8" else name

    return make(
        dtype(spec.activations),
        weight_dtype=dtype(spec.weights),
        per_act_token_quant=spec.per_act_token,
        per_out_ch_quant=spec.per_out_ch,
        block_shape=None if spec.block_shape is None else list(spec.block_shape),
        **tensors,
    )


def zeros(call: KernelCall) -> torch.Tensor:
    """Return what a kernel returns in shape and dtype: [M, K], K unpacked where the input is packed fp4."""
    hidden: torch.Tensor = call.arguments["hidden_states"]
    packed = str(hidden.dtype) == "torch.float4_e2m1fn_x2"
    rows, columns = hidden.shape
    dtype = call.arguments.get("output_dtype") or hidden.dtype
    return hidden.new_zeros((rows, columns * 2 if packed else columns), dtype=dtype)
