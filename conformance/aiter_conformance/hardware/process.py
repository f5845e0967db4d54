"""Starts one worker, listens to it, and says what became of each of its inputs, whatever becomes of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiter_conformance.hardware.attempts import Attempt, attempt_from_json
from aiter_conformance.hardware.items import parse_item
from aiter_conformance.hardware.trouble import sentence
from aiter_conformance.hardware.worker import Order
from aiter_conformance.outcome import Kind, Reason

_WEIGHTS: Final = (
    3e5  # weight elements that even a slow host makes, packs and hands to the oracle in a second
)
_LAST_WORDS: Final = 4000  # bytes of a worker's output that are looked through


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a worker may take, in seconds.

    Attributes:
        start: Until it is ready: torch and AITER imported.
        item: For one input, besides the making of its weights.
        build: For one input in which AITER builds.
    """

    start: float = 300.0
    item: float = 120.0
    build: float = 3600.0

    def of(self, item: str, *, build: bool) -> float:
        """Return how long an input may take, by its id."""
        return (self.build if build else self.item) + parse_item(item).weights / _WEIGHTS


class StartFailed(Exception):  # noqa: N818 -- an event of a worker, never an error of a command
    """A worker never got ready: what came of it says nothing of any input."""


def attempts(order: Order, variables: Mapping[str, str], limits: Limits, log: Path) -> Iterator[Attempt]:
    """Run an order in a process of its own and yield an attempt for each input that it began.

    It ends early where the process did: the last attempt is then a ``crash`` or a ``timeout``, and the inputs
    after it were not touched.

    Args:
        order: What to do.
        variables: Environment variables on top of this process's own.
        limits: How long it may take.
        log: File that takes what the worker prints, at its end.

    Raises:
        StartFailed: It was not ready in time, or died before.
    """
    reading, writing = os.pipe()
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "aiter_conformance.hardware.worker", str(writing)]
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **variables},
                pass_fds=(writing,),
                start_new_session=True,  # so that all it starts can be ended with it
            )
        finally:
            os.close(writing)
    try:
        assert process.stdin is not None  # noqa: S101 -- it is a pipe
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(order.to_json().encode())
        yield from _listen(process, reading, order, limits, log)
    finally:
        _end(process)
        os.close(reading)


def _listen(
    process: subprocess.Popen[bytes], reading: int, order: Order, limits: Limits, log: Path
) -> Iterator[Attempt]:
    ready, running = False, ""
    patience = _Patience(limits.start)
    for event in _events(reading, patience):
        if event is None:
            if not ready:
                msg = f"a worker must be ready within {limits.start:g} s (it was not)"
                raise StartFailed(msg)
            message = f"It did not end within {patience.seconds:.0f} s and was killed."
            yield Attempt(running, 0, Kind.TIMEOUT, Reason.TIMED_OUT, message)
            return
        ready = True
        if event["event"] == "started":
            running = event["item"]
            patience.seconds = limits.of(running, build=order.build)
        elif event["event"] == "done":
            running = ""
            yield attempt_from_json(event["attempt"])
    process.wait()  # the pipe is closed: it has ended, or does so now
    if running:
        message = f"The process {_how(process.returncode)} while it ran."
        yield Attempt(running, 0, Kind.CRASH, Reason.CRASHED, message)
    elif not ready or process.returncode:
        msg = f"a worker {_how(process.returncode)} outside any input: {_last_words(log)}"
        raise StartFailed(msg)


@dataclass
class _Patience:
    """How many seconds the next event may take; whoever listens changes it."""

    seconds: float


def _events(reading: int, patience: _Patience) -> Iterator[dict[str, Any] | None]:
    """Yield events until the pipe ends; None, once and last, where the next one took too long."""
    pending = b""
    deadline = time.monotonic() + patience.seconds
    while True:
        if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            yield None
            return
        came = os.read(reading, 1 << 16)
        if not came:
            return
        *lines, pending = (pending + came).split(b"\n")
        for line in lines:
            yield json.loads(line)
        if lines:
            deadline = time.monotonic() + patience.seconds


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-code).name}"
    return f"ended with {code}"


def _last_words(log: Path) -> str:
    """Return the last line of a worker's output, without paths."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_WORDS))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return sentence(lines[-1]) if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
