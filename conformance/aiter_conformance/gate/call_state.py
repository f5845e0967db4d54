"""What became of one call, as the lines about it in the evidence say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aiter_conformance.gate.classes import Standing
from aiter_conformance.outcome import Reason
from aiter_conformance.trace.findings import Code

# What whoever makes the call is told of, when the kernel is built or launched; of anything else that is wrong
# nobody is, and the numbers are.
_TOLD: Final = frozenset(
    {
        *(Code.DIED.value, Code.RAISED.value, Code.NO_KERNEL.value, Code.NOT_FOR_ARCH.value),
        *(Code.NOTHING_LAUNCHED.value, Reason.DISPATCH_REFUSES.value),
    }
)
_LAUNCHED: Final = re.compile(
    r"(?P<kernels>.*) in (?P<dtype>\S+), (?P<dispatch>[\w-]+)(?:; wrong: (?P<wrong>.+))?"
)
_SIZES: Final = re.compile(r" \d+(?:x\d+)*(?= |$)| split \d+|\b\d:")
# How level isa begins the line about an input, with the codes of what is wrong.
_JUDGED: Final[dict[str, frozenset[str]]] = {
    "right": frozenset(),
    "wrong": frozenset({Reason.NUMBERS_DIFFER.value}),
    "not run": frozenset(),
}


@dataclass(frozen=True, slots=True)
class State:
    """What became of one call, taken from its line in the evidence (`levels.trace.summary`, `levels.isa`).

    Attributes:
        kernels: The kernels with their tiles; empty where nothing was launched.
        dtype: What the activations are computed in.
        dispatch: Where the choice comes from.
        wrong: Codes of what is wrong.
        loud: How it ended where nothing was launched: whoever calls it is told. Empty otherwise.
        tried: Whether anything can be said: an emulator may have no way to execute its kernel.
    """

    kernels: str = ""
    dtype: str = ""
    dispatch: str = ""
    wrong: frozenset[str] = frozenset()
    loud: str = ""
    tried: bool = True

    @property
    def families(self) -> str:
        """The kernels without their sizes."""
        return _SIZES.sub("", self.kernels)

    @property
    def silent(self) -> bool:
        """Whether it is wrong and nobody is told."""
        return bool(self.wrong) and not self.loud and self.wrong.isdisjoint(_TOLD)

    @property
    def standing(self) -> Standing:
        """Whether it is as it should be."""
        if not self.tried:
            return Standing.UNKNOWN
        return Standing.BAD if self.loud or self.wrong else Standing.GOOD


def read_state(text: str) -> State:
    """Return what a line about a call says."""
    judged, colon, _ = text.partition(": ")
    if colon and judged in _JUDGED:
        kernels = text.partition(" on ")[0]
        return State(kernels, wrong=_JUDGED[judged], tried=judged != "not run")
    found = _LAUNCHED.fullmatch(text)
    if found is None:
        ended, _, wrong = text.partition("; wrong: ")
        if ended.partition(":")[0] in ("refused", "raised", "died"):
            return State(loud=ended, wrong=_codes(wrong))
        return State(kernels=ended, wrong=_codes(wrong))  # a line of evidence from elsewhere
    return State(found["kernels"], found["dtype"], found["dispatch"], _codes(found["wrong"] or ""))


def _codes(text: str) -> frozenset[str]:
    return frozenset(code.strip() for code in text.split(",") if code.strip())
