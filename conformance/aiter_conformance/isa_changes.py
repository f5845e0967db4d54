"""What changed between two releases in what their MoE code objects compute.

Only objects with other bytes are compared: the same bytes under the same name compute the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiter_conformance.publish.sweep import RESULTS, WRONG_AT_ODD, Line, line, object_of
from aiter_conformance.release.artefact import Release

if TYPE_CHECKING:  # the sweep needs numba, comparing its results does not
    from aiter_conformance.isa.sweep import Result

ABSENT: Final = "absent"
_WORSE_THAN: Final = {
    "right": {WRONG_AT_ODD, "wrong", "not executable", ABSENT},
    WRONG_AT_ODD: {"wrong", "not executable", ABSENT},
    ABSENT: {"wrong"},
}
"""What is worse than what was. Code that was right and can no longer be executed is not known to be right."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object that has other bytes in two releases, or is in one of them alone.

    Attributes:
        path: Release-relative path.
        before: `Line.result` in the older release, or `ABSENT`.
        after: The same in the newer one.
        reason_before: One sentence; empty where it was right or absent.
        reason: The same of the newer release.
    """

    path: str
    before: str
    after: str
    reason_before: str
    reason: str

    @property
    def object(self) -> str:
        """What `Line.object` has of its path."""
        return object_of(self.path)

    @property
    def worse(self) -> bool:
        """Whether the newer release must not be taken for it: it was right, or is new, and now is wrong."""
        return self.after in _WORSE_THAN.get(self.before, ())

    @property
    def why(self) -> str:
        """The reason for what it is now; for what is right now, the reason for what it was."""
        if self.reason or not self.reason_before:
            return self.reason
        return f"before: {self.reason_before}"


def differing(release: Release, other: Release, paths: Sequence[str]) -> list[str]:
    """Return the paths at which two releases do not hold the same bytes; one that neither has is no such.

    Args:
        release: An open release.
        other: Another.
        paths: Release-relative paths.
    """
    here, there = set(release.files.paths), set(other.files.paths)
    both = [path for path in paths if path in here & there]
    pairs = zip(release.files.read_many(both), other.files.read_many(both), strict=True)
    other_bytes = {path for (path, content), (_, before) in pairs if content != before}
    return [path for path in paths if path in other_bytes or path in here ^ there]


def compare(before: Iterable[Result], after: Iterable[Result]) -> list[Change]:
    """Return what changed, what is worse first.

    Args:
        before: What the sweep found of objects of the older release; one that is missing is absent.
        after: The same of the newer release; what is compared is what is here.
    """
    was = {result.path: result for result in before}
    changes = []
    for result in after:
        earlier, now = _found(was.get(result.path)), _found(result)
        changes.append(
            Change(
                path=result.path,
                before=earlier.result if earlier else ABSENT,
                after=now.result if now else ABSENT,
                reason_before=earlier.reason if earlier else "",
                reason=now.reason if now else "the object is not in the release",
            )
        )
    return sorted(changes, key=lambda change: (not change.worse, change.path))


def _found(result: Result | None) -> Line | None:
    return None if result is None or result.sha256 is None else line(result)


def counts(changes: Iterable[Change]) -> list[tuple[str, str, int]]:
    """Return (before, after, objects) of what changed, in the order in which results are shown."""
    order = (*RESULTS, ABSENT)
    found = Counter((change.before, change.after) for change in changes)
    return [(*key, found[key]) for key in sorted(found, key=lambda key: [order.index(one) for one in key])]
