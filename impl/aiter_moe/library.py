"""AITER as a library: which one there is, and how to reach its parts without importing it too early."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

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
