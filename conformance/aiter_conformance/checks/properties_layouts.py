"""Where AITER's kernels read each byte of a weight and of a scale, as formulas.

Written from what the shipped kernels do when they are executed: a byte at (row, column) of one expert's
row-major tensor lies at the offset that these functions give. They share nothing with a shuffle that is
written as reshapes and transpositions, so that the two can be compared. They agree with AITER's shuffles
(aiter/ops/shuffle.py, v0.1.20.post1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def weight_offsets(rows: int, row_bytes: int) -> Offsets:
    """Return the offset of byte (row, b): tiles of 16 rows by 16 bytes, a tile's rows one after the other.

    Args:
        rows: Rows of one expert, a multiple of 16.
        row_bytes: Bytes of a row, a multiple of 32.
    """
    n, b = np.ogrid[:rows, :row_bytes]
    return np.asarray((n // 16) * 16 * row_bytes + (b // 16) * 256 + (n % 16) * 16 + b % 16)


def gate_up_rows(rows: int, *, interleaved: bool) -> Offsets:
    """Return where each of the rows ``[gates; ups]`` goes: with interleaving, 16 gates, 16 ups, 16 gates ...

    Args:
        rows: Rows of gate and up together.
        interleaved: Whether they are interleaved; else every row stays.
    """
    n = np.arange(rows)
    if not interleaved:
        return n
    half, row = divmod(n, rows // 2)
    return np.asarray((row // 16) * 32 + half * 16 + row % 16)


def scale_offsets(rows: int, groups: int) -> Offsets:
    """Return the offset of the e8m0 byte of (row, group of 32), rows of all experts counted through.

    Args:
        rows: Rows that are stored, a multiple of 32.
        groups: Groups that are stored, a multiple of 8.
    """
    m, g = np.ogrid[:rows, :groups]
    tile = (m // 32) * 32 * groups + (g // 8) * 256
    return np.asarray(tile + (g % 4) * 64 + (m % 16) * 4 + (g % 8 // 4) * 2 + (m % 32) // 16)


def int4_offsets(rows: int, columns: int) -> tuple[Offsets, NDArray[np.bool_]]:
    """Return byte and nibble of the int4 value at (row, column): True is the high nibble.

    Args:
        rows: Rows of one expert, a multiple of 16.
        columns: Values of a row, a multiple of 32.
    """
    j = weight_offsets(rows, columns)
    return (j // 8) * 4 + j % 4, j % 8 >= 4


def int4_scale_offsets(rows: int, groups: int) -> Offsets:
    """Return the element offset of the int4 scale of (row, group): two groups of a row lie side by side.

    Args:
        rows: Rows of one expert.
        groups: Groups of 32 columns, an even number.
    """
    n, g = np.ogrid[:rows, :groups]
    return np.asarray((g // 2) * 2 * rows + 2 * n + g % 2)


def scatter(values: Bytes, offsets: Offsets) -> Bytes:
    """Return the stored bytes of values at their offsets, which must be a permutation.

    Raises:
        ValueError: Two values have one place, or a place has none.
    """
    flat = offsets.reshape(-1)
    if not np.array_equal(np.sort(flat), np.arange(values.size)):
        msg = f"offsets must be a permutation of the {values.size} places (got another set)"
        raise ValueError(msg)
    stored = np.empty(values.size, dtype=values.dtype)
    stored[flat] = values.reshape(-1)
    return stored
