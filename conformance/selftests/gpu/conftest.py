"""Simulated ROCm runners, and one run of faults that several tests look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aiter_conformance.axes import load_axes
from aiter_conformance.hardware import schedule
from aiter_conformance.hardware.attempts import Attempt
from aiter_conformance.hardware.expect import modelled_expected
from aiter_conformance.hardware.items import Item, needed
from aiter_conformance.hardware.journal import Journal
from aiter_conformance.hardware.process import Limits
from aiter_conformance.simulated_rocm import SITE, VERSION
from aiter_conformance.simulated_rocm.plan import Fault, Plan

# A worker's own work takes a second; a busy machine needs more.
LIMITS = Limits(start=120, item=60, build=60)


class Run:
    """What came of inputs on a simulated runner."""

    def __init__(self, journal: Journal, items: Sequence[Item], said: list[str]) -> None:
        self.items = list(items)
        self.said = said
        self._journal = journal

    def attempts(self, tokens: int, hidden: int = 256) -> list[Attempt]:
        """Return the attempts at the first input with so many tokens and this hidden size."""
        item = next(i for i in self.items if (i.case.tokens, i.case.hidden) == (tokens, hidden))
        return self._journal.of(str(item))


Simulate = Callable[..., Run]


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Run the first inputs of a cell on a simulated runner with faults."""

    def run(
        *faults: Fault,
        cell: str = "gfx942/bf16/silu/out",
        first: int = 6,
        only: str | None = None,
        build: bool = False,
        quarantined: Sequence[int] = (),
        limits: Limits = LIMITS,
    ) -> Run:
        folder: Path = tmp_path_factory.mktemp("simulated")
        plan = Plan(state=str(folder / "state"), faults=faults)
        items = [i for i in needed(load_axes().parse_cell(cell)) if only in (None, i.name)][:first]
        journal, said = Journal(folder / "journal.jsonl", {}), list[str]()
        work = schedule.Work(
            subject="impl",
            aiter=VERSION,
            device="cpu",
            gpus=[{**plan.variables(), "PYTHONPATH": str(SITE)}],
            journal=journal,
            logs=folder / "logs",
            limits=limits,
            expected=modelled_expected(items),
            quarantined={str(i): "The ledger says so." for i in items if i.case.tokens in quarantined},
            tell=said.append,
        )
        if build:
            schedule.build([items], work)
        schedule.run([items], work)
        journal.close()
        return Run(journal, items, said)

    return run


@pytest.fixture(scope="session")
def deadly(simulate: Simulate) -> Run:
    """A run with a fault that kills, one that hangs once, a lie, a rare lie and a spoilt weight."""
    return simulate(
        Fault("segfault", tokens=1),
        Fault("hang", tokens=33, times=1),
        Fault("lie", tokens=37),
        Fault("lie", tokens=20, times=1),
        Fault("write-weights", hidden=512),
        limits=Limits(start=120, item=20),
    )


@pytest.fixture(scope="session")
def troubled(simulate: Simulate) -> Run:
    """A run with faults that the process survives, and one that the device does not."""
    return simulate(
        Fault("device-fault", tokens=1),
        Fault("nan", tokens=17, hidden=256),
        Fault("out-of-memory", tokens=33),
        Fault("raise", tokens=37),
        Fault("other-kernel", tokens=20),
        Fault("say-nothing", hidden=512),
    )
