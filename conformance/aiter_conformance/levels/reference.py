"""Level reference: whether a leaf's numbers are right, with AITER's kernels modelled family by family.

Needs torch. The model is the harness's, not a release's: what holds here holds of the leaf's call, its
layouts and the contract of the operator.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiter_conformance import contract, coverage
from aiter_conformance.axes import Cell
from aiter_conformance.errors import HarnessError
from aiter_conformance.families import launch_kind
from aiter_conformance.golden import observe
from aiter_conformance.numerics.verdict import ROW_ERROR, bucket
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import Subject
from aiter_conformance.providers.reference import MxActivations, ReferenceProvider
from aiter_conformance.providers.reference_families import FamilyRefusal, choose_family

# MXFP4 kernels for SiTU take their activations' type from the environment, not from the call (SPEC 7).
_SITU_ACTIVATIONS: dict[str, MxActivations] = {"mxfp4-w4a16": "bf16", "mxfp4-w4a4": "fp4"}


def provider_for(cell: Cell) -> ReferenceProvider:
    """Return the provider whose kernels compute with the activations that the scheme names."""
    return ReferenceProvider(_SITU_ACTIVATIONS.get(cell.scheme) if cell.activation == "situ" else None)


def observe_cell(subject: Subject, cell: Cell) -> Outcome:
    """Return whether every input that the level needs of an accepted cell gives the right numbers."""
    ran: Counter[str] = Counter()
    wrong: list[str] = []
    refused: list[str] = []
    largest = row = 0.0
    for name, problem in coverage.problems(cell, "reference"):
        ran[name] += 1
        try:
            verdict = observe(problem, subject, provider_for(cell)).verdict
        except FamilyRefusal as refusal:
            refused.append(str(refusal))
            continue
        except (HarnessError, MemoryError):
            raise
        except Exception as error:  # whatever the subject raises for an input that the contract accepts
            wrong.append(f"{name}, rank {problem.rank} of {problem.case}: {type(error).__name__}: {error}")
            continue
        largest, row = max(largest, verdict.bound_ratio), max(row, verdict.row_error)
        if not verdict.passed:
            wrong.append(f"{name}, rank {problem.rank} of {problem.case}: {verdict.message}")
    cases = ran.total()
    details: dict[str, Any] = {
        "cases": cases,
        "families": _families(cell),
        "wrong": len(wrong),
        "refused": len(refused),
        "bound_ratio": bucket(largest),
        "row_error": bucket(row / ROW_ERROR),
    }
    if wrong:
        return Outcome(
            Kind.FAIL, Reason.NUMBERS_DIFFER, f"{len(wrong)} of {cases} inputs are wrong: {wrong[0]}", details
        )
    if len(refused) == cases:
        message = f"No kernel family that is modelled computes this cell: {refused[0]}."
        return Outcome(Kind.NOT_RUN, Reason.NO_KERNEL, message, details)
    if refused:
        message = f"{len(refused)} of {cases} inputs have no kernel: {refused[0]}"
        return Outcome(Kind.FAIL, Reason.NO_KERNEL, message, details)
    return Outcome(Kind.PASS, details=details)


def _families(cell: Cell) -> list[str]:
    """Return the kinds of kernel, as a trace names them, that the model of the cell stands for exactly."""
    tkw1 = cell.scheme == "fp8-channel" and cell.router == "in"
    try:
        family = choose_family(cell, tkw1=tkw1, bf16_activations=cell.scheme in contract.W4A16_SCHEMES)
    except FamilyRefusal:
        return []
    return [launch_kind(family.name)]
