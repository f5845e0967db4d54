"""Simulated ROCm runners, and one run of faults that most tests look at: each worker is a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
    """What came of inputs on a simulated runner, each known by its number of tokens."""

    def __init__(self, journal: Journal, items: Sequence[Item], said: list[str]) -> None:
        self.said = said
        self._journal = journal
        self._items = {item.case.tokens: item for item in items}

    def attempts(self, tokens: int) -> list[Attempt]:
        """Return the attempts at the input with so many tokens."""
        return self._journal.of(str(self._items[tokens]))


Simulate = Callable[..., Run]


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Run inputs of a cell, one for each number of tokens, on a simulated runner with faults."""

    def run(
        *faults: Fault,
        tokens: Sequence[int],
        cell: str = "gfx942/bf16/silu/out",
        name: str = "tokens",
        build: bool = False,
        quarantined: Sequence[int] = (),
        limits: Limits = LIMITS,
    ) -> Run:
        folder: Path = tmp_path_factory.mktemp("simulated")
        plan = Plan(state=str(folder / "state"), faults=faults)
        model = next(i for i in needed(load_axes().parse_cell(cell)) if i.name == name)
        items = [replace(model, case=replace(model.case, tokens=number)) for number in tokens]
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
def broken(simulate: Simulate) -> Run:
    """One run with every fault of a call; the input of 12 tokens is quarantined, that of 13 is sound."""
    return simulate(
        # One input ends its worker in three ways: no further process is needed.
        Fault("device-fault", tokens=1, times=1),
        Fault("hang", tokens=1, times=1, after=1),
        Fault("segfault", tokens=1, times=1, after=2),
        Fault("lie", tokens=3),
        Fault("lie", tokens=4, times=1),
        Fault("write-weights", tokens=5),
        Fault("nan", tokens=7),
        Fault("out-of-memory", tokens=8),
        Fault("raise", tokens=9),
        Fault("other-kernel", tokens=10),
        Fault("say-nothing", tokens=11),
        Fault("abort", tokens=12),
        tokens=(3, 4, 5, 7, 8, 9, 10, 11, 12, 1, 13),
        quarantined=[12],
        limits=Limits(start=120, item=20),
    )
