"""How one run of an input ended, and what up to three of them make of the input.

A worker reports attempts; the journal keeps all of them; an outcome is derived here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiter_conformance.outcome import Kind, Outcome, Reason

RUNS: Final = 3
# An input that ended in one of these says that something is wrong.
BAD: Final = (Kind.FAIL, Kind.CRASH, Kind.TIMEOUT, Kind.REFUSED)
# Ways to end that say nothing of the kernel: another run may still succeed.
_AROUND: Final = frozenset({Reason.INFRASTRUCTURE, Reason.OUT_OF_MEMORY})
# Ways to end that another run cannot change.
_SETTLED: Final = frozenset({Kind.PASS, Kind.REFUSED, Kind.SKIPPED})
_SETTLED_REASONS: Final = frozenset({Reason.BUILD_FAILED, Reason.KERNELS_UNSEEN, Reason.OTHER_KERNEL})


@dataclass(frozen=True)
class Attempt:
    """One run of one input.

    Attributes:
        item: Id of the input, as `items.Item` prints it.
        number: The how many-th run it is, from 1.
        kind: How it ended.
        reason: Why; None exactly for a pass.
        message: The same as a sentence; None exactly for a pass.
        details: What was seen: ``kernels`` (names), ``source`` of the names, margins, time.
    """

    item: str
    number: int
    kind: Kind
    reason: Reason | None = None
    message: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """The attempt as an outcome of its own."""
        return Outcome(self.kind, self.reason, self.message, self.details)

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as plain JSON values."""
        plain: dict[str, Any] = {"item": self.item, "number": self.number, "kind": self.kind.value}
        if self.reason is not None:
            plain |= {"reason": self.reason.value, "message": self.message}
        return plain | ({"details": self.details} if self.details else {})


def attempt_from_json(data: dict[str, Any]) -> Attempt:
    """Return the attempt that `Attempt.to_json` gave.

    Raises:
        ValueError: A kind or reason is none of the closed lists.
        KeyError: Something is missing.
    """
    reason = Reason(data["reason"]) if "reason" in data else None
    kind = Kind(data["kind"])
    return Attempt(data["item"], data["number"], kind, reason, data.get("message"), data.get("details", {}))


def decide(attempts: Sequence[Attempt]) -> Outcome | None:
    """Return the outcome of an input, or None where it has to run once more.

    One pass at the first run is a pass, and what cannot change is final. Anything else is run three times:
    when all end in failure the first one is the outcome, and mixed results are ``fail (k/n)``. Runs that
    ended through no fault of the kernel do not count where another one tells more.
    """
    if not attempts:
        return None
    telling = [each for each in attempts if each.reason not in _AROUND]
    first = (telling or attempts)[0]
    settled = first.kind in _SETTLED or first.reason in _SETTLED_REASONS
    if len(telling) == 1 and settled:
        return first.outcome
    if len(attempts) < RUNS:
        return None
    bad = [each for each in telling if each.kind is not Kind.PASS]
    if not telling or not bad:
        return first.outcome
    if len(bad) == len(telling):
        return bad[0].outcome
    worst = bad[0]
    share = f"{len(bad)}/{len(telling)}"
    message = f"It fails now and then ({share} runs). The first failure: {worst.message}"
    return Outcome(Kind.FAIL, worst.reason, message, worst.details | {"failed": share})
