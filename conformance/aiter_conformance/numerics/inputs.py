"""The input of a case: hidden states, routing and quantised weights, rebuilt from the case's id alone.

Everything is addressed by (seed, tensor, expert), so one expert of a model can be made without the others.
Gate and up, experts, rows, tokens and neighbouring scale blocks all differ, so that a kernel that confuses
any two of them gives other numbers. Dead rows and columns are zero, as loaders leave them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.axes import load_axes
from aiter_conformance.case import Case
from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.activation import Activation
from aiter_conformance.numerics.bits import Stream, bell, integers, raw
from aiter_conformance.numerics.formats import (
    FLOAT_FORMATS,
    FloatFormat,
    Floats,
    decode_bf16,
    encode_bf16,
)
from aiter_conformance.numerics.weights import ExpertWeights, WeightSizes, expert_weights, spread_steps

Routing = Literal["mixed", "one", "every"]

# Largest magnitudes that the static scales of a checkpoint leave room for: above them a few values saturate.
# No round numbers: quotients of bfloat16 values by a short scale often lie on a tie between two codes.
STATIC_HIDDEN_MAXIMUM: Final = 15.9
STATIC_INTERMEDIATE_MAXIMUM: Final = 63.7

SITU_BETA: Final = 1.75  # none of AITER's own stand-ins (1, 4, 25)
SITU_LINEAR_BETA: Final = 2.25

# Gate values then have a standard deviation near 2: some reach the limit of 7, few lie far beyond it.
_HIDDEN_FACTOR: Final = 0.625
_SHARED_SCORE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Features:
    """What an input can have beyond the numbers of its case.

    Attributes:
        biases: Whether w1 and w2 have biases.
        swiglu_limit: The activation's limit, or None.
        beta: SiTU's beta; of no meaning to other activations.
        linear_beta: SiTU's linear beta.
        shared_experts: Experts that every token goes to, after the routed ones.
        routing: ``mixed`` (random; the last expert gets no token where E > k), ``one`` (one expert gets
            every token) or ``every`` (tokens go round all experts).
        situ: The setting of SiTU's kernels (a16w4, a8w4, a4w4); None is what the scheme's name says.
        dsv4: Whether DeepSeek V4.1's opt-in is on: weights of w4a16 lie separated and are computed as w4a4.
        dispatched: Whether MXFP4 kernels quantise activations as AITER's dispatch decides by the number of
            tokens, rather than as the scheme's name says.
    """

    biases: bool = False
    swiglu_limit: float | None = None
    beta: float = SITU_BETA
    linear_beta: float | None = SITU_LINEAR_BETA
    shared_experts: int = 0
    routing: Routing = "mixed"
    situ: str | None = None
    dsv4: bool = False
    dispatched: bool = False


@dataclass(frozen=True)
class Problem:
    """One input as one rank of a deployment sees it.

    Attributes:
        case: The case.
        features: What it has beyond its numbers.
        rank: Rank within the tensor- or expert-parallel group.

    Raises:
        UsageError: The rank is outside the group.
    """

    case: Case
    features: Features = Features()
    rank: int = 0

    def __post_init__(self) -> None:
        ranks = max(self.case.tp, self.case.ep)
        if not 0 <= self.rank < ranks:
            msg = f"rank must be in 0 .. {ranks - 1} (got {self.rank})"
            raise UsageError(msg)

    # ----------------------------------------------------------------------- sizes

    @property
    def hidden_size(self) -> int:
        """K, pads included."""
        return self.case.hidden

    @property
    def live_hidden(self) -> int:
        """K without pads."""
        return self.case.hidden - self.case.hidden_pad

    @property
    def intermediate_size(self) -> int:
        """N of this partition, pads included."""
        return self.case.intermediate // self.case.tp

    @property
    def live_intermediate(self) -> int:
        """N of this partition without pads."""
        return self.intermediate_size - self.case.intermediate_pad

    @property
    def local_experts(self) -> range:
        """Routed experts that this rank holds."""
        held = self.case.experts // self.case.ep
        first = self.rank * held if self.case.ep > 1 else 0
        return range(first, first + held)

    @property
    def shared_experts(self) -> range:
        """Ids of the shared experts, which every rank holds after its routed ones."""
        return range(self.case.experts, self.case.experts + self.features.shared_experts)

    @property
    def held_experts(self) -> tuple[int, ...]:
        """Ids of all experts held here, in the order of the weight tensors."""
        return (*self.local_experts, *self.shared_experts)

    @property
    def sentinel(self) -> int:
        """The id that stands for no expert where there is an expert mask."""
        return self.case.experts + self.features.shared_experts

    @property
    def fp8(self) -> FloatFormat:
        """The fp8 flavour of the case's arch."""
        return FLOAT_FORMATS[load_axes().archs[self.case.cell.arch].fp8]

    @property
    def activation(self) -> Activation:
        """The activation with this input's parameters."""
        situ = self.case.cell.activation == "situ"
        return Activation(
            self.case.cell.activation,
            self.features.swiglu_limit,
            self.features.beta if situ else None,
            self.features.linear_beta if situ else None,
        )

    # ----------------------------------------------------------------------- activations and routing

    @cached_property
    def hidden_bits(self) -> NDArray[np.uint16]:
        """The hidden states, bfloat16 bits [M, K]; dead columns are zero."""
        seed, tokens, live = self.case.seed, self.case.tokens, self.live_hidden
        values = bell(seed, Stream.HIDDEN, 0, (tokens, live))
        per_token = (3 + integers(seed, Stream.HIDDEN_SCALE, 2, (tokens, 1), 4)) / 4
        exponents = spread_steps(seed, Stream.HIDDEN_SCALE, 0, (tokens, live), (1, 32), 3)
        bits = np.zeros((tokens, self.hidden_size), np.uint16)
        bits[:, :live] = encode_bf16(np.ldexp(_HIDDEN_FACTOR * values * per_token, exponents - 1))
        return _with_prime_peaks(bits)

    @property
    def hidden(self) -> Floats:
        """The hidden states, float64 [M, K]."""
        return decode_bf16(self.hidden_bits)

    @cached_property
    def topk_ids(self) -> NDArray[np.int32]:
        """Expert ids [M, k + shared], distinct within a token, shared experts last."""
        seed, tokens, experts, topk = self.case.seed, self.case.tokens, self.case.experts, self.case.topk
        used = experts - 1 if self.features.routing == "mixed" and experts > topk else experts
        if self.features.routing == "every":
            first = np.arange(tokens)[:, None] * topk
            ids = (first + np.arange(topk)) % experts
        else:
            keys = raw(seed, Stream.ROUTING, 0, tokens * used).reshape(tokens, used)
            ids = np.argsort(keys, axis=1, kind="stable")[:, :topk]
            if self.features.routing == "one":
                chosen = seed % experts
                others = np.where(ids == chosen, ids[:, :1], ids)
                ids = np.concatenate([np.full((tokens, 1), chosen), others[:, 1:]], axis=1)
        shared = np.broadcast_to(
            np.asarray(self.shared_experts, np.int64), (tokens, len(self.shared_experts))
        )
        return np.concatenate([ids, shared], axis=1).astype(np.int32)

    @cached_property
    def topk_weights(self) -> NDArray[np.float32]:
        """Router weights [M, k + shared] in [0.25, 1), 1 for shared experts; they do not add up to 1."""
        shape = (self.case.tokens, self.case.topk)
        routed = (2**14 + integers(self.case.seed, Stream.ROUTER_WEIGHT, 0, shape, 3 * 2**14)) / 2**16
        shared = np.full((self.case.tokens, len(self.shared_experts)), _SHARED_SCORE)
        return np.concatenate([routed, shared], axis=1).astype(np.float32)

    @property
    def expert_mask(self) -> NDArray[np.int32] | None:
        """The mask that AITER expects (SPEC 11), or None without expert parallelism."""
        if self.case.ep == 1:
            return None
        mask = np.zeros(self.sentinel + 1, np.int32)
        mask[list(self.held_experts)] = 1
        return mask

    # ----------------------------------------------------------------------- weights

    def expert(self, expert: int) -> ExpertWeights:
        """Make the weights of one expert by its id in the model.

        Raises:
            UsageError: This rank does not hold the expert.
        """
        if expert not in self.held_experts:
            msg = f"expert must be one of {list(self.held_experts)} (got {expert})"
            raise UsageError(msg)
        sizes = WeightSizes(
            self.case.cell.scheme,
            self.fp8.name,
            self.hidden_size,
            self.live_hidden,
            self.intermediate_size,
            self.live_intermediate,
            self.case.tp,
            self.rank if self.case.tp > 1 else 0,
            self.case.seed,
            self.features.biases,
        )
        return expert_weights(sizes, expert)

    @property
    def static_scales(self) -> tuple[np.float32, np.float32] | None:
        """Scales of (hidden states, intermediate) that a checkpoint fixes, or None: they are dynamic."""
        if self.case.cell.scheme != "fp8-tensor-static":
            return None
        maximum = np.float32(self.fp8.maximum)
        return np.float32(STATIC_HIDDEN_MAXIMUM) / maximum, np.float32(STATIC_INTERMEDIATE_MAXIMUM) / maximum

    def digest(self) -> str:
        """Return the sha256 over every input, as hex: hidden states, routing, weights, scales and biases."""
        digest = hashlib.sha256()
        arrays: list[tuple[str, NDArray[np.generic] | None]] = [
            ("hidden", self.hidden_bits),
            ("topk_ids", self.topk_ids),
            ("topk_weights", self.topk_weights),
            ("expert_mask", self.expert_mask),
        ]
        for expert in self.held_experts:
            made = self.expert(expert)
            arrays += [
                (f"w1[{expert}]", made.w1.codes),
                (f"w1_scale[{expert}]", made.w1.scales),
                (f"w2[{expert}]", made.w2.codes),
                (f"w2_scale[{expert}]", made.w2.scales),
                (f"b1[{expert}]", made.b1),
                (f"b2[{expert}]", made.b2),
            ]
        for name, array in arrays:
            if array is not None:
                little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
                digest.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
                digest.update(little.tobytes())
        return digest.hexdigest()


def _with_prime_peaks(bits: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Raise the largest magnitude of each 128 columns to a bfloat16 whose 8-bit significand is prime.

    Scales are made of these peaks. No other value's quotient by a prime can lie on a tie between two codes of
    fp8, where kernels may rightly differ (x / s or x * (1 / s)).
    """
    bits = bits.copy()
    primes = [n for n in range(128, 256) if all(n % d for d in range(2, 16))]
    raised = np.array([next((n for n in primes if n >= m), 128 + primes[0]) - 128 for m in range(128, 256)])
    for start in range(0, bits.shape[1], 128):
        block = bits[:, start : start + 128]
        rows, peak = np.arange(len(block)), (block & 0x7FFF).argmax(axis=1)
        value = block[rows, peak]
        block[rows, peak] = np.where(value & 0x7FFF, (value & 0xFF80) + raised[value & 0x7F], value)
    return bits
