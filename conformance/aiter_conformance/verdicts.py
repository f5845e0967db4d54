"""The one table of verdicts: what is observed of a cell, and what that is called.

A level of evidence that executes the release's own kernels has its verdict in one line, see `EXECUTED`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiter_conformance.evidence import Level
from aiter_conformance.ledger import Entry
from aiter_conformance.outcome import Kind, Outcome

_BROKEN: Final = (Kind.REFUSED, Kind.FAIL, Kind.CRASH, Kind.TIMEOUT)


class Verdict(StrEnum):
    """What the matrix says of a cell."""

    KNOWN_BAD = "known-bad"
    CONFLICT = "conflict"
    UNCLAIMED = "unclaimed"
    UNSUPPORTED = "unsupported"
    VALIDATED = "validated"
    EMULATED = "emulated"
    MODELLED = "modelled"
    DECLARED = "declared"
    UNKNOWN = "unknown"

    @property
    def meaning(self) -> str:
        """What the verdict says, as one sentence for people."""
        return _MEANINGS[self]

    @property
    def strength(self) -> int:
        """How much stands behind a cell that is good: 0 for one that is not, more for stronger evidence."""
        return _GOOD.index(self) + 1 if self in _GOOD else 0


# Levels that execute the release's own kernels, strongest first, each with the verdict where it holds. A new
# one is a line here (and its name in `evidence.Level`): nothing else derives verdicts.
EXECUTED: Final = {Level.HARDWARE: Verdict.VALIDATED, Level.ISA: Verdict.EMULATED}
_GOOD: Final = (Verdict.DECLARED, Verdict.MODELLED, *reversed(EXECUTED.values()))
_MEANINGS = {
    Verdict.KNOWN_BAD: "It fails as a known finding in the ledger says.",
    Verdict.CONFLICT: "The leaf accepts it, but the evidence says that it does not work with this release.",
    Verdict.UNCLAIMED: "The leaf refuses it, but the release's kernels were seen to work.",
    Verdict.UNSUPPORTED: "The leaf refuses it, with the reason given.",
    Verdict.VALIDATED: "The real kernel on the real GPU gave the right numbers.",
    Verdict.EMULATED: "The release's machine code, run by an emulator, gave the right numbers.",
    Verdict.MODELLED: "The numbers are right with modelled kernels, and the release picks those kernels.",
    Verdict.DECLARED: (
        "The leaf accepts it and no level found it broken. Not all of the kernels that it gets were checked."
    ),
    Verdict.UNKNOWN: "Nothing was observed.",
}


@dataclass(frozen=True)
class Observations:
    """Everything observed of one cell, by level; several boards of an arch may stand side by side.

    Attributes:
        by_level: The outcomes.
        known: The ledger's entry that explains the first broken one, or None.
    """

    by_level: dict[Level, list[Outcome]]
    known: Entry | None = None

    def kinds(self, level: Level) -> set[Kind]:
        """Return the kinds of outcome at a level; empty when it was never run."""
        return {outcome.kind for outcome in self.by_level.get(level, [])}

    def holds(self, level: Level) -> bool:
        """Return whether the level was run and every outcome passed."""
        return self.kinds(level) == {Kind.PASS}

    def launched_but_not_modelled(self) -> list[str]:
        """Return the kernel families that a trace launched and level reference did not model, sorted."""
        launched = {name for o in self.by_level.get(Level.TRACE, []) for name in o.details.get("kernels", {})}
        modelled = {
            name for o in self.by_level.get(Level.REFERENCE, []) for name in o.details.get("families", [])
        }
        return sorted(launched - modelled)

    def unchecked(self) -> str | None:
        """Return which of the kernels that it gets were not checked where others were, or None.

        Said of a cell whose numbers are right with modelled kernels, where the release picks others too.
        """
        missing = self.launched_but_not_modelled()
        if not missing or not (self.holds(Level.REFERENCE) and self.holds(Level.TRACE)):
            return None
        return (
            "The numbers are right with modelled kernels, but the release also picks kernels that are not "
            f"modelled: {', '.join(missing)}."
        )

    def worst(self) -> tuple[Level, Outcome] | None:
        """Return the first broken observation, the strongest level first, or None."""
        for level in reversed(Level):
            for outcome in self.by_level.get(level, []):
                if outcome.kind in _BROKEN:
                    return level, outcome
        return None


def _refused(seen: Observations) -> bool:
    return Kind.REFUSED in seen.kinds(Level.DECLARED)


def _works(seen: Observations) -> bool:
    return any(seen.holds(level) for level in EXECUTED)


def _modelled(seen: Observations) -> bool:
    return seen.holds(Level.REFERENCE) and seen.holds(Level.TRACE) and not seen.launched_but_not_modelled()


@dataclass(frozen=True)
class Rule:
    """A row of the table of verdicts.

    Attributes:
        verdict: What a cell is called that the row applies to.
        when: When it applies, as one clause.
        applies: Whether it applies to what was observed of a cell.
    """

    verdict: Verdict
    when: str
    applies: Callable[[Observations], bool]


def _executed(level: Level, verdict: Verdict) -> Rule:
    return Rule(verdict, f"level {level.value} ran and all of it passed", lambda seen: seen.holds(level))


# First that applies.
TABLE: Final = (
    Rule(
        Verdict.KNOWN_BAD, "a level is broken as an entry of the ledger says", lambda s: s.known is not None
    ),
    Rule(
        Verdict.CONFLICT,
        "the leaf does not refuse it, and a level is broken",
        lambda seen: not _refused(seen) and seen.worst() is not None,
    ),
    Rule(
        Verdict.UNCLAIMED,
        f"the leaf refuses it, and level {' or '.join(level.value for level in EXECUTED)} passed",
        lambda seen: _refused(seen) and _works(seen),
    ),
    Rule(Verdict.UNSUPPORTED, "the leaf refuses it", _refused),
    *(_executed(level, verdict) for level, verdict in EXECUTED.items()),
    Rule(
        Verdict.MODELLED,
        "levels reference and trace passed, and only kernels that were modelled are launched",
        _modelled,
    ),
    Rule(Verdict.DECLARED, "level declared passed", lambda seen: seen.holds(Level.DECLARED)),
    Rule(Verdict.UNKNOWN, "nothing above applies", lambda _seen: True),
)


def rule(seen: Observations) -> Rule:
    """Return the row of the table that says what a cell is called: the first that applies."""
    return next(row for row in TABLE if row.applies(seen))


def judge(seen: Observations) -> Verdict:
    """Return the verdict of a cell."""
    return rule(seen).verdict
