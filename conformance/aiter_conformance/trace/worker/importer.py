"""Imports the release's modules out of its private copy, and replaces in each what needs a GPU or a compiler.

The files stay as they are. What changes is in memory: the functions named in `Importer`, and string constants
that name a fixed place in the machine's shared temporary folder, which become private.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, Final

from aiter_conformance.trace.worker import fake_flydsl
from aiter_conformance.trace.worker.fake_jit import FakeJit, unguarded
from aiter_conformance.trace.worker.recorder import Recorder

_SHARED: Final = "/tmp/"  # noqa: S108 -- what is looked for in the release's code


class _Loader(SourceFileLoader):
    def __init__(self, importer: Importer, name: str, path: str) -> None:
        super().__init__(name, path)
        self._importer = importer

    def get_code(self, fullname: str) -> types.CodeType:
        return self._importer.code(Path(self.get_filename(fullname)))

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        self._importer.patch(module)


class Importer:
    """A finder for the modules of one release.

    Args:
        root: The private copy.
        private: Folder that stands in for the shared temporary one.
        cache: Folder that keeps compiled code between runs.
        jit: Stand-in for ``aiter.jit.core``.
        recorder: Told of launches.
        pci_device: The board's PCI device number.
    """

    def __init__(
        self, root: Path, private: Path, cache: Path, jit: FakeJit, recorder: Recorder, pci_device: int
    ) -> None:
        self._root = root
        self._private = private
        self._cache = cache
        self._jit = jit
        self._recorder = recorder
        self._pci_device = pci_device
        self.unpatched: set[str] = {"compile_ops", "torch_compile_guard"}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            return None
        if not spec.origin.startswith(f"{self._root}{os.sep}"):
            return None
        spec.loader = _Loader(self, fullname, spec.origin)
        return spec

    def patch(self, module: Any) -> None:
        """Replace what needs a GPU or a compiler in a module that was just executed."""
        name = module.__name__
        defined = {key for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
        if "compile_ops" in defined:
            self._jit.patch(module)
            self.unpatched.discard("compile_ops")
        if "torch_compile_guard" in defined:
            module.torch_compile_guard = unguarded
            self.unpatched.discard("torch_compile_guard")
        if "_get_pci_chip_id" in defined:
            module._get_pci_chip_id = lambda *_: self._pci_device
        if name.startswith(fake_flydsl.PACKAGE):
            fake_flydsl.patch(module, self._recorder)

    def code(self, path: Path) -> types.CodeType:
        """Return a file's code, compiled once for all runs; it names the file relative to the release."""
        source = path.read_bytes()
        relative = path.relative_to(self._root).as_posix()
        key = hashlib.sha256(b"\0".join((importlib.util.MAGIC_NUMBER, relative.encode(), source))).hexdigest()
        kept = self._cache / key[:2] / key
        try:
            code: types.CodeType = marshal.loads(kept.read_bytes())  # noqa: S302 -- our own file
        except (OSError, ValueError, EOFError, TypeError):
            code = compile(source, relative, "exec", dont_inherit=True)
            _keep(kept, marshal.dumps(code))
        return _with_constants(code, self._private_constant) if _SHARED.encode() in source else code

    def _private_constant(self, value: str) -> str:
        return f"{self._private}/{value.removeprefix(_SHARED)}" if value.startswith(_SHARED) else value


def _keep(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


def _with_constants(code: types.CodeType, change: Callable[[str], str]) -> types.CodeType:
    """Return the code with changed string constants, in the functions inside it too."""
    constants = tuple(
        change(value)
        if isinstance(value, str)
        else _with_constants(value, change)
        if isinstance(value, types.CodeType)
        else value
        for value in code.co_consts
    )
    return code.replace(co_consts=constants)


def import_release(importer: Importer, root: Path, modules: Sequence[str]) -> dict[str, Any]:
    """Import modules of the release and return them by name.

    Raises:
        Exception: Whatever the release's own code raises.
        ImportError: A module is not the release's.
    """
    sys.meta_path.insert(0, importer)
    sys.path.insert(0, str(root))
    found = {}
    for name in modules:
        found[name] = importlib.import_module(name)
        origin = str(getattr(found[name], "__file__", ""))
        if not origin.startswith(f"{root}{os.sep}"):
            msg = f"{name} must come from the release under trace (something else of that name was imported)"
            raise ImportError(msg)
    return found
