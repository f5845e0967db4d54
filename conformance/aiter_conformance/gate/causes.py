"""Root causes first: puts every change under what it rests on, where that changed in the same direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aiter_conformance.gate import calls
from aiter_conformance.gate.calls import CALLS
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.trace.findings import FAILING

# Reason codes that a trace gives.
_DISPATCH: Final = frozenset(code.value for code in FAILING)


@dataclass(frozen=True)
class Cause:
    """Changes of one kind and class that belong together, and what follows from them.

    Attributes:
        kind: What changed.
        group: What the changes have in common: a manifest, a tuned shape, or the thing itself.
        change: What all of them are called.
        covered: What explains all of them, or None.
        changes: The changes.
        consequences: Changes of what rests on them.
    """

    kind: ItemKind
    group: str
    change: ChangeClass
    covered: str | None
    changes: tuple[Change, ...]
    consequences: tuple[Change, ...]

    @property
    def id(self) -> str:
        """How the cause is named on the command line."""
        return f"{self.kind.value}:{self.group}"

    def fails(self, fail_on: Iterable[ChangeClass]) -> bool:
        """Return whether it makes the gate fail: what explains a cause explains what follows from it."""
        if self.covered is not None:
            return False
        classes = {change.change for change in (*self.changes, *self.consequences) if change.covered is None}
        return not classes.isdisjoint(fail_on)


def find_causes(changes: Sequence[Change]) -> tuple[Cause, ...]:
    """Group changes by their causes, those of most weight first.

    Args:
        changes: Any changes; what is the same, or unknown on both sides, is left out.
    """
    moved = [change for change in changes if change.change not in (ChangeClass.SAME, ChangeClass.UNKNOWN)]
    moved.sort(key=lambda change: (change.item.kind.rank, change.id))
    below = _Below(moved)
    grouped: dict[tuple[ChangeClass, ItemKind, str, str | None], tuple[list[Change], list[Change]]] = {}
    for change in moved:
        root = _root(change, below)
        key = (root.change, *_name(root), root.covered)
        roots, consequences = grouped.setdefault(key, ([], []))
        (roots if root is change else consequences).append(change)
    causes = [
        Cause(kind, group, found, covered, tuple(roots), tuple(consequences))
        for (found, kind, group, covered), (roots, consequences) in grouped.items()
    ]
    weight = list(ChangeClass).index
    return tuple(sorted(causes, key=lambda cause: (weight(cause.change), cause.kind.rank, cause.group)))


def _name(root: Change) -> tuple[ItemKind, str]:
    """Return the kind and the group that a cause goes by.

    Cells, inputs and models that go wrong in the same way, with nothing below them that changed, are one
    cause: something in the code that chooses and calls kernels.
    """
    if root.change is ChangeClass.REGRESSED and root.item.kind in (ItemKind.CELL, *CALLS):
        code = root.reason or next(iter(calls.new_codes(root.before, root.now)), None)
        if code is not None:
            return (ItemKind.DISPATCH if code in _DISPATCH else ItemKind.CELL), code
    return root.item.kind, root.group


def _root(change: Change, below: _Below) -> Change:
    """Follow a change down to where it comes from; ranks fall with each step, so that this ends."""
    while True:
        candidates = below.of(change)
        if not candidates and change.item.kind is ItemKind.CELL:
            candidates = below.of_inputs(change)
        if not candidates:
            return change
        change = min(candidates, key=lambda other: (other.item.kind.rank, other.id))


class _Below:
    """What changes can come from: those that provide what others rest on."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._by_token: dict[str, list[Change]] = defaultdict(list)
        self._inputs: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            for token in change.provides:
                self._by_token[token].append(change)
            if change.item.kind is ItemKind.CASE:
                self._inputs[calls.cell_of(change.item)].append(change)

    def of(self, change: Change) -> list[Change]:
        """Return the changes of what a change rests on that lie deeper and go in the same direction."""
        return [
            other
            for token in change.rests_on
            for other in self._by_token.get(token, ())
            if other.item.kind.rank < change.item.kind.rank
            and change.change.direction in (0, other.change.direction)
        ]

    def of_inputs(self, cell: Change) -> list[Change]:
        """Return what a cell's inputs come from, where all that went its way come from below the cell."""
        inputs = [c for c in self._inputs[cell.item.key] if c.change.direction == cell.change.direction != 0]
        found = [[one for one in self.of(c) if one.item.kind is not ItemKind.CELL] for c in inputs]
        return [one for each in found for one in each] if all(found) else []
