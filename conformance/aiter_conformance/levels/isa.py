"""Level isa: whether the kernels that a release picks for a cell, run as shipped, give the right numbers.

Every input of the levels trace and isa in ``coverage.toml`` is traced: that says which kernels it gets. An
input of level isa is then executed as it is. One of level trace has the size of a model: the kernel that it
gets is executed on a small input of the same kind (`reduced`), through the same leaf.

A cell passes when every input was executed and is right. Where kernels are built on first use, or are no
kernels that the emulator can launch, the level is not run, and says how many inputs were right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from aiter_conformance import contract
from aiter_conformance.axes import Cell
from aiter_conformance.case import Case
from aiter_conformance.coverage import problems
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.golden import apply_leaf, live, live_rows
from aiter_conformance.isa.machine import KernelFaultError
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import pack
from aiter_conformance.numerics.verdict import ROW_ERROR, Verdict, bucket, judge
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import Subject
from aiter_conformance.providers.isa import IsaProvider, ways
from aiter_conformance.providers.isa_plan import Emulator, NotExecutableError, Plan, make_plan
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory
from aiter_conformance.release.tuned import TunedTables
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.cached import cached_run
from aiter_conformance.trace.call import Call, call_of_case
from aiter_conformance.trace.record import Status, Trace
from aiter_conformance.trace.run_checks import check_run

LEVEL: Final = "isa"
_MOST_TOKENS: Final = (
    69  # with a top-k of most experts: blocks of 32 and of 64 that are full, and ones that are not
)
_NAMED: Final = 2  # kernels that are named where none of a cell's can be executed
_DEPTH: Final = 1024  # several K tiles of every kernel
_DEPTH_STEP: Final = 512  # kernels differ by what the hidden size leaves over this


@dataclass(frozen=True, slots=True)
class Asked:
    """One input of a cell.

    Attributes:
        name: Its name in ``coverage.toml``.
        call: The call that it is, as a trace makes it.
        problems: The ranks of the input itself; empty where it is too large to be executed.
    """

    name: str
    call: Call
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one problem.

    Attributes:
        verdict: The verdict; None where the kernel faulted.
        words: What is wrong, or in which way it is right.
        right: Whether it is right.
    """

    verdict: Verdict | None
    words: str
    right: bool


@dataclass(slots=True)
class _Tally:
    """What is counted of one cell."""

    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    emulated: set[str] = field(default_factory=set)
    verdicts: list[Verdict] = field(default_factory=list)

    def enter(self, asked: Asked, state: str) -> None:
        self.inputs.setdefault(asked.name, {})[f"M={asked.call.tokens}"] = state

    def leave(self, asked: Asked, error: NotExecutableError) -> None:
        self.missing.setdefault(error.why, 0)
        self.missing[error.why] += 1
        self.unknown.add(error.kernel)
        self.enter(asked, f"not run: {error}")

    def details(self, total: int) -> dict[str, Any]:
        """What evidence records; margins in buckets, nothing that depends on the machine."""
        ratio = max((v.bound_ratio for v in self.verdicts), default=0.0)
        row = max((v.row_error for v in self.verdicts), default=0.0)
        return {
            "ran": self.right + len(self.wrong),
            "of": total,
            "inputs": self.inputs,
            "kernels": sorted(self.kernels),
            "emulated": sorted(self.emulated),
            "bound_ratio": bucket(ratio),
            "row_error": bucket(row / ROW_ERROR),
        }


def observe(
    subject: Subject,
    release: Release,
    board: Board,
    cells: Iterable[Cell],
    *,
    runs: Path,
    code: Path,
    inventory: Inventory,
    tuned: TunedTables,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Cell, Outcome]:
    """Execute what the release picks for every cell on one board.

    Args:
        subject: The implementation whose leaves make the calls.
        release: The release, open.
        board: The board, of an arch that is emulated; cells of other archs are left out.
        cells: The cells.
        runs: Where traces are kept, e.g. ``build/trace``.
        code: Where decoded and compiled code is kept, e.g. ``build/isa``.
        inventory: What the release ships.
        tuned: Its tuned tables.
        progress: Called with (cells done, cells in all).

    What a trace finds wrong already is not executed: the level trace says so.

    A release that cannot be imported on the board leaves every cell not run, with what it said.
    """
    # A cell that its leaf refuses has no call, and no outcome.
    wanted = [c for c in cells if c.arch == board.arch and contract.declaration(c).kind is Kind.PASS]
    asked = {cell: tuple(_asked(cell)) for cell in wanted}
    calls = list(dict.fromkeys(one.call for each in asked.values() for one in each))
    try:
        run = cached_run(release, board, calls, runs, inventory=inventory)
        emulator = Emulator(release, board, inventory, code)
    except InfrastructureError as error:
        return dict.fromkeys(wanted, Outcome(Kind.NOT_RUN, Reason.INFRASTRUCTURE, str(error)))
    traces = {trace.call: trace for trace in run.traces}
    wrong = {f.call: f.code.value for f in check_run(run, tuned) if f.call is not None and f.fails}
    plans = {call: _plan(trace, wrong.get(call), emulator) for call, trace in traces.items()}
    outcomes = {}
    for number, (cell, each) in enumerate(asked.items()):
        outcomes[cell] = _outcome(subject, emulator, cell, each, plans)
        if progress is not None:
            progress(number + 1, len(asked))
    return outcomes


