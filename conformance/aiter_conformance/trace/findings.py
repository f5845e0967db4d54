"""What a check of traces can find: a closed list of codes, and how findings are grouped by cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiter_conformance.trace.call import Call


class Code(StrEnum):
    """What is wrong. Those of `FAILING` make a call's outcome a failure; the others are to be known."""

    DIED = "dispatch-died"
    RAISED = "dispatch-raises"
    NO_KERNEL = "no-kernel"
    NOT_FOR_ARCH = "kernel-not-for-arch"
    WRONG_ACTIVATION = "wrong-activation"
    WRONG_DTYPE = "wrong-dtype"
    WRONG_QUANT = "wrong-quantisation"
    WRONG_LAYOUT = "wrong-gate-layout"
    WRONG_ROUTER = "router-weight-misplaced"
    BIAS_DROPPED = "bias-dropped"
    MASK_DROPPED = "expert-mask-dropped"
    PADS_TOO_LARGE = "pads-mask-live-rows"
    SPLIT_TOO_FINE = "split-k-too-fine"
    OFFSET_OVERFLOW = "offset-beyond-32-bit"
    WRONG_FP8 = "fp8-flavour-wrong"
    NOTHING_LAUNCHED = "nothing-launched"
    # to be known
    QUANTISED_SILENTLY = "activations-quantised"
    TUNED_NEVER = "tuned-lookup-never-matches"
    TUNED_KEY_DIFFERS = "tuned-lookup-asks-for-another-call"
    TUNED_NOT_MADE = "tuned-kernel-not-made"
    TUNED_FOR_OTHER = "tuned-row-of-another-activation"
    TUNED_CONFLICT = "tuned-tables-conflict"
    BUCKET_DIFFERS = "token-bucket-of-another-kind"
    FAMILY_UNKNOWN = "family-not-in-specification"
    NOT_WATCHED = "dispatch-not-watched"


FAILING: Final = frozenset(
    {
        *(Code.DIED, Code.RAISED, Code.NO_KERNEL, Code.NOT_FOR_ARCH, Code.NOTHING_LAUNCHED),
        *(Code.WRONG_ACTIVATION, Code.WRONG_DTYPE, Code.WRONG_QUANT, Code.WRONG_LAYOUT, Code.WRONG_ROUTER),
        *(Code.BIAS_DROPPED, Code.MASK_DROPPED, Code.PADS_TOO_LARGE),
        *(Code.SPLIT_TOO_FINE, Code.OFFSET_OVERFLOW, Code.WRONG_FP8),
    }
)

# A finding on the left is a consequence of one on the right about the same call.
_CONSEQUENCE_OF: Final[dict[Code, tuple[Code, ...]]] = {
    Code.TUNED_FOR_OTHER: (Code.TUNED_NEVER,),
    Code.WRONG_ACTIVATION: (Code.TUNED_FOR_OTHER,),
    Code.NO_KERNEL: (Code.TUNED_FOR_OTHER,),
    Code.RAISED: (Code.WRONG_FP8,),
    Code.WRONG_DTYPE: (Code.WRONG_FP8,),
    Code.FAMILY_UNKNOWN: (Code.TUNED_FOR_OTHER,),
    Code.BUCKET_DIFFERS: (Code.TUNED_FOR_OTHER, Code.RAISED, Code.NO_KERNEL),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one call, or with the release on one board.

    Attributes:
        code: What.
        board: Where.
        cause: Words that are the same for every call with the same cause.
        message: One sentence: what was expected, and what is there.
        call: The call; None where the whole board is meant.
    """

    code: Code
    board: str
    cause: str
    message: str
    call: Call | None = None

    @property
    def fails(self) -> bool:
        """Whether the call is a failure because of it."""
        return self.code in FAILING


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, with everything that it explains.

    Attributes:
        code: What.
        cause: In words.
        message: The sentence of the first finding.
        boards: Where, in order of appearance.
        calls: How many calls it is about.
        example: The first of these calls, if there is any.
        consequences: Causes that follow from it.
    """

    code: Code
    cause: str
    message: str
    boards: tuple[str, ...]
    calls: int
    example: Call | None
    consequences: tuple[Cause, ...] = ()


_Grouped = dict[tuple[Code, str], list[Finding]]


def group(findings: Iterable[Finding]) -> tuple[Cause, ...]:
    """Return the causes behind findings, those that explain most first, consequences nested under them."""
    found = list(findings)
    codes: dict[tuple[str, Call], dict[Code, Finding]] = {}
    for finding in found:
        if finding.call is not None:
            codes.setdefault((finding.board, finding.call), {}).setdefault(finding.code, finding)
    roots: _Grouped = {}
    nested: _Grouped = {}
    for finding in found:
        parent = _parent(finding, codes)
        if parent is None:
            roots.setdefault((finding.code, finding.cause), []).append(finding)
        else:
            nested.setdefault((parent.code, parent.cause), []).append(finding)
    return _causes(roots, nested)


def by_call(findings: Iterable[Finding]) -> dict[Call, list[Finding]]:
    """Return the findings that are about a call, by that call."""
    found: dict[Call, list[Finding]] = {}
    for finding in findings:
        if finding.call is not None:
            found.setdefault(finding.call, []).append(finding)
    return found


def _parent(finding: Finding, codes: dict[tuple[str, Call], dict[Code, Finding]]) -> Finding | None:
    if finding.call is None:
        return None
    beside = codes[finding.board, finding.call]
    wanted = _CONSEQUENCE_OF.get(finding.code, ())
    return next((beside[code] for code in wanted if code in beside), None)


def _causes(grouped: _Grouped, nested: _Grouped) -> tuple[Cause, ...]:
    return tuple(sorted((_cause(key, findings, nested) for key, findings in grouped.items()), key=_order))


def _cause(key: tuple[Code, str], findings: list[Finding], nested: _Grouped) -> Cause:
    below: _Grouped = {}
    for finding in nested.get(key, ()):
        below.setdefault((finding.code, finding.cause), []).append(finding)
    first = findings[0]
    return Cause(
        code=key[0],
        cause=key[1],
        message=first.message,
        boards=tuple(dict.fromkeys(finding.board for finding in findings)),
        calls=len({(finding.board, finding.call) for finding in findings if finding.call is not None}),
        example=first.call,
        consequences=_causes(below, nested),
    )


def _order(cause: Cause) -> tuple[bool, int, str, str]:
    return cause.code not in FAILING, -cause.calls, cause.code.value, cause.cause
