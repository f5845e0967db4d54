"""Where evidence and matrices are kept: in ``build/`` while working, in the checkout when published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiter_conformance import documents, evidence, factfile, matrix, matrixfile, modelfile
from aiter_conformance.axes import load_axes
from aiter_conformance.documents import write_text
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.publish import models as models_page
from aiter_conformance.publish import page, releases, sweep
from aiter_conformance.release.version import version_key

# Where matrices lie below a root, as `find_matrix` names it: those of a local build go before.
BUILT: Final = "build/matrices/published"
PUBLISHED: Final = "matrices/published"


@dataclass(frozen=True)
class Place:
    """A pair of folders.

    Attributes:
        reports: Folder of evidence.
        matrices: Folder of matrices, one folder a release.
        traces: Folder that keeps traces; always below build/.
    """

    reports: Path
    matrices: Path
    traces: Path


def build_place(root: Path) -> Place:
    """Return the place of everything that a run makes; git ignores it."""
    build = root / "build"
    return Place(build / "reports", build / "matrices" / "published", build / "trace")


def checkout_place(root: Path) -> Place:
    """Return the place of what is committed.

    Raises:
        UsageError: The folder is not a checkout of this project.
    """
    place = Place(root / "reports", root / "matrices" / "published", root / "build" / "trace")
    if not (root / "matrices" / "spec").is_dir():
        msg = (
            f"--root must be a checkout of this project (no matrices/spec in {root.resolve().name!r}); "
            "`aiter-conformance matrix build RELEASE` needs none, and `matrix show` shows what it made"
        )
        raise UsageError(msg)
    return place


def write_matrix(place: Place, release: str, subject: str) -> matrix.Matrix:
    """Derive the matrix of a release from the evidence of a place, and write it there.

    Raises:
        InfrastructureError: The matrix does not obey its own schema, or cannot be written: nothing was.
    """
    built = matrix.build(evidence.load(place.reports), release, subject)
    files = _files(built, place)
    documents.parse(files["matrix.json"], schema="matrix", source="the matrix")
    for name, text in files.items():
        write_text(place.matrices / release / name, text)
    return built


def _files(built: matrix.Matrix, place: Place) -> dict[str, str]:
    swept = sweep.read(place.reports / "isa", built.release.version)
    return {"matrix.json": matrixfile.to_json(built), "README.md": page.render(built, load_axes(), swept)}


def find_matrix(root: Path, version: str | None) -> tuple[matrix.Matrix, str]:
    """Return the matrix of a release and where it was found; what was built goes before what is published.

    Args:
        root: The checkout.
        version: The release, by its version or tag; None for the newest one.

    Raises:
        UsageError: There is no such matrix.
    """
    found: dict[str, tuple[Path, str]] = {}
    for words in (PUBLISHED, BUILT):
        for file in (root / words).glob("*/matrix.json"):
            found[file.parent.name] = (file, words)
    if not found:
        checkout_place(root)  # outside of one, that is what is wrong
        msg = "a matrix must be built or published first: run `aiter-conformance matrix build RELEASE`"
        raise UsageError(msg)
    chosen = version or max(found, key=version_key)
    chosen = chosen.removeprefix("v")  # as the tag has it
    if chosen not in found:
        msg = f"VERSION must be one of {', '.join(sorted(found, key=version_key))} (got {version!r})"
        raise UsageError(msg)
    file, words = found[chosen]
    return matrixfile.from_json(file.read_text(encoding="utf-8"), f"{words}/{chosen}/matrix.json"), words


def is_published(root: Path, version: str) -> bool:
    """Return whether a matrix of the release is published in the checkout."""
    return (root / PUBLISHED / version / "matrix.json").is_file()


@dataclass(frozen=True)
class Checked:
    """A published file and how it differs from what the evidence says; None if it does not."""

    file: str
    difference: str | None


def check_published(root: Path) -> list[Checked]:
    """Rebuild everything that is published from the checked-in evidence and compare it, byte for byte.

    Raises:
        UsageError: The folder is not a checkout.
        InfrastructureError: Nothing is published, or the evidence cannot be read: nothing was checked.
    """
    folder = checkout_place(root).matrices
    checked = []
    for name, text in _published(root).items():
        file = folder / name
        current = file.read_text(encoding="utf-8") if file.is_file() else ""
        checked.append(Checked(f"matrices/published/{name}", _difference(current, text)))
    return checked


def rebuild_published(root: Path) -> list[str]:
    """Write everything that is published anew from the checked-in evidence, and return the files.

    Raises:
        UsageError: The folder is not a checkout.
        InfrastructureError: Nothing is published, or the evidence cannot be read: nothing was written.
    """
    folder = checkout_place(root).matrices
    published = _published(root)
    for name, text in published.items():
        write_text(folder / name, text)
    return [f"matrices/published/{name}" for name in published]


def _published(root: Path) -> dict[str, str]:
    """Return every published file as the checked-in evidence has it, by its path in matrices/published."""
    place = checkout_place(root)
    versions = sorted((file.parent.name for file in place.matrices.glob("*/matrix.json")), key=version_key)
    if not versions:
        msg = "NOT RUN: nothing is published; `aiter-conformance matrix publish RELEASE` does so"
        raise InfrastructureError(msg)
    records = evidence.load(place.reports)
    files: dict[str, str] = {}
    built = []
    for version in versions:
        old = json.loads((place.matrices / version / "matrix.json").read_text(encoding="utf-8"))
        built.append(matrix.build(records, version, old["subject"]))
        files |= {f"{version}/{name}": text for name, text in _files(built[-1], place).items()}
    facts = [record for record in factfile.load(place.reports) if record.release.version in versions]
    models: dict[str, list[modelfile.ModelFile]] = {}
    for record in modelfile.load(place.reports):
        models.setdefault(record.release.version, []).append(record)
    files |= {f"{version}/models.md": models_page.render(found) for version, found in models.items()}
    files["releases.md"] = releases.render(built, factfile.compare(facts))
    return files


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
