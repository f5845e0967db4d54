"""Import vLLM's modules straight out of a wheel file, without installing vLLM.

Nothing is unpacked: sources are read from the archive when an import asks for them, so the set of modules is
found by following vLLM's own imports and no list of them has to be kept. Three things keep the import small
enough for a machine that has only torch and a few small packages:

* the ``__init__`` of a package runs only when something that it defines is asked for;
* the areas in `STUB_AREAS`, which the fused-MoE experts import but never use, are replaced by placeholders;
* any other module that needs a package which is not installed becomes a placeholder too, and is remembered.

A placeholder takes part in an import, but using it afterwards is an error that names it: it never answers.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from packaging.version import Version

from aiter_conformance.errors import InfrastructureError, UsageError

ROOT = "vllm"

STUB_AREAS = (
    "vllm._custom_ops",
    "vllm.config",
    "vllm.distributed",
    "vllm.forward_context",
    "vllm.kernels",
    "vllm.model_executor.layers.fused_moe.routed_experts_capturer",
    "vllm.model_executor.layers.fused_moe.runner",
    "vllm.model_executor.layers.fused_moe.utils",
    "vllm.model_executor.layers.quantization.utils.mxfp4_utils",
    "vllm.plugins",
    "vllm.triton_utils",
    "vllm.v1",
)
"""Modules, with everything below them, that are replaced by placeholders."""

ABSENT_AREAS = ("vllm.third_party.pynvml", "vllm.third_party.triton_kernels")
"""Modules that must look as if the wheel had none: they look for another vendor's GPU, or for Triton."""

BARE_PACKAGES = frozenset({ROOT})
"""Packages whose ``__init__`` never runs: vLLM's own changes settings of torch for the whole process."""


class Wheel:
    """A vLLM wheel, read in place.

    Args:
        path: The wheel file.

    Raises:
        UsageError: The file does not exist, is not a wheel, or is not a wheel of vLLM.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            msg = f"the vLLM wheel must be a file (got {path.name!r}, which is none)"
            raise UsageError(msg)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            msg = f"the vLLM wheel must be a zip archive (got {path.name!r}: {error})"
            raise UsageError(msg) from error
        self.name = path.name
        self._members = frozenset(self._zip.namelist())
        self._code: dict[str, CodeType] = {}
        unsafe = next((m for m in sorted(self._members) if _is_unsafe(m)), None)
        if unsafe is not None:
            msg = f"every member of the vLLM wheel must lie below it (got {unsafe!r} in {path.name!r})"
            raise UsageError(msg)
        self.version = self._read_version()

    def member(self, module: str) -> tuple[str, bool] | None:
        """Return (member, is a package) of the Python source of ``module``, or None if the wheel has none."""
        stem = module.replace(".", "/")
        for name, is_package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            if name in self._members:
                return name, is_package
        return None

    def has_package(self, module: str) -> bool:
        """Return whether anything in the wheel lies below ``module``."""
        prefix = module.replace(".", "/") + "/"
        return any(m.startswith(prefix) for m in self._members)

    def code(self, member: str) -> CodeType:
        """Return the compiled source of a member; it is compiled once and can be run any number of times.

        Raises:
            InfrastructureError: The source cannot be read or does not compile.
        """
        if member not in self._code:
            try:
                source = self._zip.read(member)
                self._code[member] = compile(source, f"{self.name}/{member}", "exec", dont_inherit=True)
            except (zipfile.BadZipFile, SyntaxError, ValueError) as error:
                msg = f"cannot read {member} of {self.name}: {error}"
                raise InfrastructureError(msg) from error
        return self._code[member]

    def source(self, member: str) -> str:
        """Return the text of a member, for tools that show or parse source."""
        return self._zip.read(member).decode("utf-8")

    def _read_version(self) -> Version:
        names = [m for m in self._members if m.endswith(".dist-info/METADATA") and m.count("/") == 1]
        if len(names) != 1:
            msg = f"the vLLM wheel must have one .dist-info/METADATA (got {len(names)} in {self.name!r})"
            raise UsageError(msg)
        metadata = Parser().parsestr(self._zip.read(names[0]).decode("utf-8"), headersonly=True)
        if metadata["Name"] != ROOT:
            msg = f"the wheel must be one of vllm (got {metadata['Name']!r} in {self.name!r})"
            raise UsageError(msg)
        return Version(metadata["Version"])


def _is_unsafe(member: str) -> bool:
    return member.startswith("/") or "\\" in member or ".." in PurePosixPath(member).parts


class _Seal:
    """Whether placeholders must still take part (during an import) or must not be used any more."""

    def __init__(self) -> None:
        self.closed = False


class _PlaceholderType(type):
    """The type of placeholder classes: they can be named, subclassed and annotated with, not used."""

    _seal: _Seal
    _label: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(cls._seal, f"{cls._label}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        cls._refuse()
        # A decorator from a stubbed module is given what it decorates, which nobody is going to call.
        return args[0] if len(args) == 1 and not kwargs else _placeholder(cls._seal, f"{cls._label}()")

    def __getitem__(cls, _key: Any) -> Any:
        cls._refuse()
        return cls

    def __bool__(cls) -> bool:
        cls._refuse()
        return True

    def __iter__(cls) -> Iterator[Any]:
        cls._refuse()
        return iter(())

    def _refuse(cls) -> None:
        if cls._seal.closed:
            msg = f"vLLM used {cls._label}, of which only a placeholder is loaded"
            raise InfrastructureError(msg)


def _placeholder(seal: _Seal, label: str) -> Any:
    return _PlaceholderType(label.rpartition(".")[2], (), {"_seal": seal, "_label": label})


class _StubModule(ModuleType):
    """A module whose missing attributes are placeholders."""

    _seal: _Seal

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _placeholder(self._seal, f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _LazyPackage(ModuleType):
    """A package whose ``__init__`` runs when something that it defines is first asked for."""

    _finder: WheelFinder
    _member: str | None

    def __getattr__(self, name: str) -> Any:
        member = self.__dict__.get("_member")
        is_submodule = self._finder.wheel.member(f"{self.__name__}.{name}") is not None
        if name.startswith("__") or member is None or is_submodule:
            # AttributeError makes `from package import submodule` go on to import the submodule.
            msg = f"module {self.__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        self._member = None  # before running it: it may ask for its own attributes
        self._finder.execute(self, member)
        return getattr(self, name)


class WheelFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads the modules of one import of the wheel.

    Args:
        wheel: Where the sources are.
        values: What stubbed modules really answer, as {module: {attribute: value}}.
        essential: Modules that must not become placeholders: where they cannot be imported, the import fails.
    """

    def __init__(
        self, wheel: Wheel, *, values: Mapping[str, Mapping[str, Any]], essential: Sequence[str]
    ) -> None:
        self.wheel = wheel
        self.values = values
        self.essential = frozenset(essential)
        self.stubbed: dict[str, str] = {}
        self.seal = _Seal()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 -- the signature of finders
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of vLLM; None for a module that the wheel does not have."""
        if fullname.partition(".")[0] != ROOT or _in_areas(fullname, ABSENT_AREAS):
            return None
        member = self.wheel.member(fullname)
        if member is None and not (self.wheel.has_package(fullname) or _in_areas(fullname, STUB_AREAS)):
            return None
        is_package = member is None or member[1] or _in_areas(fullname, STUB_AREAS)
        origin = f"{self.wheel.name}/{member[0]}" if member else self.wheel.name
        return importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module of the kind that the name asks for: placeholder, lazy package or ordinary."""
        if _in_areas(spec.name, STUB_AREAS):
            stub = _StubModule(spec.name)
            stub._seal = self.seal
            return stub
        if spec.submodule_search_locations is not None:
            package = _LazyPackage(spec.name)
            member = self.wheel.member(spec.name)
            package._finder = self
            package._member = None if member is None or spec.name in BARE_PACKAGES else member[0]
            return package
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module: values for a stub, nothing yet for a package, its source for any other."""
        name = module.__name__
        if isinstance(module, _StubModule):
            vars(module).update(self.values.get(name, {}))
        elif not isinstance(module, _LazyPackage):
            member = self.wheel.member(name)
            assert member is not None  # noqa: S101 -- find_spec found it
            self.execute(module, member[0])

    def execute(self, module: ModuleType, member: str) -> None:
        """Run a member's source in a module; where a foreign package is missing, make it a placeholder."""
        module.__file__ = f"{self.wheel.name}/{member}"
        try:
            exec(self.wheel.code(member), module.__dict__)  # noqa: S102 -- this is what an import is
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing == ROOT or module.__name__ in self.essential:
                raise
            self.stubbed[module.__name__] = missing
            kept = {k: v for k, v in vars(module).items() if k in _IMPORT_ATTRIBUTES}
            vars(module).clear()
            vars(module).update(kept)
            module.__class__ = _StubModule
            vars(module)["_seal"] = self.seal

    def get_source(self, fullname: str) -> str | None:
        """Return the source of a module, so that tracebacks and `inspect` can show it."""
        member = self.wheel.member(fullname)
        return None if member is None else self.wheel.source(member[0])


