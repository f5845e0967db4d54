"""The part of a run that one pytest worker does: its own GPU, its own journal, its own evidence."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aiter_conformance.errors import UsageError
from aiter_conformance.hardware import schedule
from aiter_conformance.hardware.attempts import decide
from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.hardware.run import Prepared, Request, prepared
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import Subject
from aiter_conformance.release.artefact import Release


class Part:
    """Runs inputs when they are asked for, by what `gpu run` runs them by; made by `opened`.

    Args:
        ready: The run.
        said: What was said of it, growing.
        lock: File that whoever lets AITER build holds: one process at a time.
    """

    def __init__(self, ready: Prepared, said: Sequence[str], lock: Path) -> None:
        self._ready = ready
        self._said = said
        self._lock = lock
        self._tried: set[Item] = set()
        self._lost: str | None = None

    def outcome(self, item: Item, together: Sequence[Item]) -> Outcome:
        """Return the outcome of an input.

        Args:
            item: The input.
            together: Inputs of its cell, itself among them, that are run now with it, since the start of a
                worker takes longer than most inputs.

        Returns:
            Its outcome; ``not_run`` where no worker started, for this cell or for one before it.
        """
        if item not in self._tried and self._lost is None:
            self._run([each for each in together if each not in self._tried])
        found = decide(self._ready.work.journal.of(str(item)))
        if found is None:
            message = f"It was not run: {self._lost}."
            return Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, message)
        return found

    def _run(self, items: Sequence[Item]) -> None:
        work = self._ready.work
        self._tried.update(items)
        with _held(self._lock):
            schedule.build([items], work)
        schedule.run([items], work)
        self._ready.write()
        if any(decide(work.journal.of(str(item))) is None for item in items):
            self._lost = "; ".join(self._said[-2:])  # how a worker ended, and that its GPU is given up


@contextmanager
def opened(
    request: Request, machine: Machine, subject: Subject, release: Release, folder: Path, worker: int
) -> Iterator[Part]:
    """Prepare the part of one pytest worker.

    Args:
        request: What all workers run together.
        machine: Where.
        subject: The implementation.
        release: The AITER of this Python.
        folder: Folder of all workers; this one's journal, logs and reports lie in ``gwN``.
        worker: Number of the worker, from 0, which is the number of its GPU.

    Raises:
        UsageError: There are fewer GPUs, or the folder has a journal of another kind of run.
        InfrastructureError: A file cannot be read or written.
    """
    if worker >= machine.gpus:
        msg = f"-n must be at most the number of GPUs, {machine.gpus} (this is worker {worker + 1})"
        raise UsageError(msg)
    own, said = folder / f"gw{worker}", list[str]()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _held(folder / "trace.lock"):  # the first worker traces for all
            ready = stack.enter_context(
                prepared(
                    request,
                    machine,
                    subject,
                    release,
                    own,
                    own / "reports",
                    said.append,
                    gpus=[worker],
                    traces=folder / "trace",
                )
            )
        yield Part(ready, said, folder / "build.lock")


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock that only one process can hold; the file stays."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
