"""Placeholders for packages that a release imports and that do nothing here: Triton, Iris, FlyDSL, Dynamo.

A placeholder answers every attribute, call, index and operator with another one, so that module-level code
of kernels runs. A function that is decorated by one becomes a `Kernel`, whose calls are launches; Dynamo's
decorators leave it alone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Launch = Callable[[str, str, Mapping[str, Any], tuple[Any, ...], Mapping[str, Any]], None]

_OPERATORS: Final = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow"),
    *("rand", "ror", "rxor", "rlshift", "rrshift"),
)


class Kernel:
    """Something that launches when it is called.

    Args:
        launch: Told of every launch: package, name, parameters, positional and keyword arguments.
        package: ``triton``, ``flydsl``, ...
        name: Name of the kernel.
        parameters: What it was compiled for.
    """

    def __init__(
        self, launch: Launch, package: str, name: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self._launch = launch
        self.package = package
        self.parameters = dict(parameters or {})
        self.__name__ = name

    def launch(self, *arguments: Any, **keywords: Any) -> Kernel:
        """Record one launch."""
        self._launch(self.package, self.__name__, self.parameters, arguments, keywords)
        return self

    __call__ = launch

    def __getitem__(self, grid: object) -> Kernel:
        return self  # kernel[grid](...)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}", self._launch)


class PlaceholderBase:
    """What a class that derives from a placeholder really derives from."""


class Placeholder:
    """Stands for any object of an absent package."""

    def __init__(self, path: str, launch: Launch, answers: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._launch = launch
        self._answers = answers or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        path = f"{self._path}.{name}"
        return (
            self._answers[path] if path in self._answers else Placeholder(path, self._launch, self._answers)
        )

    def __call__(self, *arguments: Any, **_keywords: Any) -> Any:  # noqa: D102 -- see the class
        package = self._path.partition(".")[0]
        match arguments:
            case (Kernel() | type() as decorated,):
                return decorated
            case (decorated, *_) if package == "torch" and callable(decorated):
                return decorated  # what Dynamo would compile stays as it is
            case (types.FunctionType() as function,):
                return Kernel(self._launch, package, f"{function.__module__}.{function.__name__}")
        return self._next("()")

    def _next(self, suffix: str) -> Placeholder:
        return Placeholder(self._path + suffix, self._launch, self._answers)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return () if PlaceholderBase in bases else (PlaceholderBase,)

    def __getitem__(self, index: object) -> Placeholder:
        return self._next("[]")

    def __setitem__(self, index: object, value: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Placeholder:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return 0

    __index__ = __int__

    def __float__(self) -> float:
        return 0.0

    def __hash__(self) -> int:
        return hash(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placeholder) and other._path == self._path

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __neg__(self) -> Placeholder:
        return self._next("-")

    __pos__ = __invert__ = __neg__

    def __repr__(self) -> str:
        return f"<placeholder {self._path}>"


def _operator(self: Placeholder, _other: object) -> Placeholder:
    return self._next(".")


for _name in _OPERATORS:
    setattr(Placeholder, f"__{_name}__", _operator)


class _PlaceholderModule(types.ModuleType):
    def __init__(self, name: str, launch: Launch, answers: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._answers = answers
        self._root = Placeholder(name, launch, answers)
        version = answers.get(f"{name}.__version__")
        if version is not None:
            self.__version__ = version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = f"{self.__name__}.{name}"
        return sys.modules[submodule] if submodule in sys.modules else getattr(self._root, name)


class PlaceholderFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below the given packages, as a placeholder.

    Args:
        packages: Full names; what is below them is theirs too.
        answers: Full names that have a value of their own, e.g. ``triton.cdiv``.
        launch: See `Kernel`.
    """

    def __init__(self, packages: Sequence[str], answers: Mapping[str, Any], launch: Launch) -> None:
        self._packages = tuple(packages)
        self._answers = answers
        self._launch = launch

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 -- the protocol's
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not any(fullname == package or fullname.startswith(f"{package}.") for package in self._packages):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="a placeholder", is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """See `importlib.abc.Loader`."""
        return _PlaceholderModule(spec.name, self._launch, self._answers)

    def exec_module(self, module: types.ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        module.__path__ = []
