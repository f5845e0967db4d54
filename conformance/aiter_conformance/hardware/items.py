"""What is to be run: inputs of cells in groups, one group a cell, in an order that never changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aiter_conformance import contract, coverage
from aiter_conformance.axes import Cell
from aiter_conformance.case import Case, parse_case
from aiter_conformance.errors import UsageError
from aiter_conformance.models import Model, model_calls
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.outcome import Kind
from aiter_conformance.trace.call import Call

LEVEL = "hardware"
_MODEL = "model-"
# Weight elements of one rank whose making, on one core, takes no longer than a few minutes.
MODEL_ELEMENTS = 2 * 10**8
_MODEL_TOKENS = (1, 64, 1024)


class Tier(StrEnum):
    """How much is run."""

    SMOKE = "smoke"
    CELL = "cell"
    FULL = "full"

    @property
    def seconds(self) -> float | None:
        """The time after which no further input is started; None for no end."""
        return {Tier.SMOKE: 300.0, Tier.CELL: 1800.0, Tier.FULL: None}[self]


@dataclass(frozen=True, slots=True)
class Item:
    """One input, one rank of it.

    Attributes:
        name: Name of the entry of ``coverage.toml``, or ``model-NAME`` for a layer of the catalogue.
        rank: The rank.
        case: The case.
    """

    name: str
    rank: int
    case: Case

    def __str__(self) -> str:
        return f"{self.case}/{self.name}/r{self.rank}"

    @property
    def problem(self) -> Problem:
        """The input itself."""
        return Problem(self.case, _features(self.name), self.rank)

    @property
    def weights(self) -> int:
        """How many weight elements the rank has."""
        problem = self.problem
        return 3 * len(problem.held_experts) * problem.hidden_size * problem.intermediate_size


def parse_item(text: str) -> Item:
    """Return the item that an id names: ``parse_item(str(item)) == item``.

    Raises:
        UsageError: The id is not one.
    """
    case, _, rest = text.rpartition("/r")
    case, _, name = case.rpartition("/")
    if not case or not rest.isdecimal():
        msg = f"an input must be CASE/NAME/rRANK (got {text!r})"
        raise UsageError(msg)
    return Item(name, int(rest), parse_case(case))


def _features(name: str) -> Features:
    if name.startswith(_MODEL):
        from aiter_conformance.models import load_models

        model = load_models().find(name.removeprefix(_MODEL))
        return Features(biases=model.bias, swiglu_limit=model.swiglu_limit)
    for planned in coverage.load_coverage():
        if planned.name == name:
            return planned.features
    msg = f"an input must be named in coverage.toml (got {name!r})"
    raise UsageError(msg)


def needed(cell: Cell) -> list[Item]:
    """Return everything that ``coverage.toml`` asks of a cell on hardware.

    A cell that its leaf refuses has no call to make, and so needs nothing.
    """
    if contract.declaration(cell).kind is not Kind.PASS:
        return []
    return [Item(name, problem.rank, problem.case) for name, problem in coverage.problems(cell, LEVEL)]


def plan(
    cells: Sequence[Cell], tier: Tier, *, models: Iterable[Model] = (), shard: tuple[int, int] = (1, 1)
) -> list[list[Item]]:
    """Return the groups to run, one a cell, in the order of the cells.

    Args:
        cells: The cells; those that their leaf refuses are left out.
        tier: ``smoke`` is the first entry of the coverage alone.
        models: Models whose layers are run besides, in their own cells; sizes that do not fit are left out.
        shard: (i, n), i from 1: every n-th cell. Shards have no cell in common and are all of them together.
    """
    chosen = list(models)
    groups = []
    for cell in cells:
        items = needed(cell)
        if not items:
            continue
        if tier is Tier.SMOKE:
            items = [item for item in items if item.name == items[0].name]
        else:
            items += [item for model in chosen for item in _model_items(model, cell)]
        groups.append(items)
    return groups[shard[0] - 1 :: shard[1]]


def parse_shard(text: str) -> tuple[int, int]:
    """Return (i, n) of ``i/n``.

    Raises:
        UsageError: It is not two numbers with 1 <= i <= n.
    """
    first, slash, second = text.partition("/")
    if slash and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    msg = f"a shard must be i/n with i from 1 to n (got {text!r})"
    raise UsageError(msg)


def _model_items(model: Model, cell: Cell) -> Iterator[Item]:
    if cell.scheme not in model.schemes or (cell.activation, cell.router) != (model.activation, model.router):
        return
    for deployment, call in model_calls(model, cell.scheme, tokens=_MODEL_TOKENS):
        if 3 * call.local_experts * call.hidden * call.intermediate <= MODEL_ELEMENTS:
            yield Item(f"{_MODEL}{model.name}", 0, _case(cell, call, deployment.ep))


def _case(cell: Cell, call: Call, ep: int) -> Case:
    return Case(
        cell,
        experts=call.experts,
        topk=call.topk,
        hidden=call.hidden,
        intermediate=call.intermediate * call.tp,
        tokens=call.tokens,
        tp=call.tp,
        ep=ep,
        hidden_pad=call.hidden_pad,
        intermediate_pad=call.intermediate_pad,
    )
