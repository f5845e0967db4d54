"""Keeps what the call that is running does, as plain JSON values."""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

_MAX_ITEMS = 32
_PLAIN = (bool, int, str, types.NoneType)


class Recorder:
    """The events of one call, in order."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Forget the events of the call before."""
        self.events = []

    def operator(self, name: str, module: str, arguments: Mapping[str, Any], generator: str | None) -> None:
        """Record a call of a compiled operator."""
        described = {key: describe(value) for key, value in arguments.items()}
        event = {"event": "operator", "name": name, "module": module, "arguments": described}
        if generator is not None:
            event["generator"] = generator
        self.events.append(event)

    def launch(
        self,
        package: str,
        name: str,
        parameters: Mapping[str, Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
    ) -> None:
        """Record a launch of a kernel that the release compiles from Python."""
        event = {
            "event": package,
            "name": name,
            "parameters": {key: describe(value) for key, value in parameters.items()},
            "scalars": [value for value in arguments if isinstance(value, bool | int)],
            "keywords": {key: describe(value) for key, value in keywords.items()},
        }
        self.events.append(event)

    def torch_activation(self, name: str) -> None:
        """Record an activation that the release leaves to torch: a kernel of torch's own."""
        self.events.append({"event": "torch", "name": name})

    def lookup(self, event: dict[str, Any]) -> None:
        """Record a look into the tuned table, or what the dispatcher made of it."""
        self.events.append(event)


def describe(value: Any) -> Any:
    """Return a value as plain JSON; tensors as dtype and shape, what has no meaning outside as its type."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        described: dict[str, Any] = {"dtype": dtype_name(value.dtype), "shape": list(value.shape)}
        if getattr(value, "is_shuffled", False):
            described["shuffled"] = True
        return described
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, list | tuple):
        return [describe(item) for item in value[:_MAX_ITEMS]]
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, types.FunctionType):
        return value.__name__
    return f"<{type(value).__name__}>"


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the module."""
    return str(dtype).removeprefix("torch.")
