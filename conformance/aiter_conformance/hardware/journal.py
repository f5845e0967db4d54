"""The journal of a run: one JSON line for each run of an input, appended and flushed as it comes.

The first line says what the run is about. A killed run leaves a journal that another one goes on with; a last
line that was cut off is dropped, and its input runs again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.hardware.attempts import Attempt, attempt_from_json


class Journal:
    """The attempts of one run, in memory and on disk.

    Args:
        path: The file; its folder is made.
        about: What the run is about: release, board, subject, versions. Plain JSON.
        resume: Go on with the file where there is one; otherwise the file must not be there.

    Raises:
        UsageError: The file is there and `resume` is False, or it is about something else.
        InfrastructureError: The file is damaged anywhere but at its end.
    """

    def __init__(self, path: Path, about: dict[str, Any], *, resume: bool = False) -> None:
        self._lock = Lock()
        self._attempts: dict[str, list[Attempt]] = {}
        there = path.exists() and path.stat().st_size > 0
        if there and not resume:
            msg = (
                f"a run must not write over another one ({path.name} is there): give --resume to go on with "
                "it, or delete it"
            )
            raise UsageError(msg)
        path.parent.mkdir(parents=True, exist_ok=True)
        if there:
            self._read(path, about)
        self._file = path.open("a", encoding="utf-8")
        if not there or not path.stat().st_size:
            self._append(about)

    def add(self, attempt: Attempt) -> None:
        """Keep an attempt; it is on disk when this returns."""
        with self._lock:
            self._attempts.setdefault(attempt.item, []).append(attempt)
            self._append(attempt.to_json())

    def of(self, item: str) -> list[Attempt]:
        """Return the attempts at an input, in their order."""
        with self._lock:
            return list(self._attempts.get(item, []))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document, ensure_ascii=False, sort_keys=True) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, path: Path, about: dict[str, Any]) -> None:
        raw = path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):  # cut off while it was written
            with path.open("r+b") as file:
                file.truncate(len(whole))
        lines = whole.decode("utf-8", "replace").splitlines()
        try:
            documents = [json.loads(line) for line in lines]
            attempts = [attempt_from_json(document) for document in documents[1:]]
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path.name} must be a journal of this program ({error}): delete it and run anew"
            raise InfrastructureError(msg) from error
        if documents and documents[0] != about:
            differing = sorted(
                key for key in {*documents[0], *about} if documents[0].get(key) != about.get(key)
            )
            shown = "; ".join(
                f"{key} was {documents[0].get(key)!r} and is {about.get(key)!r}" for key in differing
            )
            msg = f"--resume must go on with the same kind of run ({shown}): delete {path.name} for a new one"
            raise UsageError(msg)
        for attempt in attempts:
            self._attempts.setdefault(attempt.item, []).append(attempt)
