"""The one table of the gate: how a thing stood before, how it stands now, and what that change is called."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from aiter_conformance.outcome import Kind
from aiter_conformance.verdicts import Verdict


class Standing(StrEnum):
    """How a thing stands in one release."""

    GOOD = "good"
    BAD = "bad"
    REFUSED = "refused"  # the leaf refuses it, and nothing says otherwise
    UNCLAIMED = "unclaimed"  # the leaf refuses it, and it works
    UNKNOWN = "unknown"  # looked for, and nothing could be said
    ABSENT = "absent"  # not there, or never looked for


class ChangeClass(StrEnum):
    """What a change is called; the order is that of the page, what weighs most first."""

    REGRESSED = "regressed"
    API_CHANGED = "api-changed"
    LOST = "lost"
    UNKNOWN = "unknown"
    FIXED = "fixed"
    NEW = "new"
    STILL_BAD = "still-bad"
    KERNEL_CHANGED = "kernel-changed"
    TUNED_CHANGED = "tuned-changed"
    SAME = "same"

    @property
    def meaning(self) -> str:
        """What the class says, as one clause for people."""
        return _MEANINGS[self]

    @property
    def direction(self) -> int:
        """-1 for what got worse, 1 for what got better, 0 for what is merely otherwise."""
        return _DIRECTIONS[self]


_MEANINGS: Final = {
    ChangeClass.REGRESSED: "was good, or not known to be bad, and is bad now",
    ChangeClass.LOST: "was known, and is not any more",
    ChangeClass.API_CHANGED: "the interface that callers use is another",
    ChangeClass.UNKNOWN: "nothing is known of it on either side",
    ChangeClass.FIXED: "was bad, and is good or gone now",
    ChangeClass.NEW: "is known to be there now, and was not",
    ChangeClass.STILL_BAD: "was bad, and is bad otherwise now: no regression, and not mended",
    ChangeClass.KERNEL_CHANGED: "another kernel, or another choice of kernels; alone no regression",
    ChangeClass.TUNED_CHANGED: "a tuned row says something else, or is found otherwise; alone no regression",
    ChangeClass.SAME: "as before",
}
_DIRECTIONS: Final = {
    ChangeClass.REGRESSED: -1,
    ChangeClass.LOST: -1,
    ChangeClass.API_CHANGED: -1,
    ChangeClass.UNKNOWN: 0,
    ChangeClass.FIXED: 1,
    ChangeClass.NEW: 1,
    ChangeClass.STILL_BAD: 0,
    ChangeClass.KERNEL_CHANGED: 0,
    ChangeClass.TUNED_CHANGED: 0,
    ChangeClass.SAME: 0,
}
# What ends with exit code 1 unless --fail-on says otherwise.
FAILING: Final = (ChangeClass.REGRESSED, ChangeClass.LOST, ChangeClass.API_CHANGED)

_COLUMNS: Final = (
    Standing.GOOD,
    Standing.BAD,
    Standing.REFUSED,
    Standing.UNCLAIMED,
    Standing.UNKNOWN,
    Standing.ABSENT,
)
# Rows: before. Columns: now, in the order above. What was bad and cannot be seen any more is lost, not fixed;
# what is bad now and was never looked at counts as regressed, since nothing says that it was bad before.
_GRID: Final = {
    # before:             good     bad          refused      unclaimed    unknown    absent
    Standing.GOOD: "      same     regressed    regressed    regressed    lost       lost",
    Standing.BAD: "       fixed    same         fixed        fixed        lost       fixed",
    Standing.REFUSED: "   new      regressed    same         new          lost       lost",
    Standing.UNCLAIMED: " fixed    regressed    regressed    same         lost       lost",
    Standing.UNKNOWN: "   new      regressed    new          new          unknown    lost",
    Standing.ABSENT: "    new      regressed    new          new          unknown    same",
}
TABLE: Final[dict[tuple[Standing, Standing], ChangeClass]] = {
    (before, now): ChangeClass(name)
    for before, names in _GRID.items()
    for now, name in zip(_COLUMNS, names.split(), strict=True)
}

STANDING_OF_VERDICT: Final[dict[Verdict, Standing]] = {
    Verdict.KNOWN_BAD: Standing.BAD,
    Verdict.CONFLICT: Standing.BAD,
    Verdict.UNCLAIMED: Standing.UNCLAIMED,
    Verdict.UNSUPPORTED: Standing.REFUSED,
    Verdict.VALIDATED: Standing.GOOD,
    Verdict.EMULATED: Standing.GOOD,
    Verdict.MODELLED: Standing.GOOD,
    Verdict.DECLARED: Standing.GOOD,
    Verdict.UNKNOWN: Standing.UNKNOWN,
}
# How a level of a cell ended; ``partial k/n`` over several boards counts as bad, some of them did not pass.
STANDING_OF_LEVEL: Final[dict[str, Standing]] = {
    Kind.PASS.value: Standing.GOOD,
    Kind.FAIL.value: Standing.BAD,
    Kind.CRASH.value: Standing.BAD,
    Kind.TIMEOUT.value: Standing.BAD,
    Kind.REFUSED.value: Standing.BAD,
    Kind.SKIPPED.value: Standing.UNKNOWN,
    Kind.NOT_RUN.value: Standing.UNKNOWN,
}


def change_of_verdicts(before: Verdict, now: Verdict) -> ChangeClass:
    """Return what the change of a cell's verdict is called; a weaker good verdict is a loss of knowledge."""
    found = TABLE[STANDING_OF_VERDICT[before], STANDING_OF_VERDICT[now]]
    if found is ChangeClass.SAME and before.strength != now.strength:
        return ChangeClass.LOST if now.strength < before.strength else ChangeClass.NEW
    return found


def change_of_levels(before: dict[str, str], now: dict[str, str]) -> ChangeClass:
    """Return what the change of a good cell's levels is called: that of the worst level.

    Args:
        before: How each level ended, by its name; ``partial k/n`` where boards differ, ``ran k/n`` where
            some inputs could not be executed.
        now: The same of the other release. A level that only one side has is absent on the other.
    """
    changes = {
        TABLE[_standing(before.get(level)), _standing(now.get(level))] for level in (*before, *now)
    } - {ChangeClass.UNKNOWN}
    return min(changes, key=list(ChangeClass).index, default=ChangeClass.SAME)


def _standing(how: str | None) -> Standing:
    if how is None:
        return Standing.ABSENT
    # ``ran k/n``: the rest could not be executed here, of which nothing is known.
    return Standing.UNKNOWN if how.startswith("ran ") else STANDING_OF_LEVEL.get(how, Standing.BAD)
