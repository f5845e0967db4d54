"""Traces a list of calls on one release and one board, and keeps the result by content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance.release.api import EnumFact, read_api
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.trace.asm import AsmKernels
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.ck_tile import read_ck_tile
from aiter_conformance.trace.launches import LaunchReader
from aiter_conformance.trace.reading import read_trace
from aiter_conformance.trace.record import Trace
from aiter_conformance.trace.tracer import Limits, RuntimeFacts, Tracer

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Run:
    """What one release does on one board.

    Attributes:
        board: The board.
        facts: What the release says of itself once it is imported.
        traces: One trace a call, in the order of the calls.
    """

    board: Board
    facts: RuntimeFacts
    traces: tuple[Trace, ...]


def run_calls(
    release: Release,
    board: Board,
    calls: Iterable[Call],
    *,
    inventory: Inventory | None = None,
    cache: Path | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Run:
    """Trace calls.

    Args:
        release: The release; it is read and never changed.
        board: The board.
        calls: The calls.
        inventory: What the release ships, where that is known already.
        cache: Folder for the release's compiled Python, kept between runs.
        limits: Limits of time and memory of the process.
        progress: Called with the number of calls made, after each.

    Raises:
        InfrastructureError: The release cannot be read or imported on this board; nothing was traced.
    """
    reader = launch_reader(release, board, take_inventory(release) if inventory is None else inventory)
    traces: list[Trace] = []
    with Tracer(release, board, cache=cache, limits=limits) as tracer:
        asked = list(calls)
        for call, answer in zip(asked, tracer.trace(asked), strict=True):
            traces.append(read_trace(answer, call, str(board), reader))
            if progress is not None:
                progress(len(traces))
        return Run(board, tracer.facts, tuple(traces))


def launch_reader(release: Release, board: Board, inventory: Inventory) -> LaunchReader:
    """Return what reads the launches of a release on a board.

    Args:
        release: The release.
        board: The board.
        inventory: What the release ships.
    """
    api = read_api(release)
    activations = _names(api.activation_type)
    return LaunchReader(
        AsmKernels(inventory, board.arch, board.compute_units),
        read_ck_tile(release, activations),
        activations,
        _names(api.quant_type),
    )


def _names(enum: EnumFact | None) -> dict[int, str]:
    """Return the names of an enumeration's members by value."""
    members = {} if enum is None else enum.members
    return {value: name for name, value in members.items() if isinstance(value, int)}
