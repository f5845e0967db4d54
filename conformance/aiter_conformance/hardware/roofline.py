"""How long a call takes beside what the board could do at best. For information: no verdict rests on it.

The floor of a call is the larger of two times: reading the weights of every expert that a token goes to, and
the activations, at the board's memory bandwidth; and both products at its matrix rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.machine import Machine
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.outcome import Kind, Outcome

# Bytes a second by product (AMD's data sheets).
_BANDWIDTH: Final = {"MI300X": 5.3e12, "MI300A": 5.3e12, "MI325X": 6.0e12, "MI350X": 8.0e12, "MI355X": 8.0e12}
# Dense matrix operations of one CU in a clock, a multiply-add being two (white papers of CDNA 3 and CDNA 4).
_RATE: Final = {
    "gfx942": {"bf16": 2048, "fp8": 4096},
    "gfx950": {"bf16": 4096, "fp8": 8192, "fp4": 16384},
}
# Bits of a weight with its share of a scale, and the type that is multiplied.
_WEIGHTS: Final = {
    "bf16": (16.0, "bf16"),
    "fp8": (8.0, "fp8"),
    "mxfp4-w4a4": (4.25, "fp4"),
    "mxfp4-w4a16": (4.25, "bf16"),
    "int4-w4a16": (4.5, "bf16"),
}


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time that a call can take.

    Attributes:
        seconds: The time.
        bound: ``bandwidth`` or ``matrix rate``: what it is that takes it.
    """

    seconds: float
    bound: str


def floor(problem: Problem, machine: Machine) -> Floor | None:
    """Return the floor of a call, or None for a board whose figures are not known."""
    scheme, arch = problem.case.cell.scheme, machine.board.arch
    bandwidth = next((speed for name, speed in _BANDWIDTH.items() if name in machine.name), None)
    bits, multiplied = _WEIGHTS["fp8" if scheme.startswith("fp8") else scheme]
    rate = _RATE.get(arch, {}).get(multiplied)
    if bandwidth is None or rate is None or not machine.clock:
        return None
    hidden, intermediate = problem.hidden_size, problem.intermediate_size
    held = np.isin(problem.topk_ids, problem.held_experts)
    active = len(np.unique(problem.topk_ids[held]))
    weights = 3 * hidden * intermediate
    moved = active * weights * bits / 8 + 2 * 2 * problem.case.tokens * hidden  # bf16 in and out
    operations = 2 * int(held.sum()) * weights
    times = {
        "bandwidth": moved / bandwidth,
        "matrix rate": operations / (rate * machine.board.compute_units * machine.clock),
    }
    bound = max(times, key=lambda name: times[name])
    return Floor(times[bound], bound)


def time_of_cell(outcomes: Mapping[Item, Outcome], machine: Machine) -> dict[str, Any] | None:
    """Return the time of the passing input with the highest floor, for the record; None without one."""
    found: list[tuple[float, dict[str, Any]]] = []
    for item, outcome in outcomes.items():
        seconds = outcome.details.get("seconds")
        if outcome.kind is Kind.PASS and seconds and (least := floor(item.problem, machine)) is not None:
            record = {
                "input": f"{item.name}/r{item.rank}/M{item.case.tokens}",
                "microseconds": round(seconds * 1e6, 1),
                "floor": round(least.seconds * 1e6, 2),
                "bound": least.bound,
            }
            found.append((least.seconds, record))
    return max(found, key=lambda pair: pair[0])[1] if found else None
