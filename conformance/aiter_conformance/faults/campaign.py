"""All faults, one after another: what is tried, and whether the suites are as good as they have to be."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.faults.collected import Suites
from aiter_conformance.faults.patching import check_not_imported
from aiter_conformance.faults.reach import measure
from aiter_conformance.faults.survivors import stale
from aiter_conformance.faults.trial import Trial, try_variants
from aiter_conformance.faults.variant import Variant

# At least so much of what is generated must be caught.
KILLED: Final = 0.95
_TOLD: Final = 250


@dataclass(frozen=True)
class Outcome:
    """What became of all faults.

    Attributes:
        planted: Of those planted by hand.
        mutants: Of the generated ones.
        unlisted: Mutants that survived and are not listed.
        stale: Listed mutants that are caught, or no longer generated.
        seconds: On the clock: without a fault, for the planted ones, for the mutants.
    """

    planted: Sequence[Trial]
    mutants: Sequence[Trial]
    unlisted: Sequence[str]
    stale: Sequence[str]
    seconds: Sequence[float]

    @property
    def killed(self) -> float:
        """The part of the mutants that was noticed; 1 when there are none."""
        return sum(t.noticed for t in self.mutants) / len(self.mutants) if self.mutants else 1.0

    @property
    def is_good(self) -> bool:
        """Whether the suites are as good as they have to be."""
        caught = all(trial.noticed for trial in self.planted)
        return caught and self.killed >= KILLED and not self.unlisted and not self.stale


def try_all(
    suites: Suites,
    package: str,
    planted: Sequence[Variant],
    mutants: Sequence[Variant],
    listed: Mapping[str, str],
    workers: int,
    grace: float,
    say: Callable[[str], None],
) -> Outcome:
    """Try faults and mutants.

    Args:
        suites: The tests.
        package: The package under test, which must not be imported yet.
        planted: Faults planted by hand.
        mutants: Generated ones.
        listed: Mutants that may survive, with their reasons.
        workers: Processes at a time.
        grace: See `try_variants`.
        say: Told what is going on.

    Raises:
        InfrastructureError: A test fails without a fault, or a fault could not be tried.
    """
    check_not_imported(package)
    clock = [time.monotonic()]
    say(f"running {len(suites.items)} tests without a fault")
    reach = measure(suites, package, workers)
    clock.append(time.monotonic())
    trials = []
    for what, variants in (("faults", planted), ("mutants", mutants)):
        say(f"planting {len(variants)} {what}")
        tried = _told(try_variants(suites, reach, variants, workers, grace), len(variants), say)
        trials.append(_ordered(variants, tried))
        clock.append(time.monotonic())
    survived = [trial.variant.id for trial in trials[1] if trial.verdict == "survived"]
    modules = {mutant.module for mutant in mutants}
    return Outcome(
        planted=trials[0],
        mutants=trials[1],
        unlisted=[mutant for mutant in survived if mutant not in listed],
        stale=stale(listed, trials[1], modules),
        seconds=[after - before for before, after in itertools.pairwise(clock)],
    )


def _told(trials: Iterator[Trial], total: int, say: Callable[[str], None]) -> Iterator[Trial]:
    """Say what survives, and now and then how far it is."""
    for done, trial in enumerate(trials, 1):
        if not trial.noticed:
            say(f"{trial.verdict}: {trial.variant.id} ({trial.by})")
        if done % _TOLD == 0 and done < total:
            say(f"{done} of {total}")
        yield trial


def _ordered(variants: Sequence[Variant], trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials in the order of their variants, once none of them is the machine's failure."""
    by_id = {trial.variant.id: trial for trial in trials}
    failed = [trial for trial in by_id.values() if trial.verdict == "error"]
    if failed:
        first = failed[0]
        msg = (
            f"{len(failed)} of {len(variants)} faults could not be tried, which shows nothing: "
            f"{first.variant.id}: {first.by}; free memory or disk, or repair the harness, and run it again"
        )
        raise InfrastructureError(msg)
    return [by_id[variant.id] for variant in variants]
