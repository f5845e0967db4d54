"""The only executor: runs a level over the cells of each board and returns the evidence."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import platform
from collections.abc import Callable, Collection, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path

from aiter_conformance import __version__, factfile
from aiter_conformance import contract as contract_data
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Evidence, Finding, Level, ReleaseId
from aiter_conformance.ledger import HAZARD
from aiter_conformance.levels import declared, inventory
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.protocols import Subject
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.facts import read_facts
from aiter_conformance.release.tuned import read_tuned

# Variables that change what the code under test does.
VARIABLES = ("AITER_", "VLLM_ROCM_", "GPU_ARCHS", "CU_NUM")

Progress = Callable[[str, int, int], None]

# What needs no GPU and no compiler, in the order in which it is run.
COLLECTED = (Level.DECLARED, Level.CONTRACT, Level.REFERENCE, Level.INVENTORY, Level.TRACE, Level.ISA)
# What of it takes a minute at most: the default.
QUICK = (Level.DECLARED, Level.CONTRACT, Level.INVENTORY)
# Packages without which a level cannot be run, each with the extra of this project that brings it.
_TORCH = {"torch": "cpu"}
_TRACER = _TORCH | dict.fromkeys(("pandas", "einops", "psutil", "pybind11"), "trace")
_NEEDS: dict[Level, dict[str, str]] = {
    Level.CONTRACT: _TORCH,
    Level.REFERENCE: _TORCH,
    Level.TRACE: _TRACER,
    Level.ISA: _TRACER | {"numba": "isa", "rocm-llvm-python": "isa"},
}
# What a package is imported as, where that is not its name.
_MODULES = {"rocm-llvm-python": "rocm"}


def collect(
    subject: Subject,
    release: Release | None = None,
    *,
    levels: Collection[Level] = QUICK,
    cache: Path = Path("build", "trace"),
    progress: Progress | None = None,
) -> list[Evidence]:
    """Observe some levels on every arch or board.

    Args:
        subject: The implementation under test.
        release: The release to look at; None to look at the subject alone.
        levels: Levels of `COLLECTED` to run; what is about a release is left out without one.
        cache: Folder that keeps traces, by what they depend on.
        progress: Called with (what is done, how far, of how many) now and then.

    Raises:
        InfrastructureError: A file of the release cannot be read; nothing was observed then.
    """
    tell = progress or (lambda _what, _done, _total: None)
    records = []
    if Level.DECLARED in levels:
        records += _declared(subject)
    if Level.CONTRACT in levels:
        records += _contract(subject, tell)
    if Level.REFERENCE in levels:
        records += _reference(subject, tell)
    if release is not None and {Level.INVENTORY, Level.TRACE, Level.ISA} & set(levels):
        contents = inventory.read_contents(release, lambda done, all_: tell("code objects", done, all_))
        if Level.INVENTORY in levels:
            records += _inventory(release, contents)
        if Level.TRACE in levels:
            records += _trace(subject, release, contents, cache, tell)
        if Level.ISA in levels:
            records += _isa(subject, release, contents, cache, tell)
    return records


def runnable(levels: Iterable[Level]) -> tuple[list[Level], list[str]]:
    """Return the levels that can be run here, and one sentence for each that cannot."""
    found, sentences = [], []
    for level in levels:
        needs = _NEEDS.get(level, {})
        missing = [name for name in needs if importlib.util.find_spec(_MODULES.get(name, name)) is None]
        if missing:
            extras = ",".join(dict.fromkeys(needs[name] for name in missing))
            sentences.append(
                f"{level.value}: NOT RUN, it needs {', '.join(missing)}; "
                f"in a checkout: python -m pip install '.[{extras}]'"
            )
        else:
            found.append(level)
    return found, sentences


def _declared(subject: Subject) -> list[Evidence]:
    return _per_arch(Level.DECLARED, declared.observe(subject, load_axes().cells()), subject=subject)


# The levels below bring torch, which the others do without: they are imported when they are run.


def _contract(subject: Subject, tell: Progress) -> list[Evidence]:
    from aiter_conformance.checks import hazards
    from aiter_conformance.levels import contract

    outcomes = _cell_by_cell("cells against the contract", contract.observe_cell, subject, tell)
    shown = sorted({name for o in outcomes.values() for name in o.details.get("differences", [])})
    findings = [Finding("difference", name, subject.differences[name].consequence) for name in shown]
    findings += [Finding(HAZARD, name, seen) for name, seen in hazards.observe_hazards(subject).items()]
    return _per_arch(Level.CONTRACT, outcomes, subject=subject, findings=findings)


def _reference(subject: Subject, tell: Progress) -> list[Evidence]:
    from aiter_conformance.levels import reference

    outcomes = _cell_by_cell("cells against the oracle", reference.observe_cell, subject, tell)
    return _per_arch(Level.REFERENCE, outcomes, subject=subject)


def _cell_by_cell(
    what: str, observe_cell: Callable[[Subject, Cell], Outcome], subject: Subject, tell: Progress
) -> dict[Cell, Outcome]:
    """Observe every cell that the contract accepts; the others have no call to look at."""
    accepted = [c for c in load_axes().cells() if contract_data.declaration(c).kind is Kind.PASS]
    outcomes = {}
    for number, cell in enumerate(accepted):
        tell(what, number, len(accepted))
        outcomes[cell] = observe_cell(subject, cell)
    return outcomes


def _inventory(release: Release, contents: inventory.Contents) -> list[Evidence]:
    findings = [
        Finding(f.code.value, f"{f.path}:{f.line}" if f.line else f.path, f.message)
        for f in contents.findings
    ]
    outcomes = inventory.observe(contents, load_axes().cells())
    return _per_arch(Level.INVENTORY, outcomes, release=release, findings=findings)


def _trace(
    subject: Subject, release: Release, contents: inventory.Contents, cache: Path, tell: Progress
) -> list[Evidence]:
    from aiter_conformance.levels import trace
    from aiter_conformance.trace.board import all_boards

    records = []
    boards = all_boards()
    for number, board in enumerate(boards):
        tell("boards traced", number, len(boards))
        seen = trace.observe(
            release, board, load_axes().cells(), cache, inventory=contents.inventory, tuned=contents.tuned
        )
        findings = [Finding(cause.code.value, str(board), cause.message) for cause in seen.causes]
        records.append(
            _record(
                Level.TRACE, str(board), seen.outcomes, subject=subject, release=release, findings=findings
            )
        )
    return records


def _isa(
    subject: Subject, release: Release, contents: inventory.Contents, cache: Path, tell: Progress
) -> list[Evidence]:
    from aiter_conformance.isa.arch import ARCHES
    from aiter_conformance.levels import isa
    from aiter_conformance.trace.board import all_boards

    records = []
    for board in (board for board in all_boards() if board.arch in ARCHES):
        cells = [cell for cell in load_axes().cells() if cell.arch == board.arch]
        outcomes = isa.observe(
            subject,
            release,
            board,
            cells,
            runs=cache,
            code=cache.parent / "isa",
            inventory=contents.inventory,
            tuned=contents.tuned,
            progress=partial(tell, f"cells emulated on {board}"),
        )
        records.append(
            _record(Level.ISA, str(board), outcomes, subject=subject, release=release, findings=())
        )
    return records


def collect_facts(release: Release) -> factfile.FactFile:
    """Read the facts of a release.

    Raises:
        InfrastructureError: A file of the release cannot be read.
    """
    return factfile.FactFile(
        release=release_id(release),
        observed=dt.date.today().isoformat(),
        harness=__version__,
        facts=factfile.flat_facts(read_facts(release), read_tuned(release)),
    )


def release_id(release: Release) -> ReleaseId:
    """Return what records say of an open release."""
    return ReleaseId(release.version, release.identity, release.kind.value)


def _per_arch(
    level: Level,
    outcomes: dict[Cell, Outcome],
    *,
    subject: Subject | None = None,
    release: Release | None = None,
    findings: Iterable[Finding] = (),
) -> list[Evidence]:
    """Split what was observed into one record for each arch.

    A finding goes to the arch whose folder it is in; one about all of them goes to the first.
    """
    archs = list(load_axes().archs)
    homes: dict[str, list[Finding]] = {arch: [] for arch in archs}
    for finding in findings:
        homes[next((arch for arch in archs if f"/{arch}/" in finding.path), archs[0])].append(finding)
    return [
        _record(
            level,
            arch,
            {cell: outcome for cell, outcome in outcomes.items() if cell.arch == arch},
            subject=subject,
            release=release,
            findings=homes[arch],
        )
        for arch in archs
    ]


def _record(
    level: Level,
    board: str,
    outcomes: dict[Cell, Outcome],
    *,
    subject: Subject | None,
    release: Release | None,
    findings: Iterable[Finding],
) -> Evidence:
    return Evidence(
        level=level,
        board=board,
        subject=None if subject is None else f"{subject.name}@{subject.version}",
        release=None if release is None else release_id(release),
        observed=dt.date.today().isoformat(),
        harness=__version__,
        environment=environment(),
        outcomes=outcomes,
        findings=tuple(findings),
    )


def environment() -> dict[str, str]:
    """Return what an observation runs in: versions, and the variables that change the code under test."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for distribution in ("torch", "amd-aiter"):
        try:
            found[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[distribution] = "not installed"
    for name, value in os.environ.items():
        if name.startswith(VARIABLES) and not name.startswith("AITER_CONFORMANCE_"):
            found[name] = "(a path)" if "/" in value else value  # records hold no path of a machine
    return found
