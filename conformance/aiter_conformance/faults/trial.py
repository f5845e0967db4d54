"""What becomes of a variant under the suites."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aiter_conformance.faults.collected import Failure, Suites
from aiter_conformance.faults.patching import put_in_place
from aiter_conformance.faults.pool import Ended, run_forked
from aiter_conformance.faults.reach import Reach
from aiter_conformance.faults.variant import Variant

Verdict = Literal["caught", "timeout", "crash", "survived", "error"]

# More than these would cost more than they save.
_TRIED_FIRST: Final = 20
# Signals by which a process dies of its own doing. Any other, such as the one that comes when memory runs
# out, is the machine's.
_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL})


@dataclass(frozen=True, slots=True)
class Trial:
    """A variant and what became of it.

    ``caught``, ``timeout`` and ``crash`` all mean that the suites noticed: a test failed, did not come to an
    end, or took the process down, and nobody's continuous integration is green then. ``survived``: every test
    that reaches the change passed. ``error``: the machine or the harness failed, so nothing is known.

    Attributes:
        variant: The variant.
        verdict: See above.
        by: The test that caught it; otherwise what happened, for ``survived`` how many tests passed.
    """

    variant: Variant
    verdict: Verdict
    by: str

    @property
    def noticed(self) -> bool:
        """Whether the suites noticed."""
        return self.verdict in ("caught", "timeout", "crash")


def try_variants(
    suites: Suites, reach: Reach, variants: Sequence[Variant], workers: int, grace: float
) -> Iterator[Trial]:
    """Yield what becomes of each variant, in the order in which that is known.

    Tests that caught the last faults of a module go first: its next fault mostly falls to one of them, while
    a change in a table that all tests import can pass hundreds before one looks at it. So the test that is
    named may be another one when faults are tried again; whether there is one does not depend on the order.

    Args:
        suites: The tests.
        reach: What they reach and take.
        variants: What to try.
        workers: How many processes at a time.
        grace: Seconds of processor time that the tests of a variant may take beyond three times what they
            take without a fault.
    """
    caught_last: defaultdict[str, list[str]] = defaultdict(list)

    def work(variant: Variant) -> Failure | None:
        put_in_place(variant)
        tests = dict.fromkeys(reach.tests_of(variant))
        first = [test for test in caught_last[variant.module] if test in tests]
        return suites.run(list(dict.fromkeys([*first, *tests])))

    def limit(variant: Variant) -> float:
        return grace + 3 * sum(reach.seconds[test] for test in reach.tests_of(variant))

    for variant, ended in run_forked(work, variants, workers=workers, limit=limit):
        if ended.value is not None:
            others = [test for test in caught_last[variant.module] if test != ended.value.test]
            caught_last[variant.module] = [ended.value.test, *others][:_TRIED_FIRST]
        yield _trial(variant, ended, len(reach.tests_of(variant)))


def _trial(variant: Variant, ended: Ended[Failure | None], tests: int) -> Trial:
    failure = ended.value
    if ended.error == "timeout":
        return Trial(variant, "timeout", "its tests did not end")
    if ended.error:
        verdict: Verdict = "crash" if ended.signal in _CRASHES else "error"
        return Trial(variant, verdict, ended.error)
    if failure is None:
        return Trial(variant, "survived", f"{tests} tests passed")
    return Trial(variant, "error" if failure.is_machine else "caught", f"{failure.test} ({failure.error})")
