"""Judging every MoE code object that a release's manifests name, in worker processes, resumable.

A result is kept in a file of its own, written whole as soon as it is known, under a name that is a digest of
the emulator's sources, the object's content and its name: an interrupted sweep goes on where it stopped, and
releases that share an object share its result.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aiter_conformance.documents import write_text
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa import fast
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.judge import Judgement, Observation, Status, judge, source_digest
from aiter_conformance.isa.objects import load_objects
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Progress

WORKERS = 2
_CHUNK = 8  # objects that share one run of the disassembler


@dataclass(frozen=True, slots=True)
class Result:
    """What the sweep found about one object.

    Attributes:
        path: Release-relative path.
        arch: The arch of its folder.
        sha256: Digest of its content; None when it is not there.
        judgement: The result.
    """

    path: str
    arch: str
    sha256: str | None
    judgement: Judgement


def sweep(
    release: Release,
    paths: Sequence[str],
    folder: Path,
    *,
    workers: int = WORKERS,
    progress: Progress | None = None,
) -> list[Result]:
    """Judge objects, those without a kept result in worker processes.

    Args:
        release: An open release.
        paths: Release-relative paths, as `named_objects` gives them.
        folder: Where results and compiled code are kept.
        workers: Processes.
        progress: Called with (objects done, objects in all).

    Returns:
        A result for each path, in order.

    Raises:
        InfrastructureError: numba or the disassembler is absent, or a worker died.
    """
    shipped = set(release.files.paths)
    present = dict(release.files.read_many([path for path in paths if path in shipped]))
    found = {path: _outside(path, present.get(path)) for path in paths}
    files = {
        path: folder / "sweep" / f"{_key(path, present[path])}.json" for path in paths if not found[path]
    }
    for path, file in files.items():
        found[path] = _read(file)
    missing = [(path, present[path], files[path]) for path in files if found[path] is None]
    done = len(paths) - len(missing)
    for path in _judge_all(missing, folder, workers):
        found[path] = _read(files[path])
        done += 1
        if progress is not None:
            progress(done, len(paths))
    results = []
    for path in paths:
        judgement = found[path]
        if judgement is None:
            raise InfrastructureError(
                f"the result of {path} must be in {files[path]} (it vanished); try again"
            )
        digest = hashlib.sha256(present[path]).hexdigest() if path in present else None
        results.append(Result(path, _arch(path), digest, judgement))
    return results


def _arch(path: str) -> str:
    return path.split("/")[1]


def _outside(path: str, content: bytes | None) -> Judgement | None:
    """The judgement of an object that needs no run, else None."""
    if _arch(path) not in ARCHES:
        known = " and ".join(ARCHES)
        return Judgement(Status.NOT_APPLICABLE, f"{_arch(path)} is not emulated ({known} are)", None)
    if content is None:
        return Judgement(Status.NOT_EXECUTABLE, "the object is not in the release", None)
    return None


def _key(path: str, content: bytes) -> str:
    name = PurePosixPath(path).name.encode()
    return hashlib.sha256(b"\0".join((source_digest().encode(), name, content))).hexdigest()[:40]


def _read(file: Path) -> Judgement | None:
    """A kept result; None where there is none, or a damaged one, which is then made anew."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        seen = tuple(Observation(**one) for one in data.pop("observations"))
        return Judgement(**{**data, "status": Status(data["status"])}, observations=seen)
    except (OSError, ValueError, KeyError, TypeError):
        return None


_Work = tuple[str, bytes, Path]


def _judge_all(work: Sequence[_Work], folder: Path, workers: int) -> Iterator[str]:
    """Judge in worker processes; yields each path once its result is kept."""
    if not work:
        return
    fast.load(folder)  # absent numba is said here, in one sentence
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(folder,)
    )
    try:
        # The first object alone: its worker compiles the core, the others then find it compiled.
        yield from pool.submit(_judge_chunk, work[:1]).result()
        rest = [work[i : i + _CHUNK] for i in range(1, len(work), _CHUNK)]
        futures: list[Future[list[str]]] = [pool.submit(_judge_chunk, chunk) for chunk in rest]
        for future in as_completed(futures):
            yield from future.result()
    except BrokenProcessPool as error:
        raise InfrastructureError(
            "a worker process must not die (one did: memory?); what is done is kept, try again"
        ) from error
    finally:
        # A second interrupt would leave workers that nobody ends, and the command would wait for them.
        with _uninterrupted():
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore interrupts meanwhile; elsewhere than in the main thread there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_core: Core | None = None


def _start_worker(folder: Path) -> None:
    """Load the core once a process; an interrupt is for the parent, a chunk that was begun is finished."""
    global _core
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _core = fast.load(folder)


def _judge_chunk(work: Sequence[_Work]) -> list[str]:
    if _core is None:
        raise InfrastructureError("a worker must have loaded the core (it has not)")
    files = {path: file for path, _, file in work}
    for path, code, program in load_objects((path, content) for path, content, _ in work):
        if isinstance(code, Judgement) or program is None:
            judgement = code
        else:
            judgement = judge(code, program, path, _core)
        write_text(files[path], json.dumps(asdict(judgement), indent=1) + "\n")
    return list(files)


def document(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results as JSON."""
    return [{"path": r.path, "arch": r.arch, "sha256": r.sha256, **asdict(r.judgement)} for r in results]
