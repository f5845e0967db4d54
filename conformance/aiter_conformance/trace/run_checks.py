"""Checks of a whole run: of the release on one board, and of calls against each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aiter_conformance.contract import ACCEPTED_ACTIVATIONS
from aiter_conformance.release.tuned import TunedTables
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.checks import check_trace
from aiter_conformance.trace.findings import Code, Finding
from aiter_conformance.trace.record import Dispatch, Status, Trace
from aiter_conformance.trace.run import Run

# What of a tuned row's key the chooser is told under the same name, the activation left out.
_KEY: Final = (
    *("token", "model_dim", "inter_dim", "expert"),
    *("q_dtype_a", "q_dtype_w", "q_type", "doweight_stage1"),
)


def check_run(run: Run, tuned: TunedTables | None = None) -> tuple[Finding, ...]:
    """Return everything that is wrong in a run.

    Args:
        run: The run.
        tuned: The release's tuned tables, to tell whom a row was tuned for; None leaves that out.
    """
    findings = list(_check_facts(run))
    tuned_for = _activations_by_key(run, tuned) if tuned is not None else {}
    for trace in run.traces:
        findings += check_trace(trace, run.board.arch)
        if run.facts.fp8 != run.board.fp8 and trace.call.scheme.startswith(("fp8", "mxfp8")):
            findings.append(_wrong_fp8(run, trace.call))
        if trace.dispatch is Dispatch.TUNED_BLIND:
            findings += _tuned_for_other(trace, tuned_for)
    findings += _odd_buckets(run)
    return tuple(findings)


def _check_facts(run: Run) -> Iterator[Finding]:
    board = str(run.board)
    if not run.facts.watching or run.facts.unpatched:
        missing = ", ".join(run.facts.unpatched) or "get_2stage_cfgs"
        cause = f"the release has no {missing}: how it chooses could not be watched"
        yield Finding(Code.NOT_WATCHED, board, cause, cause)
    for error in run.facts.table_errors:
        cause = "the release raises when it first merges its tuned tables, and rewrites them"
        yield Finding(Code.TUNED_CONFLICT, board, cause, f"{cause}: {error}")


def _wrong_fp8(run: Run, call: Call) -> Finding:
    archs = f" with GPU_ARCHS={run.board.build_archs}" if run.board.build_archs is not None else ""
    cause = f"the release takes {run.board.arch}{archs} to read {run.facts.fp8}, and it reads {run.board.fp8}"
    return Finding(Code.WRONG_FP8, str(run.board), cause, cause, call)


def _activations_by_key(run: Run, tuned: TunedTables) -> dict[tuple[str, ...], set[str]]:
    """Return the activations that the rows for the board were tuned for, by the rest of their keys."""
    found: dict[tuple[str, ...], set[str]] = {}
    for row in tuned.matching(gfx=run.board.arch, cu_num=run.board.compute_units):
        key = tuple(str(getattr(row.key, name)) for name in _KEY)
        found.setdefault(key, set()).add(row.key.act_type)
    return found


def _tuned_for_other(trace: Trace, tuned_for: dict[tuple[str, ...], set[str]]) -> Iterator[Finding]:
    asked = trace.asked or {}
    key = tuple(str(asked.get(name)).removeprefix("QuantType.") for name in _KEY)
    activations = tuned_for.get(key)
    member = ACCEPTED_ACTIVATIONS[trace.call.activation][0]
    if activations and member not in activations:
        cause = f"a row tuned for {' and '.join(sorted(activations))} answers a call with {member}"
        yield Finding(Code.TUNED_FOR_OTHER, trace.board, cause, cause, trace.call)


def _odd_buckets(run: Run) -> Iterator[Finding]:
    """Find token buckets whose kernels are of another kind than those of both neighbours, which agree."""
    layers: dict[Call, list[Trace]] = {}
    for trace in run.traces:
        layers.setdefault(replace(trace.call, tokens=1), []).append(trace)
    for traces in layers.values():
        ordered = sorted(traces, key=lambda trace: trace.call.tokens)
        for before, here, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
            if _kind(before) == _kind(after) != _kind(here):
                cause = f"{_kind(here)} between {_kind(before)}"
                message = (
                    f"{here.call.tokens} tokens get {_kind(here)}; {before.call.tokens} and "
                    f"{after.call.tokens} tokens get {_kind(before)}"
                )
                yield Finding(Code.BUCKET_DIFFERS, here.board, cause, message, here.call)


def _kind(trace: Trace) -> str:
    """Return the kind of kernels that a call gets: how it ended, families, dtype of the activations."""
    if trace.status is not Status.LAUNCHED:
        return trace.status.value
    families = " + ".join(dict.fromkeys(launch.family for launch in trace.products))
    return f"{families} in {trace.activation_dtype or 'an unknown dtype'}"
