"""What the property checks share: how refusals and tensors are compared, and whether a tensor was touched.

A property check is a plain function over a subject and one generated example. It returns a `Report`, so that
a suite, a command and a planted fault use the same check. A comparison carries the id of a difference only
where that difference must show, for the report finds a listed difference that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject


def content(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's elements in order; NaNs and the signs of zeros count."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def compare_tensors(
    report: Report, where: str, expected: torch.Tensor, got: Any, difference: str | None = None
) -> bool:
    """Compare shape, dtype and bytes, and show the values where only the bytes differ."""
    if not isinstance(got, torch.Tensor):
        return report.compare(where, "a tensor", got, difference)
    wanted, came = ((list(t.shape), str(t.dtype)) for t in (expected, got))
    if wanted != came or content(expected) == content(got):
        return report.compare(where, wanted, came, difference)
    return report.compare(where, expected.tolist(), _telling(expected, got), difference)


def _telling(expected: torch.Tensor, got: torch.Tensor) -> Any:
    # Values can print alike where the bytes differ (NaN payloads, signs of zeros): then the bytes are shown.
    same_values = repr(expected.tolist()) == repr(got.tolist())
    return content(got).hex() if same_values else got.tolist()


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two tensors lie in the same storage and start at the same element."""
    return a.data_ptr() == b.data_ptr() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def compare_refusal(
    report: Report,
    subject: Subject,
    where: str,
    expected: type[Exception],
    call: Callable[[], Any],
    *,
    says: Sequence[str] = (),
    advises: Sequence[str] = (),
    difference: str | None = None,
    says_difference: str | None = None,
    advice_difference: str | None = None,
) -> None:
    """Compare what a call ends in with a refusal that SPEC asks for.

    Args:
        report: Takes the comparisons.
        subject: The subject, which knows what its own errors stand for.
        where: What is called.
        expected: ``ValueError`` or ``RuntimeError``, as SPEC asks for.
        call: The call that must be refused.
        says: What the message must contain: what is wrong.
        advises: What it must contain besides: what to do about it.
        difference: Explains an answer, or another error, instead of the refusal.
        says_difference: Explains a message that does not say what is wrong.
        advice_difference: Explains a message without the advice.
    """
    wanted = f"refused with a {expected.__name__}"
    try:
        answer = call()
    except Exception as error:  # which errors are refusals is the subject's to say
        stands_for = subject.refusal(error)
        said = f"{type(error).__name__}: {error}"
        got = wanted if stands_for is expected else said
        if report.compare(where, wanted, got, difference):
            for texts, explained in ((says, says_difference), (advises, advice_difference)):
                if texts:
                    unsaid = [text for text in texts if text not in str(error)]
                    report.compare(f"{where}: what {said!r} leaves out", [], unsaid, explained)
    else:
        report.compare(where, wanted, f"the answer {answer!r}", difference)


class Untouched:
    """Remembers tensors in order to say later which of them were written to.

    Both the bytes and torch's version counter are compared: a write that restores the bytes is a write.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor | None]) -> None:
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self._before = self._now()

    def _now(self) -> dict[str, tuple[int, bytes]]:
        # A tensor on the meta device has no bytes, but it has a version.
        return {name: (t._version, b"" if t.is_meta else content(t)) for name, t in self._tensors.items()}

    def compare(self, report: Report, where: str, difference: str | None = None) -> None:
        """Compare the names of the tensors that were written to with none."""
        now = self._now()
        written = [name for name in self._tensors if now[name] != self._before[name]]
        report.compare(f"{where}: tensors that were written to", [], written, difference)


class Reads(TorchDispatchMode):
    """Notes each operation that hands a value of a tensor to the host, or makes a shape of it."""

    OPERATIONS = frozenset(
        {"_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero", "_unique2"}
    )

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.OPERATIONS:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))
