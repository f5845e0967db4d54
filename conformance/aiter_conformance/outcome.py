"""What an observation of a case can end in, and why: both closed sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """How the observation ended. Infrastructure failures are never one of the kernel's own kinds."""

    PASS = "pass"  # noqa: S105 -- an outcome, not a password
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"


class Reason(StrEnum):
    """Why an observation did not pass. A record with a code outside this list is rejected."""

    # refused: the leaf's own cascade, in its order
    DEVICE = "device"
    ACT_AND_MUL = "act-and-mul"
    ACTIVATION = "activation"
    SCHEME = "scheme"
    PARALLEL_CONFIG = "parallel-config"
    ROUTING_METHOD = "routing-method"
    ROUTER_LOGITS_DTYPE = "router-logits-dtype"
    HIDDEN_DIM = "hidden-dim"
    ACTIVATION_FORMAT = "activation-format"
    BATCH_INVARIANCE = "batch-invariance"
    LORA = "lora"
    ROUTER_WEIGHT_ON_INPUT = "router-weight-on-input"
    # refused: the release's interface cannot take the call that the leaf makes
    API_MISSING_FUNCTION = "api-missing-function"
    API_MISSING_ARGUMENT = "api-missing-argument"
    API_MISSING_ACTIVATION = "api-missing-activation"
    # fail: what the release ships
    ARCH_UNKNOWN = "arch-unknown"
    NO_KERNEL = "no-kernel"
    KERNEL_BROKEN = "kernel-broken"
    # fail: what a release's dispatch does (trace.findings.Code)
    DISPATCH_DIED = "dispatch-died"
    DISPATCH_RAISES = "dispatch-raises"
    DISPATCH_REFUSES = "dispatch-refuses"
    NOTHING_LAUNCHED = "nothing-launched"
    KERNEL_NOT_FOR_ARCH = "kernel-not-for-arch"
    WRONG_ACTIVATION = "wrong-activation"
    WRONG_DTYPE = "wrong-dtype"
    WRONG_QUANTISATION = "wrong-quantisation"
    WRONG_GATE_LAYOUT = "wrong-gate-layout"
    ROUTER_WEIGHT_MISPLACED = "router-weight-misplaced"
    BIAS_DROPPED = "bias-dropped"
    EXPERT_MASK_DROPPED = "expert-mask-dropped"
    PADS_MASK_LIVE_ROWS = "pads-mask-live-rows"
    SPLIT_K_TOO_FINE = "split-k-too-fine"
    OFFSET_BEYOND_32_BIT = "offset-beyond-32-bit"
    FP8_FLAVOUR_WRONG = "fp8-flavour-wrong"
    # fail: what a subject does
    DECLARATION_DIFFERS = "declaration-differs"
    CALL_DIFFERS = "call-differs"
    NUMBERS_DIFFER = "numbers-differ"
    # fail, crash, timeout: what real kernels do
    CALL_RAISES = "call-raises"
    OTHER_KERNEL = "other-kernel"
    INPUTS_CHANGED = "inputs-changed"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    # skipped
    QUARANTINED = "quarantined"
    # not_run
    BUILT_ON_FIRST_USE = "built-on-first-use"
    NOT_EXECUTABLE = "not-executable"
    INFRASTRUCTURE = "infrastructure"
    BUILD_FAILED = "build-failed"
    OUT_OF_MEMORY = "out-of-memory"
    KERNELS_UNSEEN = "kernels-unseen"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one observation ended.

    Attributes:
        kind: The way it ended.
        reason: Why, from the closed list; None exactly when the kind is `Kind.PASS`.
        message: One sentence for people; None exactly when the kind is `Kind.PASS`.
        details: What was seen, JSON-able, e.g. the kernels that a release ships for the cell.
    """

    kind: Kind
    reason: Reason | None = None
    message: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        passed = self.kind is Kind.PASS
        if passed != (self.reason is None) or passed != (self.message is None):
            msg = f"reason and message must be given for every kind but pass, and only then (got {self!r})"
            raise ValueError(msg)
