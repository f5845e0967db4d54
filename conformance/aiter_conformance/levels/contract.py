"""Level contract: whether the leaf makes exactly the kernel call that the contract asks for, on each cell.

Every cell that the contract accepts is applied under a recorder with every deployment, all pads, and every
change of a single argument. Needs torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from aiter_conformance.axes import Cell
from aiter_conformance.checks.contract_call import (
    PADS,
    PARALLEL,
    Inputs,
    apply_here,
    compare_apply,
    environment_key,
    environment_of,
    variations,
)
from aiter_conformance.checks.report import Report
from aiter_conformance.expected_call import CallInput
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import ParallelSpec, Subject


def observe_cell(subject: Subject, cell: Cell) -> Outcome:
    """Return whether every call that the subject makes for an accepted cell is exact.

    Where only listed differences of the subject show the cell fails too: the contract is not met there.
    """
    report = Report()
    inputs = Inputs()
    # One environment for all calls that need the same: as in a process that serves, where only calls change.
    by_environment: dict[tuple[str, int], list[tuple[CallInput, ParallelSpec | None]]] = {}
    for given, deployment in _cases(cell):
        by_environment.setdefault(environment_key(given), []).append((given, deployment))
    for together in by_environment.values():
        with environment_of(subject, together[0][0], arch=cell.arch):
            for given, deployment in together:
                applied = apply_here(subject, given, deployment, inputs=inputs)
                compare_apply(report, subject, given, applied)
    inputs.compare(report, f"all calls of {cell}")
    cases = sum(len(together) for together in by_environment.values())
    if not report.mismatches:
        return Outcome(Kind.PASS, details={"cases": cases})
    listed = sorted(report.known(subject))
    unlisted = [m for m in report.mismatches if m.difference not in listed]
    if unlisted:
        message = f"{len(unlisted)} of {report.compared} comparisons differ, the first: {unlisted[0]}"
    else:
        message = f"Known differences show here: {', '.join(listed)}."
    return Outcome(Kind.FAIL, Reason.CALL_DIFFERS, message, {"cases": cases, "differences": listed})


def _cases(cell: Cell) -> Iterator[tuple[CallInput, ParallelSpec | None]]:
    situ: dict[str, Any] = {"beta": 4.0, "linear_beta": 25.0} if cell.activation == "situ" else {}
    plain = CallInput(
        scheme=cell.scheme,
        activation=cell.activation,
        router=cell.router,
        topk=1 if cell.router == "in" else 2,
        **situ,
    )
    for (deployment, tp), (hidden, intermediate, override) in _deployments():
        pads: dict[str, Any] = {
            "hidden_pad": hidden,
            "intermediate_pad": intermediate,
            "intermediate_pad_given": override,
        }
        yield replace(plain, tp=tp, **pads), deployment
    for change in _changes(cell.scheme):
        yield replace(plain, **change), None


@cache
def _deployments() -> list[tuple[tuple[ParallelSpec, int], tuple[int, int, int | None]]]:
    """Return all pads for one deployment of each tp_size, and two of them for the others of that size.

    Of a deployment only its tp_size decides a call; the contract suite tries every one with all pads.
    """
    first = {tp: deployment for deployment, tp in reversed(PARALLEL.values())}
    return [
        ((deployment, tp), pads)
        for (deployment, tp), pads in itertools.product(PARALLEL.values(), PADS)
        if deployment is first[tp] or pads in (PADS[0], (192, 192, None))
    ]


@cache
def _changes(scheme: str) -> list[dict[str, Any]]:
    return list(variations(scheme))
