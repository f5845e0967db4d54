"""How fast a release is traced: how long the start takes, and how many calls a second come after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance.axes import load_axes
from aiter_conformance.levels.trace import calls_of
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import take_inventory
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.reading import read_trace
from aiter_conformance.trace.run import launch_reader
from aiter_conformance.trace.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one release was traced on one board.

    Attributes:
        start: Seconds until the first call could be made: copy, process, import of the release.
        rate: Calls a second after that, answers read, no two calls alike.
        calls: How many calls were made.
    """

    start: float
    rate: float
    calls: int


def measure_speed(release: Release, board: Board, folder: Path) -> Speed:
    """Trace every call that the level trace makes on a board, and measure how long that takes.

    The inventory is taken before: it is measured apart.

    Args:
        release: The release.
        board: The board.
        folder: Folder that keeps compiled Python between runs; an empty one is that of a first start.

    Raises:
        InfrastructureError: The release cannot be imported on the board.
    """
    cells = [cell for cell in load_axes().cells() if cell.arch == board.arch]
    calls = list(dict.fromkeys(call for inputs in calls_of(cells).values() for _, call in inputs))
    reader = launch_reader(release, board, take_inventory(release))
    began = time.perf_counter()
    with Tracer(release, board, cache=folder) as tracer:
        started = time.perf_counter()
        answers = zip(tracer.trace(calls), calls, strict=True)
        traces = [read_trace(answer, call, str(board), reader) for answer, call in answers]
        ended = time.perf_counter()
    return Speed(started - began, len(traces) / (ended - started), len(traces))
