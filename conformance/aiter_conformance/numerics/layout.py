"""Layouts: what a loader makes of logical weights before a kernel reads them, and back (SPEC 12).

A packed weight keeps the shape of the logical one ([E, N, K] in storage units); only the order of its bytes
changes. The permutations are those of ISA-FACTS 2.4 and 3.4, found there by running the kernels; AITER's own
torch functions in ``aiter/ops/shuffle.py`` are the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.numerics.formats import int4_to_nibbles, pack_nibbles

Array = NDArray[Any]

TILE_ROWS: Final = 16
_PACK_BYTES: Final = 16  # bytes of one row that stay together
_SCALE_ROWS: Final = 256  # e8m0 scales are padded to whole multiples of these
_SCALE_COLUMNS: Final = 8


def _require(condition: bool, what: str, shape: tuple[int, ...]) -> None:
    if not condition:
        msg = f"{what} (got shape {shape})"
        raise ValueError(msg)


# --------------------------------------------------------------------------- weights


def shuffle_16x16(weights: Array) -> Array:
    """Reorder [..., N, K] of 1- or 2-byte units into tiles of 16 rows by 16 bytes (``shuffle_weight``).

    Raises:
        ValueError: N is not a multiple of 16, or K of two packs (32 units of one byte, 16 of two).
    """
    *lead, rows, columns = weights.shape
    pack = _PACK_BYTES // weights.itemsize
    _require(
        rows % TILE_ROWS == 0 and columns % (2 * pack) == 0,
        f"rows must be a multiple of {TILE_ROWS} and columns of {2 * pack}",
        weights.shape,
    )
    tiles = weights.reshape(*lead, rows // TILE_ROWS, TILE_ROWS, columns // pack, pack)
    return np.ascontiguousarray(tiles.swapaxes(-3, -2)).reshape(weights.shape)


def interleave_gate_up(rows: Array) -> Array:
    """Reorder [E, 2N, ...] from ``[gates; ups]`` to 16 gate rows, 16 up rows, 16 gate rows, ...

    This is what gate/up interleave means in the a16w4 shuffles, for weights and for scales.

    Raises:
        ValueError: N is not a multiple of 16.
    """
    experts, double, *rest = rows.shape
    _require(
        double % (2 * TILE_ROWS) == 0, f"gate and up rows must each be a multiple of {TILE_ROWS}", rows.shape
    )
    tiles = rows.reshape(experts, 2, double // (2 * TILE_ROWS), TILE_ROWS, *rest)
    return np.ascontiguousarray(tiles.swapaxes(1, 2)).reshape(rows.shape)


def separate_gate_up(rows: Array) -> Array:
    """Undo `interleave_gate_up`."""
    experts, double, *rest = rows.shape
    tiles = rows.reshape(experts, double // (2 * TILE_ROWS), 2, TILE_ROWS, *rest)
    return np.ascontiguousarray(tiles.swapaxes(1, 2)).reshape(rows.shape)


# --------------------------------------------------------------------------- e8m0 scales


def shuffle_e8m0(scales: Array, fill: int = 0) -> Array:
    """Reorder e8m0 scales [R, G] as the scaled matrix instructions read them (``e8m0_shuffle``).

    Args:
        scales: One row for each weight row of all experts, R = E * N.
        fill: Byte of the padding, which AITER leaves uninitialised.

    Returns:
        [R padded to 256, G padded to 8].
    """
    rows, groups = scales.shape
    padded = np.full(
        (-(-rows // _SCALE_ROWS) * _SCALE_ROWS, -(-groups // _SCALE_COLUMNS) * _SCALE_COLUMNS), fill, np.uint8
    )
    padded[:rows, :groups] = scales
    tiles = padded.reshape(padded.shape[0] // 32, 2, 16, padded.shape[1] // 8, 2, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 5, 2, 4, 1)).reshape(padded.shape)


def unshuffle_e8m0(packed: Array, rows: int, groups: int) -> Array:
    """Undo `shuffle_e8m0`, padding dropped: [rows, groups]."""
    tiles = packed.reshape(packed.shape[0] // 32, packed.shape[1] // 8, 4, 16, 2, 2)
    return np.ascontiguousarray(tiles.transpose(0, 5, 3, 1, 4, 2)).reshape(packed.shape)[:rows, :groups]


def shuffle_e8m0_a16w4(scales: Array) -> Array:
    """Reorder e8m0 scales [E, N, G] as ``shuffle_scale_a16w4`` does: G padded to 8 with 1.0, N not padded.

    Returns:
        [E * N, G padded to 8].

    Raises:
        ValueError: N is not a multiple of 32.
    """
    experts, rows, groups = scales.shape
    _require(rows % 32 == 0, "rows must be a multiple of 32", scales.shape)
    width = -(-groups // _SCALE_COLUMNS) * _SCALE_COLUMNS
    padded = np.full((experts * rows, width), 127, np.uint8)
    padded[:, :groups] = scales.reshape(experts * rows, groups)
    tiles = padded.reshape(experts * rows // 32, 2, 16, width // 8, 2, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 5, 2, 4, 1)).reshape(padded.shape)


# --------------------------------------------------------------------------- int4


def pack_int4(values: Array) -> Array:
    """Shuffle int4 values [E, N, K] (int8) and pack them two to a byte (ISA-FACTS 3.4).

    Eight shuffled values v0..v7 become four bytes: v0..v3 in the low nibbles, v4..v7 in the high ones.

    Returns:
        uint8 [E, N, K / 2].
    """
    *lead, columns = values.shape
    nibbles = int4_to_nibbles(shuffle_16x16(np.asarray(values, np.int8))).reshape(-1, 2, 4)
    return (nibbles[:, 0] | nibbles[:, 1] << 4).reshape(*lead, columns // 2)


def shuffle_int4_scales(scales: Array) -> Array:
    """Reorder scales [E, N, G] into [E, G / 2, N, 2]: two groups of one row side by side.

    Raises:
        ValueError: G is odd.
    """
    experts, rows, groups = scales.shape
    _require(groups % 2 == 0, "groups of 32 must come in pairs", scales.shape)
    pairs = scales.reshape(experts, rows, groups // 2, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3))


def unshuffle_int4_scales(packed: Array) -> Array:
    """Undo `shuffle_int4_scales`: [E, N, G]."""
    experts, pairs, rows, _ = packed.shape
    return np.ascontiguousarray(packed.transpose(0, 2, 1, 3)).reshape(experts, rows, pairs * 2)


# --------------------------------------------------------------------------- by scheme


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """How one packed weight lies: what a kernel must undo to read it.

    Attributes:
        elements: ``bf16``, ``fp8``, ``fp4`` or ``int4``.
        gate_up_interleaved: Whether gate and up rows alternate in tiles of 16 (w1 only).
        scales: ``plain``, ``e8m0`` (padded rows), ``e8m0-a16w4`` (no padded rows) or ``int4``.
    """

    elements: str
    gate_up_interleaved: bool = False
    scales: str = "plain"


def weight_layouts(
    scheme: str, activation: str, *, situ_interleaved: bool = False
) -> tuple[WeightLayout, WeightLayout]:
    """Return how (w1, w2) of a scheme lie when a loader is done with them (SPEC 12).

    The two routes for mxfp4 w4a16 give the same bytes: an interleaved shuffle leaves w2, which has no gate,
    in the order of its rows.

    Args:
        scheme: Name of the scheme.
        activation: Value of ``MoEActivation``.
        situ_interleaved: Whether SiTU's setting is a8w4, whose loader interleaves gate and up.

    Raises:
        ValueError: The scheme is not one of the matrix.
    """
    if scheme == "bf16":
        return WeightLayout("bf16"), WeightLayout("bf16")
    if scheme.startswith("fp8"):
        return WeightLayout("fp8"), WeightLayout("fp8")
    if scheme == "int4-w4a16":
        return WeightLayout("int4", scales="int4"), WeightLayout("int4", scales="int4")
    if scheme == "mxfp4-w4a4":
        return WeightLayout("fp4", scales="e8m0"), WeightLayout("fp4", scales="e8m0")
    if scheme == "mxfp4-w4a16":
        interleaved = situ_interleaved if activation == "situ" else True
        second = "e8m0" if activation == "situ" else "e8m0-a16w4"
        return WeightLayout("fp4", interleaved, "e8m0-a16w4"), WeightLayout("fp4", scales=second)
    msg = f"scheme must be one with a known layout (got {scheme!r})"
    raise ValueError(msg)


def pack_weights(codes: Array, layout: WeightLayout) -> Array:
    """Return the bytes of logical codes [E, R, C] in a layout: uint16 for bf16, else uint8.

    4-bit elements come out two to a byte, [E, R, C / 2].
    """
    if layout.gate_up_interleaved:
        codes = interleave_gate_up(codes)
    if layout.elements == "int4":
        return pack_int4(codes)
    return shuffle_16x16(pack_nibbles(codes) if layout.elements == "fp4" else codes)


def pack_scales(scales: Array, layout: WeightLayout, fill: int = 0) -> Array:
    """Return the scales [E, R, G] of a weight in its layout; ``fill`` is the byte of unset padding."""
    if layout.gate_up_interleaved:
        scales = interleave_gate_up(scales)
    if layout.scales == "e8m0":
        return shuffle_e8m0(scales.reshape(-1, scales.shape[-1]), fill)
    if layout.scales == "e8m0-a16w4":
        return shuffle_e8m0_a16w4(scales)
    return shuffle_int4_scales(scales) if layout.scales == "int4" else scales


def unpack_scales(packed: Array, layout: WeightLayout, shape: tuple[int, int, int]) -> Array:
    """Undo `pack_scales`: [E, R, G] of the given shape."""
    experts, rows, groups = shape
    if layout.scales in ("e8m0", "e8m0-a16w4"):
        scales = unshuffle_e8m0(packed, experts * rows, groups).reshape(shape)
    else:
        scales = unshuffle_int4_scales(packed) if layout.scales == "int4" else packed
    return separate_gate_up(scales) if layout.gate_up_interleaved else scales
