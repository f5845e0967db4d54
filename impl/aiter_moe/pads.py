"""Padding: to what sizes weights grow at load, and what of it is reported to AITER."""

from __future__ import annotations

from typing import Final

from aiter_moe.activation import MoEActivation
from aiter_moe.quant import Scheme, scheme_named

_HIDDEN_GRANULE: Final = 128
_INTERMEDIATE_GRANULE: Final = 64


def aiter_moe_pads(
    hidden_pad: int, intermediate_pad: int, activation: MoEActivation, use_mxfp4_w4a4: bool, tp_size: int
) -> tuple[int, int]:
    """Return the hidden and the intermediate padding to pass to AITER's ``fused_moe``.

    SITU's kernel takes them as they are. The others get them rounded down, never up: what is reported as
    padding is masked. The intermediate padding is doubled at tensor parallel size 1, where the kernel counts
    it over gate and up together, except for MXFP4 activations with SILU, whose kernel doubles it by itself.
    Expert parallelism has `tp_size` 1 too.

    Args:
        hidden_pad: Columns of padding of the hidden size.
        intermediate_pad: Rows of padding of each of gate and up.
        activation: What the experts compute.
        use_mxfp4_w4a4: Whether weights and activations are both MXFP4.
        tp_size: Into how many parts each expert is cut.

    Raises:
        ValueError: A padding is negative or `tp_size` is below 1. Ours: upstream rounds these too.
    """
    for name, value, least in (
        ("hidden_pad", hidden_pad, 0),
        ("intermediate_pad", intermediate_pad, 0),
        ("tp_size", tp_size, 1),
    ):
        if value < least:
            msg = f"{name} must be at least {least} (got {value})"
            raise ValueError(msg)
    if activation is MoEActivation.SITU:
        return hidden_pad, intermediate_pad
    doubled_by_kernel = use_mxfp4_w4a4 and activation is MoEActivation.SILU
    factor = 2 if tp_size == 1 and not doubled_by_kernel else 1
    return _floor(hidden_pad, _HIDDEN_GRANULE), factor * _floor(intermediate_pad, _INTERMEDIATE_GRANULE)


def padded_sizes(
    scheme: Scheme | str, activation: MoEActivation, hidden: int, intermediate: int
) -> tuple[int, int]:
    """Return the hidden and intermediate size to which weights are padded at load.

    Args:
        scheme: A `Scheme`.
        activation: What the experts compute.
        hidden: Hidden size of the model.
        intermediate: Intermediate size on one rank, of gate and up each.

    Raises:
        ValueError: The scheme is none, or a size is below 1.
    """
    scheme = scheme_named(scheme)
    for name, value in (("hidden", hidden), ("intermediate", intermediate)):
        if value < 1:
            msg = f"{name} must be at least 1 (got {value})"
            raise ValueError(msg)
    if scheme is Scheme.BF16:
        return hidden, _ceil(intermediate, 64 if intermediate <= 192 else 128)
    if scheme is Scheme.MXFP4_W4A4:
        return _ceil(hidden, 256), _ceil(intermediate, 128)
    if scheme in (Scheme.MXFP4_W4A16, Scheme.INT4_W4A16):
        granule = 128 if activation in (MoEActivation.SITU, MoEActivation.SILU) else 256
        return _ceil(hidden, granule), _ceil(intermediate, granule)
    return hidden, intermediate


def _ceil(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _floor(value: int, granule: int) -> int:
    return value // granule * granule
