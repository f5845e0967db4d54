"""Traces calls on one release and one board."""

from __future__ import annotations

import re
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.cpp_enums import parse_enums
from aiter_conformance.trace import sandbox
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.process import Worker, WorkerDied

_HEADERS: Final = "csrc/include/"
_PIN_FILES: Final = ("setup.py", "requirements.txt", "pyproject.toml", "dist-info/METADATA")
_PIN: Final = re.compile(r"\bflydsl\s*(?:\(?[=>]=\s*)([0-9][0-9a-zA-Z.+]*)")
_ROUND_MODE: Final = re.compile(
    r"\b(?:int|MxScaleRoundMode)\s+kDefaultMxScaleRoundMode\s*=\s*(?:static_cast<int>\()?"
    r"(?:MxScaleRoundMode::)?(\w+)"
)
# Releases ask for a version, and take a new one for granted.
_TRITON_VERSION: Final = "3.6.0"
# Calls that are under way at once: enough to keep the worker busy, few enough for any pipe.
_WINDOW: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker.

    Attributes:
        start: Seconds that importing the release may take.
        call: Seconds that one call may take.
        memory: Bytes that it may allocate.
    """

    start: float = 120.0
    call: float = 60.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class Answer:
    """What came back for one call.

    Attributes:
        events: What the call did, in order; see `aiter_conformance.trace.record` for their meaning.
        error: What it raised, or None.
        warnings: What the release warned of.
        died: The worker's last words, if it did not survive the call.
    """

    events: tuple[dict[str, Any], ...]
    error: dict[str, Any] | None
    warnings: tuple[str, ...]
    died: str | None = None


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """What a release says of itself once it is imported.

    Attributes:
        fp8: The fp8 dtype that it takes this board to have, by torch's name.
        int4: The dtype in which it takes packed int4.
        watching: Whether its chooser could be watched (its name is known).
        unpatched: Functions that were to be replaced and were not found.
        table_errors: What it raised while it merged its tuned tables; it rewrote its own tables after each.
        import_seconds: How long its import took.
    """

    fp8: str
    int4: str
    watching: bool
    unpatched: tuple[str, ...]
    table_errors: tuple[str, ...]
    import_seconds: float


class Tracer:
    """A release, imported on a board. Use it as a context manager.

    Args:
        release: The release; it is read and never changed.
        board: The board.
        cache: Folder for the release's compiled Python, kept between runs; None for a private one.
        limits: Limits of time and memory.

    Attributes:
        facts: What the release says of itself.
    """

    facts: RuntimeFacts

    def __init__(
        self, release: Release, board: Board, *, cache: Path | None = None, limits: Limits | None = None
    ) -> None:
        self.release = release
        self.board = board
        self._cache = cache
        self._limits = limits or Limits()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        """Copy the release, start the worker and import the release in it.

        Raises:
            InfrastructureError: The release cannot be read, or its import raises, crashes or hangs.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="aiter-trace-")
        try:
            private = Path(self._folder.name).resolve()
            (private / "tmp").mkdir()
            sandbox.write_copy(self.release, private / "tree")
            sandbox.write_rocm(private / "rocm", self.board)
            self._private = private
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        command = (
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "aiter_conformance.trace.worker",
            str(self._limits.memory),
        )
        variables = sandbox.environment(self._private, self._private / "rocm", self.board)
        self._worker = Worker(command, variables, self._private)
        try:
            self._worker.send(self._start_message())
            ready = self._worker.receive(self._limits.start)["ready"]
        except WorkerDied as died:
            msg = (
                f"{self.release.label} cannot be imported on {self.board}, so nothing of it was traced "
                f"({self._without_paths(str(died))})"
            )
            raise InfrastructureError(msg) from died
        self.facts = RuntimeFacts(
            fp8=ready["fp8"],
            int4=ready["int4"],
            watching=ready["watching"],
            unpatched=tuple(ready["unpatched"]),
            table_errors=tuple(ready["table_errors"]),
            import_seconds=ready["import_seconds"],
        )

    def _start_message(self) -> dict[str, Any]:
        hardware = self.board.hardware
        headers = self._headers()
        flydsl = self._pinned_flydsl()
        versions = {"triton": _TRITON_VERSION} | ({"flydsl": flydsl} if flydsl else {})
        constants = {}
        if (round_mode := _round_mode(headers)) is not None:
            constants["module_aiter_core.kDefaultMxScaleRoundMode"] = round_mode
        return {
            "root": str(self._private / "tree"),
            "private": str(self._private / "tmp"),
            "cache": str(self._cache or self._private / "cache"),
            "version": self.release.version,
            "arch": self.board.arch,
            "compute_units": self.board.compute_units,
            "pci_device": self.board.pci_device,
            "lds": hardware.lds,
            "wave": hardware.wave,
            "capability": hardware.capability,
            "fp8": self.board.fp8,
            "enums": {name: enum.members for text in headers for name, enum in parse_enums(text)[0].items()},
            "constants": constants,
            "packages": ["torch._dynamo", "triton", "iris", *(["flydsl"] if flydsl else [])],
            "versions": versions,
        }

    def _headers(self) -> list[str]:
        paths = [
            path
            for path in self.release.files.paths
            if path.startswith(_HEADERS) and path.count("/") == 2 and path.endswith((".h", ".hpp"))
        ]
        texts = [content.decode("utf-8", "replace") for _, content in self.release.files.read_many(paths)]
        return [text for text in texts if "enum class" in text or "kDefaultMxScaleRoundMode" in text]

    def _pinned_flydsl(self) -> str | None:
        """Return the version of FlyDSL that the release asks for, the lowest of a range; None without one."""
        for path in _PIN_FILES:
            if path in self.release.files.paths:
                pin = _PIN.search(self.release.files.read(path).decode("utf-8", "replace"))
                if pin is not None:
                    return pin[1]
        return None

    def trace(self, calls: Iterable[Call]) -> Iterator[Answer]:
        """Make calls, in order, and yield the answer to each.

        A call that the worker does not survive is answered with its last words, and a new worker goes on.

        Raises:
            InfrastructureError: A new worker cannot import the release again.
        """
        waiting = deque(enumerate(calls))
        running: deque[tuple[int, Call]] = deque()
        while waiting or running:
            assert self._worker is not None  # noqa: S101 -- it was entered
            try:
                while waiting and len(running) < _WINDOW:
                    running.append(waiting.popleft())
                    self._worker.send({"call": running[-1][1].to_json()})
                message = self._worker.receive(self._limits.call)
            except WorkerDied as died:
                words = self._without_paths(str(died))
                self._worker.close()
                running.popleft()
                waiting.extendleft(reversed(running))
                running.clear()
                yield Answer((), None, (), words)
                self._start()
                continue
            running.popleft()
            yield Answer(tuple(message["events"]), message["error"], tuple(message["warnings"]))

    def _without_paths(self, text: str) -> str:
        """Return a text without the paths of this machine."""
        for folder in (self._private / "tree", self._private):
            text = text.replace(f"{folder}/", "")
        return text

    def close(self) -> None:
        """End the worker and remove the private copy."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _round_mode(headers: Iterable[str]) -> int | None:
    """Return the rounding mode of microscaling that the compiled modules report, as a number."""
    for text in headers:
        matched = _ROUND_MODE.search(text)
        if matched is None:
            continue
        if matched[1].isdigit():
            return int(matched[1])
        modes = parse_enums(text)[0].get("MxScaleRoundMode")
        if modes is not None and matched[1] in modes.members:
            return modes.members[matched[1]]
    return None
