"""Work in forked children of this process, a few at a time, each with a limit."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# A child that computes is ended by the limit on its processor time, which does not depend on how busy the
# machine is; one that waits for ever by this many times as much time on the clock.
_PATIENCE: Final = 5


@dataclass(frozen=True, slots=True)
class Ended(Generic[R]):
    """How a child ended.

    Attributes:
        value: What the work returned; None unless it did.
        error: Why there is no value: ``timeout``, ``signal 11``, an exception; empty where there is one.
        signal: The signal that ended the child by itself, 0 for none.
    """

    value: R | None
    error: str = ""
    signal: int = 0


@dataclass(slots=True)
class _Running(Generic[T]):
    task: T
    process: Any
    receiver: connection.Connection
    deadline: float


def run_forked(
    work: Callable[[T], R], tasks: Sequence[T], *, workers: int, limit: Callable[[T], float]
) -> Iterator[tuple[T, Ended[R]]]:
    """Yield each task with how its child ended, in the order in which they end.

    Args:
        work: Runs in the child, whose output is thrown away; what it returns must be picklable.
        tasks: One child each.
        workers: How many run at the same time.
        limit: Seconds of processor time for a task.
    """
    waiting = list(reversed(tasks))
    running: list[_Running[T]] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(work, waiting.pop(), limit))
            nearest = min(one.deadline for one in running)
            connection.wait([one.receiver for one in running], max(0.0, nearest - time.monotonic()))
            for one in list(running):
                # A child that ended without a word has closed its end: that is readable too.
                if one.receiver.poll():
                    running.remove(one)
                    yield one.task, _end(one)
                elif time.monotonic() > one.deadline:
                    running.remove(one)
                    one.process.kill()
                    one.process.join()
                    yield one.task, Ended(None, "timeout")
    finally:
        for one in running:
            one.process.kill()
            one.process.join()


def _start(work: Callable[[T], R], task: T, limit: Callable[[T], float]) -> _Running[T]:
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    seconds = limit(task)
    process = fork.Process(target=_child, args=(work, task, sender, seconds))
    with warnings.catch_warnings():
        # Python 3.12 warns of threads at a fork: torch's are idle, and the child starts none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    return _Running(task, process, receiver, time.monotonic() + _PATIENCE * seconds)


def _child(work: Callable[[T], R], task: T, sender: connection.Connection, seconds: float) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    try:
        answer = Ended(work(task))
    except Exception as error:  # the parent has to say what went wrong
        answer = Ended(None, f"{type(error).__name__}: {error}")
    sender.send(answer)
    sender.close()
    # Neither pytest's nor torch's leave-taking is of interest, and both take time.
    os._exit(0)


def _end(one: _Running[T]) -> Ended[Any]:
    try:
        answer: Ended[Any] = one.receiver.recv()
    except EOFError:
        answer = Ended(None, "no answer")
    one.process.join()
    code: int = one.process.exitcode
    if code == 0:
        return answer
    if code == -signal.SIGXCPU:
        return Ended(None, "timeout")
    return Ended(None, f"signal {-code}" if code < 0 else f"exit {code}", signal=max(0, -code))
