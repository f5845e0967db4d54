"""The facts of one release as a record beside its evidence, so that releases can be compared offline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from aiter_conformance import documents
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.release.facts import FactsTable, ReleaseFacts, table_of
from aiter_conformance.release.tuned import TunedTables

SCHEMA = "aiter-conformance/facts/1"
NAME = "facts.json"


@dataclass(frozen=True)
class FactFile:
    """What was read of one release's sources.

    Attributes:
        release: The release.
        observed: Day of the reading, ``YYYY-MM-DD``.
        harness: Version of this harness.
        facts: Text by name of the fact; what the release does not have has no entry.
    """

    release: ReleaseId
    observed: str
    harness: str
    facts: dict[str, str]


def flat_facts(facts: ReleaseFacts, tuned: TunedTables) -> dict[str, str]:
    """Return everything that was read of a release as text by name, tuned rows counted by board."""
    boards = Counter((row.key.gfx, row.key.cu_num) for row in tuned.rows)
    counts = {f"tuned rows for {gfx} with {cus} CUs": str(n) for (gfx, cus), n in sorted(boards.items())}
    return facts.flat() | counts


def write(record: FactFile, reports: Path) -> Path:
    """Write the facts of a release under the folder of reports and return the file's path.

    Raises:
        InfrastructureError: The file cannot be written.
    """
    target = reports / record.release.version / NAME
    head = {"schema": SCHEMA, "release": asdict(record.release), "observed": record.observed}
    facts = [{"fact": name, "text": text} for name, text in record.facts.items()]
    documents.write_text(target, documents.render(head | {"harness": record.harness, "facts": facts}))
    return target


def load(reports: Path) -> list[FactFile]:
    """Read the facts of every release under the folder of reports.

    Raises:
        InfrastructureError: A file is unreadable, or lies in another release's folder.
    """
    found = []
    for file in sorted(reports.glob(f"*/{NAME}")):
        source = file.relative_to(reports).as_posix()
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{source} must be a readable UTF-8 file ({error}): restore it or make it anew"
            raise InfrastructureError(msg) from error
        data = documents.parse(text, schema="facts", source=source)
        release = ReleaseId(**data["release"])
        if release.version != file.parent.name:
            msg = f"the facts of {release.version} lie in {source}: move or delete them"
            raise InfrastructureError(msg)
        facts = {item["fact"]: item["text"] for item in data["facts"]}
        found.append(FactFile(release, data["observed"], data["harness"], facts))
    return found


def compare(records: Iterable[FactFile]) -> FactsTable:
    """Put the facts of several releases side by side, oldest release first."""
    return table_of({record.release.version: record.facts for record in records})
