"""Where evidence and matrices are kept: in ``build/`` while working, in the checkout when published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from aiter_conformance import evidence, matrix
from aiter_conformance.axes import load_axes
from aiter_conformance.documents import write_text
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.publish import page


@dataclass(frozen=True)
class Place:
    """A pair of folders.

    Attributes:
        reports: Folder of evidence.
        matrices: Folder of matrices, one folder a release.
    """

    reports: Path
    matrices: Path


def build_place(root: Path) -> Place:
    """Return the place of everything that a run makes; git ignores it."""
    return Place(root / "build" / "reports", root / "build" / "matrices" / "published")


def checkout_place(root: Path) -> Place:
    """Return the place of what is committed.

    Raises:
        UsageError: The folder is not a checkout of this project.
    """
    place = Place(root / "reports", root / "matrices" / "published")
    if not (root / "matrices" / "spec").is_dir():
        msg = f"--root must be a checkout of this project (no matrices/spec in {root.resolve().name!r})"
        raise UsageError(msg)
    return place


def write_matrix(place: Place, release: str, subject: str) -> matrix.Matrix:
    """Derive the matrix of a release from the evidence of a place, and write it there."""
    built = matrix.build(evidence.load(place.reports), release, subject)
    for name, text in _files(built).items():
        write_text(place.matrices / release / name, text)
    return built


def _files(built: matrix.Matrix) -> dict[str, str]:
    return {"matrix.json": matrix.to_json(built), "README.md": page.render(built, load_axes())}


def find_matrix(root: Path, version: str | None) -> tuple[matrix.Matrix, str]:
    """Return the matrix of a release and where it was found; what was built goes before what is published.

    Args:
        root: The checkout.
        version: The release; None for the newest one.

    Raises:
        UsageError: There is no such matrix.
    """
    found: dict[str, tuple[Path, str]] = {}
    for words in ("matrices/published", "build/matrices/published"):
        for file in (root / words).glob("*/matrix.json"):
            found[file.parent.name] = (file, words)
    if not found:
        msg = "a matrix must be built or published first: run `aiter-conformance matrix build RELEASE`"
        raise UsageError(msg)
    chosen = version or max(found, key=_order)
    if chosen not in found:
        msg = f"VERSION must be one of {', '.join(sorted(found, key=_order))} (got {version!r})"
        raise UsageError(msg)
    file, words = found[chosen]
    return matrix.from_json(file.read_text(encoding="utf-8"), f"{words}/{chosen}/matrix.json"), words


def _order(release: str) -> tuple[int, Version | str]:
    try:
        return (0, Version(release))
    except InvalidVersion:
        return (1, release)  # main-<date>-<sha8> is newer than every release


@dataclass(frozen=True)
class Checked:
    """A published file and how it differs from what the evidence says; None if it does not."""

    file: str
    difference: str | None


def check_published(root: Path) -> list[Checked]:
    """Rebuild every published matrix from the checked-in evidence and compare it, byte for byte.

    Raises:
        UsageError: The folder is not a checkout.
        InfrastructureError: Nothing is published, or the evidence cannot be read: nothing was checked.
    """
    checked = []
    for built, folder in _published(root):
        for name, text in _files(built).items():
            file = folder / name
            current = file.read_text(encoding="utf-8") if file.is_file() else ""
            checked.append(Checked(f"matrices/published/{folder.name}/{name}", _difference(current, text)))
    return checked


def rebuild_published(root: Path) -> list[str]:
    """Write every published matrix anew from the checked-in evidence, and return the releases.

    Raises:
        UsageError: The folder is not a checkout.
        InfrastructureError: Nothing is published, or the evidence cannot be read: nothing was written.
    """
    rebuilt = _published(root)
    for built, folder in rebuilt:
        for name, text in _files(built).items():
            write_text(folder / name, text)
    return [folder.name for _, folder in rebuilt]


def _published(root: Path) -> list[tuple[matrix.Matrix, Path]]:
    """Return the matrix of every published release as the checked-in evidence has it, and its folder."""
    place = checkout_place(root)
    folders = sorted((file.parent for file in place.matrices.glob("*/matrix.json")), key=lambda f: f.name)
    if not folders:
        msg = (
            "NOT RUN: matrices/published holds no matrix; publish one with `aiter-conformance matrix publish`"
        )
        raise InfrastructureError(msg)
    records = evidence.load(place.reports)
    found = []
    for folder in folders:
        subject = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))["subject"]
        found.append((matrix.build(records, folder.name, subject), folder))
    return found


def _difference(published: str, rebuilt: str) -> str | None:
    if published == rebuilt:
        return None
    old, new = published.splitlines(), rebuilt.splitlines()
    number = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    line = old[number][:100] if number < len(old) else "(end of file)"
    wanted = new[number][:100] if number < len(new) else "(end of file)"
    return f"line {number + 1}: published {line!r}, the evidence gives {wanted!r}"
