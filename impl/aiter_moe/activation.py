"""Activations: vLLM's names for them and AITER's numbers."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

_NOT_GATED_SUFFIX: Final = "_no_mul"
_SPELLINGS: Final = {"gelu_pytorch_tanh": "gelu_tanh"}


class ActivationMethod(IntEnum):
    """The activations whose number in AITER's ``ActivationType`` never changed.

    Swiglu and Situv2 are not here: their numbers are asked of the AITER at hand, which may lack them.
    """

    SILU = 0
    GELU = 1


class MoEActivation(Enum):
    """What an expert computes between its two matrix products.

    A gated activation combines two halves, gate and up; the ``*_no_mul`` ones have a single input.
    """

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU2 = "relu2"
    SWIGLUOAI = "swigluoai"
    SWIGLUOAI_UNINTERLEAVE = "swigluoai_uninterleave"
    SWIGLUSTEP = "swiglustep"
    SITU = "situ"
    SILU_NO_MUL = "silu_no_mul"
    GELU_NO_MUL = "gelu_no_mul"
    GELU_TANH_NO_MUL = "gelu_tanh_no_mul"
    RELU2_NO_MUL = "relu2_no_mul"

    @property
    def is_gated(self) -> bool:
        """Whether the activation multiplies a gate half with an up half."""
        return not self.value.endswith(_NOT_GATED_SUFFIX)

    @classmethod
    def from_str(cls, name: str) -> MoEActivation:
        """Return the activation that a model configuration calls `name`.

        Args:
            name: A member's value, or ``gelu_pytorch_tanh``, which is gelu_tanh in Hugging Face's spelling.

        Raises:
            ValueError: No activation has that name.
        """
        value = _SPELLINGS.get(name, name)
        known = {member.value: member for member in cls}
        if value not in known:
            msg = f"activation must be one of {', '.join(known)} (got {name!r})"
            raise ValueError(msg)
        return known[value]
