"""Keeps runs under ``build/``, by the content of all that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import aiter_conformance
import aiter_moe
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.record import trace_from_json
from aiter_conformance.trace.run import Progress, Run, run_calls
from aiter_conformance.trace.tracer import Limits, RuntimeFacts

# Packages that the release's code runs on.
_DISTRIBUTIONS: Final = ("torch", "pandas", "numpy", "einops")
# What of the harness a trace depends on; the checks come after.
_SOURCES: Final = ("trace", "release")
_MODULES: Final = ("axes.py", "contract.py", "protocols.py", "subjects/impl.py")


def cached_run(
    release: Release,
    board: Board,
    calls: Iterable[Call],
    folder: Path,
    *,
    inventory: Inventory | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Run:
    """Trace calls, or return what was kept of them on the same release, board and harness.

    A run of more calls serves as well: starting a process takes longer than hundreds of calls.

    Args:
        release: The release.
        board: The board.
        calls: The calls.
        folder: Folder to keep runs in, e.g. ``build/trace``.
        inventory: What the release ships, where that is known already.
        limits: See `run_calls`.
        progress: See `run_calls`; not called where a kept run is returned.

    Raises:
        InfrastructureError: See `run_calls`. Nothing is kept then.
    """
    asked = list(calls)
    where = _hash(_where(release, board))
    path = folder / "runs" / f"{where}-{_hash([call.to_json() for call in asked])}.json"
    for file in (path, *sorted(path.parent.glob(f"{where}-*.json"))):
        kept = _read(file)
        found = None if kept is None else _run_from_json(board, kept, asked)
        if found is not None:
            return found
    run = run_calls(
        release,
        board,
        asked,
        inventory=inventory,
        cache=folder / "code",
        limits=limits,
        progress=progress,
    )
    _write(path, {"facts": asdict(run.facts), "traces": [trace.to_json() for trace in run.traces]})
    return run


def _where(release: Release, board: Board) -> list[Any]:
    """Return all that a trace depends on besides its call."""
    return [
        release.identity,
        release.version,
        asdict(board),
        harness_digest(),
        platform.python_version(),
        [_version(name) for name in _DISTRIBUTIONS],
    ]


def _hash(parts: list[Any]) -> str:
    """Return half of a SHA-256, which is plenty: two of them make a name."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def harness_digest() -> str:
    """Return a hash of the sources that a trace depends on: tracer, release reader and subject."""
    harness, subject = (Path(str(module.__file__)).parent for module in (aiter_conformance, aiter_moe))
    paths = [path for name in _SOURCES for path in sorted((harness / name).rglob("*.py"))]
    paths += [harness / name for name in _MODULES] + sorted(subject.rglob("*.py"))
    total = hashlib.sha256()
    for path in paths:
        root = subject if path.is_relative_to(subject) else harness
        total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return total.hexdigest()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _read(path: Path) -> dict[str, Any] | None:
    """Return what was kept, or None where nothing was or it is damaged: then it is made again."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data


def _write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
    partial.replace(path)


def _run_from_json(board: Board, data: dict[str, Any], asked: list[Call]) -> Run | None:
    """Return the run of the calls that are asked for; None where one of them was not traced."""
    traces = {trace.call: trace for trace in map(trace_from_json, data["traces"])}
    if not traces.keys() >= set(asked):
        return None
    facts = data["facts"]
    lists = {name: tuple(facts[name]) for name in ("unpatched", "table_errors")}
    return Run(board, RuntimeFacts(**{**facts, **lists}), tuple(traces[call] for call in asked))
