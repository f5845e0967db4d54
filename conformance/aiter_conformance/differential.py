"""The same inputs to two subjects: the same call, the same refusal, or a difference that is listed.

An input is plain values, so that a failing one prints as one line from which it can be built again. It is
run on a subject (`Input.observe`), which describes what happened: tensors by the name of the input that they
are, or else by their values. `mismatches` compares two observations and names, for each place where they
disagree, the listed difference that explains it.

Every difference has a witness, an input that shows it: one that no longer shows is stale, which is an error.
The inputs are in `differential_leaf` (a use of a leaf) and `differential_parts` (what is around it).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, Protocol

from aiter_conformance.protocols import Difference, Subject

CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Refused:
    """The subject said no, by SPEC's type for it, or broke (`CRASH`). The text is not compared."""

    kind: str
    text: str = field(compare=False)

    @classmethod
    def of(cls, subject: Subject, error: Exception) -> Refused:
        """Return what an error of the subject stands for."""
        kind = subject.refusal(error)
        return cls(CRASH if kind is None else kind.__name__, f"{type(error).__name__}: {error}")


# What was observed of a subject, by name. Where it refused there is a "refused" instead of the rest.
Observation = dict[str, Any]


class Input(Protocol):
    """Something to run two subjects on; a frozen dataclass of plain values."""

    def observe(self, subject: Subject) -> Observation:
        """Run a subject on the input, in an environment of its own, and describe what it does."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One place where two subjects disagree, and the listed difference that explains it, if one does."""

    what: str
    impl: Any
    other: Any
    difference: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: impl {self.impl!r}, the other subject {self.other!r}"


@dataclass(frozen=True, slots=True)
class ListedDifference(Difference):
    """A difference with how to recognise it.

    Attributes:
        what: What the subject does where SPEC asks for something else, one sentence.
        spec: Where SPEC says so.
        explains: Whether the difference is the reason for a mismatch on an input. It must look at the input
            and at both sides: one that explains too much hides other faults.
        witnesses: Inputs on which it shows; none where only other suites can show it.
    """

    what: str
    spec: str
    explains: Callable[[Any, Mismatch], bool]
    witnesses: tuple[Input, ...]


def mismatches(
    given: Input, impl: Subject, other: Subject, listed: Collection[ListedDifference]
) -> list[Mismatch]:
    """Run both subjects on an input and return where they disagree, explained as far as possible."""
    ours, theirs = given.observe(impl), given.observe(other)
    if "refused" in ours or "refused" in theirs:
        # What one of them did after the other refused has nothing to be compared with.
        keys = [*(key for key in ours if key in theirs and key != "refused"), "refused"]
    else:
        keys = [*ours, *(key for key in theirs if key not in ours)]
    found = []
    for key in keys:
        mine, its = ours.get(key, "absent"), theirs.get(key, "absent")
        broken = isinstance(mine, Refused) and mine.kind == CRASH  # that both break is no agreement
        if type(mine) is type(its) and mine == its and not broken:
            continue
        mismatch = Mismatch(key, mine, its)
        reason = next((d.id for d in listed if d.explains(given, mismatch)), None)
        found.append(replace(mismatch, difference=reason))
    return found


def unlisted(given: Input, impl: Subject, other: Subject, listed: Collection[ListedDifference]) -> str | None:
    """Return what no listed difference explains, as text that names the input; None when all is explained."""
    wrong = [m for m in mismatches(given, impl, other, listed) if m.difference is None]
    if not wrong:
        return None
    return "\n".join([f"{impl.name} and {other.name} disagree on {brief(given)}", *(f"  {m}" for m in wrong)])


def brief(value: Any) -> str:
    """Return the shortest constructor call that makes an input: what is at its default is left out."""
    if not is_dataclass(value):
        return repr(value) if not isinstance(value, tuple) else f"({''.join(f'{brief(v)}, ' for v in value)})"
    given = []
    for item in fields(value):
        own = getattr(value, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if own != default:
            given.append(f"{item.name}={brief(own)}")
    return f"{type(value).__name__}({', '.join(given)})"


def stale(impl: Subject, other: Subject, listed: Collection[ListedDifference]) -> list[str]:
    """Return, a sentence each, where a listed difference does not show on one of its witnesses."""
    return [
        f"{difference.id} no longer shows on {brief(witness)}"
        for difference in listed
        for witness in difference.witnesses
        if all(m.difference is None for m in mismatches(witness, impl, other, [difference]))
    ]
