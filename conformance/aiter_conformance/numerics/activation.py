"""The gated activations in float64, as SPEC 1 defines them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiter_conformance.numerics.formats import Floats

SWIGLU_ALPHA: Final = 1.702
SWIGLU_LIMIT: Final = 7.0

FUNCTION_ERROR: Final = 2.0**-20  # of exp, tanh and reciprocal together, relative
TERM_ERROR: Final = 2.0**-22  # of a term of a sum, relative to the term

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Floats) -> Floats:
    """Return the error function."""
    return np.asarray(_erf(x), np.float64)


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + e^-x), without overflow for any x."""
    return 1 / (1 + np.exp(np.minimum(-x, 700.0)))


@dataclass(frozen=True, slots=True)
class Activation:
    """One gated activation with its parameters.

    Attributes:
        name: Value of ``MoEActivation``: silu, gelu, gelu_tanh, swigluoai, swigluoai_uninterleave or situ.
        limit: ``swiglu_limit``; None or 0 is off, and 7 for swigluoai*.
        beta: SiTU's beta; None otherwise.
        linear_beta: SiTU's linear beta; None lets the up half through unchanged.

    Raises:
        ValueError: The activation is not one of them, or SiTU has no beta.
    """

    name: str
    limit: float | None = None
    beta: float | None = None
    linear_beta: float | None = None

    def __post_init__(self) -> None:
        known = ("silu", "gelu", "gelu_tanh", "swigluoai", "swigluoai_uninterleave", "situ")
        if self.name not in known:
            msg = f"activation must be one of {', '.join(known)} (got {self.name!r})"
            raise ValueError(msg)
        if self.name == "situ" and not self.beta:
            msg = f"situ must have a beta other than 0 (got {self.beta})"
            raise ValueError(msg)

    @property
    def clamp(self) -> float | None:
        """The bound that gate (above) and up (both sides) are held to, or None."""
        if self.name == "situ":
            return None
        if self.name.startswith("swigluoai"):
            return self.limit or SWIGLU_LIMIT
        return self.limit or None

    def factors(self, gate: Floats, up: Floats) -> tuple[Floats, Floats]:
        """Return the two factors of the product, from the gate half and from the up half."""
        if self.clamp is not None:
            gate, up = np.minimum(gate, self.clamp), np.clip(up, -self.clamp, self.clamp)
        if self.name == "silu":
            return gate * sigmoid(gate), up
        if self.name == "gelu":
            return 0.5 * gate * (1 + erf(gate / math.sqrt(2))), up
        if self.name == "gelu_tanh":
            inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
            return 0.5 * gate * (1 + np.tanh(inner)), up
        if self.name == "situ":
            assert self.beta is not None  # noqa: S101 -- checked on construction
            gated = self.beta * np.tanh(gate / self.beta) * sigmoid(gate)
            return gated, up if self.linear_beta is None else self.linear_beta * np.tanh(
                up / self.linear_beta
            )
        return gate * sigmoid(SWIGLU_ALPHA * gate), up + 1

    def function_error(self, gate: Floats, up: Floats) -> Floats:
        """Return how far an evaluation in float32 on the GPU may be off, for exact gate and up.

        Relative to the result for exp, tanh and reciprocals, relative to the size of a factor's own terms
        where they cancel (1 + erf of a negative gate, tanh of a small argument).
        """
        gated, linear = self.factors(gate, up)
        bounded = self.clamp if self.clamp is not None else np.inf
        gate_size = np.minimum(np.abs(gate), self.beta or np.inf)
        linear_size = np.minimum(np.abs(up), self.linear_beta or bounded) + 1
        terms = gate_size * np.abs(linear) + np.abs(gated) * linear_size
        return np.asarray(FUNCTION_ERROR * np.abs(gated * linear) + TERM_ERROR * terms)

    def __call__(self, gate: Floats, up: Floats) -> Floats:
        """Return the activation of the gate and up halves, of the same shape."""
        gated, linear = self.factors(gate, up)
        return np.asarray(gated * linear)
