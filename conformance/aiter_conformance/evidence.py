"""Evidence: immutable records of what was observed, the schema they obey, and their only writer.

One file holds what one level observed of one board, for a subject, a release or both. Records carry no
tracebacks, no foreign source lines and no machine paths.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from aiter_conformance import documents
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.outcome import Kind, Outcome, Reason

SCHEMA = "aiter-conformance/evidence/2"

# Folder of reports that holds records of the device contract (`aiter_conformance.device.record`).
DEVICE_FOLDER = "device"


class Level(StrEnum):
    """The levels of evidence, weakest first within each of their two chains (DESIGN: two chains)."""

    DECLARED = "declared"
    CONTRACT = "contract"
    REFERENCE = "reference"
    INVENTORY = "inventory"
    TRACE = "trace"
    COMPILE = "compile"
    ISA = "isa"
    HARDWARE = "hardware"

    @property
    def about_release(self) -> bool:
        """Whether the level speaks of a release; the others speak of the subject alone."""
        return self not in (Level.DECLARED, Level.CONTRACT, Level.REFERENCE)

    @property
    def meaning(self) -> str:
        """What holds for a cell that passes this level, as one clause."""
        return _MEANINGS[self]


_MEANINGS = {
    Level.DECLARED: "the leaf accepts the cell, or refuses it with a reason",
    Level.CONTRACT: "the call that the leaf makes is the one that the contract asks for",
    Level.REFERENCE: "the numbers are right against the oracle, with kernels modelled",
    Level.INVENTORY: "the release can take the call and ships machine code for it, readable and of the arch",
    Level.TRACE: "the release's own dispatch code, run for real, picks a kernel that exists",
    Level.COMPILE: "the picked kernel compiles for the arch",
    Level.ISA: "the picked kernel's machine code, executed by an emulator, gives the right numbers",
    Level.HARDWARE: "the real kernel on the real GPU gives the right numbers",
}


@dataclass(frozen=True, slots=True)
class ReleaseId:
    """Which release was looked at.

    Attributes:
        version: PEP 440 version, or ``main-<date>-<sha8>``.
        identity: ``sha256:...`` over the release's content.
        kind: How it was given: ``wheel``, ``tree``, ``installed`` or ``git``.
    """

    version: str
    identity: str
    kind: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A disagreement that was seen besides the outcomes of cells.

    Attributes:
        code: What kind of disagreement.
        path: Release-relative file, with ``:line`` where there is one.
        message: One sentence for people.
    """

    code: str
    path: str
    message: str


