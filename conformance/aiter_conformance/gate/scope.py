"""What a comparison is restricted to: a board, or a model of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import UsageError
from aiter_conformance.gate.calls import tuned_token
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.models import load_models, model_calls

Filter = Callable[[Change], bool]


def is_on(board: str | None, seen: str) -> bool:
    """Return whether an observation of a board, or of a whole arch, counts where one board is looked at.

    Args:
        board: ``arch`` or ``arch:CUs``; None for every board.
        seen: The board or arch of the observation.
    """
    if board is None:
        return True
    arch, _, units = board.partition(":")
    of_arch, _, of_units = seen.partition(":")
    return arch == of_arch and (not units or not of_units or units == of_units)


def board_filter(board: str | None) -> Filter:
    """Return what says of a change whether it is about a board; what is about none is about each.

    Args:
        board: ``arch`` or ``arch:CUs``; None for every board.

    Raises:
        UsageError: There is no such board.
    """
    if board is None:
        return lambda _change: True
    arch, colon, units = board.partition(":")
    boards = {name: [str(count) for count in facts.cu_counts] for name, facts in load_axes().archs.items()}
    if arch not in boards or (colon and units not in boards[arch]):
        known = ", ".join(f"{name}:{count}" for name, counts in boards.items() for count in counts)
        msg = f"--board must be an arch, or one of {known} (got {board!r})"
        raise UsageError(msg)
    tuned = f"{arch} {units} CUs" if units else f"{arch} "

    def is_about(change: Change) -> bool:
        item = change.item
        if item.kind is ItemKind.CELL:
            return item.key.startswith(f"{arch}/")
        seen = traced_on(item)
        if seen is not None:
            return is_on(board, seen)
        if item.kind is ItemKind.TUNED:
            return item.group.startswith(tuned)
        if item.kind is ItemKind.ARCH:
            return item.key == arch
        named = re.match(r"hsa/(gfx\w+)/", item.where)
        return named is None or named[1] == arch

    return is_about


def traced_on(item: Item) -> str | None:
    """Return the board, or the arch, that a call was traced or computed for; None for anything else."""
    if item.kind is ItemKind.MODEL:
        return item.group.rpartition(" on ")[2]
    return item.note if item.kind in (ItemKind.CASE, ItemKind.DISPATCH) else None


def model_filter(name: str | None) -> Filter:
    """Return what says of a change whether it can matter to a model; what is about no cell or shape can.

    Args:
        name: A model of the catalogue; None for every change.

    Raises:
        UsageError: There is no such model.
    """
    if name is None:
        return lambda _change: True
    model = load_models().find(name)
    cells = {
        str(Cell(arch, scheme, model.activation, model.router))
        for arch in load_axes().archs
        for scheme in model.schemes
    }
    shapes = {
        _sizes(tuned_token("", call)) for scheme in model.schemes for _, call in model_calls(model, scheme)
    }

    def is_about(change: Change) -> bool:
        item = change.item
        if item.kind in (ItemKind.CELL, ItemKind.CASE):
            return item.key.partition(" ")[0] in cells
        if item.kind is ItemKind.MODEL:
            return item.key.startswith(f"{name} ")
        if item.kind is ItemKind.TUNED:
            return any(_sizes(token) in shapes for token in item.provides)
        return True

    return is_about


def _sizes(token: str) -> str:
    """Return the shape in the token of a tuned row, without its board."""
    return token[token.index(" H") :]
