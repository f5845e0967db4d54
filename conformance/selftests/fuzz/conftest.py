"""What no reader may do, whatever it is given: write, or take forever."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

import pytest

SECONDS = 10.0
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
)
_seen: list[str] = []
_watching = False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    """Note every change to the file system; Python has no way to take an audit hook away again."""
    if not _watching:
        return
    if event in _CHANGES:
        _seen.append(f"{event} {arguments[0]}")
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
        _seen.append(f"open {arguments[0]} for writing")


@pytest.fixture(scope="session")
def guarded() -> Callable[..., AbstractContextManager[None]]:
    """Return a context in which nothing may be written and nothing may take longer than its ``seconds``."""
    sys.addaudithook(_hook)

    def expired(_number: int, _frame: FrameType | None) -> None:
        msg = "a reader must come to an end (it was stopped)"
        raise TimeoutError(msg)

    @contextmanager
    def guard(seconds: float = SECONDS) -> Iterator[None]:
        global _watching  # the hook is global, too
        previous = signal.signal(signal.SIGALRM, expired)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        _seen.clear()
        _watching = True
        try:
            yield
        finally:
            _watching = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert _seen == [], f"a reader must not write (it did: {_seen})"

    return guard
