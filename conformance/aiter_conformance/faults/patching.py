"""Importing a variant in place of a module, in this process only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.faults.variant import Variant, source_of


class _Loader(SourceFileLoader):
    """Loads other code than the file holds; the bytecode cache is neither read nor written."""

    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 -- the import system's
        return self._code


class _Finder(MetaPathFinder):
    def __init__(self, module: str, code: CodeType) -> None:
        self._module = module
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        found = next((spec for spec in specs if spec is not None), None)
        if found is None or found.origin is None:
            return None
        loader = _Loader(fullname, found.origin, self._code)
        return spec_from_file_location(fullname, found.origin, loader=loader)


def check_not_imported(package: str) -> None:
    """Check that the package under test is not loaded yet: what is loaded cannot be replaced.

    Raises:
        InfrastructureError: It is.
    """
    loaded = sorted(name for name in sys.modules if f"{name}.".startswith(f"{package}."))
    if loaded:
        msg = (
            f"{package} must not be imported before a fault is in place (got {', '.join(loaded)}); "
            "suites have to import it inside their tests"
        )
        raise InfrastructureError(msg)


def put_in_place(variant: Variant) -> None:
    """Have the variant imported instead of its module from here on; there is no way back.

    Raises:
        InfrastructureError: The package under test is loaded already.
        SyntaxError: The variant is no Python: it would fail every test, which shows nothing.
    """
    check_not_imported(variant.module.partition(".")[0])
    code = compile(variant.source, source_of(variant.module), "exec", dont_inherit=True)
    sys.meta_path.insert(0, _Finder(variant.module, code))
