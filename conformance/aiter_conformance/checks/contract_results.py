"""How a leaf writes the kernel's result into its output (SPEC 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from aiter_conformance.axes import Router
from aiter_conformance.checks.contract_call import HIDDEN, TOKENS, apply_leaf
from aiter_conformance.checks.properties import content
from aiter_conformance.checks.report import Report
from aiter_conformance.expected_call import CallInput
from aiter_conformance.protocols import Subject

SHAPE: Final = (TOKENS, HIDDEN)
MARK: Final = -7.0  # what the output holds before

# Every leaf writes in the same way; these two differ in the kernel call that gives the result.
ROUTES: Final[tuple[tuple[str, Router], ...]] = (("bf16", "out"), ("fp8-channel", "in"))


def _plain(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.full(SHAPE, MARK, dtype=dtype)


def _view() -> torch.Tensor:
    return torch.full((TOKENS + 2, HIDDEN), MARK, dtype=torch.bfloat16)[1:-1]


def _transposed() -> torch.Tensor:
    return torch.full((HIDDEN, TOKENS), MARK, dtype=torch.bfloat16).T


def _strided() -> torch.Tensor:
    # Not contiguous, and no view of anything.
    return torch.empty_strided(SHAPE, (1, TOKENS), dtype=torch.bfloat16).fill_(MARK)


def _result(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.arange(TOKENS * HIDDEN).reshape(SHAPE).remainder(251).to(dtype)


def _strided_result() -> torch.Tensor:
    return torch.empty_strided(SHAPE, (1, TOKENS), dtype=torch.bfloat16).copy_(_result())


@dataclass(frozen=True, slots=True)
class Writing:
    """An output, a result, and whether the output must take over the result's storage."""

    name: str
    output: Callable[[], torch.Tensor]
    result: Callable[[], torch.Tensor]
    takes_over: bool


WRITINGS: Final = (
    Writing("alike", _plain, _result, takes_over=True),
    Writing("result of another dtype", _plain, lambda: _result(torch.float32), takes_over=False),
    Writing("output is a view", _view, _result, takes_over=False),
    Writing("output is a transposed view", _transposed, _result, takes_over=False),
    Writing("output is not contiguous", _strided, _result, takes_over=False),
    Writing("result is not contiguous", _plain, _strided_result, takes_over=False),
)

# Shape of a wrong result -> whether a copy would broadcast it into the output.
WRONG_SHAPES: Final = {
    (1, HIDDEN): True,
    (TOKENS, 1): True,
    (HIDDEN,): True,
    (1, 1): True,
    (1, TOKENS, HIDDEN): True,  # torch's copy_ drops leading axes of size 1
    (TOKENS, 2 * HIDDEN): False,
    (TOKENS + 1, HIDDEN): False,
}


def writing(subject: Subject) -> Report:
    """The output holds the result: by its storage where they agree, by a copy otherwise; views show which."""
    report = Report()
    for scheme, router in ROUTES:
        for case in WRITINGS:
            output, result = case.output(), case.result()
            before = output.view(-1) if output.is_contiguous() else output[:]
            storage = output.untyped_storage().data_ptr()
            values = content(result.to(output.dtype))
            error = _apply(subject, scheme, router, output, result)
            where = f"{scheme}, router weights {router}, {case.name}"
            if not report.compare(f"{where}: error", None, error):
                continue
            shares = output.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
            report.compare(f"{where}: output takes over the result's storage", case.takes_over, shares)
            kept = output.untyped_storage().data_ptr() == storage
            report.compare(f"{where}: output keeps its storage", not case.takes_over, kept)
            report.compare(f"{where}: output holds the result", values, content(output))
            # In the first case a view from before goes on to see the old values: documented, not repaired.
            old = bool((before == MARK).all())
            report.compare(f"{where}: a view taken before shows the old values", case.takes_over, old)
    return report


def other_shapes(subject: Subject) -> Report:
    """A result of another shape is refused, also where a copy would broadcast, and the output left alone."""
    report = Report()
    for scheme, router in ROUTES:
        for shape, broadcasts in WRONG_SHAPES.items():
            output = _plain()
            error = _apply(subject, scheme, router, output, torch.ones(shape, dtype=torch.bfloat16))
            where = f"{scheme}, router weights {router}, result of shape {list(shape)}"
            refused = error is not None and subject.refusal(error) is ValueError
            got = "refused" if refused else repr(error)
            report.compare(where, "refused", got, "result-shape-broadcast")
            untouched = list(output.shape) == list(SHAPE) and bool((output == MARK).all())
            difference = "result-shape-broadcast" if broadcasts else None
            report.compare(f"{where}: output left alone", True, untouched, difference)
    return report


def _apply(
    subject: Subject, scheme: str, router: Router, output: torch.Tensor, result: torch.Tensor
) -> Exception | None:
    given = CallInput(scheme=scheme, router=router, topk=1)
    return apply_leaf(subject, given, tensors={"output": output}, result=lambda _: result).error
