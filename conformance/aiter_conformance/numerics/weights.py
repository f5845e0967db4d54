"""The weights of an input, one expert at a time, quantised as a checkpoint of the scheme has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.numerics.bits import Stream, bell, steps
from aiter_conformance.numerics.formats import FLOAT_FORMATS, Floats, ScaleRounding
from aiter_conformance.numerics.quantise import (
    BLOCK_1X32,
    BLOCK_128X128,
    ROW,
    TENSOR,
    Block,
    Quantised,
    as_bf16,
    quantise_float,
    quantise_int4,
    quantise_mxfp4,
)

# Block of the weights' scales; bf16 has none, its structure is in blocks of 32 all the same.
WEIGHT_BLOCKS: Final[dict[str, Block]] = {
    "bf16": BLOCK_1X32,
    "fp8-block": BLOCK_128X128,
    "fp8-tensor-static": TENSOR,
    "fp8-tensor-dynamic": TENSOR,
    "fp8-channel": ROW,
    "mxfp4-w4a16": BLOCK_1X32,
    "mxfp4-w4a4": BLOCK_1X32,
    "int4-w4a16": BLOCK_1X32,
}
# A checkpoint's weights are made once; every rounding mode would do.
WEIGHT_ROUNDING: Final = ScaleRounding.RCEIL

_UP_FACTOR: Final = 0.75  # up rows are smaller than gate rows, so that either can be told from the other


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """One expert's weights at padded sizes, before any shuffle.

    Attributes:
        w1: [2N, K]: gate rows, then up rows.
        w2: [K, N].
        b1: float32 [2N], or None.
        b2: float32 [K], or None.
    """

    w1: Quantised
    w2: Quantised
    b1: NDArray[np.float32] | None
    b2: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class WeightSizes:
    """All that the weights of an expert depend on besides its id."""

    scheme: str
    fp8: str
    hidden: int
    live_hidden: int
    width: int
    live_width: int
    partitions: int
    part: int
    seed: int
    biases: bool


def _make_expert(sizes: WeightSizes, expert: int) -> ExpertWeights:
    """Make one expert's weights: this partition's slice of the whole, padded with zeros, then quantised."""
    live_k, live_n, width = sizes.live_hidden, sizes.live_width, sizes.width
    whole_n = live_n * sizes.partitions
    rows = slice(sizes.part * live_n, (sizes.part + 1) * live_n)

    w1 = _structured(sizes, Stream.W1, Stream.W1_SCALE, expert, (2 * whole_n, live_k))
    padded_w1 = np.zeros((2 * width, sizes.hidden))
    padded_w1[:live_n, :live_k] = w1[:whole_n][rows]
    padded_w1[width : width + live_n, :live_k] = w1[whole_n:][rows] * _UP_FACTOR

    w2 = _structured(sizes, Stream.W2, Stream.W2_SCALE, expert, (live_k, whole_n))
    padded_w2 = np.zeros((sizes.hidden, width))
    padded_w2[:live_k, :live_n] = w2[:, rows]

    b1 = b2 = None
    if sizes.biases:
        whole_b1 = bell(sizes.seed, Stream.B1, expert, (2 * whole_n,)).astype(np.float32)
        b1 = np.zeros(2 * width, np.float32)
        b1[:live_n], b1[width : width + live_n] = whole_b1[:whole_n][rows], whole_b1[whole_n:][rows]
        b2 = np.zeros(sizes.hidden, np.float32)
        b2[:live_k] = bell(sizes.seed, Stream.B2, expert, (live_k,))
    return ExpertWeights(_quantised(sizes, padded_w1), _quantised(sizes, padded_w2), b1, b2)


# Inputs of one cell, cells of one scheme, and archs of one fp8 flavour share their weights: all of them are
# kept, some 200 MB; those of a model's shape are not.
_KEPT_SIZE: Final = 1 << 18
_kept_expert = lru_cache(maxsize=512)(_make_expert)


def expert_weights(sizes: WeightSizes, expert: int) -> ExpertWeights:
    """Return the weights of one expert by its id in the model."""
    return (_kept_expert if sizes.hidden * sizes.width <= _KEPT_SIZE else _make_expert)(sizes, expert)


def _quantised(sizes: WeightSizes, values: Floats) -> Quantised:
    """Quantise weights [R, C] as a checkpoint of the scheme has them."""
    if sizes.scheme == "bf16":
        return as_bf16(values)
    if sizes.scheme.startswith("fp8"):
        return quantise_float(values, FLOAT_FORMATS[sizes.fp8], WEIGHT_BLOCKS[sizes.scheme])
    return quantise_int4(values) if sizes.scheme == "int4-w4a16" else quantise_mxfp4(values, WEIGHT_ROUNDING)


def _structured(
    sizes: WeightSizes, values: Stream, scales: Stream, expert: int, shape: tuple[int, int]
) -> Floats:
    """Return weights whose blocks, rows and experts all differ in size; products of rows are of order 1."""
    seed, block = sizes.seed, WEIGHT_BLOCKS[sizes.scheme]
    limit = 3 if block == TENSOR else 4  # one exponent is a whole expert's: it must not make it vanish
    exponents = spread_steps(seed, scales, expert, shape, block, limit)
    weights = bell(seed, values, expert, shape) * ((4 + expert % 3) / 4)
    return np.asarray(np.ldexp(weights, exponents - limit + 2) / np.sqrt(np.float64(shape[1])))


def spread_steps(
    seed: int, stream: Stream, expert: int, shape: tuple[int, int], block: Block, limit: int
) -> NDArray[np.int64]:
    """Return `steps` over the blocks of a shape, repeated to every element; edges may be partial blocks."""
    rows, columns = (max(size, 1) if want == -1 else want for size, want in zip(shape, block, strict=True))
    blocks = steps(seed, stream, expert, (-(-shape[0] // rows), -(-shape[1] // columns)), limit)
    return np.repeat(np.repeat(blocks, rows, axis=0), columns, axis=1)[: shape[0], : shape[1]]
