"""The worker process: JSON lines over pipes, with limits of time and memory, and its last words kept."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

_LAST_WORDS: Final = 4000


class WorkerDied(Exception):  # noqa: N818 -- it says what happened
    """The worker ended, or said nothing for too long. The message holds its last words."""


class Worker:
    """One worker process.

    Args:
        command: Program and arguments.
        environment: Its whole environment.
        folder: Working folder; what it prints goes to a file there.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._printed = folder / "printed.txt"
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=environment,
                cwd=folder,
            )
        assert self._process.stdin is not None  # noqa: S101 -- both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._stdin: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._stdout = self._process.stdout.fileno()
        self._received = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            WorkerDied: It is not there to take it.
        """
        try:
            self._stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            raise WorkerDied(self._last_words("it ended")) from None

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            WorkerDied: It ended, or none came within the time; then it is ended.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise WorkerDied(self._last_words(f"it said nothing for {seconds:g} s"))
            chunk = os.read(self._stdout, 1 << 16)
            if not chunk:
                raise WorkerDied(self._last_words("it ended"))
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self, what: str) -> str:
        """Say how it ended, with the last line that it printed."""
        code = self._process.poll()
        if code is None:
            try:
                code = self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                code = None
        how = f"{what}, with signal {-code}" if code is not None and code < 0 else what
        how = f"{what}, with exit code {code}" if code is not None and code > 0 else how
        lines = [line for line in self._tail().splitlines() if line.strip()]
        return f"{how}: {lines[-1].strip()}" if lines else how

    def _tail(self) -> str:
        content = self._printed.read_bytes()[-_LAST_WORDS:]
        return content.decode("utf-8", errors="replace")

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._stdin.close()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.stdout.close()
