"""Level trace: what a release's own dispatch, run for real, launches for each cell of one board.

A cell passes when every input that ``coverage.toml`` asks for is launched, on kernels that exist and do what
the call asks for. Whether their numbers are right is for the levels above to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiter_conformance import contract
from aiter_conformance.axes import Cell
from aiter_conformance.coverage import problems
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.release.tuned import TunedTables, read_tuned
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.cached import cached_run
from aiter_conformance.trace.call import Call, call_of_case
from aiter_conformance.trace.findings import Cause, Finding, by_call, group
from aiter_conformance.trace.record import Dispatch, Role, Status, Trace
from aiter_conformance.trace.run import Progress
from aiter_conformance.trace.run_checks import check_run
from aiter_conformance.trace.tuned_calls import tuned_calls

LEVEL: Final = "trace"
# What the bridge and the release say when the release's interface cannot take the call.
_API_REASONS: Final = (
    ("does not support activation", Reason.API_MISSING_ACTIVATION),
    ("must be the number of a member of ActivationType", Reason.API_MISSING_ACTIVATION),
    ("whose call has no", Reason.API_MISSING_ARGUMENT),
    ("does not give", Reason.API_MISSING_FUNCTION),
)


@dataclass(frozen=True)
class TraceLevel:
    """What this level observed of one release on one board.

    Attributes:
        board: The board.
        outcomes: One outcome a cell.
        causes: Everything that is wrong, causes before consequences.
    """

    board: Board
    outcomes: dict[Cell, Outcome]
    causes: tuple[Cause, ...]


def observe(
    release: Release,
    board: Board,
    cells: Iterable[Cell],
    folder: Path,
    *,
    inventory: Inventory | None = None,
    tuned: TunedTables | None = None,
    progress: Progress | None = None,
) -> TraceLevel:
    """Trace every input of every cell on one board.

    Args:
        release: The release.
        board: The board; cells of other archs are left out.
        cells: The cells.
        folder: Folder that keeps runs, e.g. ``build/trace``.
        inventory: What the release ships, where that is known already.
        tuned: Its tuned tables, where they were read already.
        progress: Called with the number of calls made.

    A release that cannot be imported on the board leaves every cell not run, with what it said.
    """
    wanted = [cell for cell in cells if cell.arch == board.arch]
    calls = calls_of(wanted)
    shipped = take_inventory(release) if inventory is None else inventory
    tables = read_tuned(release, shipped) if tuned is None else tuned
    try:
        asked = list(dict.fromkeys(call for each in calls.values() for _, call in each))
        run = cached_run(release, board, asked, folder, inventory=shipped, progress=progress)
    except InfrastructureError as error:
        outcome = Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, str(error))
        return TraceLevel(board, dict.fromkeys(wanted, outcome), ())
    findings = check_run(run, tables)
    wrong = by_call(findings)
    traces = {trace.call: trace for trace in run.traces}
    outcomes = {
        cell: _outcome(cell, [(name, traces[call]) for name, call in each], wrong)
        for cell, each in calls.items()
    }
    return TraceLevel(board, outcomes, group(findings))


def observe_tuned(
    release: Release,
    board: Board,
    folder: Path,
    *,
    inventory: Inventory | None = None,
    tuned: TunedTables | None = None,
) -> tuple[Cause, ...]:
    """Trace every tuned row for a board by the very call that it is for, and return what is wrong.

    Args:
        release: The release.
        board: The board.
        folder: Folder that keeps runs, e.g. ``build/trace``.
        inventory: What the release ships, where that is known already.
        tuned: Its tuned tables, where they were read already.

    Raises:
        InfrastructureError: The release cannot be imported on the board.
    """
    shipped = take_inventory(release) if inventory is None else inventory
    tables = read_tuned(release, shipped) if tuned is None else tuned
    asked = dict.fromkeys(call for _, call in tuned_calls(tables, board))
    run = cached_run(release, board, asked, folder, inventory=shipped)
    return group(check_run(run, tables))


def calls_of(cells: Iterable[Cell]) -> dict[Cell, tuple[tuple[str, Call], ...]]:
    """Return (name of the input, call) of everything that this level asks of each cell."""
    return {cell: tuple(_calls(cell)) for cell in cells}


def _calls(cell: Cell) -> Iterator[tuple[str, Call]]:
    """Yield (name of the input, call) for a cell; a cell that its leaf refuses has none."""
    if contract.declaration(cell).kind is not Kind.PASS:
        return
    for name, problem in problems(cell, LEVEL):
        if problem.rank == 0:
            features = problem.features
            yield name, call_of_case(problem.case, bias=features.biases, shared=features.shared_experts)


def _outcome(cell: Cell, traced: list[tuple[str, Trace]], wrong: dict[Call, list[Finding]]) -> Outcome:
    declared = contract.declaration(cell)
    if declared.kind is not Kind.PASS:
        assert declared.reason is not None  # noqa: S101 -- a refusal has one
        return Outcome(Kind.SKIPPED, declared.reason, "The leaf refuses the cell: there is no call to trace.")
    details = _details(traced, wrong)
    bad = [
        (name, trace, failing)
        for name, trace in traced
        if (failing := [finding for finding in wrong.get(trace.call, []) if finding.fails])
        or trace.status is Status.REFUSED
    ]
    if not bad:
        return Outcome(Kind.PASS, details=details)
    name, trace, failing = bad[0]
    where = f"{len(bad)} of {len(traced)} inputs, the first is {name} with {trace.call.tokens} tokens"
    if all(each.status is Status.REFUSED for _, each in traced):
        return Outcome(Kind.REFUSED, _refusal(trace), f"{trace.raised}", details)
    if failing:
        return Outcome(Kind.FAIL, Reason(failing[0].code.value), f"{failing[0].message} ({where}).", details)
    return Outcome(Kind.FAIL, Reason.DISPATCH_REFUSES, f"{trace.raised} ({where}).", details)


def _refusal(trace: Trace) -> Reason:
    message = "" if trace.raised is None else trace.raised.message
    return next((reason for words, reason in _API_REASONS if words in message), Reason.DISPATCH_REFUSES)


def _details(traced: list[tuple[str, Trace]], wrong: dict[Call, list[Finding]]) -> dict[str, Any]:
    """Return what is recorded of a cell: kernels and state of each token bucket, by input.

    Buckets of one input that fare alike share a line; see `each_bucket`.
    """
    alike: dict[str, dict[str, list[int]]] = {}
    families: Counter[str] = Counter()
    tuned = 0
    for name, trace in traced:
        families.update({launch.family for launch in trace.products})
        tuned += trace.dispatch in (Dispatch.TUNED, Dispatch.TUNED_BLIND)
        codes = sorted({finding.code.value for finding in wrong.get(trace.call, ()) if finding.fails})
        state = summary(trace) + (f"; wrong: {', '.join(codes)}" if codes else "")
        alike.setdefault(name, {}).setdefault(state, []).append(trace.call.tokens)
    inputs = {
        name: {f"M={','.join(map(str, tokens))}": state for state, tokens in states.items()}
        for name, states in alike.items()
    }
    return {"inputs": inputs, "kernels": dict(sorted(families.items())), "tuned": f"{tuned}/{len(traced)}"}


def each_bucket(buckets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (``M=64``, line) of every token bucket of one input in a cell's details.

    Args:
        buckets: Lines by the buckets that share them, as ``M=1,64``.
    """
    for shared, line in buckets.items():
        name, equals, tokens = shared.rpartition("=")
        for each in tokens.split(","):
            yield f"{name}{equals}{each}", line


def summary(trace: Trace) -> str:
    """Return one line: the products' families and tiles, the pipeline, and where the choice comes from."""
    if trace.status is Status.REFUSED and trace.raised is not None:
        return f"refused: {trace.raised.message}"
    if trace.status is not Status.LAUNCHED:
        return f"{trace.status.value}: {trace.raised or trace.died}"
    shown = []
    for launch in trace.products:
        tile = "" if launch.tile is None else " " + "x".join(str(size) for size in launch.tile if size)
        split = f" split {launch.split_k}" if launch.split_k > 1 else ""
        stage = "" if launch.role is Role.ONE_STAGE else f"{launch.role.value[-1]}:"
        shown.append(f"{stage}{launch.family}{tile}{split}")
    return f"{' + '.join(shown)} in {trace.activation_dtype or '?'}, {trace.dispatch.value}"
