"""Opening a release: one AITER artefact with its version and its identity."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from aiter_conformance.errors import HarnessError, InfrastructureError, UsageError
from aiter_conformance.release.files import CONTENT_ROOTS, Files, TreeFiles, WheelFiles
from aiter_conformance.release.git_files import GitFiles, commit_version, find_commit
from aiter_conformance.release.version import PROJECT, tree_version, wheel_version


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
    """Open the release that *text* names.

    Args:
        text: ``installed`` (the ``aiter`` of this Python, found and not imported), a wheel file, the folder
            of a checkout or of an unpacked wheel, or ``git:DIR@REVISION``, a commit of the repository DIR.

    Raises:
        UsageError: There is nothing of that name, or what is there is not AITER.
        InfrastructureError: It is AITER, but damaged or built to do harm.
    """
    if text == "installed":
        return _open_installed()
    if text.startswith("git:"):
        return _open_git(text)
    path = Path(text)
    if path.is_dir():
        label = path.resolve().name
        return _checked(
            TreeFiles(path),
            label,
            lambda files: Release(_tree_version(path, files), ReleaseKind.TREE, label, files),
        )
    if path.is_file():
        return _checked(
            WheelFiles(path),
            path.name,
            lambda files: Release(wheel_version(path.name, files), ReleaseKind.WHEEL, path.name, files),
        )
    msg = (
        "a release must be `installed`, a wheel file, the folder of a tree, or git:DIR@TAG "
        f"(got {text!r}: there is no such file or folder)"
    )
    raise UsageError(msg)


def _open_installed() -> Release:
    """Open the package ``aiter`` of this Python, be it installed or a checkout in development mode."""
    spec = importlib.util.find_spec("aiter")  # a top-level name: nothing is imported
    if spec is None or not spec.submodule_search_locations:
        msg = f"no aiter is installed in this Python; install {PROJECT}, or name a wheel file or a tree"
        raise UsageError(msg)
    package = Path(next(iter(spec.submodule_search_locations)))
    if package.name != "aiter":
        msg = f"the installed aiter must lie in a folder aiter/ (got {package.name!r}); name its tree instead"
        raise InfrastructureError(msg)

    def opened(files: Files) -> Release:
        version = tree_version(files) or _distribution_version() or _unknown_version(files)
        return Release(version, ReleaseKind.INSTALLED, "installed", files)

    return _checked(TreeFiles(package.parent), "the installed aiter", opened)


def _open_git(text: str) -> Release:
    repository, at, revision = text.removeprefix("git:").rpartition("@")
    if not at or not repository or not revision:
        msg = f"a release in git must be git:DIR@REVISION (got {text!r})"
        raise UsageError(msg)
    commit = find_commit(Path(repository), revision)
    label = f"git@{revision}"
    return _checked(
        GitFiles(Path(repository), commit),
        label,
        lambda files: Release(commit_version(commit), ReleaseKind.GIT, label, files),
    )


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


def _tree_version(root: Path, files: Files) -> str:
    """Return what a tree says, else the version of the commit that it is a checkout of, else unknown."""
    said = tree_version(files)
    if said is None and (root / ".git").exists():
        try:
            commit = find_commit(root, "HEAD")
            committed = GitFiles(root, commit)
        except HarnessError:  # git is not there, or the checkout is broken: the files are still what they are
            return _unknown_version(files)
        try:
            if identity_of(committed) == identity_of(files):
                said = commit_version(commit)
        finally:
            committed.close()
    return said or _unknown_version(files)


def _unknown_version(files: Files) -> str:
    return f"0+unknown.{identity_of(files).removeprefix('sha256:')[:8]}"


def _distribution_version() -> str | None:
    """Return the version of the installed distribution, whose metadata lies elsewhere in development mode."""
    try:
        return importlib.metadata.version(PROJECT)
    except importlib.metadata.PackageNotFoundError:
        return None


def _checked(files: Files, label: str, opened: Callable[[Files], Release]) -> Release:
    """Return what *opened* makes of *files* if they are AITER's; close them if anything is wrong."""
    try:
        _check_is_aiter(files, label)
        return opened(files)
    except BaseException:
        files.close()
        raise


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
