"""What an exception from a call of AITER means: an outcome with a reason, and a sentence without paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aiter_conformance.outcome import Kind, Reason

# What the bridge and AITER say when AITER's interface cannot take the call.
_INTERFACE: Final = (
    (re.compile(r"whose call has no|unexpected keyword argument"), Reason.API_MISSING_ARGUMENT),
    (re.compile(r"does not support activation|ActivationType"), Reason.API_MISSING_ACTIVATION),
    (re.compile(r"does not give"), Reason.API_MISSING_FUNCTION),
)
# aiter/jit/core.py: a build that failed; the second is its message where a module never came to be.
_BUILD: Final = re.compile(
    r"\[aiter\] build \[|failed jit build|ninja: build stopped|Error building extension"
)
_MEMORY: Final = re.compile(r"out of memory", re.IGNORECASE)
# An error of the device leaves the process unable to go on.
_DEVICE: Final = re.compile(r"\b(?:HIP|CUDA) error|illegal memory access|hipError", re.IGNORECASE)
_PATH: Final = re.compile(r"(?:(?<=\s)|(?<=[\"'(=:])|^)/[\w.+@/-]+")
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong.

    Attributes:
        kind: The outcome.
        reason: Its reason.
        message: One sentence.
        lost: Whether the process cannot go on.
    """

    kind: Kind
    reason: Reason
    message: str
    lost: bool = False


def trouble(error: BaseException) -> Trouble:
    """Return what an exception means."""
    text = str(error)
    said = f"{type(error).__name__}: {sentence(text)}"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or _MEMORY.search(text):
        return Trouble(Kind.NOT_RUN, Reason.OUT_OF_MEMORY, f"There was not enough memory ({said}).")
    if _BUILD.search(text):
        return Trouble(Kind.NOT_RUN, Reason.BUILD_FAILED, f"AITER could not build its kernel ({said}).")
    if _DEVICE.search(text):
        return Trouble(Kind.CRASH, Reason.CRASHED, f"The device reported a fault ({said}).", lost=True)
    if isinstance(error, ValueError | TypeError | ImportError):
        for pattern, reason in _INTERFACE:
            if pattern.search(text):
                return Trouble(Kind.REFUSED, reason, f"AITER cannot take the call ({said}).")
    return Trouble(Kind.FAIL, Reason.CALL_RAISES, f"The call raised {said}.")


def sentence(text: str) -> str:
    """Return the first line of a text that is not empty, without paths and cut at 300 characters."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    return _PATH.sub("(a path)", first)[:_LONGEST]
