"""Stands in for FlyDSL's compiler: what compiles a kernel hands out one that records its launches."""

from __future__ import annotations

import functools
import inspect
import re
import types
from typing import Any

from aiter_conformance.trace.worker.placeholders import Kernel
from aiter_conformance.trace.worker.recorder import Recorder

PACKAGE = "aiter.ops.flydsl."
KERNELS = f"{PACKAGE}kernels."
_COMPILES = re.compile(r"_?(?:compile|build)_")
_RUNNER = "_run_compiled"


def patch(module: Any, recorder: Recorder) -> None:
    """Replace the functions of a module below `PACKAGE` that compile or run kernels."""
    name = module.__name__
    for key, value in list(vars(module).items()):
        if not isinstance(value, types.FunctionType | functools._lru_cache_wrapper):
            continue
        if value.__module__ != name:
            continue
        if key == _RUNNER:
            setattr(module, key, _run)
        elif name.startswith(KERNELS) and _COMPILES.match(key):
            setattr(module, key, _compiler(value, f"{name.removeprefix(KERNELS)}.{key}", recorder))


def _compiler(function: Any, name: str, recorder: Recorder) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Kernel:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        parameters = dict(bound.arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                parameters.update(parameters.pop(parameter.name))
        return Kernel(recorder.launch, "flydsl", name, parameters)

    return compiled


def _run(kernel: Any, *arguments: Any, **keywords: Any) -> None:
    """Stand in for what launches a compiled kernel, with its arguments or with one tuple of them."""
    match arguments:
        case (tuple() | list() as packed,):
            kernel(*packed, **keywords)
        case _:
            kernel(*arguments, **keywords)
