"""Makes torch believe that it runs on a ROCm board; tensors "on the GPU" have no storage."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any, Final

import torch

DEVICE: Final = torch.device("meta")
_ROCM_VERSION: Final = "7.0.0"
_GPU: Final = ("cuda", "hip")


# Torch's functions that take a device by keyword, and tensors' methods that take one.
_FACTORIES: Final = (
    *("empty", "empty_strided", "zeros", "ones", "full", "full_like"),
    *("tensor", "as_tensor", "asarray", "scalar_tensor", "arange", "linspace", "eye"),
    *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"),
)
# Options of elementwise operations that play no part in the result's shape and dtype.
_PLAIN_OPTIONS: Final = frozenset({"approximate"})
_TWINS: Final = ("empty_like", "zeros_like", "ones_like")
_METHODS: Final = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")


def _replaced(device: Any) -> Any:
    """Return the meta device for the GPU; anything else as it is."""
    if isinstance(device, torch.device):
        return DEVICE if device.type in _GPU else device
    return DEVICE if isinstance(device, str) and device.partition(":")[0] in _GPU else device


def on_meta(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that puts on the meta device what is asked for on the GPU.

    A `torch.overrides.TorchFunctionMode` could do so for all of torch at once; it is asked on each access of
    a tensor's shape too, which takes longer than a dispatch.
    """

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _replaced(kwargs["device"])
        return function(*args, **kwargs)

    return made


def _moved(to: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the same for `torch.Tensor.to`, whose device may come by position."""
    by_keyword = on_meta(to)

    @functools.wraps(to)
    def made(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        moved: torch.Tensor = by_keyword(tensor, *map(_replaced, args), **kwargs)
        return moved

    return made


def like(function: Callable[..., Any], dtype: torch.dtype | None = None) -> Callable[..., Any]:
    """Return an elementwise operation that is quick about tensors without values.

    Torch works such results out in Python, which takes longer than a whole dispatch. This one answers itself
    where every tensor has the first one's shape, and every other tensor its dtype or is a mask.

    Args:
        function: Torch's own.
        dtype: The result's dtype where it is not the first tensor's.
    """

    @functools.wraps(function)
    def made(first: Any, *others: Any, **kwargs: Any) -> Any:
        if kwargs.keys() <= _PLAIN_OPTIONS and _is_like(first, others):
            return torch.empty(first.shape, dtype=dtype or first.dtype, device=DEVICE)
        return function(first, *others, **kwargs)

    return made


def twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like `torch.empty_like` that is quick about tensors without values, as `like` is.

    Args:
        function: Torch's own.
    """
    elsewhere = on_meta(function)

    @functools.wraps(function)
    def made(tensor: Any, **kwargs: Any) -> Any:
        place = _replaced(kwargs.get("device") or tensor.device)
        if (
            kwargs.keys() <= {"device", "dtype"}
            and tensor.is_contiguous()
            and place == tensor.device == DEVICE
        ):
            return torch.empty(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype, device=DEVICE)
        return elsewhere(tensor, **kwargs)

    return made


def _is_like(first: Any, others: tuple[Any, ...]) -> bool:
    """Say whether the result of an elementwise operation has the first operand's shape and dtype."""
    if not isinstance(first, torch.Tensor) or not first.is_meta or first.dtype == torch.bool:
        return False
    scalars = float | int if first.is_floating_point() else int
    return all(
        (each.is_meta and each.shape == first.shape and each.dtype in (first.dtype, torch.bool))
        if isinstance(each, torch.Tensor)
        else isinstance(each, scalars)
        for each in others
    )


def telling(function: Callable[..., Any], name: str, told: Callable[[str], None]) -> Callable[..., Any]:
    """Return a function that says its name each time that it is called."""

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        told(name)
        return function(*args, **kwargs)

    return made


def _install_tensors(told: Callable[[str], None]) -> None:
    for name in _FACTORIES:
        setattr(torch, name, on_meta(getattr(torch, name)))
    for name in _TWINS:
        setattr(torch, name, twin(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, on_meta(getattr(torch.Tensor, name)))
    torch.Tensor.to = _moved(torch.Tensor.to)  # type: ignore[method-assign]
    torch.lt = like(torch.lt, torch.bool)
    for name in ("lt", "__lt__"):
        setattr(torch.Tensor, name, like(getattr(torch.Tensor, name), torch.bool))
    for name in ("masked_fill", "mul", "__mul__"):
        setattr(torch.Tensor, name, like(getattr(torch.Tensor, name)))
    for name in ("silu", "gelu"):
        quick = like(getattr(torch.nn.functional, name))
        setattr(torch.nn.functional, name, telling(quick, name, told))


def install(
    arch: str,
    compute_units: int,
    lds: int,
    wave: int,
    capability: tuple[int, int],
    told: Callable[[str], None],
) -> None:
    """Fake the runtime in torch, for the rest of the process.

    Args:
        arch: Name of the arch.
        compute_units: Compute units of the board.
        lds: Bytes of local memory of a work-group.
        wave: Lanes of a wave.
        capability: What torch reports as compute capability.
        told: Told of each activation function of torch that is called.
    """
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
    _install_tensors(told)
