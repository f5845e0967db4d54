"""One cause on the gate's page: what changed, what stands on both sides, and what follows from it."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from aiter_conformance.axes import load_axes
from aiter_conformance.gate.calls import CALLS
from aiter_conformance.gate.causes import Cause
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.machine_code import new_paths
from aiter_conformance.gate.report import Report

WIDTH: Final = 110
# Rows of a table, or names in a list, that are shown before it ends with how many more there are.
SHOWN: Final = 6
# Kinds whose things have short names within their group.
_NAMED: Final = (ItemKind.PARAMETER, ItemKind.MEMBER, ItemKind.CHOICE)
_NEW_CODE: Final = "new machine code"
# What a thing of a kind is called, where that is another word than the kind: one, several.
_NOUNS: Final = {
    ItemKind.TUNED: ("tuned row", "tuned rows"),
    ItemKind.ARCH: ("arch", "archs"),
    ItemKind.IMPORT: ("broken import", "broken imports"),
    ItemKind.DISPATCH: ("fault of the dispatch", "faults of the dispatch"),
    ItemKind.CASE: ("input", "inputs"),
    ItemKind.MODEL: ("call of a model", "calls of models"),
}


def cause_lines(cause: Cause, report: Report, full: bool, detail: bool) -> Iterator[str]:
    """Yield the lines of one cause.

    Args:
        cause: The cause.
        report: The report that it is in.
        full: Leave nothing out.
        detail: Show an example of what follows, and the command that shows the cause alone.
    """
    yield from _title(cause)
    code = new_paths(cause.changes, report.new_code)
    if full or cause.kind is not ItemKind.KERNEL:
        for change in cause.changes if full else each(cause):
            yield from sides(change, full, named=len(each(cause)) > 1)
        if not full and len(cause.changes) > len(each(cause)) > 1:
            yield f"      ... {len(cause.changes) - len(each(cause))} more: --json has them"
    elif detail:
        for change in cause.changes[:SHOWN]:
            yield from wrapped(_short(change), row_evidence(change))
    elif cause.change is ChangeClass.KERNEL_CHANGED:
        ways = {_how_moved(change) for change in cause.changes}
        if not code or ways != {_NEW_CODE}:  # else the objects below say it
            yield from wrapped("how", ", ".join(sorted(ways)))
    if code:
        names = [path.rpartition("/")[2] for path in code]
        said = f"{_NEW_CODE}, {'1 object' if len(code) == 1 else f'{len(code)} objects'}"
        yield from wrapped(said, listed(names, most=len(names) if full else SHOWN))
    if cause.covered is not None:
        yield from wrapped("explained by", cause.covered)
    if cause.consequences:
        yield from consequences(cause.consequences, full)
        cells = [change for change in cause.consequences if change.item.kind is ItemKind.CELL]
        if detail and cells and not full and cause.covered is None:
            yield f"      such as {cells[0].item.key}"
            yield from sides(cells[0], full)
    if detail and cause.covered is None:
        yield f"      reproduce: {report.reproduce(cause)}"


def each(cause: Cause) -> Sequence[Change]:
    """Return the changes of a cause that are shown one by one.

    A change of the interface breaks whoever uses it, so that each is shown; of anything else one stands for
    all.
    """
    return cause.changes[: SHOWN if cause.kind in _NAMED and cause.change.direction < 0 else 1]


def brief_lines(cause: Cause) -> Iterator[str]:
    """Yield a cause by name, both sides where a line holds them, and some of what follows."""
    yield from _title(cause)
    if cause.kind is not ItemKind.KERNEL:
        both = list(sides(cause.changes[0], full=False))
        yield from both if len(both) == 1 else ()
    yield from consequences(cause.consequences, most=4)


def _title(cause: Cause) -> Iterator[str]:
    yield from textwrap.wrap(
        f"{cause.id}{_members(cause)}",
        WIDTH,
        initial_indent=f"  {cause.change.value:<14} ",
        subsequent_indent=" " * 17,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _members(cause: Cause) -> str:
    """Return which things of its group a cause is about, or how many where their names are long."""
    if cause.changes[0].id == cause.id:
        return ""
    if cause.kind is ItemKind.FINDING:
        files = sorted({change.item.where.rpartition("/")[2] for change in cause.changes})
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        return f" in {', '.join(files[:3])}{more}"
    if cause.kind in _NAMED:
        return f": {', '.join(_both_names(change) for change in cause.changes)}"
    return f" ({len(cause.changes)} of them)" if len(cause.changes) > 1 else ""


def _how_moved(change: Change) -> str:
    if change.now is None or change.before is None:
        return "another kernel of the same tile"
    return _NEW_CODE if change.now.note == change.before.note else "other settings"


def _short(change: Change) -> str:
    """Return the name of a thing within its group."""
    return short_name(change.before or change.item)


def _both_names(change: Change) -> str:
    """Return the name of a thing within its group, and the new one of what is renamed."""
    names = [short_name(item) for item in (change.before, change.now) if item is not None]
    return " -> ".join(dict.fromkeys(names))


def short_name(item: Item) -> str:
    """Return the name of a thing within its group."""
    return re.split(r"[ .(]", item.key.removesuffix(")"))[-1]


def sides(change: Change, full: bool, *, named: bool = False) -> Iterator[str]:
    """Yield what stands in the old release and in the new one.

    Args:
        change: The change.
        full: Leave nothing out, and begin with the id.
        named: Begin with the name within the group.
    """
    old = _side_text(change.before, change.now, full)
    new = _side_text(change.now, change.before, full)
    name = f"{change.id}: " if full else f"{_short(change)}: " if named else ""
    renamed = change.before and change.now and change.before.key != change.now.key
    if renamed and change.now is not None:
        new = f"renamed to {change.now.key}, {new}"
    if len(old) + len(new) + len(name) < WIDTH - 20:
        yield f"      {name}{old} -> {new}"
    else:
        yield from wrapped(f"{name}before", old)
        yield from wrapped(f"{name}now", new)


def _side_text(item: Item | None, other: Item | None, full: bool) -> str:
    """Return what stands on one side; of a cell's kernels, those that the other side has not."""
    if item is None:
        return "nothing"
    text = item.text
    if item.findings and item.kind not in CALLS:
        text = item.findings[0].message.removeprefix(f"{item.key}: ")
    if item.kind in (ItemKind.PARAMETER, ItemKind.ANCHOR) and not item.findings and item.note:
        text = f"{text} ({item.note})"
    if not full:
        text = textwrap.shorten(text, 200 if item.kind is ItemKind.CELL else 260, placeholder=" ...")
    if item.kind is ItemKind.CELL:
        text = f"{text}{_kernels(item, other, full)}"
    elif full and item.note:
        text = f"{text} [{item.note}]"
    at = f" at {item.where}" if item.where else ""
    return f"{text}{at}"


