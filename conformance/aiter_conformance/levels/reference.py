"""Level reference: whether a leaf's numbers are right, with AITER's kernels modelled family by family.

Needs torch. The model is the harness's, not a release's: what holds here holds of the leaf's call, its
layouts and the contract of the operator. An input that an entry of the ledger names must be wrong as the
entry says; it does not fail the cell then, and the record lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiter_conformance import contract, coverage
from aiter_conformance.axes import Cell
from aiter_conformance.errors import HarnessError
from aiter_conformance.evidence import Level
from aiter_conformance.families import launch_kind
from aiter_conformance.golden import AITER_RELEASE, SITU_SETTING, observe
from aiter_conformance.ledger import Entry, Observation, judge
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.numerics.inputs import Features
from aiter_conformance.numerics.verdict import ROW_ERROR, Verdict, bucket
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import Subject
from aiter_conformance.providers.reference import ReferenceProvider
from aiter_conformance.providers.reference_families import FamilyRefusal, MxActivations, choose_family

# MXFP4 kernels for SiTU take their activations' type from the environment, not from the call (SPEC 7).
_SETTINGS: Final[dict[str, MxActivations]] = {"a16w4": "bf16", "a8w4": "fp8", "a4w4": "fp4"}


def provider_for(cell: Cell, features: Features = Features()) -> ReferenceProvider:  # noqa: B008 -- frozen
    """Return the provider whose kernels make of activations what scheme, setting or dispatch say."""
    if features.dispatched:
        return ReferenceProvider("dispatched")
    if cell.activation != "situ" or cell.scheme not in SITU_SETTING:
        return ReferenceProvider()
    return ReferenceProvider(_SETTINGS[features.situ or SITU_SETTING[cell.scheme]])


@dataclass
class _Seen:
    """What came of the inputs of a cell."""

    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    known: dict[str, list[Observation]] = field(default_factory=dict)
    bound_ratio: float = 0.0
    row_error: float = 0.0
    size: float = 0.0

    def details(self, cell: Cell) -> dict[str, Any]:
        """Return what the record has of it; sizes with two digits, margins in buckets."""
        details: dict[str, Any] = {
            "cases": self.cases,
            "families": _families(cell),
            "wrong": len(self.wrong),
            "refused": len(self.refused),
            "bound_ratio": bucket(self.bound_ratio),
            "row_error": bucket(self.row_error / ROW_ERROR),
        }
        if self.wrong:
            details["size"] = _two_digits(self.size)
        if self.known:
            details["known"] = {
                entry: {
                    "cases": len(seen),
                    "case": max(seen, key=lambda one: one.size or 0.0).case,
                    "reason": str(seen[0].reason),
                    "size": _two_digits(max(one.size or 0.0 for one in seen)),
                }
                for entry, seen in sorted(self.known.items())
            }
        return details


def _two_digits(size: float) -> float:
    return float(f"{size:.2g}")


def observation(cell: Cell, case: str, verdict: Verdict) -> Observation:
    """Return what the ledger is asked about one input; its size is the relative error of the output."""
    return Observation(
        AITER_RELEASE,
        str(cell),
        case,
        Kind.PASS if verdict.passed else Kind.FAIL,
        reason=None if verdict.passed else Reason.NUMBERS_DIFFER,
        size=verdict.relative_error,
        message=verdict.message,
        level=Level.REFERENCE,
    )


def observe_cell(subject: Subject, cell: Cell, ledger: Sequence[Entry] | None = None) -> Outcome:
    """Return whether every input that the level needs of an accepted cell gives the right numbers.

    Args:
        subject: The implementation.
        cell: A cell that its leaf accepts.
        ledger: The known findings; by default the project's own.
    """
    entries = [entry for entry in (load_ledger() if ledger is None else ledger) if entry.cases]
    seen = _Seen()
    for name, problem in coverage.problems(cell, "reference"):
        seen.cases += 1
        case = coverage.problem_id(name, problem)
        try:
            verdict = observe(problem, subject, provider_for(cell, problem.features)).verdict
        except FamilyRefusal as refusal:
            seen.refused.append(str(refusal))
            continue
        except (HarnessError, MemoryError):
            raise
        except Exception as error:  # whatever the subject raises for an input that the contract accepts
            seen.wrong.append(f"{name}, {case}: {type(error).__name__}: {error}")
            continue
        observed = observation(cell, case, verdict)
        matching = [entry for entry in entries if entry.matches(observed)]
        faults = judge(matching, [observed], full=False)
        if matching and not faults:
            for entry in matching:
                seen.known.setdefault(entry.id, []).append(observed)
            continue
        seen.bound_ratio = max(seen.bound_ratio, verdict.bound_ratio)
        seen.row_error = max(seen.row_error, verdict.row_error)
        if faults or not verdict.passed:
            why = "; ".join(f"{fault.entry}: {fault.message}" for fault in faults) or verdict.message
            seen.wrong.append(f"{name}, {case}: {why}")
            seen.size = max(seen.size, verdict.relative_error)
    return _outcome(seen, cell)


def _outcome(seen: _Seen, cell: Cell) -> Outcome:
    cases, wrong, refused, details = seen.cases, seen.wrong, seen.refused, seen.details(cell)
    if wrong:
        return Outcome(
            Kind.FAIL, Reason.NUMBERS_DIFFER, f"{len(wrong)} of {cases} inputs are wrong: {wrong[0]}", details
        )
    if len(refused) == cases:
        message = f"The leaf accepts the cell, but {refused[0]}."
        return Outcome(Kind.FAIL, Reason.NO_KERNEL, message, details)
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