_IMPORT_ATTRIBUTES = frozenset(
    {"__name__", "__loader__", "__package__", "__spec__", "__path__", "__builtins__"}
)


def _in_areas(name: str, areas: Sequence[str]) -> bool:
    return any(name == area or name.startswith(area + ".") for area in areas)


class ModuleSet:
    """The modules of one import, kept out of `sys.modules` except while `active`.

    Several imports of the same wheel can so live in one process, each having seen another platform.

    Args:
        finder: Finds vLLM's own modules.
        foreign: Modules that vLLM must find in place of installed ones, by name.
    """

    def __init__(self, finder: WheelFinder, foreign: Mapping[str, ModuleType]) -> None:
        self.finder = finder
        self.foreign = dict(foreign)
        self._own: dict[str, ModuleType] = {}

    @contextmanager
    def active(self, extra: Mapping[str, ModuleType | None] = types.MappingProxyType({})) -> Iterator[None]:
        """Put the modules in place, and take them out again.

        Args:
            extra: More foreign modules for this time only; None makes the import of that name fail.
        """
        foreign: dict[str, Any] = {**self.foreign, **extra}
        roots = (ROOT, *{name.partition(".")[0] for name in foreign})
        saved = {name: sys.modules.pop(name) for name in _below(roots)}
        sys.modules.update(foreign)
        sys.modules.update(self._own)
        sys.meta_path.insert(0, self.finder)
        try:
            yield
        finally:
            sys.meta_path.remove(self.finder)
            self._own = {name: sys.modules[name] for name in _below((ROOT,))}
            for name in _below(roots):
                del sys.modules[name]
            sys.modules.update(saved)


def _below(roots: tuple[str, ...]) -> list[str]:
    """Return the names of the imported modules that are one of the roots or lie below one."""
    prefixes = tuple(f"{root}." for root in roots)
    return [name for name in sys.modules if name.startswith(prefixes) or name in roots]
