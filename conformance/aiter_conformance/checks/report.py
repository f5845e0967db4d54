"""What a check found: every comparison counted, and listed differences told from failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from aiter_conformance.protocols import Subject

# A sweep can fail thousands of times for one reason; the first few say it.
SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One comparison that failed.

    Attributes:
        where: What was compared.
        expected: What the contract says.
        got: What the subject did.
        difference: Id of the difference that explains it where a subject lists that id; None: nothing does.
    """

    where: str
    expected: Any
    got: Any
    difference: str | None

    def __str__(self) -> str:
        return f"{self.where}: must be {self.expected!r} (got {self.got!r})"


@dataclass
class Report:
    """The outcome of one check over one subject.

    Attributes:
        compared: How many comparisons were made.
        mismatches: Those that failed.
        exercised: Ids of the differences that could have shown.
    """

    compared: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    exercised: set[str] = field(default_factory=set)

    def compare(self, where: str, expected: Any, got: Any, difference: str | None = None) -> bool:
        """Compare by ``==`` and by type, and say whether it held.

        Args:
            where: What was compared, so that a reader finds it.
            expected: What the contract says.
            got: What the subject did.
            difference: Id in `aiter_conformance.differences` under which a subject may differ here.
        """
        self.compared += 1
        if difference is not None:
            self.exercised.add(difference)
        # True == 1 and 0.0 == 0, but neither is what was asked for.
        held = type(expected) is type(got) and bool(expected == got)
        if not held:
            self.mismatches.append(Mismatch(where, expected, got, difference))
        return held

    def merge(self, other: Report) -> None:
        """Take over everything that another report found."""
        self.compared += other.compared
        self.mismatches += other.mismatches
        self.exercised |= other.exercised

    def known(self, subject: Subject) -> set[str]:
        """Return the ids of the listed differences that showed."""
        return {
            m.difference
            for m in self.mismatches
            if m.difference is not None and m.difference in subject.differences
        }

    def problems(self, subject: Subject) -> list[str]:
        """Return what is wrong with the subject, a sentence each; empty when it conforms.

        A mismatch is wrong unless the subject lists the difference that explains it. A listed difference
        that could have shown and did not is wrong too, and so is a check that compared nothing.
        """
        if not self.compared:
            return ["nothing was compared: the check proves nothing"]
        wrong = [m for m in self.mismatches if m.difference not in subject.differences]
        found = [str(m) for m in wrong[:SHOWN]]
        if len(wrong) > SHOWN:
            found.append(f"... and {len(wrong) - SHOWN} more of {self.compared} comparisons")
        stale = (self.exercised & set(subject.differences)) - self.known(subject)
        found += [
            f"{subject.name} {subject.version} lists {identity!r}, which no longer shows: take it off"
            for identity in sorted(stale)
        ]
        return found
