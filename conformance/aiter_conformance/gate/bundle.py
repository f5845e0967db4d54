"""Bundles: what the decision about a bump rests on, as one archive from which it can be made again.

A bundle holds both sides as they were observed, the ledger, the report, and a statement that lists every file
with its hash. Whoever is given the bundle's own hash from elsewhere knows that it is the one that was made.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from aiter_conformance import __version__, documents, evidence
from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import HarnessError
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.gate import archive, page
from aiter_conformance.gate.archive import RefusedError
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.item import Item
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.gate.side import Side, harness_digest
from aiter_conformance.ledgerfile import parse_ledger

SCHEMA: Final = "aiter-conformance/bundle/1"
STATEMENT: Final = "statement.json"
_SUM: Final = "statement.sha256"
_LEDGER, _REPORT, _PAGE = "ledger.toml", "report.json", "page.txt"
_SIDES: Final = ("old", "new")


@dataclass(frozen=True)
class Verified:
    """A bundle that is what it says.

    Attributes:
        statement: Its statement, as the schema ``bundle`` has it.
        report: The comparison, made again from what the bundle holds.
        digest: ``sha256:...`` of the whole bundle.
        same_harness: Whether this very harness made it; what another prints besides the decision may differ.
    """

    statement: dict[str, Any]
    report: Report
    digest: str
    same_harness: bool


def digest(content: bytes) -> str:
    """Return ``sha256:...`` of some content."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def make(old: Side, new: Side, report: Report, ledger: str | None = None) -> bytes:
    """Return the bundle of a comparison, the same bytes for the same sides.

    Args:
        old: The old side.
        new: The new side.
        report: What `report.compare` made of the two.
        ledger: Text of the ledger that it was made with; by default the project's own.
    """
    report = replace(report, given=None)  # a bundle goes to others: where its releases lay is not for them
    text = (spec_dir() / "ledger.toml").read_text(encoding="utf-8") if ledger is None else ledger
    files = {_LEDGER: text.encode(), _REPORT: report.to_json().encode(), _PAGE: page.render(report).encode()}
    for name, side in zip(_SIDES, (old, new), strict=True):
        files |= _side_files(name, side)
    statement = documents.render(
        {
            "schema": SCHEMA,
            "harness": {"version": __version__, "commit": _commit(), "digest": f"sha256:{harness_digest()}"},
            "releases": [
                asdict(side.release) | {"label": label}
                for side, label in zip((old, new), report.labels, strict=True)
            ],
            "question": {
                "subject": report.subject,
                "board": report.board,
                "model": report.model,
                "fail_on": [found.value for found in report.fail_on],
            },
            "environment": [dict(sorted(side.environment.items())) for side in (old, new)],
            "decision": _decision(report),
            "files": [
                {"path": path, "size": len(content), "digest": digest(content)}
                for path, content in sorted(files.items())
            ],
        }
    )
    documents.parse(statement, schema="bundle", source="the statement")
    own = {STATEMENT: statement.encode(), _SUM: f"{digest(statement.encode())}\n".encode()}
    return archive.pack(files | own)


def _side_files(name: str, side: Side) -> dict[str, bytes]:
    """Return what is kept of a side: its items, and each record as a folder of reports has it."""
    items = documents.render({"label": side.label, "items": [item.to_json() for item in side.items]})
    records = {
        f"{name}/{number:03}-{record.level.value}-{record.board.replace(':', '-')}.json": evidence.to_json(
            record
        )
        for number, record in enumerate(side.records)
    }
    return {path: text.encode() for path, text in ({f"{name}/items.json": items} | records).items()}


def _decision(report: Report) -> dict[str, Any]:
    return {
        "exit_code": report.exit_code,
        "failing": [f"{cause.change.value} {cause.id}" for cause in report.failing],
        "not_run": list(report.not_run),
    }


def _commit() -> str | None:
    """Return the commit of the checkout that this harness runs from; None where it runs from none."""
    folder = Path(__file__).parent
    try:
        told = [
            subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
            ).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "."))
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return told[0].strip() + ("+changes" if told[1].strip() else "")


def verify(raw: bytes) -> Verified:
    """Hold a bundle against its statement, and make its decision again.

    Args:
        raw: The bundle.

    Raises:
        RefusedError: A file is altered, missing, or not in the statement, or the decision does not follow.
    """
    files = archive.unpack(raw)
    try:
        statement = _statement(files)
        report = _again(statement, files)
    except (HarnessError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        msg = f"what the bundle holds must be readable ({error})"
        raise RefusedError(msg) from error
    found = _decision(report)
    if found != statement["decision"]:
        said = statement["decision"]
        msg = f"the decision must follow from what the bundle holds (it says {said}, got {found})"
        raise RefusedError(msg)
    same = statement["harness"]["digest"] == f"sha256:{harness_digest()}"
    if same and report.to_json().encode() != files[_REPORT]:
        msg = f"{_REPORT} must be what this harness makes of the two sides (it is another)"
        raise RefusedError(msg)
    return Verified(statement, report, digest(raw), same)


def _statement(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the statement, once every file is the one that it lists and there is no other.

    Raises:
        RefusedError: One is not.
    """
    for name in (STATEMENT, _SUM):
        if name not in files:
            msg = f"a bundle must hold {name} (it is missing)"
            raise RefusedError(msg)
    if files[_SUM] != f"{digest(files[STATEMENT])}\n".encode():
        msg = f"{STATEMENT} must have the hash in {_SUM} (one of the two is altered)"
        raise RefusedError(msg)
    statement = documents.parse(files[STATEMENT].decode(), schema="bundle", source=STATEMENT)
    listed = {item["path"]: item for item in statement["files"]}
    held = files.keys() - {STATEMENT, _SUM}
    for words, names in (("missing", listed.keys() - held), ("not in the statement", held - listed.keys())):
        if names:
            which = ", ".join(sorted(names))
            msg = f"a bundle must hold the files of its statement and no other ({words}: {which})"
            raise RefusedError(msg)
    for path, item in listed.items():
        if (len(files[path]), digest(files[path])) != (item["size"], item["digest"]):
            msg = f"{path} must be the file that the statement lists (it is altered)"
            raise RefusedError(msg)
    return statement


def _again(statement: Mapping[str, Any], files: Mapping[str, bytes]) -> Report:
    question = statement["question"]
    sides = [_read_side(name, number, statement, files) for number, name in enumerate(_SIDES)]
    labels = [release["label"] for release in statement["releases"]]
    return compare(
        sides[0],
        sides[1],
        labels=(labels[0], labels[1]),
        subject=question["subject"],
        ledger=parse_ledger(files[_LEDGER].decode()),
        fail_on=[ChangeClass(name) for name in question["fail_on"]],
        board=question["board"],
        model=question["model"],
    )


def _read_side(name: str, number: int, statement: Mapping[str, Any], files: Mapping[str, bytes]) -> Side:
    release = {key: value for key, value in statement["releases"][number].items() if key != "label"}
    items = json.loads(files[f"{name}/items.json"])
    records = [path for path in sorted(files) if path.startswith(f"{name}/") and path != f"{name}/items.json"]
    return Side(
        release=ReleaseId(**release),
        label=items["label"],
        environment=statement["environment"][number],
        items=tuple(Item.from_json(item) for item in items["items"]),
        records=tuple(evidence.from_json(files[path].decode(), path) for path in records),
    )
