"""The record of the device contract on one board: its own kind of document, which no matrix reads."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from aiter_conformance import __version__, documents
from aiter_conformance.device.run import Observed, PlantedFault
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import DEVICE_FOLDER as FOLDER
from aiter_conformance.outcome import Kind
from aiter_conformance.protocols import Subject

SCHEMA = "aiter-conformance/device/1"
KERNELS = "reference"


@dataclass(frozen=True)
class DeviceRecord:
    """What the device contract said of a subject on one board.

    Attributes:
        board: Name of the GPU as torch has it.
        device: What it is: arch, multiprocessors, MiB, driver, CUDA and HIP.
        subject: ``name@version``.
        observed: Day, ``YYYY-MM-DD``.
        harness: Version of the harness.
        commit: Commit of the harness, or ``unknown``.
        environment: Versions of Python, torch and what is below it.
        outcomes: Every check of every variant.
        planted: What the checks said of leaves with a fault.
    """

    board: str
    device: dict[str, Any]
    subject: str
    observed: str
    harness: str
    commit: str
    environment: dict[str, str]
    outcomes: tuple[Observed, ...]
    planted: tuple[PlantedFault, ...]

    @property
    def path(self) -> Path:
        """Where the record is kept, relative to the folder of reports."""
        return Path(FOLDER, re.sub(r"[^a-z0-9]+", "-", self.board.lower()).strip("-") + ".json")

    @property
    def good(self) -> bool:
        """Whether every check passed and every planted fault was caught."""
        return all(o.outcome is Kind.PASS for o in self.outcomes) and all(p.caught for p in self.planted)


def record(
    device: torch.device,
    subject: Subject,
    outcomes: Sequence[Observed],
    planted: Sequence[PlantedFault],
    commit: str | None = None,
) -> DeviceRecord:
    """Return the record of a run on a GPU that has just ended.

    Args:
        device: The GPU.
        subject: What was tested.
        outcomes: What the checks found.
        planted: What they found of faulty leaves.
        commit: Commit of the harness; None asks git.
    """
    properties = torch.cuda.get_device_properties(device)
    return DeviceRecord(
        board=properties.name,
        device={
            "arch": getattr(properties, "gcnArchName", "").partition(":")[0]
            if torch.version.hip
            else f"sm_{properties.major}{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_mib": properties.total_memory >> 20,
            "driver": _driver(),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        },
        subject=f"{subject.name}@{subject.version}",
        observed=dt.date.today().isoformat(),
        harness=__version__,
        commit=commit or _commit(),
        environment=_environment(),
        outcomes=tuple(outcomes),
        planted=tuple(planted),
    )


def _environment() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for distribution in ("torch", "triton", "numpy"):
        try:
            found[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[distribution] = "not installed"
    return {**found, "torch": torch.__version__}


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _driver() -> str:
    """Return the version of the GPU's driver, or ``unknown``."""
    if torch.version.hip:
        module = Path("/sys/module/amdgpu/version")
        return module.read_text().strip() if module.is_file() else "unknown"
    said = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return said.splitlines()[0] if said else "unknown"


def _commit() -> str:
    here = str(Path(__file__).parent)
    commit = _output("git", "-C", here, "rev-parse", "HEAD")
    if not commit:
        return os.environ.get("AITER_CONFORMANCE_COMMIT", "unknown")
    changed = _output("git", "-C", here, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, changed" if changed else commit


def to_json(found: DeviceRecord) -> str:
    """Return the record as text, one line an outcome."""
    return documents.render(
        {
            "schema": SCHEMA,
            "board": found.board,
            "device": found.device,
            "kernels": KERNELS,
            "subject": found.subject,
            "observed": found.observed,
            "harness": found.harness,
            "commit": found.commit,
            "environment": dict(sorted(found.environment.items())),
            "outcomes": [_without_nothing(asdict(outcome)) for outcome in found.outcomes],
            "planted": [_without_nothing(asdict(fault)) for fault in found.planted],
        }
    )


def _without_nothing(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if value is not None}


def from_json(text: str, source: str) -> DeviceRecord:
    """Return the record that a text holds.

    Raises:
        InfrastructureError: It is not one that the schema accepts.
    """
    data = documents.parse(text, schema="device", source=source)
    return DeviceRecord(
        board=data["board"],
        device=data["device"],
        subject=data["subject"],
        observed=data["observed"],
        harness=data["harness"],
        commit=data["commit"],
        environment=data["environment"],
        outcomes=tuple(
            Observed(**{"message": None, **o, "outcome": Kind(o["outcome"])}) for o in data["outcomes"]
        ),
        planted=tuple(
            PlantedFault(**{"message": None, **f, "outcome": Kind(f["outcome"])}) for f in data["planted"]
        ),
    )


def write(found: DeviceRecord, reports: Path) -> Path:
    """Write a record under the folder of reports and return its path.

    Raises:
        InfrastructureError: The record does not survive being written, or the file cannot be written.
    """
    text = to_json(found)
    if from_json(text, "the record to be written") != found:
        msg = "a record of the device contract must survive being written and read"
        raise InfrastructureError(msg)
    target = reports / found.path
    documents.write_text(target, text)
    return target


def load(reports: Path) -> list[DeviceRecord]:
    """Read every record of the device contract, in the order of their boards.

    Raises:
        InfrastructureError: A record is unreadable, or lies where another one belongs.
    """
    found = []
    for file in sorted((reports / FOLDER).glob("*.json")):
        relative = file.relative_to(reports)
        one = from_json(file.read_text(encoding="utf-8"), relative.as_posix())
        if one.path != relative:
            msg = f"the record of {one.path.as_posix()} lies in {relative.as_posix()}: move or delete it"
            raise InfrastructureError(msg)
        found.append(one)
    return found