@dataclass(frozen=True)
class Evidence:
    """What one level observed of one board.

    Attributes:
        level: The level that looked.
        board: Arch, or arch and CU count as ``gfx942:304`` where the level depends on it.
        subject: ``name@version`` of the implementation, or None where none took part.
        release: The release, or None where none took part.
        observed: Day of the observation, ``YYYY-MM-DD``.
        harness: Version of this harness.
        environment: What the observation ran in, name to value.
        outcomes: Every cell that was looked at.
        findings: Disagreements besides.
        merged: Digests of the records that it was merged from, sorted; empty for what was observed in one go.
    """

    level: Level
    board: str
    subject: str | None
    release: ReleaseId | None
    observed: str
    harness: str
    environment: dict[str, str]
    outcomes: dict[Cell, Outcome]
    findings: tuple[Finding, ...] = ()
    merged: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the record is of a simulated GPU: it tests the harness, and is about no kernel."""
        return self.environment.get("simulated") == "yes"

    @property
    def path(self) -> Path:
        """Where the record is kept, relative to the folder of reports."""
        owner = self.release.version if self.release else f"subject-{self.subject}"
        parts = [self.level.value, self.board.replace(":", "-")]
        if self.release and self.subject:
            parts.append(self.subject)
        return Path(owner) / ("-".join(parts) + ".json")


def to_json(evidence: Evidence) -> str:
    """Return the record as text, one line a cell."""
    release = evidence.release
    return documents.render(
        {
            "schema": SCHEMA,
            "level": evidence.level.value,
            "board": evidence.board,
            "subject": evidence.subject,
            "release": None if release is None else asdict(release),
            "observed": evidence.observed,
            "harness": evidence.harness,
            "environment": dict(sorted(evidence.environment.items())),
            "merged": list(evidence.merged),
            "cells": [_cell_to_dict(cell, outcome) for cell, outcome in evidence.outcomes.items()],
            "findings": [asdict(finding) for finding in evidence.findings],
        }
    )


def _cell_to_dict(cell: Cell, outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {"cell": str(cell), "outcome": outcome.kind.value}
    if outcome.reason is not None:
        record |= {"reason": outcome.reason.value, "message": outcome.message}
    if outcome.details:
        record["details"] = outcome.details
    return record


def from_json(text: str, source: str) -> Evidence:
    """Return the record that a text holds.

    Args:
        text: The record.
        source: Its name, for messages.

    Raises:
        InfrastructureError: The text is not a record that the schema accepts, or a cell is recorded twice.
    """
    data = documents.parse(text, schema="evidence", source=source, older=_OLDER)
    axes = load_axes()
    outcomes = {}
    for item in data["cells"]:
        cell = axes.parse_cell(item["cell"])
        if cell in outcomes:
            msg = f"a cell must be recorded once ({cell} is recorded twice in {source})"
            raise InfrastructureError(msg)
        reason = Reason(item["reason"]) if "reason" in item else None
        outcomes[cell] = Outcome(Kind(item["outcome"]), reason, item.get("message"), item.get("details", {}))
    release = data["release"]
    return Evidence(
        level=Level(data["level"]),
        board=data["board"],
        subject=data["subject"],
        release=None if release is None else ReleaseId(**release),
        observed=data["observed"],
        harness=data["harness"],
        environment=data["environment"],
        outcomes=outcomes,
        findings=tuple(Finding(**finding) for finding in data["findings"]),
        merged=tuple(data["merged"]),
    )


def _from_1(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of version 1, which knew nothing of merging, as one of version 2."""
    return record | {"schema": SCHEMA, "merged": []}


# Older versions of the schema that are still read, each with what makes a record of it one of this version.
_OLDER: Final = {"aiter-conformance/evidence/1": _from_1}


def write(evidence: Evidence, reports: Path) -> Path:
    """Write a record under the folder of reports and return its path. The only writer of evidence.

    Raises:
        InfrastructureError: The record does not obey its own schema, or the file cannot be written.
    """
    text = to_json(evidence)
    if from_json(text, "the record to be written") != evidence:
        msg = "evidence must survive being written and read (a detail is not plain JSON)"
        raise InfrastructureError(msg)
    target = reports / evidence.path
    documents.write_text(target, text)
    return target


@dataclass(frozen=True)
class Loaded:
    """A record and the file that it came from.

    Attributes:
        evidence: The record.
        path: Its path relative to the folder of reports, in POSIX form.
        digest: ``sha256:...`` of the file.
    """

    evidence: Evidence
    path: str
    digest: str = field(repr=False)


def load(reports: Path) -> list[Loaded]:
    """Read every record under the folder of reports, in the order of their paths.

    Raises:
        InfrastructureError: A record is unreadable, or lies where another one belongs.
    """
    loaded = []
    for file in sorted(reports.rglob("*.json")):
        relative = file.relative_to(reports)
        if file.name == "facts.json" or file.name.startswith("models-"):
            continue  # records of their own that lie beside the evidence: factfile, modelfile
        if relative.parts[0] == DEVICE_FOLDER:
            continue  # no kernel of a release ran for the device contract: no cell may rest on it
        try:
            raw = file.read_bytes()
            evidence = from_json(raw.decode("utf-8"), relative.as_posix())
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{relative.as_posix()} must be a readable UTF-8 file ({error})"
            raise InfrastructureError(msg) from error
        if evidence.path != relative:
            msg = f"the record of {evidence.path.as_posix()} lies in {relative.as_posix()}: move or delete it"
            raise InfrastructureError(msg)
        loaded.append(Loaded(evidence, relative.as_posix(), "sha256:" + hashlib.sha256(raw).hexdigest()))
    return loaded
