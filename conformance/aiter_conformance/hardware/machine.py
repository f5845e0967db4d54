"""The machine that hardware evidence is about: one kind of board, ROCm, driver, torch and AITER."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from aiter_conformance.axes import load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.trace.board import Board

_PROBE_SECONDS = 120


@dataclass(frozen=True)
class Machine:
    """A machine with GPUs of one kind.

    Attributes:
        board: Arch and number of compute units.
        gpus: How many there are.
        name: Product name of the GPU.
        memory: Bytes of memory of one.
        clock: Highest clock of its CUs in Hz; 0 where torch does not say.
        versions: Of python, torch, hip, rocm, driver and aiter, and the build arch list.
        simulated: Whether there is no GPU at all: a stand-in that tests the harness.
    """

    board: Board
    gpus: int
    name: str
    memory: int
    clock: int
    versions: dict[str, str]
    simulated: bool

    def environment(self) -> dict[str, str]:
        """Return what evidence records of the machine."""
        found = dict(self.versions) | {"gpu": self.name, "gpu_memory": str(self.memory)}
        return found | ({"simulated": "yes"} if self.simulated else {})

    def device_variables(self, index: int) -> dict[str, str]:
        """Return the environment variable that shows a worker one GPU alone."""
        # HIP takes the first of the two that is set.
        visible = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES") or ""
        shown = [name for name in visible.split(",") if name] or [str(i) for i in range(self.gpus)]
        return {"HIP_VISIBLE_DEVICES": shown[index]}


def find_machine() -> Machine:
    """Return the machine that this process runs on.

    Raises:
        InfrastructureError: NOT RUN and why: no GPU, no ROCm torch, no AITER, GPUs of several kinds, an arch
            that is not in the matrix, or a probe that died or hung.
    """
    return read_machine(_probe())


def _probe() -> dict[str, Any]:
    command = [sys.executable, "-m", "aiter_conformance.hardware.probe"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        msg = f"NOT RUN: looking for GPUs took more than {_PROBE_SECONDS} s: the driver may hang"
        raise InfrastructureError(msg) from error
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["it said nothing"])[-1]
        msg = f"NOT RUN: the process that looks for GPUs ended with {run.returncode}: {last}"
        raise InfrastructureError(msg)
    # Libraries may print before it: the answer is the last line.
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


def read_machine(found: dict[str, Any]) -> Machine:
    """Return the machine that the probe's answer describes.

    Raises:
        InfrastructureError: NOT RUN and why, see `find_machine`.
    """
    if found["missing"]:
        msg = "NOT RUN: " + "; ".join(found["missing"])
        raise InfrastructureError(msg)
    kinds = sorted({(gpu["arch"], gpu["units"]) for gpu in found["gpus"]})
    if len(kinds) != 1:
        seen = ", ".join(f"{arch}:{units}" for arch, units in kinds)
        msg = f"NOT RUN: the GPUs must be of one kind (got {seen}): choose with HIP_VISIBLE_DEVICES"
        raise InfrastructureError(msg)
    arch, units = kinds[0]
    if arch not in load_axes().archs:
        msg = f"NOT RUN: the GPU's arch must be one of {', '.join(load_axes().archs)} (got {arch})"
        raise InfrastructureError(msg)
    named = ("python", "torch", "hip", "rocm", "driver", "aiter", "build_archs")
    return Machine(
        board=Board(arch, units),
        gpus=len(found["gpus"]),
        name=found["gpus"][0]["name"],
        memory=found["gpus"][0]["memory"],
        clock=found["gpus"][0]["clock"],
        versions={name: str(found[name]) for name in named},
        simulated=found["simulated"],
    )
