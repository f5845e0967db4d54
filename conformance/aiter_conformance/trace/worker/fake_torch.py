"""Makes torch believe that it runs on a ROCm board; tensors "on the GPU" have no storage."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

DEVICE: Final = torch.device("meta")
_ROCM_VERSION: Final = "7.0.0"


class _OnMeta(TorchFunctionMode):
    """Puts on the meta device what is asked for on the GPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": _replaced(kwargs["device"])}
        if func in _ELEMENTWISE and (made := _ELEMENTWISE[func](*args)) is not None:
            return made
        return func(*args, **(kwargs or {}))


def _like(operand: int, dtype: torch.dtype | None = None) -> Callable[..., torch.Tensor | None]:
    """Return a function that gives the result of an elementwise operation on tensors without values.

    Torch works such results out in Python, which takes longer than a whole dispatch. This one answers where
    every tensor has the same shape, and None otherwise.

    Args:
        operand: Which of the tensors has the result's dtype.
        dtype: The result's dtype where no tensor has it.
    """

    def made(*operands: Any) -> torch.Tensor | None:
        tensors = [each for each in operands if isinstance(each, torch.Tensor) and each.dim()]
        if not tensors or any(each.shape != tensors[0].shape or not each.is_meta for each in tensors):
            return None
        return torch.empty_like(tensors[operand], dtype=dtype or tensors[operand].dtype)

    return made


_ELEMENTWISE: Final[dict[Any, Callable[..., torch.Tensor | None]]] = {
    **dict.fromkeys((torch.lt, torch.Tensor.lt, torch.Tensor.__lt__), _like(0, torch.bool)),
    torch.Tensor.masked_fill: _like(0),
}


def _replaced(device: Any) -> Any:
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return DEVICE if kind in ("cuda", "hip") else device


def install(
    arch: str, compute_units: int, lds: int, wave: int, capability: tuple[int, int]
) -> TorchFunctionMode:
    """Fake the runtime in torch and return the mode under which the release's code must run."""
    properties = types.SimpleNamespace(
        name=f"AMD {arch}",
        gcnArchName=f"{arch}:sramecc+:xnack-",
        multi_processor_count=compute_units,
        shared_memory_per_block=lds,
        warp_size=wave,
        major=capability[0],
        minor=capability[1],
        total_memory=192 << 30,
        L2_cache_size=4 << 20,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )
    stream = types.SimpleNamespace(
        cuda_stream=0, stream_id=0, synchronize=lambda: None, wait_stream=lambda _: None
    )
    fakes: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: properties.name,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: stream,
        "is_current_stream_capturing": lambda: False,
        "device": lambda *_: contextlib.nullcontext(),
    }
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)
    torch.version.hip = _ROCM_VERSION
    return _OnMeta()
