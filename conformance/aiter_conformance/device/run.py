"""Runs the device contract: every check on every variant, each on a call of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from aiter_conformance.device.call import NotRun, opened
from aiter_conformance.device.checks import CALLS, Check, make_checks
from aiter_conformance.device.faulty import FAULTS, Fault
from aiter_conformance.device.variants import Variant, load_variants
from aiter_conformance.errors import HarnessError, UsageError
from aiter_conformance.outcome import Kind
from aiter_conformance.protocols import Subject

NEEDS_GPU = "NOT RUN: it needs a GPU that torch can use (CUDA or ROCm), and there is none"


@dataclass(frozen=True, slots=True)
class Observed:
    """What one check found of one variant.

    Attributes:
        variant: Name of the variant.
        leaf: The leaf.
        entry: The kernel entry that it calls.
        case: Id of the case.
        check: Name of the check.
        outcome: pass, fail or not_run.
        message: What is wrong, or why it was not run; None for pass.
    """

    variant: str
    leaf: str
    entry: str
    case: str
    check: str
    outcome: Kind
    message: str | None = None


Progress = Callable[[Observed, int, int], None]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What a check said of a leaf with a fault.

    Attributes:
        fault: What is wrong with the leaf.
        check: The check that has to catch it.
        message: What it said; None where it said nothing, or was not run.
        outcome: fail where it was caught, pass where it was missed, not_run without a GPU.
    """

    fault: str
    check: str
    outcome: Kind
    message: str | None

    @property
    def caught(self) -> bool:
        """Whether the check noticed."""
        return self.outcome is Kind.FAIL


def perform(
    check: Check,
    variant: Variant,
    subject: Subject,
    device: torch.device,
    fault: Fault | None = None,
) -> tuple[Kind, str | None]:
    """Run one check on one variant.

    An exception that the call raises is a failure: of a leaf that waits while a graph is captured, say.

    Args:
        check: The check.
        variant: The variant.
        subject: The implementation under test.
        device: Where.
        fault: A fault to put into the call.

    Returns:
        The outcome, and what is to be said of it.
    """
    if (check.gpu or (fault is not None and fault.gpu)) and device.type != "cuda":
        return Kind.NOT_RUN, NEEDS_GPU
    try:
        with opened(variant, subject, device) as call:
            if fault is not None:
                fault.plant(call)
            found = check.run(call)
    except NotRun as reason:
        return Kind.NOT_RUN, str(reason)
    except (HarnessError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return (Kind.PASS, None) if found is None else (Kind.FAIL, found)


def run_device_contract(
    device: torch.device,
    subject: Subject,
    *,
    variants: Sequence[Variant] | None = None,
    checks: Iterable[Check] | None = None,
    calls: int = CALLS,
    progress: Progress | None = None,
) -> list[Observed]:
    """Run every check on every variant.

    Nothing of AITER takes part: the kernels are the provider ``reference``, on the device.

    Args:
        device: A GPU, CUDA or ROCm (which torch calls ``cuda`` too), or the CPU: what needs a GPU is then
            not run.
        subject: The implementation under test.
        variants: Default all of `load_variants`.
        checks: Default all of `make_checks`.
        calls: How many calls must leave no memory behind, for the default checks.
        progress: Called after each check with (what it found, how many are done, of how many).

    Raises:
        UsageError: The CPU is asked for where there is a GPU, on which the shared buffers would then lie.
    """
    if device.type == "cpu" and torch.accelerator.is_available():
        msg = "device must be the GPU where there is one: shared experts' buffers lie there (got cpu)"
        raise UsageError(msg)
    chosen = list(make_checks(calls).values()) if checks is None else list(checks)
    pairs = [
        (variant, check)
        for variant in (load_variants() if variants is None else variants)
        for check in chosen
        if check.concerns(variant)
    ]
    records = []
    for variant, check in pairs:
        outcome, message = perform(check, variant, subject, device)
        case = str(variant.problem.case)
        found = Observed(variant.name, variant.leaf, variant.entry, case, check.name, outcome, message)
        records.append(found)
        if progress is not None:
            progress(found, len(records), len(pairs))
    return records


def run_planted(device: torch.device, subject: Subject, *, calls: int = 30) -> Iterator[PlantedFault]:
    """Plant every fault and yield what the checks say that have to catch it."""
    variants = {variant.name: variant for variant in load_variants()}
    checks = make_checks(calls)
    for fault in FAULTS.values():
        for name in fault.caught_by:
            variant = variants[fault.variant]
            outcome, message = perform(checks[name], variant, subject, device, fault)
            if outcome is Kind.FAIL and checks[name].gpu:
                # A capture that failed can leave torch in a state in which nothing works any more.
                after, why = perform(checks[name], variant, subject, device)
                if after is not Kind.PASS:
                    outcome, message = (
                        Kind.NOT_RUN,
                        f"a sound leaf failed after it, so it proves nothing: {why}",
                    )
            yield PlantedFault(fault.name, name, outcome, message)