def _kernels(cell: Item, other: Item | None, full: bool) -> str:
    elsewhere = [] if other is None else other.note.split("\n")
    own = [line for line in cell.note.split("\n") if line and line not in elsewhere]
    shown = own if full else own[:2]
    more = [f"and {len(own) - len(shown)} more"] if len(own) > len(shown) else []
    return f" [{'; '.join([*shown, *more])}]" if own else ""


def wrapped(label: str, text: str, indent: str = "      ") -> Iterator[str]:
    """Yield ``label: text`` as lines that are not too long, those after the first a little further in."""
    yield from textwrap.wrap(
        f"{label}: {text}",
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def consequences(changes: Sequence[Change], full: bool = False, most: int = SHOWN) -> Iterator[str]:
    """Yield what follows from a cause: cells together where they say the same, the rest by kind."""
    if full:
        yield "      so that:"
        for change in changes:
            yield f"        {change.change.value:<14} {change.id}"
            yield from (f"  {line}" for line in sides(change, full))
        return
    others: dict[tuple[ItemKind, ChangeClass], list[Change]] = defaultdict(list)
    for change in changes:
        others[change.item.kind, change.change].append(change)
    for (kind, found), members in others.items():
        if kind is ItemKind.CELL:
            names = compress_cells(change.item.key for change in members)
        else:
            names = list(dict.fromkeys(change.group for change in members))
        between = "; " if kind is ItemKind.CASE else ", "
        yield from wrapped(f"-> {count(len(members), kind)} {found.value}", listed(names, between, most))


def compress_cells(cells: Iterable[str]) -> list[str]:
    """Return cells as few texts: those alike but for one axis are written together, ``{a,b}``.

    Activations are joined first, then routers, schemes and archs.
    """
    axes = load_axes()
    order = [list(axes.archs), list(axes.schemes), list(axes.activations), ["out", "in"]]
    texts = [tuple(cell.split("/")) for cell in cells]
    for axis in (2, 3, 1, 0):
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for parts in texts:
            groups[(*parts[:axis], *parts[axis + 1 :])].append(parts[axis])
        texts = [
            (*rest[:axis], _joined(sorted(values, key=order[axis].index)), *rest[axis:])
            if all(value in order[axis] for value in values)
            else (*rest[:axis], _joined(values), *rest[axis:])
            for rest, values in groups.items()
        ]
    return ["/".join(parts) for parts in texts]


def count(number: int, kind: ItemKind) -> str:
    """Return how many things of a kind, e.g. ``1 cell``, ``2 tuned rows``."""
    one, several = _NOUNS.get(kind, (kind.value, f"{kind.value}s"))
    return f"{number} {one if number == 1 else several}"


def listed(names: Sequence[str], between: str = ", ", most: int = SHOWN) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def _joined(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else "{" + ",".join(values) + "}"


def row_evidence(change: Change) -> str:
    """Return what became of a row of a table, with where it is to be seen."""
    was = "no row" if change.before is None else f"was {change.before.where}"
    if change.now is None:
        return f"{was}, now no row"
    wrong = change.now.findings[0].message if change.now.findings else change.now.text
    return f"{was}, now {change.now.where}: {wrong}"
