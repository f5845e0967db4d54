"""The only executor: runs a level over the cells of each board and returns the evidence."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import platform
from collections.abc import Callable, Collection, Iterable
from importlib import metadata

from aiter_conformance import __version__, factfile
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Evidence, Finding, Level, ReleaseId
from aiter_conformance.levels import declared, inventory
from aiter_conformance.outcome import Outcome
from aiter_conformance.protocols import Subject
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.facts import read_facts
from aiter_conformance.release.tuned import read_tuned

# Variables that change what the code under test does.
VARIABLES = ("AITER_", "VLLM_ROCM_", "GPU_ARCHS", "CU_NUM")

Progress = Callable[[str, int, int], None]


# What needs no GPU and no compiler, in the order in which it is run.
COLLECTED = (Level.DECLARED, Level.CONTRACT, Level.INVENTORY)


def collect(
    subject: Subject,
    release: Release | None = None,
    *,
    levels: Collection[Level] = COLLECTED,
    progress: Progress | None = None,
) -> list[Evidence]:
    """Observe some levels on every arch.

    Args:
        subject: The implementation under test.
        release: The release to look at; None to look at the subject alone.
        levels: Levels of `COLLECTED` to run; what is about a release needs one. Contract needs torch.
        progress: Called with (what is done, how far, of how many) now and then.

    Raises:
        InfrastructureError: A file of the release cannot be read; nothing was observed then.
    """
    cells = load_axes().cells()
    records = []
    if Level.DECLARED in levels:
        records += _per_arch(Level.DECLARED, declared.observe(subject, cells), subject=subject)
    if Level.CONTRACT in levels:
        from aiter_conformance.levels import contract  # brings torch, which the other levels do without

        accepted = contract.accepted(cells)
        outcomes = {}
        for number, cell in enumerate(accepted):
            if progress is not None:
                progress("cells against the contract", number, len(accepted))
            outcomes[cell] = contract.observe_cell(subject, cell)
        shown = sorted({name for o in outcomes.values() for name in o.details.get("differences", [])})
        differences = [Finding("difference", name, subject.differences[name].consequence) for name in shown]
        records += _per_arch(Level.CONTRACT, outcomes, subject=subject, findings=differences)
    if Level.INVENTORY in levels and release is not None:
        advance = None if progress is None else lambda done, total: progress("code objects", done, total)
        contents = inventory.read_contents(release, advance)
        findings = [
            Finding(f.code.value, f"{f.path}:{f.line}" if f.line else f.path, f.message)
            for f in contents.findings
        ]
        observed = inventory.observe(contents, cells)
        records += _per_arch(Level.INVENTORY, observed, release=release, findings=findings)
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


def runnable(levels: Iterable[Level]) -> tuple[list[Level], list[str]]:
    """Return the levels that can be run here, and one sentence for each that cannot."""
    found, missing = [], []
    for level in levels:
        if level is Level.CONTRACT and importlib.util.find_spec("torch") is None:
            missing.append("contract: NOT RUN, it needs torch")
        else:
            found.append(level)
    return found, missing


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
    identity = None if release is None else release_id(release)
    return [
        Evidence(
            level=level,
            board=arch,
            subject=None if subject is None else f"{subject.name}@{subject.version}",
            release=identity,
            observed=dt.date.today().isoformat(),
            harness=__version__,
            environment=environment(),
            outcomes={cell: outcome for cell, outcome in outcomes.items() if cell.arch == arch},
            findings=tuple(homes[arch]),
        )
        for arch in archs
    ]


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
