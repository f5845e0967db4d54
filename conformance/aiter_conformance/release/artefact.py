"""Opening a release: one AITER artefact with its version and its identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from aiter_conformance.errors import UsageError
from aiter_conformance.release.files import CONTENT_ROOTS, Files, TreeFiles, WheelFiles
from aiter_conformance.release.version import tree_version, wheel_version


class ReleaseKind(StrEnum):
    """What kind of artefact a release was read from."""

    WHEEL = "wheel"
    TREE = "tree"
    INSTALLED = "installed"
    GIT = "git"


@dataclass(frozen=True, eq=False)
class Release:
    """One AITER artefact. Use it as a context manager, or call `close` when done.

    Attributes:
        version: PEP 440 version; ``0+unknown.<first 8 digits of the identity>`` for a tree that does not say.
        kind: What it was read from.
        label: How to name the artefact to people: never a path of this machine.
        files: Its files.
    """

    version: str
    kind: ReleaseKind
    label: str
    files: Files

    @cached_property
    def identity(self) -> str:
        """``sha256:`` and the hash of everything that makes the release what it is; see `identity_of`."""
        return identity_of(self.files)

    def close(self) -> None:
        """Close the files."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_release(text: str) -> Release:
    """Open the release that *text* names: a wheel file, or the folder of a checkout or of an unpacked wheel.

    Raises:
        UsageError: There is nothing at that path, or what is there is not AITER.
        InfrastructureError: It is AITER, but damaged or built to do harm.
    """
    path = Path(text)
    if path.is_dir():
        return _open(TreeFiles(path), ReleaseKind.TREE, path.resolve().name)
    if path.is_file():
        return _open(WheelFiles(path), ReleaseKind.WHEEL, path.name)
    msg = (
        f"a release must be a wheel file or the folder of a tree (got {text!r}: there is no such file or "
        "folder)"
    )
    raise UsageError(msg)


def identity_of(files: Files) -> str:
    """Return the identity of an artefact: ``sha256:`` and 64 hexadecimal digits.

    Hashed are the lines ``<canonical path> NUL <sha256 of the content> LF``, sorted by path, of every file
    under ``aiter/``, ``csrc/`` and ``hsa/``: so a wheel and the tree it was unpacked to are the same release.
    Left out are packaging files and third-party sources, and what a machine adds to an installation while it
    is used: byte code, build folders and the extension modules (``.so``) that AITER compiles into itself.

    Raises:
        InfrastructureError: A file cannot be read.
    """
    total = hashlib.sha256()
    for path, content in files.read_many(_content(files.paths)):
        total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _content(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.partition("/")[0] in CONTENT_ROOTS and not path.endswith(".so")]


def _open(files: Files, kind: ReleaseKind, label: str) -> Release:
    try:
        _check_is_aiter(files, label)
        if kind is ReleaseKind.WHEEL:
            version = wheel_version(label, files)
        else:
            version = tree_version(files) or f"0+unknown.{identity_of(files).removeprefix('sha256:')[:8]}"
    except BaseException:
        files.close()
        raise
    return Release(version, kind, label, files)


def _check_is_aiter(files: Files, label: str) -> None:
    """Refuse what does not hold AITER's Python sources and its kernels' sources or code objects."""
    roots = {path.partition("/")[0] for path in files.paths}
    has_package = "aiter/__init__.py" in files.paths
    if has_package and roots & {"csrc", "hsa"}:
        return
    if has_package and not any(path.startswith(("aiter/ops/", "aiter/jit/")) for path in files.paths):
        msg = (
            f"{label} is PyPI's 'aiter', a package of async-iterator helpers; "
            "AMD's is 'amd-aiter' (it installs the import package aiter): use that"
        )
        raise UsageError(msg)
    missing = "aiter/__init__.py" if not has_package else "csrc/ and hsa/, beside aiter/ or under aiter_meta/"
    msg = (
        f"{label} must be AITER: a package aiter/ with csrc/ or hsa/, or a wheel of it (there is no "
        f"{missing})"
    )
    raise UsageError(msg)
