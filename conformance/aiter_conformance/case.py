"""A case: one concrete input of a cell, rebuilt from its id alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import UsageError

# Letters of the id's numbers, in order, with the attribute, the least value, and what it counts.
_FIELDS: Final[tuple[tuple[str, str, int, str], ...]] = (
    ("E", "experts", 1, "experts in the model"),
    ("k", "topk", 1, "experts per token"),
    ("K", "hidden", 1, "hidden size, pads included"),
    ("N", "intermediate", 1, "intermediate size of the whole model, pads included"),
    ("M", "tokens", 0, "tokens"),
    ("tp", "tp", 1, "tensor-parallel size"),
    ("ep", "ep", 1, "expert-parallel size"),
    ("hp", "hidden_pad", 0, "dead hidden columns"),
    ("ip", "intermediate_pad", 0, "dead intermediate columns of one partition"),
    ("s", "seed", 0, "seed of the random input"),
)
# No leading zeros: a case has one id only.
_NUMBERS: Final = re.compile(
    "-".join(rf"{letter}(?P<{name}>0|[1-9][0-9]*)" for letter, name, _, _ in _FIELDS)
)
_EXAMPLE: Final = "E8-k2-K256-N256-M64-tp1-ep1-hp0-ip0-s0"


@dataclass(frozen=True, slots=True)
class Case:
    """One concrete input of a cell.

    Attributes:
        cell: The cell.
        experts: Experts in the model (E).
        topk: Experts per token (k).
        hidden: Hidden size (K), pads included.
        intermediate: Intermediate size of the whole model (N), pads included.
        tokens: Tokens (M).
        tp: Tensor-parallel size; divides ``intermediate``.
        ep: Expert-parallel size; divides ``experts``.
        hidden_pad: How many of K are dead.
        intermediate_pad: How many of a partition's N / tp are dead.
        seed: Seed of the random input.

    Raises:
        UsageError: The numbers do not describe a possible input.
    """

    cell: Cell
    experts: int = 8
    topk: int = 2
    hidden: int = 256
    intermediate: int = 256
    tokens: int = 64
    tp: int = 1
    ep: int = 1
    hidden_pad: int = 0
    intermediate_pad: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for letter, name, least, what in _FIELDS:
            value = getattr(self, name)
            if value < least:
                msg = f"{letter} ({what}) must be at least {least} (got {value})"
                raise UsageError(msg)
        if self.topk > self.experts:
            msg = f"k must be at most E = {self.experts} (got {self.topk})"
            raise UsageError(msg)
        if self.cell.router == "in" and self.topk != 1:
            msg = f"k must be 1 where router weights are on the input (got {self.topk})"
            raise UsageError(msg)
        if self.tp > 1 and self.ep > 1:
            msg = f"tp must be 1 with expert parallelism, whose size it joins (got tp{self.tp}, ep{self.ep})"
            raise UsageError(msg)
        for whole, part, size, parts in (
            ("N", "tp", self.intermediate, self.tp),
            ("E", "ep", self.experts, self.ep),
        ):
            if size % parts:
                msg = f"{part} must divide {whole} = {size} (got {parts})"
                raise UsageError(msg)
        for letter, pad, size in (
            ("hp", self.hidden_pad, self.hidden),
            ("ip", self.intermediate_pad, self.intermediate // self.tp),
        ):
            if pad >= size:
                msg = f"{letter} must leave something of {size} alive (got {pad})"
                raise UsageError(msg)

    def __str__(self) -> str:
        numbers = "-".join(f"{letter}{getattr(self, name)}" for letter, name, _, _ in _FIELDS)
        return f"{self.cell}@{numbers}"


def parse_case(text: str) -> Case:
    """Return the case that an id names: ``parse_case(str(case)) == case``.

    Raises:
        UsageError: The id is not one, or its numbers do not describe a possible input.
    """
    cell, at, numbers = text.partition("@")
    match = _NUMBERS.fullmatch(numbers)
    if not at or match is None:
        msg = f"a case must be CELL@NUMBERS, with numbers like {_EXAMPLE} (got {text!r})"
        raise UsageError(msg)
    values = {name: int(value) for name, value in match.groupdict().items()}
    return Case(load_axes().parse_cell(cell), **values)
