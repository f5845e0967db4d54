"""A faulty version of one module of the package under test."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance.errors import UsageError


@dataclass(frozen=True, slots=True)
class Variant:
    """One module with one change.

    Attributes:
        id: Unique name, for people and for data.
        module: The changed module, e.g. ``aiter_moe.pads``.
        first_line: First line of the original that the change touches, from 1.
        last_line: The last one.
        source: The whole changed source.
    """

    id: str
    module: str
    first_line: int
    last_line: int
    source: str


def source_of(module: str) -> Path:
    """Return the file of a module without importing it.

    Raises:
        UsageError: There is no such module, or it is not a Python file.
    """
    package, _, name = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        msg = f"{package} must be an installed package (got none of that name)"
        raise UsageError(msg)
    init = Path(spec.origin)
    path = init.parent.joinpath(*name.split(".")).with_suffix(".py") if name else init
    if not path.is_file():
        msg = f"{module} must be a module of {package} (got no file {path.name})"
        raise UsageError(msg)
    return path


def changed_lines(before: str, after: str) -> tuple[int, int]:
    """Return the first and the last line of `before` that differ in `after`, from 1.

    Where lines are only added, it is the line that they come before.
    """
    old, new = before.splitlines(), after.splitlines()
    shorter = min(len(old), len(new))
    same = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - same) if old[-1 - i] != new[-1 - i]), shorter - same)
    return same + 1, max(same + 1, len(old) - tail)
