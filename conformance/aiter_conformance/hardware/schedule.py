"""Runs groups of inputs, one worker at a time on each GPU, until all have their outcomes or time is up."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiter_conformance.hardware import process
from aiter_conformance.hardware.attempts import Attempt, decide
from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.journal import Journal
from aiter_conformance.hardware.kernels import Expected, Seen, difference
from aiter_conformance.hardware.process import Limits, StartFailed
from aiter_conformance.hardware.worker import Order
from aiter_conformance.outcome import Kind, Reason

# What happens now and then, for whoever watches: a sentence.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """How inputs are run.

    Attributes:
        subject: Name of the subject.
        aiter: Version of AITER.
        device: ``cuda``, or ``cpu`` where the runner is simulated.
        gpus: Environment variables of a worker, one set a GPU.
        journal: Where every attempt goes.
        logs: Folder for what workers print.
        limits: How long workers may take.
        expected: The kernels that inputs must run, by their ids; others are not compared.
        quarantined: Inputs that are never launched, each with the sentence that says why.
        tell: Told what happens.
    """

    subject: str
    aiter: str
    device: str
    gpus: Sequence[Mapping[str, str]]
    journal: Journal
    logs: Path
    limits: Limits = field(default_factory=Limits)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    tell: Tell = lambda _sentence: None


def build(groups: Sequence[Sequence[Item]], work: Work) -> None:
    """Have AITER build what the groups need, one process at a time; a failed build settles its whole group.

    What else goes wrong is left for the run itself to see.
    """
    for number, group in enumerate(groups, 1):
        waiting = _undecided(group, work)
        firsts = list({item.name: item for item in reversed(waiting)}.values())[::-1]
        if not firsts:
            continue
        cell = group[0].case.cell
        work.tell(f"building for {cell} ({number} of {len(groups)})")
        failed = _build_failure(firsts, work)
        for item in waiting if failed is not None else ():
            assert failed is not None  # noqa: S101
            _record(replace(failed, item=str(item)), work)


def _build_failure(items: Sequence[Item], work: Work) -> Attempt | None:
    order = Order(tuple(map(str, items)), work.subject, work.aiter, work.device, build=True)
    try:
        for attempt in process.attempts(order, work.gpus[0], work.limits, work.logs / "build.log"):
            if attempt.reason is Reason.BUILD_FAILED:
                return attempt
            if attempt.kind is Kind.TIMEOUT:
                message = f"AITER did not build its kernel within {work.limits.build:g} s."
                return replace(attempt, kind=Kind.NOT_RUN, reason=Reason.BUILD_FAILED, message=message)
    except StartFailed as error:
        work.tell(str(error))
    return None


def run(
    groups: Sequence[Sequence[Item]],
    work: Work,
    *,
    seconds: float | None = None,
    finished: Callable[[Sequence[Item]], None] = lambda _group: None,
) -> None:
    """Run groups, each GPU taking the next one; what the journal has settled is left alone.

    Args:
        groups: Inputs, one group a cell.
        work: How.
        seconds: After this time no further input is started.
        finished: Called with each group that is done with; one at a time.
    """
    end = None if seconds is None else time.monotonic() + seconds
    waiting: queue.SimpleQueue[Sequence[Item]] = queue.SimpleQueue()
    for group in groups:
        waiting.put(group)
    one_at_a_time = threading.Lock()
    errors: list[BaseException] = []

    def serve(gpu: int) -> None:
        try:
            while not _over(end) and not errors:
                try:
                    group = waiting.get_nowait()
                except queue.Empty:
                    return
                alive = _run_group(group, work, gpu, end)
                with one_at_a_time:
                    finished(group)
                if not alive:
                    work.tell(f"GPU {gpu} is given up: workers do not start on it")
                    return
        except BaseException as error:  # it must reach the caller, whatever it is
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(gpu,), daemon=True) for gpu in range(len(work.gpus))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _run_group(group: Sequence[Item], work: Work, gpu: int, end: float | None) -> bool:
    """Run one group to its end; return False where no worker can be started any more.

    A worker that ends early is followed by one for the rest. What has to run again does so in another
    process: alone after a crash or a timeout, which may come back, else together.
    """
    for item in group:
        if (why := work.quarantined.get(str(item))) is not None and not work.journal.of(str(item)):
            _record(Attempt(str(item), 0, Kind.SKIPPED, Reason.QUARANTINED, why), work)
    batches = deque([_undecided(group, work)])
    failures = 0
    while batches and not _over(end):
        batch = batches.popleft()
        if not batch:
            continue
        began: list[str] = []
        try:
            for attempt in _attempts(batch, work, gpu):
                _record(attempt, work)
                began.append(attempt.item)
                failures = 0
                if _over(end):
                    break
        except StartFailed as error:
            failures += 1
            work.tell(f"{batch[0].case.cell}: {error}")
            if failures > 1:
                return False
        left = [item for item in batch if str(item) not in began]
        again = [item for item in batch if str(item) in began and decide(work.journal.of(str(item))) is None]
        alone = [item for item in again if _is_dangerous(item, work)]
        # The rest first: an input that kills its worker must not keep the others from running.
        batches.appendleft(left)
        batches.append([item for item in again if item not in alone])
        batches.extend([item] for item in alone)
    return True


def _attempts(batch: Sequence[Item], work: Work, gpu: int) -> Iterator[Attempt]:
    order = Order(tuple(map(str, batch)), work.subject, work.aiter, work.device)
    log = work.logs / f"gpu-{gpu}.log"
    return process.attempts(order, work.gpus[gpu], work.limits, log)


def _is_dangerous(item: Item, work: Work) -> bool:
    return work.journal.of(str(item))[-1].kind in (Kind.CRASH, Kind.TIMEOUT)


def _undecided(group: Sequence[Item], work: Work) -> list[Item]:
    return [
        item
        for item in group
        if str(item) not in work.quarantined and decide(work.journal.of(str(item))) is None
    ]


def _record(attempt: Attempt, work: Work) -> None:
    numbered = replace(attempt, number=len(work.journal.of(attempt.item)) + 1)
    work.journal.add(_compared(numbered, work))


def _compared(attempt: Attempt, work: Work) -> Attempt:
    """Return the attempt, no longer a pass where the kernels are not those of the trace, or are not known."""
    if attempt.kind is not Kind.PASS:
        return attempt
    seen = Seen(tuple(attempt.details.get("kernels", ())), attempt.details.get("source", "none"))
    if not seen.families:
        message = (
            "The numbers are right, but neither profiler nor log names a kernel of AITER's for them "
            f"(source: {seen.source}, {attempt.details.get('others', 0)} other kernels)."
        )
        return replace(attempt, kind=Kind.NOT_RUN, reason=Reason.KERNELS_UNSEEN, message=message)
    expected = work.expected.get(attempt.item)
    if expected is None:
        return attempt
    if (differs := difference(seen, expected)) is not None:
        message = f"The numbers are right, but by other kernels: {differs}."
        return replace(attempt, kind=Kind.FAIL, reason=Reason.OTHER_KERNEL, message=message)
    return replace(attempt, details=attempt.details | {"trace": "same"})


def _over(end: float | None) -> bool:
    return end is not None and time.monotonic() >= end
