"""The bridge to AITER: whether it is to be used, and the calls into it.

A bridge is built around one AITER: the installed one, a simulated one, or a release under trace. AITER is
imported only when a call needs it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from aiter_moe import env
from aiter_moe.arch import AITER_MOE_ARCHS, current_arch

_PARTS: Final = {
    "ActivationType": ("aiter", "ActivationType"),
    "QuantType": ("aiter", "QuantType"),
    "dtypes": ("aiter", "dtypes"),
    "fused_moe": ("aiter.fused_moe", "fused_moe"),
    "asm_moe_tkw1": ("aiter.fused_moe_bf16_asm", "asm_moe_tkw1"),
    "biased_grouped_topk": ("aiter", "biased_grouped_topk"),
    "grouped_topk": ("aiter", "grouped_topk"),
}


@dataclass(frozen=True)
class Aiter:
    """One AITER: its version, and how to reach its parts.

    Attributes:
        version: For messages.
        load: Returns the part of a given name, importing it if need be; what it raises means "not there". The
            names are ActivationType, QuantType, dtypes, fused_moe, asm_moe_tkw1, grouped_topk and
            biased_grouped_topk.
    """

    version: str
    load: Callable[[str], Any]

    @classmethod
    def simulated(cls, version: str, **parts: Any) -> Aiter:
        """Return an AITER that consists of the given parts and of nothing else."""
        return cls(version, parts.__getitem__)

    def part(self, name: str) -> Any:
        """Return a part of this AITER.

        Raises:
            ImportError: This AITER has no such part, or cannot be imported on this machine.
        """
        try:
            return self.load(name)
        except Exception as error:
            msg = f"AITER {self.version} does not give {name} ({type(error).__name__}: {error})"
            raise ImportError(msg) from error


def _import_part(name: str) -> Any:
    module, attribute = _PARTS[name]
    return getattr(importlib.import_module(module), attribute)


def find_aiter() -> Aiter | None:
    """Return the installed AITER without importing it, or None.

    The package index also has an unrelated ``aiter``; AMD's is the one with a module ``aiter.fused_moe``.
    """
    spec = importlib.util.find_spec("aiter")
    folders = (spec and spec.submodule_search_locations) or ()
    if not any(Path(folder, "fused_moe.py").is_file() for folder in folders):
        return None
    try:
        installed = version("amd-aiter")
    except PackageNotFoundError:
        # A source tree on the path: it works, it only cannot say which release it is.
        installed = "unknown"
    return Aiter(installed, _import_part)


class AiterBridge:
    """What the leaves ask of AITER and of the environment.

    Args:
        library: The AITER behind the bridge; None says that there is none. No part of it is loaded before
            a call needs it.
        use_operators: Whether the dispatcher reaches the two kernel calls through their torch operators.
            Without them a call on meta tensors arrives at AITER instead of ending in the operator's fake.
    """

    def __init__(self, library: Aiter | None, *, use_operators: bool = True) -> None:
        self.library = library
        self.use_operators = use_operators

    def is_available(self) -> bool:
        """Whether an AITER was found and the current architecture is one that its fused MoE supports."""
        return self.library is not None and current_arch() in AITER_MOE_ARCHS

    def fused_moe_obstacle(self) -> str | None:
        """Return why AITER's fused MoE is not enabled, in words that follow "because"; None when it is."""
        arch = current_arch()
        device = (
            "there is no ROCm GPU" if arch is None else f"{arch} is not one of {', '.join(AITER_MOE_ARCHS)}"
        )
        obstacles = (
            (arch in AITER_MOE_ARCHS, device),
            (self.library is not None, "AITER is not installed"),
            (env.is_on("VLLM_ROCM_USE_AITER", default=False), "VLLM_ROCM_USE_AITER is not 1"),
            (env.is_on("VLLM_ROCM_USE_AITER_MOE", default=True), "VLLM_ROCM_USE_AITER_MOE is not 1"),
        )
        return next((why for fulfilled, why in obstacles if not fulfilled), None)

    def is_fused_moe_enabled(self) -> bool:
        """Whether AITER's fused MoE is to be used: architecture, AITER and both variables agree."""
        return self.fused_moe_obstacle() is None

    def is_fusion_moe_shared_experts_enabled(self) -> bool:
        """Whether shared experts ride along in the routed call; only with fused MoE enabled."""
        wanted = env.is_on("VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS", default=False)
        return wanted and self.is_fused_moe_enabled()

    def get_moe_dispatch_policy(self) -> int:
        """Return AITER's MoE sorting policy, 0, 1 or 2; 0 where AITER is not available.

        Raises:
            ValueError: ``VLLM_ROCM_AITER_MOE_DISPATCH_POLICY`` is something else.
        """
        return env.dispatch_policy() if self.is_available() else 0

    def is_fused_moe_situv2_gate_up_interleaved(self) -> bool:
        """Whether SITU's kernel wants gate and up interleaved, which is so for a8w4; fused MoE may be off.

        Raises:
            ValueError: ``VLLM_ROCM_USE_AITER_MOE_SITUV2`` is none of its choices.
        """
        return self.is_available() and env.situv2_activation() == "a8w4"


@functools.cache
def _installed_bridge() -> AiterBridge:
    return AiterBridge(find_aiter())


_CHOSEN: ContextVar[AiterBridge | None] = ContextVar("aiter_moe_bridge", default=None)


def current_bridge() -> AiterBridge:
    """Return the bridge chosen with `use_bridge`, or else the one to the installed AITER."""
    return _CHOSEN.get() or _installed_bridge()


@contextmanager
def use_bridge(bridge: AiterBridge) -> Iterator[AiterBridge]:
    """Make `bridge` the current one inside the ``with`` block."""
    token = _CHOSEN.set(bridge)
    try:
        yield bridge
    finally:
        _CHOSEN.reset(token)
