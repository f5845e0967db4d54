"""GPU architectures: which one is current, and what follows from it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

AITER_MOE_ARCHS: Final = ("gfx942", "gfx950", "gfx1250")
"""The architectures on which AITER's fused MoE is used: CDNA3, CDNA4 and the CDNA5 class."""

_CHOSEN: ContextVar[str | None] = ContextVar("aiter_moe_arch", default=None)


def current_arch() -> str | None:
    """Return the architecture that answers are about, e.g. ``gfx942``; None where there is no ROCm GPU.

    It is the one chosen with `use_arch`, or else that of torch's current device. Nothing is remembered.
    """
    return _CHOSEN.get() or detect_arch()


@contextmanager
def use_arch(name: str) -> Iterator[None]:
    """Answer for the architecture `name` inside the ``with`` block, whatever the machine has.

    Raises:
        ValueError: `name` is not the name of a ROCm target.
    """
    if not re.fullmatch(r"gfx[0-9a-f]+", name):
        msg = f"arch must be a ROCm target such as 'gfx942' (got {name!r})"
        raise ValueError(msg)
    token = _CHOSEN.set(name)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def detect_arch() -> str | None:
    """Return the architecture of torch's current device, or None without torch, ROCm or a device."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if torch.version.hip is None or not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    # ROCm adds features to the name: "gfx942:sramecc+:xnack-".
    return str(properties.gcnArchName).partition(":")[0]


def is_fp8_fnuz(arch: str | None) -> bool:
    """Whether the matrix cores of `arch` read ``float8_e4m3fnuz`` (gfx94x) rather than ``float8_e4m3fn``."""
    return arch is not None and arch.startswith("gfx94")
