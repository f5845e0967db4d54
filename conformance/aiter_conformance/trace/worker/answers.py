"""What releases really want to know of the packages that placeholders stand for."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any


def answers(arch: str, lds: int, wave: int, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return a value for each full name that must not be a placeholder.

    Args:
        arch: The board's arch.
        lds: Bytes of local memory of a work-group.
        wave: Lanes of a wave.
        versions: Version by package.
    """
    target = types.SimpleNamespace(arch=arch, backend="hip", warp_size=wave)

    def known_arch(*_: Any, **__: Any) -> str:
        return arch

    return {f"{package}.__version__": version for package, version in versions.items()} | {
        "triton.cdiv": lambda dividend, divisor: -(-dividend // divisor),
        "triton.next_power_of_2": lambda number: 1 << max(int(number) - 1, 0).bit_length(),
        "triton.runtime.driver.active.get_current_target": lambda: target,
        "flydsl.runtime.device.get_rocm_arch": known_arch,
        "flydsl.runtime.device.get_rocm_device_arch": known_arch,
        "flydsl.runtime.device.is_rdna_arch": lambda *_: not arch.startswith("gfx9"),
        "flydsl.utils.smem_allocator.SMEM_CAPACITY_MAP": {arch: lds},
    }
