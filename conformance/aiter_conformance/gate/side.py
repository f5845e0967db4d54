"""One side of a comparison: all that is observed of a release, once, and kept by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import aiter_conformance
import aiter_moe
from aiter_conformance import __version__, evidence
from aiter_conformance.axes import spec_dir
from aiter_conformance.documents import write_text
from aiter_conformance.errors import HarnessError
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId
from aiter_conformance.gate.item import Item
from aiter_conformance.gate.items import items_of
from aiter_conformance.gate.models import model_items
from aiter_conformance.levels.inventory import read_contents
from aiter_conformance.protocols import Subject
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.files import METADATA_PATH
from aiter_conformance.runner import Progress, collect, environment, release_id

SCHEMA: Final = "aiter-conformance/gate-side/1"
# Files that facts are read from and that a release's identity leaves out, as packaging.
_PACKAGING: Final = (METADATA_PATH, "requirements.txt", "setup.py")


@dataclass(frozen=True)
class Side:
    """What was observed of one release.

    Attributes:
        release: The release.
        label: How to name it to people: never a path of a machine.
        environment: What the observation ran in.
        items: The release taken apart, all but its cells.
        records: The evidence of its cells.
    """

    release: ReleaseId
    label: str
    environment: dict[str, str]
    items: tuple[Item, ...]
    records: tuple[Evidence, ...]

    def loaded(self) -> list[Loaded]:
        """Return the evidence as if it had been read from a folder of reports."""
        return [Loaded(record, record.path.as_posix(), _digest(record)) for record in self.records]

    def with_records(self, records: Iterable[Evidence]) -> Side:
        """Return the side with more evidence; what was observed here goes before what is brought along."""
        here = {record.level for record in self.records}
        about = [
            record
            for record in records
            if record.level not in here
            and (record.release is None or record.release.identity == self.release.identity)
        ]
        return Side(self.release, self.label, self.environment, self.items, (*self.records, *about))


def observe(
    release: Release,
    subject: Subject,
    levels: Collection[Level],
    build: Path | None = None,
    progress: Progress | None = None,
) -> Side:
    """Observe a release, or return what was kept of it.

    Args:
        release: An open release.
        subject: The implementation whose cells are observed.
        levels: Levels to observe.
        build: Folder that keeps observations, in ``gate`` and ``trace`` below it; None to keep no side.
        progress: See `runner.collect`.

    Raises:
        InfrastructureError: A file of the release cannot be read, or the observation cannot be kept.
    """
    kept = None if build is None else find_kept(release, subject, levels, build)
    if kept is not None:
        return kept
    traces = (build or Path("build")) / "trace"
    contents = read_contents(release)
    models = model_items(release, contents, traces, progress) if Level.TRACE in levels else ()
    side = Side(
        release=release_id(release),
        label=release.label,
        environment=environment(),
        items=(*items_of(release, contents), *models),
        records=tuple(collect(subject, release, levels=levels, cache=traces, progress=progress)),
    )
    if build is not None:
        write_text(_path(release, subject, levels, build), _to_json(side))
    return side


def find_kept(release: Release, subject: Subject, levels: Collection[Level], build: Path) -> Side | None:
    """Return what was kept of a release; None where nothing was, or it is damaged. See `observe`."""
    return _read(_path(release, subject, levels, build), release.label)


def _path(release: Release, subject: Subject, levels: Collection[Level], build: Path) -> Path:
    return build / "gate" / f"{_key(release, subject, levels)}.json"


def _to_json(side: Side) -> str:
    return json.dumps(
        {
            "schema": SCHEMA,
            "release": [side.release.version, side.release.identity, side.release.kind],
            "environment": side.environment,
            "items": [item.to_json() for item in side.items],
            "records": [evidence.to_json(record) for record in side.records],
        }
    )


def _read(path: Path, label: str) -> Side | None:
    """Return what was kept, or None where nothing was or it is damaged: then it is observed again."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        return Side(
            release=ReleaseId(*data["release"]),
            label=label,
            environment=data["environment"],
            items=tuple(Item.from_json(item) for item in data["items"]),
            records=tuple(evidence.from_json(text, path.name) for text in data["records"]),
        )
    except (OSError, ValueError, KeyError, TypeError, HarnessError):
        return None


def _key(release: Release, subject: Subject, levels: Collection[Level]) -> str:
    """Return a hash of all that an observation depends on."""
    packaging = {
        path: hashlib.sha256(content).hexdigest()
        for path, content in release.files.read_many(
            [p for p in release.files.paths if p in _PACKAGING or _is_prebuilt(p)]
        )
    }
    parts = [
        release.identity,
        release.version,
        release.kind.value,
        packaging,
        f"{subject.name}@{subject.version}",
        sorted(levels),
        harness_digest(),
        sorted(environment().items()),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_prebuilt(path: str) -> bool:
    return path.startswith("aiter/jit/module_moe") and path.endswith(".so")


@cache
def harness_digest() -> str:
    """Return a hash of the harness, the subject of its own and the hand-written data, but for the ledger.

    The ledger is asked when sides are compared, not when they are observed.
    """
    roots = [Path(str(module.__file__)).parent for module in (aiter_conformance, aiter_moe)]
    files = [(root, path) for root in roots for path in sorted(root.rglob("*.py"))]
    spec = spec_dir()
    files += [(spec, path) for path in sorted(spec.glob("*.toml")) if path.name != "ledger.toml"]
    total = hashlib.sha256(__version__.encode())
    for root, path in files:
        total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def _digest(record: Evidence) -> str:
    return "sha256:" + hashlib.sha256(evidence.to_json(record).encode()).hexdigest()
