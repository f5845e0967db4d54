"""What a simulated runner is told: its board, and which calls of its AITER go wrong, and how."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from aiter_conformance.errors import UsageError
from aiter_conformance.hardware.probe import SIMULATION

Deed = Literal[
    "lie",  # one element of one row is wrong
    "nan",  # one element is NaN
    "write-weights",  # a weight is changed
    "segfault",
    "abort",
    "hang",
    "out-of-memory",
    "device-fault",  # HIP reports an illegal access
    "raise",
    "build-fails",
    "other-kernel",  # right numbers, by a kernel of another family
    "say-nothing",  # right numbers, and no word of the kernels
    "drop-argument",  # the signature has no bias1 and bias2 any more
    "import-dies",  # the import of the package kills the process
]


@dataclass(frozen=True, slots=True)
class Fault:
    """Which calls go wrong, and how.

    Attributes:
        do: What happens.
        tokens: Only calls with so many tokens; None for any.
        hidden: Only calls with this hidden size; None for any.
        times: Only the first so many of these calls, over all processes; 0 for all.
        after: Not the first so many of these calls.
    """

    do: Deed
    tokens: int | None = None
    hidden: int | None = None
    times: int = 0
    after: int = 0

    def __post_init__(self) -> None:
        if self.do not in get_args(Deed):
            msg = f"a fault must be one of {', '.join(get_args(Deed))} (got {self.do!r})"
            raise UsageError(msg)


@dataclass(frozen=True)
class Plan:
    """A simulated runner.

    Attributes:
        arch: Its GPUs' arch.
        units: Their compute units.
        gpus: How many there are.
        faults: What goes wrong.
        state: Folder that counts calls over all processes.
    """

    state: str
    arch: str = "gfx942"
    units: int = 304
    gpus: int = 1
    faults: tuple[Fault, ...] = ()

    def variables(self) -> dict[str, str]:
        """Return the environment variable that makes a process, and those it starts, simulated."""
        board = {"arch": self.arch, "units": self.units}
        faults = [asdict(fault) for fault in self.faults]
        return {
            SIMULATION: json.dumps({"board": board, "gpus": self.gpus, "faults": faults, "state": self.state})
        }

    def happens(self, index: int, tokens: int, hidden: int) -> bool:
        """Return whether a fault strikes a call; asking counts the call."""
        fault = self.faults[index]
        if fault.tokens not in (None, tokens) or fault.hidden not in (None, hidden):
            return False
        if not fault.times and not fault.after:
            return True
        counter = Path(self.state, f"fault-{index}")
        counter.parent.mkdir(parents=True, exist_ok=True)
        with counter.open("ab") as file:
            file.write(b".")
        number = counter.stat().st_size
        return number > fault.after and (not fault.times or number <= fault.after + fault.times)


def current_plan() -> Plan:
    """Return the plan of this process.

    Raises:
        UsageError: It is not simulated, or a fault is not a known one.
    """
    text = os.environ.get(SIMULATION)
    if not text:
        msg = f"the simulated AITER must be told a plan by {SIMULATION} (it is not set)"
        raise UsageError(msg)
    data = json.loads(text)
    faults = tuple(Fault(**fault) for fault in data.get("faults", ()))
    return Plan(data["state"], data["board"]["arch"], data["board"]["units"], data.get("gpus", 1), faults)
