"""Which inputs a level needs of a cell: ``matrices/spec/coverage.toml`` as cases."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

from aiter_conformance.axes import Cell, spec_dir
from aiter_conformance.case import Case, parse_case
from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.inputs import Features, Problem

_NUMBERS: Final = frozenset(
    {
        "experts",
        "topk",
        "hidden",
        "intermediate",
        "tokens",
        "tp",
        "ep",
        "hidden_pad",
        "intermediate_pad",
        "seed",
    }
)
_FEATURES: Final = frozenset(field.name for field in fields(Features))
_RESTRICTIONS: Final = {"schemes": "scheme", "activations": "activation", "routers": "router"}
# An input of coverage.toml whose features a case needs, and a rank other than the first.
_SUFFIX: Final = re.compile(r"(?P<case>[^+~]*)(\+(?P<name>[a-z0-9-]+))?(~(?P<rank>[0-9]+))?")
_WORDS: Final = frozenset({"name", "levels", "for", "except"})


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """One entry of ``coverage.toml``.

    Attributes:
        name: Short name, shown where an input fails.
        levels: Levels that need it.
        why: What it is there for.
        numbers: Numbers of the case, each a list of values.
        features: Features of the input.
        only: Values of the cell's axes that it is restricted to.
        excepted: ``scheme/router`` of cells that cannot take it.
    """

    name: str
    levels: tuple[str, ...]
    why: str
    numbers: dict[str, tuple[int, ...]]
    features: Features
    only: dict[str, tuple[str, ...]]
    excepted: tuple[str, ...]

    def concerns(self, cell: Cell) -> bool:
        """Return whether the input says anything about a cell."""
        wanted = all(getattr(cell, axis) in values for axis, values in self.only.items())
        return wanted and f"{cell.scheme}/{cell.router}" not in self.excepted


@cache
def load_coverage() -> tuple[PlannedInput, ...]:
    """Read ``coverage.toml``.

    Raises:
        UsageError: An entry has a word that is none of the known ones.
    """
    data = tomllib.loads((spec_dir() / "coverage.toml").read_text(encoding="utf-8"))
    return tuple(_planned(entry, data["base"]) for entry in data["input"])


def _planned(entry: dict[str, Any], base: dict[str, Any]) -> PlannedInput:
    unknown = set(entry) - _NUMBERS - _FEATURES - _WORDS - set(_RESTRICTIONS)
    if unknown:
        msg = f"an input of coverage.toml must have known words only (got {', '.join(sorted(unknown))})"
        raise UsageError(msg)
    numbers = {name: value for name, value in (base | entry).items() if name in _NUMBERS}
    return PlannedInput(
        name=entry["name"],
        levels=tuple(entry["levels"]),
        why=entry["for"],
        numbers={name: tuple(v) if isinstance(v, list) else (v,) for name, v in numbers.items()},
        features=Features(**{name: value for name, value in entry.items() if name in _FEATURES}),
        only={axis: tuple(entry[name]) for name, axis in _RESTRICTIONS.items() if name in entry},
        excepted=tuple(entry.get("except", ())),
    )


def problems(cell: Cell, level: str) -> Iterator[tuple[str, Problem]]:
    """Yield (name of the input, problem) for all that a level needs of a cell, every rank of a group."""
    for planned in load_coverage():
        if level not in planned.levels or not planned.concerns(cell):
            continue
        for values in itertools.product(*planned.numbers.values()):
            numbers = dict(zip(planned.numbers, values, strict=True))
            if cell.router == "in":
                numbers["topk"] = 1
            case = Case(cell, **numbers)
            for rank in range(max(case.tp, case.ep)):
                yield planned.name, Problem(case, planned.features, rank)


def problem_id(name: str, problem: Problem) -> str:
    """Return the id by which `parse_problem` rebuilds an input of coverage.toml.

    It is the case's, with ``+NAME`` where it has features of that input, and ``~RANK`` for another rank than
    the first.
    """
    plain = problem.features == Features()
    return f"{problem.case}{'' if plain else f'+{name}'}{f'~{problem.rank}' if problem.rank else ''}"


def parse_problem(text: str) -> Problem:
    """Return the problem that an id names, see `problem_id`; a case's id is one.

    Raises:
        UsageError: The id is not one, or names an input that coverage.toml does not have.
    """
    match = _SUFFIX.fullmatch(text)
    if match is None:
        msg = f"an input must be CASE, CASE+NAME, CASE~RANK or CASE+NAME~RANK (got {text!r})"
        raise UsageError(msg)
    features = Features()
    if match["name"] is not None:
        known = {planned.name: planned.features for planned in load_coverage()}
        if match["name"] not in known:
            msg = f"an input must be one of coverage.toml's, {', '.join(known)} (got {match['name']!r})"
            raise UsageError(msg)
        features = known[match["name"]]
    return Problem(parse_case(match["case"]), features, int(match["rank"] or 0))
