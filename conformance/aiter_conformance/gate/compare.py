"""Compares two releases thing by thing: every change has its class from the one table, and both sides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiter_conformance.gate import calls
from aiter_conformance.gate.classes import TABLE, ChangeClass, Standing
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.ledger import Entry, Observation, explains, without_line

_GATE_MODE: Final = re.compile(r" gate_mode=\S+")
_INTERFACE: Final = (ItemKind.FUNCTION, ItemKind.PARAMETER, ItemKind.ENUM, ItemKind.MEMBER)
# What is not listed at all is good: there is nothing wrong with it.
_GOOD_WHEN_ABSENT: Final = (ItemKind.FINDING, ItemKind.IMPORT, ItemKind.DISPATCH)
# What another text means where both sides stand alike. The compiler of FlyDSL kernels makes other kernels.
_CHANGED: Final = {
    ItemKind.PARAMETER: ChangeClass.API_CHANGED,
    ItemKind.MEMBER: ChangeClass.API_CHANGED,
    ItemKind.REQUIREMENT: ChangeClass.KERNEL_CHANGED,
    ItemKind.KERNEL: ChangeClass.KERNEL_CHANGED,
    ItemKind.CELL: ChangeClass.KERNEL_CHANGED,
    ItemKind.TUNED: ChangeClass.TUNED_CHANGED,
}


@dataclass(frozen=True)
class Change:
    """One thing in both releases.

    Attributes:
        change: What the change is called.
        before: The thing in the old release; None where it is not there.
        now: The same in the new release.
        covered: What explains it, so that it does not fail: a ledger entry or an anchor; None if nothing.
        reason: For a cell, the reason code behind its verdict in the new release, if it has one.
    """

    change: ChangeClass
    before: Item | None
    now: Item | None
    covered: str | None = None
    reason: str | None = None

    @property
    def item(self) -> Item:
        """The thing, in the release that is looked at last."""
        found = self.now or self.before
        assert found is not None  # noqa: S101 -- a change has a side
        return found

    @property
    def id(self) -> str:
        """How the thing is named on the command line; a renamed one by its old name."""
        return (self.before or self.item).id

    @property
    def group(self) -> str:
        """What it is shown together with."""
        return (self.before or self.item).group or (self.before or self.item).key

    @property
    def rests_on(self) -> frozenset[str]:
        """The tokens that it rested on before or rests on now."""
        return frozenset(token for item in (self.before, self.now) if item for token in item.rests_on)

    @property
    def provides(self) -> frozenset[str]:
        """The tokens that others rested on before or rest on now."""
        return frozenset(token for item in (self.before, self.now) if item for token in item.provides)


def compare_items(
    before: Iterable[Item], now: Iterable[Item], version: str, ledger: Sequence[Entry]
) -> list[Change]:
    """Compare all items of two releases but their cells.

    Args:
        before: Those of the old release.
        now: Those of the new release.
        version: Version of the new release, which the windows of ledger entries are about.
        ledger: The known findings.

    Returns:
        A change for each item of either side, also for what is the same.
    """
    old, new = ({item.id: item for item in items} for items in (before, now))
    renamed = _renamed(old, new)
    changes = []
    for id_ in dict.fromkeys((*old, *new)):
        if id_ in renamed.values():
            continue
        was, is_ = old.get(id_), new.get(renamed.get(id_, id_))
        found = ChangeClass.API_CHANGED if id_ in renamed else _classify(was, is_, old, new)
        if found is not ChangeClass.SAME and (is_ or was).kind in calls.CALLS:  # type: ignore[union-attr]
            was, is_ = calls.explained(was, is_)
        changes.append(Change(found, was, is_, _covered(found, was, is_, new, version, ledger)))
    return changes


def _classify(
    before: Item | None, now: Item | None, old: Mapping[str, Item], new: Mapping[str, Item]
) -> ChangeClass:
    item = now or before
    assert item is not None  # noqa: S101 -- one of the two is there
    found = TABLE[_standing(before, item.kind), _standing(now, item.kind)]
    if item.kind is ItemKind.DISPATCH and found is not ChangeClass.SAME:
        return ChangeClass.TUNED_CHANGED  # what fails because of it is among the calls
    if before is None or now is None:
        return _appeared_or_gone(found, before, now, old, new)
    if found is ChangeClass.SAME and before.text != now.text:
        if item.kind is ItemKind.FUNCTION:
            return ChangeClass.API_CHANGED if _reordered(before, now) else ChangeClass.SAME
        if item.kind is ItemKind.PARAMETER and before.text == "required":
            return ChangeClass.NEW  # whoever gave it may go on, others need not
        if item.kind in calls.CALLS:
            return calls.classify(before, now)
        return _CHANGED.get(item.kind, ChangeClass.SAME)
    return found


def _appeared_or_gone(
    found: ChangeClass,
    before: Item | None,
    now: Item | None,
    old: Mapping[str, Item],
    new: Mapping[str, Item],
) -> ChangeClass:
    if before is not None and before.kind in calls.CALLS:
        return ChangeClass.LOST  # what is not looked at any more is not mended
    if found is ChangeClass.LOST and before is not None:
        if before.kind in _INTERFACE:
            return ChangeClass.API_CHANGED
        if before.kind is ItemKind.KERNEL and _tile_is_kept(before, new):
            return ChangeClass.KERNEL_CHANGED
        if before.kind is ItemKind.TUNED and _is_in_wider_key(before, new):
            return ChangeClass.TUNED_CHANGED
        if before.kind is ItemKind.REQUIREMENT:
            return ChangeClass.KERNEL_CHANGED
    if now is not None and now.kind is ItemKind.PARAMETER and now.text == "required":
        known = f"{ItemKind.FUNCTION.value}:{now.group}" in old
        return ChangeClass.API_CHANGED if known else found
    return found


def _standing(item: Item | None, kind: ItemKind) -> Standing:
    if item is not None:
        return item.standing
    return Standing.GOOD if kind in _GOOD_WHEN_ABSENT else Standing.ABSENT


def _tile_is_kept(gone: Item, new: Mapping[str, Item]) -> bool:
    """Say whether a manifest still has a sound kernel with the settings of one that is gone.

    Another tile would not do: which shapes have a kernel at all depends on the tiles that there are.
    """
    return any(
        item.kind is ItemKind.KERNEL
        and item.group == gone.group
        and item.note == gone.note
        and item.standing is Standing.GOOD
        for item in new.values()
    )


def _is_in_wider_key(gone: Item, new: Mapping[str, Item]) -> bool:
    """Say whether a tuned key that named a gate mode is there without one, and so for every gate mode."""
    wider = new.get(_GATE_MODE.sub("", gone.id))
    return wider is not None and wider.standing is Standing.GOOD


def _reordered(before: Item, now: Item) -> bool:
    old, new = before.text.split(", "), now.text.split(", ")
    return [name for name in old if name in new] != [name for name in new if name in old]


def _renamed(old: Mapping[str, Item], new: Mapping[str, Item]) -> dict[str, str]:
    """Return, by the id of each parameter that is gone, that of the one which stands in its place."""
    gone = {i: item for i, item in old.items() if item.kind is ItemKind.PARAMETER and i not in new}
    come = {i: item for i, item in new.items() if item.kind is ItemKind.PARAMETER and i not in old}
    return {
        was: is_
        for was, item in gone.items()
        for is_, other in come.items()
        if (item.group, item.note) == (other.group, other.note)
    }


def _covered(
    found: ChangeClass,
    before: Item | None,
    now: Item | None,
    new: Mapping[str, Item],
    version: str,
    ledger: Sequence[Entry],
) -> str | None:
    if found.direction >= 0:
        return None
    if found in (ChangeClass.LOST, ChangeClass.API_CHANGED):
        entry = explains(ledger, _dropped(found, before, now, version))
        if entry is not None:
            return f"ledger: {entry.id} ({entry.reported})"
    if now is None:
        return None
    if now.kind in calls.CALLS:
        return calls.covered(now, version, ledger)
    if now.kind is ItemKind.PARAMETER and before is not None and before.key == now.key:
        return _allowed_default(before, now, new)
    entries = [
        explains(
            ledger,
            Observation(version, path=without_line(f.path), reason=f.code, message=f.message),
        )
        for f in now.findings
    ]
    names = [f"ledger: {entry.id} ({entry.reported})" for entry in entries if entry is not None]
    return ", ".join(dict.fromkeys(names)) if entries and len(names) == len(entries) else None


def _dropped(found: ChangeClass, before: Item | None, now: Item | None, version: str) -> Observation:
    """Return what an entry of the ledger can explain about something that is gone, or is another for callers.

    It is about the file that the thing was in; what is in none is its own path.
    """
    item = before or now
    assert item is not None  # noqa: S101 -- one of the two is there
    texts = ["nothing" if side is None else side.text for side in (before, now)]
    return Observation(
        version,
        path=without_line(item.where) or item.id,
        reason=found.value,
        message=f"{item.id}: {texts[0]} -> {texts[1]}",
    )


def _allowed_default(before: Item, now: Item, new: Mapping[str, Item]) -> str | None:
    """Return the anchor that allows the new default of a parameter, or None."""
    if not (before.text.startswith("default") and now.text.startswith("default")):
        return None
    return next(
        (
            f"contract: anchor {item.key} allows both"
            for item in new.values()
            if item.kind is ItemKind.ANCHOR
            and f"parameter {now.key}" in item.rests_on
            and item.standing is Standing.GOOD
        ),
        None,
    )
