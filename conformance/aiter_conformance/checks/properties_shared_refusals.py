"""What the injection of shared experts refuses, and that a refused call has written nothing (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from aiter_conformance.checks.properties import Untouched, compare_refusal, content
from aiter_conformance.checks.properties_shared_experts import (
    ARCH,
    INIT,
    Buffers,
    Injection,
    initialise,
    inject,
    poison,
    routed,
)
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

UNCHECKED = "shared-experts-unchecked"
ADVICE = "shared-experts-advice"


def check_missing_buffers(subject: Subject, injection: Injection) -> Report:
    """Without buffers the call is refused with a RuntimeError that says what to call and with how much."""
    report = Report()
    where = f"injection {injection} without buffers"
    with subject.environment(ARCH):
        given = routed(injection, torch.device("cpu"))
        inputs = Untouched({"topk_weights": given[0], "topk_ids": given[1]})
        compare_refusal(
            report,
            subject,
            where,
            RuntimeError,
            lambda: inject(subject, injection, given),
            says=(INIT,),
            advises=("max_num_tokens", str(injection.tokens)),
            advice_difference=ADVICE,
        )
        inputs.compare(report, where)
    return report


def check_too_many_tokens(subject: Subject, injection: Injection) -> Report:
    """More tokens than rows: refused, both numbers and what to do in the message, nothing written (C12)."""
    report = Report()
    rows = injection.buffers.max_num_tokens
    too_many = replace(injection, tokens=rows + max(1, injection.tokens))
    with _untouched_buffers(report, subject, injection.buffers, f"{too_many.tokens} tokens") as device:
        given = routed(too_many, device)
        compare_refusal(
            report,
            subject,
            f"injection of {too_many.tokens} tokens into {rows} rows",
            ValueError,
            lambda: inject(subject, too_many, given),
            says=(str(rows), str(too_many.tokens)),
            advises=(INIT, "max_num_tokens"),
            advice_difference=ADVICE,
        )
    return report


@dataclass(frozen=True, slots=True)
class BadShapes:
    """An injection with shapes that do not belong together.

    Attributes:
        injection: The good call.
        columns: Columns of the routed weights.
        id_columns: Columns of the routed ids.
        id_rows: Rows of the routed ids.
        gate_rows: Rows of the gates.
        gate_columns: Columns of the gates.
        topk: The argument ``topk``.
        shared: The argument ``num_fused_shared_experts``.
    """

    injection: Injection
    columns: int
    id_columns: int
    id_rows: int
    gate_rows: int
    gate_columns: int
    topk: int
    shared: int

    @classmethod
    def good(cls, injection: Injection) -> BadShapes:
        """Return the shapes that do belong together; the caller makes one of them wrong."""
        buffers = injection.buffers
        columns = buffers.width if injection.wide else buffers.top_k
        rows, shared = injection.tokens, buffers.n_shared_experts
        return cls(injection, columns, columns, rows, rows, shared, buffers.top_k, shared)


def check_bad_shapes_refused(subject: Subject, bad: BadShapes) -> Report:
    """Shapes that do not belong together are a ValueError, and not a byte of anything has changed (ours)."""
    report = Report()
    where = f"injection {bad}"
    with _untouched_buffers(report, subject, bad.injection.buffers, where, UNCHECKED) as device:
        weights = torch.full((bad.injection.tokens, bad.columns), 0.25, device=device)
        ids = torch.zeros(bad.id_rows, bad.id_columns, dtype=torch.int32, device=device)
        gates = torch.full((bad.gate_rows, bad.gate_columns), 0.5, device=device)
        before = [content(t) for t in (weights, ids, gates)]
        api = subject.api
        compare_refusal(
            report,
            subject,
            where,
            ValueError,
            lambda: api.inject_shared_expert_weights(weights, ids, bad.topk, bad.shared, gates),
            difference=UNCHECKED,
        )
        after = [content(t) for t in (weights, ids, gates)]
    if UNCHECKED not in subject.differences:
        report.compare(f"{where}: inputs unchanged", True, before == after)
    return report


@contextmanager
def _untouched_buffers(
    report: Report, subject: Subject, buffers: Buffers, where: str, difference: str | None = None
) -> Iterator[torch.device]:
    """Make poisoned buffers, yield their device, and compare their bytes afterwards.

    Where a subject is known not to refuse (``difference``), it may have written anywhere: one mismatch for
    that is enough, so the bytes are left out.
    """
    with subject.environment(ARCH):
        pair = initialise(subject, buffers)
        poison(pair)
        before = [content(buffer) for buffer in pair]
        yield pair[0].device
        if difference not in subject.differences:
            after = [content(buffer) for buffer in pair]
            report.compare(f"{where}: buffers unchanged", True, before == after)
