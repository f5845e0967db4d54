"""AITER's memory layouts of weights and scales, in plain torch.

They are the layouts that AITER's shipped kernels read. AITER's own functions for the same purpose are in its
``aiter/ops/shuffle.py``.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

NEUTRAL_E8M0: Final = 127
"""The e8m0 code of 1.0, with which scales are padded."""

_TILE_ROWS: Final = 16
_TILE_BYTES: Final = 16


def shuffle_weight(weight: Tensor) -> Tensor:
    """Return weights in tiles of 16 rows by 16 bytes, in which matrix cores load them.

    Where P elements make 16 bytes, element ``(n, k)`` of an expert goes to
    ``(n // 16) * 16 * K + (k // P) * 16 * P + (n % 16) * P + k % P``.

    Args:
        weight: ``[..., N, K]`` in elements as stored: one byte of a packed type is one.

    Raises:
        ValueError: N is not a multiple of 16, or K not one of 32.
    """
    rows, columns = weight.shape[-2:]
    if rows % _TILE_ROWS or columns % 32:
        msg = f"weights must have a multiple of 16 rows and of 32 columns (got {rows} and {columns})"
        raise ValueError(msg)
    stored = weight.contiguous().view(torch.uint8)
    tiles = stored.view(-1, rows // _TILE_ROWS, _TILE_ROWS, stored.shape[-1] // _TILE_BYTES, _TILE_BYTES)
    return tiles.transpose(2, 3).reshape(stored.shape).view(weight.dtype)


def interleave_gate_up(packed: Tensor) -> Tensor:
    """Return gate and up in alternating blocks of 16 rows, as the interleaved gate mode wants them shuffled.

    Args:
        packed: ``[E, 2N, ...]`` with all gate rows before all up rows, N a multiple of 16.
    """
    experts, rows, *rest = packed.shape
    blocks = packed.reshape(experts, 2, rows // (2 * _TILE_ROWS), _TILE_ROWS, *rest)
    return blocks.transpose(1, 2).reshape(packed.shape)


def shuffle_scale(scale: Tensor) -> Tensor:
    """Return e8m0 scales in the order in which the scaled matrix instructions read them.

    Byte ``(m, g)`` goes to ``(m // 32) * 32 * G + (g // 8) * 256 + (g % 4) * 64 + (m % 16) * 4 + (g % 8 //
    4) * 2 + (m % 32) // 16``, where m counts the rows of all experts in one run.

    Args:
        scale: ``[E, N, G]`` of one byte each.

    Returns:
        ``[E * N, G]``, padded to multiples of 256 and 8 with 1.0, which AITER leaves uninitialised.
    """
    flat = scale.flatten(0, 1)
    return _shuffle_scale_tiles(pad_to(flat, _round_up(flat.shape[0], 256), _round_up(flat.shape[1], 8)))


def shuffle_scale_a16w4(scale: Tensor, *, gate_up: bool) -> Tensor:
    """Return e8m0 scales as `shuffle_scale`, but without padding rows, and gate and up interleaved if asked.

    Args:
        scale: ``[E, N, G]`` of one byte each, N a multiple of 32.
        gate_up: Whether rows are gate and up, to be interleaved.

    Returns:
        ``[E * N, G]``, where G is padded to a multiple of 8 with 1.0.
    """
    flat = (interleave_gate_up(scale) if gate_up else scale).flatten(0, 1)
    return _shuffle_scale_tiles(pad_to(flat, flat.shape[0], _round_up(flat.shape[1], 8)))


def _shuffle_scale_tiles(scale: Tensor) -> Tensor:
    rows, groups = scale.shape
    tiles = scale.reshape(rows // 32, 2, 16, groups // 8, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows, groups)


def pack_int4(values: Tensor) -> Tensor:
    """Return pairs of int4 values in one byte: of each eight in a row, value i low and value i + 4 high.

    Args:
        values: int8 ``[..., K]`` with values -8 to 7, shuffled; K a multiple of 8.

    Returns:
        uint8 ``[..., K / 2]``.
    """
    nibbles = (values.view(torch.uint8) & 0xF).reshape(*values.shape[:-1], -1, 2, 4)
    return (nibbles[..., 0, :] | nibbles[..., 1, :] << 4).flatten(-2)


def shuffle_scale_int4(scale: Tensor) -> Tensor:
    """Return int4 scales with two neighbouring groups of a row side by side, so that one load brings both.

    Args:
        scale: ``[E, N, G]``, G even.

    Returns:
        ``[E, G / 2, N, 2]``.
    """
    experts, rows, groups = scale.shape
    return scale.reshape(experts, rows, groups // 2, 2).transpose(1, 2).contiguous()


def pad_to(values: Tensor, rows: int, columns: int, *, value: float = NEUTRAL_E8M0) -> Tensor:
    """Return `values`, ``[..., R, C]``, grown to the given rows and columns with `value`."""
    missing = rows - values.shape[-2], columns - values.shape[-1]
    return torch.nn.functional.pad(values, (0, missing[1], 0, missing[0]), value=value)


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
