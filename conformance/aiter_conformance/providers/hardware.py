"""The provider ``hardware``: the real AITER on the device, reached through leaf and bridge."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import Any, Final

import torch

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.numerics.packed import Packed
from aiter_conformance.protocols import KernelCall, Subject

# Parts of AITER that a leaf can reach; the second is missing from some releases.
_MODULES: Final = ("aiter", "aiter.fused_moe", "aiter.fused_moe_bf16_asm", "aiter.ops.shuffle")


@dataclass
class RealAiter:
    """The AITER of this Python, imported (`aiter_conformance.protocols.FoundAiter`).

    Attributes:
        version: Its version.
    """

    version: str
    absent: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, version: str) -> RealAiter:
        """Import AITER.

        Raises:
            InfrastructureError: It cannot be imported.
        """
        found = cls(version)
        for name in _MODULES:
            try:
                importlib.import_module(name)
            except Exception as error:  # an import of AITER builds, and can raise anything
                if name in _MODULES[:2]:
                    msg = f"{name} must be importable ({type(error).__name__}: {error})"
                    raise InfrastructureError(msg) from error
                found.absent.append(name)
        return found

    @property
    def modules(self) -> dict[str, ModuleType]:
        """Every module of AITER that is imported by now."""
        return {name: module for name, module in sys.modules.items() if f"{name}.".startswith("aiter.")}


class HardwareProvider:
    """Computes kernel calls with the real AITER (`aiter_conformance.protocols.Provider`).

    Use it inside `Subject.environment` and outside `Subject.recording`.

    Args:
        subject: The subject whose bridge is called.
        device: The torch device, e.g. ``cuda``.
    """

    name = "hardware"
    level = "hardware"

    def __init__(self, subject: Subject, device: str) -> None:
        self._subject = subject
        self._device = device

    def compute(self, call: KernelCall, arch: str) -> torch.Tensor:  # noqa: ARG002 -- it runs where it runs
        """Return the result of a call through the subject's bridge, (M, K), finished on the device.

        What AITER raises passes through.
        """
        result: torch.Tensor = self._subject.entry(call.entry).wrapper(**call.arguments)
        self.finish()
        return result

    def finish(self) -> None:
        """Wait until the device has done everything."""
        if self._device != "cpu":
            torch.cuda.synchronize()


def on_device(packed: Packed, device: str) -> Packed:
    """Return copies of everything on a device, so that a kernel that writes into its inputs spoils copies.

    The mark that AITER reads off weights is kept.
    """
    mask = packed.expert_mask
    return Packed(
        hidden_states=_copied(packed.hidden_states, device),
        topk_weights=_copied(packed.topk_weights, device),
        topk_ids=_copied(packed.topk_ids, device),
        expert_mask=None if mask is None else _copied(mask, device),
        w1=_copied(packed.w1, device),
        w2=_copied(packed.w2, device),
        quant={name: _copied(tensor, device) for name, tensor in packed.quant.items()},
    )


def _copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    # Types of less than a byte cannot be cloned as they are.
    copy = _bytes(tensor).clone().to(device).view(tensor.dtype)
    if getattr(tensor, "is_shuffled", False):
        vars(copy)["is_shuffled"] = True
    return copy


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def changed(before: Packed, after: Packed) -> list[str]:
    """Return the names of tensors whose bytes differ."""
    names = []
    for name, old, new in _pairs(before, after):
        if old is not None and not torch.equal(_bytes(old).cpu(), _bytes(new).cpu()):
            names.append(name)
    return names


def _pairs(before: Packed, after: Packed) -> list[tuple[str, Any, Any]]:
    plain = [
        (f.name, getattr(before, f.name), getattr(after, f.name)) for f in fields(before) if f.name != "quant"
    ]
    return plain + [(name, tensor, after.quant[name]) for name, tensor in before.quant.items()]


def poison(like: torch.Tensor, copies: int = 4) -> None:
    """Leave NaN in memory that the next allocations of this size are likely to get.

    A kernel that does not write all of its output then shows it.
    """
    held = [torch.full_like(like, torch.nan) for _ in range(copies)]
    held.clear()
