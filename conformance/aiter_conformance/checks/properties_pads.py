"""Properties of ``aiter_moe_pads``, and of the pads that reach the kernel call (SPEC 4 step 5, SPEC 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.properties_leaf import LeafCase, run_leaf
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

HIDDEN_TILE = 128
INTERMEDIATE_TILE = 64
NEGATIVE = "negative-pads"


@dataclass(frozen=True, slots=True)
class Pads:
    """One call of ``aiter_moe_pads``; ``activation`` is a value of ``MoEActivation``."""

    hidden: int
    intermediate: int
    activation: str = "silu"
    w4a4: bool = False
    tp_size: int = 1

    @property
    def doubled(self) -> bool:
        """Whether SPEC 5 doubles the intermediate pad."""
        inside_aiter = self.w4a4 and self.activation == "silu"
        return self.activation != "situ" and self.tp_size == 1 and not inside_aiter


def _ask(subject: Subject, pads: Pads) -> tuple[int, int]:
    api = subject.api
    answer: tuple[int, int] = api.aiter_moe_pads(
        pads.hidden, pads.intermediate, api.MoEActivation(pads.activation), pads.w4a4, pads.tp_size
    )
    return answer


def _whole_tiles(size: int, tile: int) -> int:
    return max(edge for edge in range(0, size + 1, tile))


def expected_pads(pads: Pads) -> tuple[int, int]:
    """Return what SPEC 5 asks for."""
    if pads.activation == "situ":
        return pads.hidden, pads.intermediate
    per_half = _whole_tiles(pads.intermediate, INTERMEDIATE_TILE)
    return _whole_tiles(pads.hidden, HIDDEN_TILE), per_half + per_half if pads.doubled else per_half


def check_pads(subject: Subject, pads: Pads) -> Report:
    """Both pads are SPEC 5's, as plain ints, and never above the raw pad except where that is doubled."""
    report = Report()
    with subject.environment("gfx950"):
        hidden, intermediate = _ask(subject, pads)
    where = f"aiter_moe_pads of {pads}"
    report.compare(where, expected_pads(pads), (hidden, intermediate))
    # Said once more without the formula: what no kernel may be told, whatever the rounding.
    limit = pads.intermediate * (2 if pads.doubled else 1)
    report.compare(f"{where}: hidden rows that are alive and masked", 0, max(0, hidden - pads.hidden))
    report.compare(f"{where}: intermediate pad above {limit}", 0, max(0, intermediate - limit))
    return report


def check_pads_monotone(subject: Subject, pads: Pads, more_hidden: int, more_intermediate: int) -> Report:
    """More dead rows never give a smaller pad, and each pad depends on its own raw pad alone."""
    report = Report()
    with subject.environment("gfx950"):
        hidden, intermediate = _ask(subject, pads)
        wider = _ask(subject, replace(pads, hidden=pads.hidden + more_hidden))
        longer = _ask(subject, replace(pads, intermediate=pads.intermediate + more_intermediate))
    where = f"aiter_moe_pads of {pads}"
    report.compare(f"{where} is not above that of {more_hidden} more", True, hidden <= wider[0])
    report.compare(f"{where} is not above that of {more_intermediate} more", True, intermediate <= longer[1])
    report.compare(f"{where}: intermediate pad with another hidden pad", intermediate, wider[1])
    report.compare(f"{where}: hidden pad with another intermediate pad", hidden, longer[0])
    return report


def check_pads_stable(subject: Subject, pads: Pads) -> Report:
    """Where nothing is doubled, rounding twice is rounding once; every tp_size above 1 gives the same."""
    report = Report()
    sharded = replace(pads, tp_size=max(pads.tp_size, 2))
    with subject.environment("gfx950"):
        once = _ask(subject, sharded)
        twice = _ask(subject, replace(sharded, hidden=once[0], intermediate=once[1]))
        at_two = _ask(subject, replace(sharded, tp_size=2))
    report.compare(f"aiter_moe_pads of its own answer to {sharded}", once, twice)
    report.compare(f"aiter_moe_pads of {sharded} at tp_size 2", once, at_two)
    return report


def check_bad_pads_refused(subject: Subject, pads: Pads) -> Report:
    """A negative pad and a tp_size below 1 are refused for every activation, before any rounding (ours)."""
    report = Report()
    with subject.environment("gfx950"):
        compare_refusal(
            report,
            subject,
            f"aiter_moe_pads of {pads}",
            ValueError,
            lambda: _ask(subject, pads),
            difference=NEGATIVE,
        )
    return report


@dataclass(frozen=True, slots=True)
class PaddedCall:
    """A leaf call with padding.

    Attributes:
        case: The call; its config holds the padded sizes.
        hidden_pad: Hidden columns that are padding.
        intermediate_pad: Intermediate rows per half that are padding.
        override: ``FusedMoEConfig.intermediate_pad``, which replaces the computed one unless None.
    """

    case: LeafCase
    hidden_pad: int
    intermediate_pad: int
    override: int | None = None

    def resolved(self) -> LeafCase:
        """Return the case with the unpadded sizes filled in."""
        config = self.case.config
        return replace(
            self.case,
            config=replace(
                config,
                hidden_dim_unpadded=config.hidden_dim - self.hidden_pad,
                intermediate_size_per_partition_unpadded=self.case.intermediate - self.intermediate_pad,
                intermediate_pad=self.override,
            ),
        )


def check_pads_in_call(subject: Subject, call: PaddedCall) -> Report:
    """The kernel is told the pads of the layer's sizes, flattened tp_size and scheme, packed input or not."""
    report = Report()
    case = call.resolved()
    raw = call.intermediate_pad if call.override is None else call.override
    w4a4 = case.scheme == "mxfp4-w4a4"
    told = Pads(call.hidden_pad, raw, case.config.activation, w4a4, case.moe_tp_size)
    run = run_leaf(subject, case)
    if run.compare_one_call(report, f"apply of {call}"):
        arguments = run.calls[0].arguments
        got = (arguments["hidden_pad"], arguments["intermediate_pad"])
        report.compare(f"pads in the kernel call of {call}", expected_pads(told), got)
    return report


def check_negative_sizes_refused(subject: Subject, call: PaddedCall) -> Report:
    """An unpadded size above the padded one is refused, and nothing reaches the kernel (ours)."""
    report = Report()
    run = run_leaf(subject, call.resolved())
    where = f"apply of {call}"
    compare_refusal(report, subject, where, ValueError, run.outcome, difference=NEGATIVE)
    report.compare(f"{where}: kernel calls", 0, len(run.calls), NEGATIVE)
    return report
