"""The suites, collected once by a pytest in this process, and run in pieces by its forked children."""

from __future__ import annotations

import contextlib
import errno
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.plugin import PROFILES

R = TypeVar("R")

PROFILE: Final = "faults"
# What is wrong with the machine says nothing about the code under test.
_MACHINE: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that failed.

    Attributes:
        test: Its node id.
        error: Type of the exception.
        is_machine: Whether it is the machine that failed (memory, disk, installation) and not the test.
    """

    test: str
    error: str
    is_machine: bool


@dataclass(eq=False)  # pytest keeps plugins in sets
class Suites:
    """Tests that were collected and not run."""

    items: dict[str, pytest.Item] = field(default_factory=dict)
    _raised: BaseException | None = None

    @pytest.hookimpl
    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        """Remember what a test ended in: its report has only the words."""
        self._raised = call.excinfo.value if call.excinfo else None

    def run(
        self, tests: Sequence[str], ran: Callable[[str, float], None] = lambda *_: None
    ) -> Failure | None:
        """Run tests in the given order up to the first that fails.

        Only in a child of the collecting process: what tests leave behind stays there.

        Args:
            tests: Node ids.
            ran: Called before each test with 0, after it with the seconds that it took.
        """
        items = [self.items[test] for test in tests]
        for item, following in itertools.zip_longest(items, items[1:]):
            ran(item.nodeid, 0.0)
            start = time.process_time()
            reports = runtestprotocol(item, log=False, nextitem=following)
            ran(item.nodeid, time.process_time() - start)
            if any(report.failed for report in reports):
                raised = self._raised
                return Failure(item.nodeid, type(raised).__name__, _is_machine(raised))
        return None


def _is_machine(error: BaseException | None) -> bool:
    return isinstance(error, (MemoryError, InfrastructureError)) or (
        isinstance(error, OSError) and error.errno in _MACHINE
    )


class _Work(Generic[R]):
    """A plugin that does something else where pytest would run the tests."""

    def __init__(self, suites: Suites, work: Callable[[Suites], R]) -> None:
        self._suites = suites
        self._work = work
        self.result: R | None = None
        self.error: BaseException | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            return False
        self._suites.items = {item.nodeid: item for item in session.items}
        try:
            self.result = self._work(self._suites)
        except BaseException as error:  # pytest would turn it into a report of its own fault
            self.error = error
        return True


def with_suites(folders: Sequence[Path], work: Callable[[Suites], R]) -> R:
    """Collect the tests under some folders and return what `work` makes of them.

    Hypothesis neither shrinks nor explains: that a test fails is enough.

    Raises:
        InfrastructureError: Nothing could be collected.
    """
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(PROFILE, PROFILES["dev"], phases=phases, report_multiple_bugs=False)
    suites = Suites()
    plugin = _Work(suites, work)
    options = [
        "-qq",
        "-s",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        f"--hypothesis-profile={PROFILE}",
    ]
    # Standard output is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main([*options, *map(str, folders)], plugins=[suites, plugin])
    if plugin.error is not None:
        raise plugin.error
    if plugin.result is None:
        msg = f"tests must be collected from {', '.join(map(str, folders))} (got pytest's exit code {code})"
        raise InfrastructureError(msg)
    return plugin.result
