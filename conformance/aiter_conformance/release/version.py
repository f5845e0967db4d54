"""Versions of releases, read from what an artefact says of itself."""

from __future__ import annotations

import ast
import re
from email.parser import HeaderParser

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.release.files import METADATA_PATH, Files

PROJECT = "amd-aiter"
_NAMES = frozenset({PROJECT, "aiter"})  # early releases were called aiter, as the import package still is
_VERSION_FILE = "aiter/_version.py"
_MAIN = re.compile(r"main-(\d{8})-[0-9a-f]{8}")


def version_key(version: str) -> tuple[bool, Version, str]:
    """Return a sort key for the versions of releases, oldest first.

    Releases come in PEP 440's order (post-releases after their base, local versions after the public one),
    then the states of main by date: main is ahead of every release that was cut from it before.

    Raises:
        UsageError: *version* is neither.
    """
    if _MAIN.fullmatch(version):
        return True, Version("0"), version
    try:
        return False, Version(version), ""
    except InvalidVersion as error:
        msg = f"a version must be as PEP 440 has it, or main-<date>-<sha8> (got {version!r})"
        raise UsageError(msg) from error


def wheel_version(file_name: str, files: Files) -> str:
    """Return the version of a wheel: its METADATA's, which its file name must repeat.

    Raises:
        UsageError: The file name is not a wheel's, or the wheel is of another project.
        InfrastructureError: There is no METADATA, or it contradicts the file name.
    """
    try:
        name, version, _, _ = parse_wheel_filename(file_name)
    except InvalidWheelFilename as error:
        msg = (
            f"a wheel must be called NAME-VERSION-...-PLATFORM.whl (got {file_name!r}); give it its own "
            "name back"
        )
        raise UsageError(msg) from error
    if name not in _NAMES:
        msg = f"the wheel must be of {PROJECT} (got {name}, in {file_name})"
        raise UsageError(msg)
    said = metadata_version(files)
    if said is None:
        msg = f"{file_name} must hold {METADATA_PATH} (it does not); get the wheel from its publisher again"
        raise InfrastructureError(msg)
    if Version(said) != version:
        msg = (
            f"file name and METADATA must agree (got {version} and {said} in {file_name}); one of them "
            "was changed"
        )
        raise InfrastructureError(msg)
    return said


def tree_version(files: Files) -> str | None:
    """Return what a tree says its version is, or None: a checkout that was never built says nothing.

    Raises:
        InfrastructureError: What it says is not a version.
    """
    return metadata_version(files) or _generated_version(files)


def metadata_version(files: Files) -> str | None:
    """Return the version in the core metadata (METADATA, or PKG-INFO of a source archive), or None.

    Raises:
        InfrastructureError: The metadata is there and is of another project, or its version is not one.
    """
    for path in (METADATA_PATH, "PKG-INFO"):
        if path not in files.paths:
            continue
        headers = HeaderParser().parsestr(files.read(path).decode("utf-8", errors="replace"))
        name = canonicalize_name(str(headers["Name"] or ""))
        if name not in _NAMES:
            msg = f"{path} must be that of {PROJECT} (got {name!r})"
            raise InfrastructureError(msg)
        return _checked(str(headers["Version"] or ""), path)
    return None


def _generated_version(files: Files) -> str | None:
    """Return ``__version__`` of the file that setuptools-scm writes, or None."""
    if _VERSION_FILE not in files.paths:
        return None
    try:
        tree = ast.parse(files.read(_VERSION_FILE))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        msg = f"{_VERSION_FILE} must be Python source (got {error})"
        raise InfrastructureError(msg) from error
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            values.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
    for name in ("__version__", "version"):
        value = values.get(name)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return _checked(value.value, _VERSION_FILE)
    return None


def _checked(text: str, path: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion as error:
        msg = f"{path} must give a version as PEP 440 has it (got {text!r})"
        raise InfrastructureError(msg) from error
