"""Random numbers that are the same bits on every machine and every version of every library.

NumPy's distributions may change between versions; the raw output of its Philox generator is specified
(a counter-based generator, so each stream is addressed and none depends on another). The mapping to numbers
uses integer arithmetic and correctly rounded operations only.
"""

from __future__ import annotations

from enum import IntEnum
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.numerics.formats import Floats

_SEED_LIMIT: Final = 2**64


class Stream(IntEnum):
    """What a stream of random numbers is for. Numbers are part of every committed golden: never renumber."""

    HIDDEN = 1
    HIDDEN_SCALE = 2
    W1 = 3
    W1_SCALE = 4
    W2 = 5
    W2_SCALE = 6
    B1 = 7
    B2 = 8
    ROUTING = 9
    ROUTER_WEIGHT = 10
    ORDER = 11


def raw(seed: int, stream: Stream, expert: int, count: int) -> NDArray[np.uint64]:
    """Return ``count`` 64-bit words of the stream that (seed, stream, expert) addresses.

    Raises:
        ValueError: The seed does not fit 64 bits, or the expert 32.
    """
    if not 0 <= seed < _SEED_LIMIT or not 0 <= expert < 2**32:
        msg = f"seed must fit 64 bits and expert 32 (got seed {seed}, expert {expert})"
        raise ValueError(msg)
    key = seed << 64 | stream << 32 | expert
    return np.asarray(np.random.Philox(key=key).random_raw(count), np.uint64)


def bell(seed: int, stream: Stream, expert: int, shape: tuple[int, ...]) -> Floats:
    """Return bell-shaped numbers in (-4, 4) with standard deviation 1.155, exact multiples of 2^-15.

    Each is the sum of the four 16-bit parts of one word, so no transcendental function is in it.
    """
    words = raw(seed, stream, expert, prod(shape))
    parts = words.astype("<u8", copy=False).view("<u2").reshape(-1, 4)
    total = parts[:, 0].astype(np.int32)
    for part in range(1, 4):
        total += parts[:, part]
    return ((total - 2 * 0xFFFF) / 2.0**15).reshape(shape)


def integers(seed: int, stream: Stream, expert: int, shape: tuple[int, ...], limit: int) -> NDArray[np.int64]:
    """Return integers in 0 .. limit - 1 (limit far below 2^32; the bias of the remainder is immaterial)."""
    words = raw(seed, stream, expert, prod(shape)) >> np.uint64(32)
    return (words % np.uint64(limit)).astype(np.int64).reshape(shape)


def steps(seed: int, stream: Stream, expert: int, shape: tuple[int, int], limit: int) -> NDArray[np.int64]:
    """Return integers in 0 .. limit - 1 of which no two neighbours along either axis are equal.

    Used for the exponents of scales: shifting them by one block or one row changes every one of them.

    Raises:
        ValueError: The limit is below 3.
    """
    if limit < 3:  # two values leave no choice beside a neighbour
        msg = f"limit must be at least 3 (got {limit})"
        raise ValueError(msg)
    rows = 1 + integers(seed, stream, 2 * expert, (shape[0], 1), limit - 1)
    columns = 1 + integers(seed, stream, 2 * expert + 1, (1, shape[1]), limit - 1)
    return (np.cumsum(rows, axis=0) + np.cumsum(columns, axis=1)) % limit
