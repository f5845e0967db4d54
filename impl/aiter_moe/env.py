"""The environment variables of the contract. Each is read when asked for, never remembered."""

from __future__ import annotations

import os
from typing import Final

_TRUE: Final = ("1", "true")
_DISPATCH_POLICIES: Final = ("0", "1", "2")
# auto and 1 ask for the fastest kernel, 0 for unquantised activations.
_SITUV2_ACTIVATIONS: Final = {
    "auto": "a4w4",
    "1": "a4w4",
    "a4w4": "a4w4",
    "a8w4": "a8w4",
    "0": "a16w4",
    "a16w4": "a16w4",
}
_SITUV2_SWITCHES: Final = {"AITER_SITUV2_A8W4": "a8w4", "AITER_SITUV2_A4W4": "a4w4"}


def is_on(name: str, *, default: bool) -> bool:
    """Whether the variable `name` says ``1`` or ``true``, in any letter case; `default` where it is unset."""
    text = os.environ.get(name)
    return default if text is None else text.lower() in _TRUE


def dispatch_policy() -> int:
    """Return the number in ``VLLM_ROCM_AITER_MOE_DISPATCH_POLICY``, 0 where it is unset.

    Raises:
        ValueError: It is not 0, 1 or 2.
    """
    text = os.environ.get("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "0")
    if text not in _DISPATCH_POLICIES:
        msg = f"VLLM_ROCM_AITER_MOE_DISPATCH_POLICY must be 0, 1 or 2 (got {text!r})"
        raise ValueError(msg)
    return int(text)


def situv2_activation() -> str:
    """Return what ``VLLM_ROCM_USE_AITER_MOE_SITUV2`` wants for SITU: ``a4w4``, ``a8w4`` or ``a16w4``.

    Raises:
        ValueError: It is set to something that is none of its choices.
    """
    text = os.environ.get("VLLM_ROCM_USE_AITER_MOE_SITUV2", "auto")
    if text.lower() not in _SITUV2_ACTIVATIONS:
        msg = (
            "VLLM_ROCM_USE_AITER_MOE_SITUV2 must be one of "
            f"{', '.join(_SITUV2_ACTIVATIONS)} in any letter case (got {text!r})"
        )
        raise ValueError(msg)
    return _SITUV2_ACTIVATIONS[text.lower()]


def set_situv2_switches() -> None:
    """Tell AITER, by the two variables that it reads itself, what `situv2_activation` says."""
    meant = situv2_activation()
    for name, activation in _SITUV2_SWITCHES.items():
        if activation == meant:
            os.environ[name] = "1"
        else:
            os.environ.pop(name, None)


def check_situv2_switches() -> None:
    """Check that AITER's own two variables still say what `situv2_activation` says.

    AITER takes a variable that is exactly ``1`` for on, and A8W4 before A4W4.

    Raises:
        RuntimeError: They say something else: weights would be read in another layout than they have.
    """
    meant = situv2_activation()
    told = next((a for name, a in _SITUV2_SWITCHES.items() if os.environ.get(name) == "1"), "a16w4")
    if told != meant:
        msg = (
            f"{' and '.join(_SITUV2_SWITCHES)} must agree with VLLM_ROCM_USE_AITER_MOE_SITUV2, which asks "
            f"for {meant} (got {told}); change none of the three once AITER is in use"
        )
        raise RuntimeError(msg)
