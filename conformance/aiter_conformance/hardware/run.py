"""One run of level hardware: machine and plan in, journal and evidence out."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiter_conformance import __version__, evidence
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Evidence, Finding, Level
from aiter_conformance.hardware import schedule
from aiter_conformance.hardware.attempts import decide
from aiter_conformance.hardware.contract import Contract, device_contract
from aiter_conformance.hardware.expect import modelled_expected, trace_expected
from aiter_conformance.hardware.items import Item, Tier, needed, plan
from aiter_conformance.hardware.journal import Journal
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.hardware.process import Limits
from aiter_conformance.hardware.roofline import time_of_cell
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.levels.hardware import Ledger, cell_outcome
from aiter_conformance.models import Model
from aiter_conformance.outcome import Outcome
from aiter_conformance.protocols import Subject
from aiter_conformance.release.artefact import Release, open_release
from aiter_conformance.runner import environment, release_id
from aiter_conformance.simulated_rocm import SITE


@dataclass(frozen=True)
class Request:
    """What is to be run.

    Attributes:
        cells: The cells; those of other archs are left out.
        tier: How much of each.
        models: Models whose layers are run besides.
        shard: (i, n): the i-th of n parts.
        resume: Whether a journal is gone on with.
        limits: How long workers may take.
        seconds: Time after which nothing is started; None for the tier's own.
        contract: Whether the device contract comes first.
    """

    cells: tuple[Cell, ...]
    tier: Tier = Tier.CELL
    models: tuple[Model, ...] = ()
    shard: tuple[int, int] = (1, 1)
    resume: bool = False
    limits: Limits = field(default_factory=Limits)
    seconds: float | None = None
    contract: bool = True


@dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
        record: The evidence.
        path: The file that holds it.
        outcomes: The outcome of every input of the plan that has one.
        planned: How many inputs there are in the plan.
        contract: What came of the device contract; None where it was not run.
    """

    record: Evidence
    path: Path
    outcomes: dict[Item, Outcome]
    planned: int
    contract: Contract | None = None


@dataclass(frozen=True)
class Prepared:
    """A run that can begin.

    Attributes:
        groups: What is to be run, one group a cell.
        work: How.
        write: Writes the evidence of what the journal holds, and returns what there is so far.
    """

    groups: list[list[Item]]
    work: schedule.Work
    write: Callable[[], Result]


@contextmanager
def prepared(
    request: Request,
    machine: Machine,
    subject: Subject,
    release: Release,
    folder: Path,
    reports: Path,
    tell: schedule.Tell,
    *,
    gpus: Sequence[int] | None = None,
    traces: Path | None = None,
) -> Iterator[Prepared]:
    """Plan a run, trace what it must launch, and open its journal.

    Args:
        request: What is to be run.
        machine: Where.
        subject: The implementation.
        release: The AITER of this Python.
        folder: Folder of the run: its journal and the logs of its workers.
        reports: Folder of evidence.
        tell: Told what happens.
        gpus: Numbers of the machine's GPUs that are used; None for all.
        traces: Folder that keeps traces; None for one in `folder`.

    Raises:
        UsageError: The folder has a journal that is not to be, or cannot be, gone on with.
        InfrastructureError: A file cannot be read or written.
    """
    used = range(machine.gpus) if gpus is None else gpus
    cells = [cell for cell in request.cells if cell.arch == machine.board.arch]
    groups = plan(cells, request.tier, models=request.models, shard=request.shard)
    items = [item for group in groups for item in group]
    journal = Journal(folder / "journal.jsonl", _about(machine, subject, release), resume=request.resume)
    ledger = Ledger(load_ledger(), release.version, str(machine.board))
    try:
        if machine.simulated:
            expected, untraced = modelled_expected(items), None
        else:
            expected, untraced = trace_expected(release, machine.board, items, traces or folder / "trace")
        if untraced is not None:
            tell(f"kernels are not compared with a trace: {untraced}")
        work = schedule.Work(
            subject=subject.name,
            aiter=release.version,
            device=worker_device(machine),
            gpus=[worker_variables(machine, index) for index in used],
            journal=journal,
            logs=folder / "logs",
            limits=request.limits,
            expected=expected,
            quarantined={str(item): why for item in items if (why := ledger.quarantine(item)) is not None},
            tell=tell,
        )

        def write() -> Result:
            outcomes = _outcomes(items, journal)
            record = _record(groups, outcomes, machine, subject, release, ledger)
            return Result(record, evidence.write(record, reports), outcomes, len(items))

        yield Prepared(groups, work, write)
    finally:
        journal.close()


