"""Machine code that is new in a release: which objects have other bytes, and what is said of them.

The gate compares bytes and runs none: whether new machine code computes what it should, it cannot say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiter_conformance.gate.compare import Change
from aiter_conformance.gate.item import Item, ItemKind


@dataclass(frozen=True, slots=True)
class NewCode:
    """An object whose bytes the old release does not have at this path.

    Attributes:
        path: Release-relative file.
        before: How the hash of its bytes began in the old release; None where it was not there.
        now: How the hash begins in the new release.
    """

    path: str
    before: str | None
    now: str


def find_new_code(changes: Iterable[Change]) -> tuple[NewCode, ...]:
    """Return the objects of manifest rows that have new bytes, sorted by path.

    Args:
        changes: Any changes, also those of what is the same: a row may move to an object that was there.
    """
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        for item, found in ((change.before, old), (change.now, new)):
            if item is not None and item.kind is ItemKind.KERNEL and item.code is not None:
                found[_path(item)] = item.code
    return tuple(
        NewCode(path, old.get(path), code) for path, code in sorted(new.items()) if old.get(path) != code
    )


def new_paths(changes: Iterable[Change], code: Iterable[NewCode]) -> list[str]:
    """Return those of *code* that some changes are about, by path."""
    about = {_path(change.now) for change in changes if change.now and change.now.kind is ItemKind.KERNEL}
    return [one.path for one in code if one.path in about]


def _path(item: Item) -> str:
    """Return the object of a row: of the files that it rests on, the one that is not its manifest."""
    files = [token.removeprefix("file ") for token in item.rests_on if token.startswith("file ")]
    return next((path for path in files if path != item.group), item.group)
