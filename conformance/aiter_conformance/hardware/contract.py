"""The device contract beside a run: in a process of its own, since it opens the GPU and may die.

``python -m aiter_conformance.hardware.contract TIER SUBJECT REPORTS`` is that process: it prints JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiter_conformance.hardware.items import Tier
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.hardware.trouble import sentence
from aiter_conformance.outcome import Kind

# What takes most of the time: compilers, and a thousand calls. Tier smoke leaves it out.
_COMPILED: Final = frozenset({"compile", "operator"})
_SMOKE_CALLS: Final = 100
_SECONDS: Final = {Tier.SMOKE: 300.0, Tier.CELL: 1800.0, Tier.FULL: 1800.0}


@dataclass(frozen=True)
class Contract:
    """What came of the device contract.

    Attributes:
        kind: pass; fail where a check does not hold; crash or timeout of its process; not_run where no check
            gave a result.
        message: The same as a sentence.
        wrong: Each check that does not hold, a sentence.
        record: The record of the board, or None: a simulated runner and a process that died have none.
    """

    kind: Kind
    message: str
    wrong: tuple[str, ...] = ()
    record: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; the record by its name."""
        record = None if self.record is None else self.record.name
        return {
            "outcome": self.kind.value,
            "message": self.message,
            "wrong": list(self.wrong),
            "record": record,
        }


def device_contract(
    tier: Tier, machine: Machine, subject: str, folder: Path, *, seconds: float | None = None
) -> Contract:
    """Run the device contract on the first GPU, and write the record of its board below ``folder/reports``.

    Nothing of AITER takes part, and no cell rests on it.

    Args:
        tier: ``smoke`` leaves out what compiles, and makes 100 calls for the check ``memory``, not 1000.
        machine: Where. A simulated one runs what a CPU can show, and writes no record.
        subject: Name of the subject.
        folder: Folder of the run: its reports, and its logs.
        seconds: After this time the process is killed; None for the tier's own.
    """
    patience = _SECONDS[tier] if seconds is None else seconds
    command = [sys.executable, "-m", "aiter_conformance.hardware.contract", tier.value, subject]
    log = folder / "logs" / "device.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # A GPU that happens to be where a runner is simulated is none of it.
    hidden = {"HIP_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"}
    variables = hidden if machine.simulated else machine.device_variables(0)
    with log.open("wb") as output:
        try:
            run = subprocess.run(
                [*command, str(folder / "reports")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, **variables},
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Contract(Kind.TIMEOUT, f"it did not end within {patience:g} s and was killed")
    # Libraries may print before it: the answer is the last line.
    lines = run.stdout.decode("utf-8", "replace").strip().splitlines()
    if run.returncode or not lines:
        last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1]
        return Contract(Kind.CRASH, f"its process ended with {run.returncode}: {sentence(last)}")
    return read_answer(json.loads(lines[-1]), folder)


def read_answer(answer: dict[str, Any], folder: Path) -> Contract:
    """Return what the answer of `main` says.

    Args:
        answer: What it printed.
        folder: Folder of the run.
    """
    kinds = [Kind(outcome["kind"]) for outcome in answer["outcomes"]]
    wrong = tuple(
        f"{outcome['variant']}, {outcome['check']}: {outcome['message']}"
        for outcome in answer["outcomes"]
        if outcome["kind"] == Kind.FAIL
    )
    held, left = kinds.count(Kind.PASS), kinds.count(Kind.NOT_RUN)
    kind = Kind.FAIL if wrong else Kind.PASS if held else Kind.NOT_RUN
    message = f"{held} of {len(kinds)} checks hold on {answer['board']}, {left} did not run"
    record = None if answer["record"] is None else folder / "reports" / answer["record"]
    return Contract(kind, message, wrong, record)


def main(tier: Tier, name: str, reports: Path) -> None:
    """Run the checks of a tier on the device that this process sees and print what came of them."""
    from aiter_conformance import subjects
    from aiter_conformance.device import record as records
    from aiter_conformance.device.call import default_device
    from aiter_conformance.device.checks import CALLS, make_checks
    from aiter_conformance.device.run import run_device_contract

    where, subject = default_device(), subjects.load_subject(name)
    smoke = tier is Tier.SMOKE
    left_out = _COMPILED if smoke else frozenset[str]()
    if smoke and where.type == "cpu":  # where a hundred calls of the models take half a minute
        left_out |= {"memory"}
    checks = make_checks(_SMOKE_CALLS if smoke else CALLS).values()
    outcomes = run_device_contract(where, subject, checks=[c for c in checks if c.name not in left_out])
    board, path = "the CPU", None
    if where.type == "cuda":
        record = records.record(where, subject, outcomes, ())
        records.write(record, reports)
        board, path = record.board, record.path.as_posix()
    found = [
        {"variant": each.variant, "check": each.check, "kind": each.outcome.value, "message": each.message}
        for each in outcomes
    ]
    sys.stdout.write("\n" + json.dumps({"board": board, "record": path, "outcomes": found}) + "\n")


if __name__ == "__main__":
    main(Tier(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