def run(
    request: Request,
    machine: Machine,
    subject: Subject,
    release: Release,
    folder: Path,
    reports: Path,
    tell: schedule.Tell,
) -> Result:
    """Run what is asked for and return what came of it; the evidence is rewritten after each cell.

    See `prepared` for arguments and errors.
    """
    with prepared(request, machine, subject, release, folder, reports, tell) as ready:
        contract = None
        if request.contract:
            contract = device_contract(request.tier, machine, subject.name, folder)
            tell(f"device contract: {contract.kind.value}: {contract.message}")
        schedule.build(ready.groups, ready.work)
        seconds = request.tier.seconds if request.seconds is None else request.seconds
        schedule.run(ready.groups, ready.work, seconds=seconds, finished=_told(ready))
        return replace(ready.write(), contract=contract)


def _told(ready: Prepared) -> Callable[[Sequence[Item]], None]:
    def finished(group: Sequence[Item]) -> None:
        ready.write()
        journal = ready.work.journal
        decided = [outcome for item in group if (outcome := decide(journal.of(str(item)))) is not None]
        passed = sum(outcome.kind.value == "pass" for outcome in decided)
        ready.work.tell(f"{group[0].case.cell}: {passed} of {len(group)} passed")

    return finished


def open_aiter(machine: Machine) -> Release:
    """Open the AITER that workers import: the one that is installed, or the simulated one."""
    return open_release(str(SITE) if machine.simulated else "installed")


def worker_device(machine: Machine) -> str:
    """Return the torch device that workers use."""
    return "cpu" if machine.simulated else "cuda"


def worker_variables(machine: Machine, index: int) -> Mapping[str, str]:
    """Return the environment variables of the worker on one GPU."""
    shown = machine.device_variables(index)
    if not machine.simulated:
        return shown
    paths = [str(SITE), os.environ.get("PYTHONPATH", "")]
    return {**shown, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _about(machine: Machine, subject: Subject, release: Release) -> dict[str, object]:
    return {
        "journal": 1,
        "board": str(machine.board),
        "machine": machine.environment(),
        "release": release.version,
        "identity": release.identity,
        "subject": f"{subject.name}@{subject.version}",
        "harness": __version__,
    }


def _outcomes(items: Sequence[Item], journal: Journal) -> dict[Item, Outcome]:
    decided = ((item, decide(journal.of(str(item)))) for item in items)
    return {item: outcome for item, outcome in decided if outcome is not None}


def _record(
    groups: Sequence[Sequence[Item]],
    outcomes: Mapping[Item, Outcome],
    machine: Machine,
    subject: Subject,
    release: Release,
    ledger: Ledger,
) -> Evidence:
    by_cell = {}
    for group in groups:
        ran = {item: outcomes[item] for item in group if item in outcomes}
        if ran:  # a cell that nothing was seen of is left out
            cell = group[0].case.cell
            outcome = cell_outcome(needed(cell), ran, ledger)
            if (took := time_of_cell(ran, machine)) is not None:
                outcome = replace(outcome, details=outcome.details | {"time": took})
            by_cell[cell] = outcome
    order = {cell: number for number, cell in enumerate(load_axes().cells())}
    return Evidence(
        level=Level.HARDWARE,
        board=str(machine.board),
        subject=f"{subject.name}@{subject.version}",
        release=release_id(release),
        observed=dt.date.today().isoformat(),
        harness=__version__,
        environment=environment() | machine.environment(),
        outcomes=dict(sorted(by_cell.items(), key=lambda pair: order[pair[0]])),
        findings=_findings(outcomes),
    )


def _findings(outcomes: Mapping[Item, Outcome]) -> tuple[Finding, ...]:
    """Return where AITER's own shuffles pack otherwise than the harness, once a scheme."""
    found = {}
    for item, outcome in outcomes.items():
        for name in outcome.details.get("layout_differs", ()):
            scheme = item.case.cell.scheme
            message = (
                f"AITER packs {name} of {scheme} otherwise than the harness; the kernels were given AITER's"
            )
            found[scheme, name] = Finding("layout-differs", "aiter/ops/shuffle.py", message)
    return tuple(found.values())
