"""Stands in for what AITER compiles: operators of C++ and assembly, their modules, and their enumerations.

The release's own Python decides everything; the operators only record that they were called.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aiter_conformance.trace.worker.placeholders import Placeholder
from aiter_conformance.trace.worker.recorder import Recorder

# Names of an operator's parameter that is also its result.
_RESULTS = ("out", "output", "moe_out", "Y")


def make_enums(members: Mapping[str, Mapping[str, int]]) -> dict[str, type[enum.Enum]]:
    """Return the enumerations of the release's C++ headers, with the look that pybind11 gives them."""
    enums: dict[str, type[enum.Enum]] = {}
    for name, values in members.items():
        made: Any = enum.EnumMeta.__call__(enum.Enum, name, dict(values), module="aiter")
        for conversion in ("__int__", "__index__"):
            setattr(made, conversion, lambda self: self.value)
        enums[name] = made
    return enums


class FakeJit:
    """Replaces the functions of ``aiter.jit.core`` that compile or load.

    Args:
        recorder: Told of every call.
        enums: See `make_enums`.
        constants: Values of ``module.attribute`` of compiled modules.
    """

    def __init__(
        self, recorder: Recorder, enums: Mapping[str, type[enum.Enum]], constants: Mapping[str, Any]
    ) -> None:
        self._recorder = recorder
        self._enums = enums
        self._constants = constants

    def patch(self, module: Any) -> None:
        """Replace the functions in the module that defines ``compile_ops``."""
        module.compile_ops = self.compile_ops
        module.get_module = self.get_module
        module.build_module = _refuse_to_build
        if hasattr(module, "hip_flag_checker"):
            module.hip_flag_checker = lambda *_: False

    def get_module(self, name: str, *_: Any, **__: Any) -> Placeholder:
        """Return a compiled module."""
        return Placeholder(name, self._recorder.launch, self._constants)

    def compile_ops(
        self,
        module: str,
        fc_name: str | None = None,
        gen_func: Callable[..., Mapping[str, Any]] | None = None,
        gen_fake: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """See ``aiter.jit.core.compile_ops``: a decorator that turns a stub into a compiled operator."""

        def decorate(stub: Callable[..., Any]) -> Callable[..., Any]:
            name = fc_name or stub.__name__
            if name in self._enums:
                return self._factory(self._enums[name])
            signature = inspect.signature(stub)
            names = tuple(signature.parameters)
            defaults = {
                key: each.default
                for key, each in signature.parameters.items()
                if each.default is not each.empty
            }

            @functools.wraps(stub)
            def operator(*args: Any, custom_build_args: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001
                arguments = dict(zip(names, args, strict=False)) | kwargs
                if (
                    len(arguments) != len(args) + len(kwargs)
                    or not arguments.keys() <= signature.parameters.keys()
                ):
                    signature.bind(*args, **kwargs)  # raises what a wrong call raises
                arguments = {key: arguments[key] if key in arguments else defaults[key] for key in names}
                built, generator = module, None
                if gen_func is not None:
                    build = gen_func(*args, **kwargs)
                    built = build.get("md_name", module)
                    generator = _first_command(build.get("blob_gen_cmd"))
                self._recorder.operator(name, built, arguments, generator)
                if gen_fake is not None and _takes(gen_fake, args, kwargs):
                    return gen_fake(*args, **kwargs)
                return _result(signature.return_annotation, arguments)

            return operator

        return decorate

    @staticmethod
    def _factory(made: type[enum.Enum]) -> Callable[..., Any]:
        # AITER asks for "type(_ActivationType(0))", whether or not 0 is a member.
        def member(value: int, *_: Any) -> Any:
            values = [each.value for each in made]
            return made(value if value in values else values[0])

        return member


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Say whether a fake takes the call: outside torch.compile nobody notices a fake of other parameters."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _refuse_to_build(name: str, *_: Any, **__: Any) -> None:
    msg = f"the trace must not compile anything (the release asked to build {name})"
    raise RuntimeError(msg)


def _first_command(commands: Any) -> str | None:
    if isinstance(commands, str):
        return commands or None
    return next((str(command) for command in commands or () if command), None)


def _result(annotation: Any, arguments: Mapping[str, Any]) -> Any:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if text == "int":
        return 0
    if text == "bool":
        return False
    if "Tensor" in text:
        return next(
            (arguments[key] for key in _RESULTS if isinstance(arguments.get(key), torch.Tensor)), None
        )
    return None


def unguarded(*args: Any, **kwargs: Any) -> Any:
    """Stand in for ``torch_compile_guard``: the function stays a plain one, no operator is registered."""
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return lambda function: function