def _asked(cell: Cell) -> Iterator[Asked]:
    """Yield the inputs of a cell."""
    whole: dict[tuple[str, Call], list[Problem]] = {}
    for name, problem in problems(cell, LEVEL):
        whole.setdefault((name, _call(problem)), []).append(problem)
    yield from (Asked(name, call, tuple(each)) for (name, call), each in whole.items())
    for name, problem in problems(cell, "trace"):
        if problem.rank == 0:
            yield Asked(name, _call(problem), ())


def _call(problem: Problem) -> Call:
    return call_of_case(problem.case, bias=problem.features.biases)


def reduced(cell: Cell, call: Call, plan: Plan) -> tuple[Problem, ...]:
    """Return small inputs that a kernel takes just as it takes a call of a model's size.

    The top-k, whether experts are masked, the rest of the hidden size by 512 and whether the intermediate is
    one slice or several are those of the call; every rank of an expert-parallel group is an input.
    """
    width = plan.kernel.kind.tile_n
    ranks = 2 if call.mask else 1
    case = Case(
        cell,
        experts=2 * (call.topk + 1) if call.mask else call.topk + 3,
        topk=call.topk,
        hidden=_DEPTH + call.hidden % _DEPTH_STEP,
        intermediate=min(call.intermediate, 2 * width),
        tokens=min(call.tokens, _MOST_TOKENS),
        ep=ranks,
    )
    return tuple(Problem(case, rank=rank) for rank in range(ranks))


def execute(subject: Subject, emulator: Emulator, plan: Plan, problem: Problem) -> Seen:
    """Run a problem through a leaf and the kernel of a plan, and judge it against the oracle.

    Raises:
        NotExecutableError: The kernel cannot be launched for the call that the leaf makes.
    """
    arch = problem.case.cell.arch
    provider = IsaProvider(emulator, plan)
    try:
        output, _ = apply_leaf(problem, pack(problem), subject, lambda call: provider.compute(call, arch))
    except KernelFaultError as error:
        return Seen(None, str(error), right=False)
    seen: list[Seen] = []
    for way in ways(plan, problem.case.cell):
        told = expected(problem, way.pipeline, activation=way.activation)
        verdict = judge(live_rows(output, problem), live(told, problem))
        seen.append(Seen(verdict, way.name if verdict.passed else verdict.message, verdict.passed))
        if verdict.passed:
            break
    return seen[-1] if seen[-1].right else seen[0]


_Plans = dict[Call, Plan | NotExecutableError]


def _outcome(
    subject: Subject, emulator: Emulator, cell: Cell, asked: tuple[Asked, ...], plans: _Plans
) -> Outcome:
    tally = _Tally()
    done: dict[tuple[str, Problem], Seen] = {}
    for one in asked:
        plan = plans[one.call]
        if isinstance(plan, NotExecutableError):
            tally.leave(one, plan)
            continue
        try:
            chosen = one.problems or reduced(cell, one.call, plan)
            for problem in chosen:
                key = plan.kernel.name, problem
                if key not in done:
                    done[key] = execute(subject, emulator, plan, problem)
        except NotExecutableError as error:
            tally.leave(one, error)
            continue
        _enter(tally, one, plan, [(problem, done[plan.kernel.name, problem]) for problem in chosen])
    return _judged(tally, len(asked))


def _plan(trace: Trace, wrong: str | None, emulator: Emulator) -> Plan | NotExecutableError:
    """Return what is to be executed of a call, or why nothing is."""
    if trace.status is not Status.LAUNCHED:
        return NotExecutableError(f"the call is {trace.status.value}: {trace.raised or trace.died}")
    if wrong is not None:
        return NotExecutableError(f"the dispatch is wrong already: {wrong}")
    try:
        return make_plan(trace.launches, emulator)
    except NotExecutableError as error:
        return error


def _enter(tally: _Tally, asked: Asked, plan: Plan, seen: list[tuple[Problem, Seen]]) -> None:
    """Enter what came of one input."""
    name = PurePosixPath(plan.kernel.row.object_path).stem
    tally.kernels.add(name)
    tally.emulated.update(plan.emulated)
    tally.verdicts += [one.verdict for _, one in seen if one.verdict is not None]
    bad = next(((problem, one) for problem, one in seen if not one.right), None)
    size = str(seen[0][0].case).partition("@")[2]
    if bad is None:
        tally.right += 1
        tally.enter(asked, f"right: {name} on {size}, {seen[0][1].words}")
        return
    problem, one = bad
    where = f"{asked.name} with {asked.call.tokens} tokens, {name} on {problem.case}, rank {problem.rank}"
    tally.wrong.append(f"{where}: {one.words}")
    tally.enter(asked, f"wrong: {name} on {size}")


def _judged(tally: _Tally, total: int) -> Outcome:
    details = tally.details(total)
    if tally.wrong:
        message = f"{len(tally.wrong)} of {total} inputs are wrong: {tally.wrong[0]}"
        return Outcome(Kind.FAIL, Reason.NUMBERS_DIFFER, message, details)
    if not tally.missing:
        return Outcome(Kind.PASS, details=details)
    why = "; ".join(tally.missing)
    if not tally.right:
        message = f"No input's kernels can be executed: {why}."
        left = sorted(tally.unknown - {""})[:_NAMED]
        return Outcome(Kind.NOT_RUN, Reason.NOT_EXECUTABLE, message, {"ran": 0, "of": total, "kernels": left})
    message = f"{tally.right} of {total} inputs ran and are right. The others cannot be executed: {why}."
    return Outcome(Kind.NOT_RUN, Reason.NOT_EXECUTABLE, message, details)
