"""The files of one AITER artefact, under the same names whatever its layout is.

A release is laid out in one of two ways: a source tree has ``aiter/``, ``csrc/`` and ``hsa/`` side by side, a
wheel (packed, unpacked or installed) has the last two under ``aiter_meta/``. `canonical_path` makes them one.
Nothing here executes, imports, extracts or writes anything.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from aiter_conformance.errors import InfrastructureError

# The folders that make up a release; third-party sources and packaging files are not part of it.
CONTENT_ROOTS = ("aiter", "csrc", "hsa")
METADATA_PATH = "dist-info/METADATA"
_ROOT_FILES = frozenset({"PKG-INFO", "pyproject.toml", "requirements.txt", "setup.py"})
_DIST_INFO = re.compile(r"(?:amd_aiter|aiter)-[^/]*\.dist-info")
# What importing and running AITER leaves in its own folder; it comes and goes with use.
_BY_PRODUCT = re.compile(r"(?:^|/)__pycache__/|\.py[co]$|^aiter/jit/build/")

MAX_MEMBERS = 500_000
MAX_TOTAL_BYTES = 8 << 30
MAX_FILE_BYTES = 1 << 30
# Everything that the standard library raises on a damaged archive.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # an encrypted member; NotImplementedError, an unknown compression, is one too
    ValueError,
    OverflowError,
)


class Files(Protocol):
    """Read-only access to the files of one artefact, by canonical path."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every canonical path, sorted."""

    def read(self, path: str) -> bytes:
        """Return the content of *path*.

        Raises:
            KeyError: There is no such path.
            InfrastructureError: The file is there, but cannot be read.
        """

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) for each of *paths*, in their order; errors as for `read`."""

    def close(self) -> None:
        """Let go of whatever is held open; no read may follow."""


def canonical_path(path: str) -> str | None:
    """Return the release-relative name of *path*, or None if it is no part of a release.

    Args:
        path: POSIX path relative to the root of an archive, a tree or a ``site-packages`` folder.
    """
    first, _, rest = path.partition("/")
    if first == "aiter_meta":
        path = rest
        first, _, rest = path.partition("/")
        if first == "aiter":  # a copy of the package's own sources in some wheels; aiter/ itself is what runs
            return None
    if first in CONTENT_ROOTS and rest:
        return None if _BY_PRODUCT.search(path) else path
    if _DIST_INFO.fullmatch(first) and rest:
        return f"dist-info/{rest}"
    return path if path in _ROOT_FILES else None


class WheelFiles:
    """The files of a wheel, read member by member in memory."""

    def __init__(self, wheel: Path) -> None:
        """Open *wheel* and check its table of contents.

        Raises:
            InfrastructureError: Not a whole zip file, member names that no wheel may have, or sizes beyond
                `MAX_MEMBERS`, `MAX_TOTAL_BYTES`.
        """
        self._name = wheel.name
        try:
            self._archive = zipfile.ZipFile(wheel)
        except _ARCHIVE_ERRORS as error:
            msg = (
                f"{wheel.name} must be a wheel, that is a whole zip file (got {_said(error)}); download "
                "it again"
            )
            raise InfrastructureError(msg) from error
        try:
            self._members = self._checked_members()
        except InfrastructureError:
            self._archive.close()
            raise
        self.paths = tuple(sorted(self._members))

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise self._refused(f"must have at most {MAX_MEMBERS} members (got {len(infos)})")
        total = sum(info.file_size for info in infos)
        if total > MAX_TOTAL_BYTES:
            raise self._refused(f"must unpack to at most {MAX_TOTAL_BYTES} bytes (it declares {total})")
        members: dict[str, zipfile.ZipInfo] = {}
        seen: set[str] = set()
        for info in infos:
            name = info.orig_filename
            if name in seen:
                raise self._refused(f"must name each member once (got {name!r} twice)")
            seen.add(name)
            if not _is_inside(name):
                raise self._refused(f"members must have relative paths inside the archive (got {name!r})")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise self._refused(f"must not hold symbolic links (got {name!r})")
            canonical = None if info.is_dir() else canonical_path(name)
            if canonical is None:
                continue
            if canonical in members:
                raise self._refused(
                    f"must hold {canonical!r} once (got {members[canonical].filename!r} and {name!r})"
                )
            members[canonical] = info
        return members

    def _refused(self, why: str) -> InfrastructureError:
        return InfrastructureError(
            f"{self._name} {why}; do not trust this file, get it from its publisher again"
        )

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        info = self._members[path]
        if info.file_size > MAX_FILE_BYTES:
            raise self._refused(
                f"members must have at most {MAX_FILE_BYTES} bytes (got {info.file_size}: {path!r})"
            )
        try:
            return self._archive.read(info)
        except _ARCHIVE_ERRORS as error:
            msg = f"{path} in {self._name} must be readable (got {_said(error)}); download the wheel again"
            raise InfrastructureError(msg) from error

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """See `Files.read_many`."""
        return ((path, self.read(path)) for path in paths)

    def close(self) -> None:
        """See `Files.close`."""
        self._archive.close()


class TreeFiles:
    """The files of a source checkout, an unpacked wheel, or a ``site-packages`` folder."""

    def __init__(self, root: Path) -> None:
        """List the parts of *root* that belong to a release.

        Raises:
            InfrastructureError: A folder cannot be listed, or a symbolic link leads out of the tree or to a
                folder.
        """
        self._root = root
        self._files: dict[str, Path] = {}
        is_checkout = any((root / name).is_dir() for name in ("csrc", "hsa"))
        for top in sorted(root.iterdir()):
            if (
                is_checkout and top.name == "aiter_meta"
            ):  # what building a wheel leaves behind: a copy of csrc, hsa
                continue
            if canonical_path(f"{top.name}/x") is not None or top.name == "aiter_meta":
                self._add_folder(top)
            elif top.name in _ROOT_FILES:
                self._add(top)
        self.paths = tuple(sorted(self._files))

    def _add_folder(self, top: Path) -> None:
        if top.is_symlink():
            self._refuse_link(top)
        for folder, subfolders, names in os.walk(top, onerror=_raise_listing_error):
            for name in subfolders:
                if Path(folder, name).is_symlink():
                    self._refuse_link(Path(folder, name))
            for name in names:
                self._add(Path(folder, name))

    def _add(self, file: Path) -> None:
        relative = file.relative_to(self._root).as_posix()
        canonical = canonical_path(relative)
        if canonical is None:
            return
        if file.is_symlink() and not file.resolve().is_relative_to(self._root.resolve()):
            self._refuse_link(file)
        if canonical in self._files:
            other = self._files[canonical].relative_to(self._root).as_posix()
            msg = f"a release must hold {canonical!r} once (got {other!r} and {relative!r}); use a clean tree"
            raise InfrastructureError(msg)
        self._files[canonical] = file

    def _refuse_link(self, link: Path) -> None:
        name = link.relative_to(self._root).as_posix()
        msg = (
            f"a tree may link only to files inside itself (got the symbolic link {name!r}); use a plain copy"
        )
        raise InfrastructureError(msg)

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        file = self._files[path]
        try:
            if not file.is_file():
                msg = f"{path} must be a regular file; use a clean tree"
                raise InfrastructureError(msg)
            if (size := file.stat().st_size) > MAX_FILE_BYTES:
                msg = f"files must have at most {MAX_FILE_BYTES} bytes (got {size}: {path!r})"
                raise InfrastructureError(msg)
            return file.read_bytes()
        except OSError as error:
            msg = f"{path} must be readable (got {_said(error)}); check the tree"
            raise InfrastructureError(msg) from error

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """See `Files.read_many`."""
        return ((path, self.read(path)) for path in paths)

    def close(self) -> None:
        """See `Files.close`; nothing is held open."""


def _is_inside(name: str) -> bool:
    """Say whether *name* is a plain relative POSIX path that stays inside its archive."""
    if not name or "\\" in name or "\0" in name or ":" in name.partition("/")[0]:
        return False
    return not PurePosixPath(name).is_absolute() and ".." not in name.split("/")


def _raise_listing_error(error: OSError) -> None:
    msg = f"every folder of the tree must be readable (got {_said(error)})"
    raise InfrastructureError(msg) from error


def _said(error: Exception) -> str:
    """Return what *error* says, without the path of the machine that an `OSError` carries."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
