"""Turns the worker's answer to a call into a `Trace`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiter_conformance.trace.call import Call
from aiter_conformance.trace.launches import LaunchReader
from aiter_conformance.trace.record import Dispatch, Launch, Lookup, Raised, Role, Status, Trace
from aiter_conformance.trace.tracer import Answer

# What the release raises on purpose to say that it does not do something.
_REFUSALS: Final = ("NotImplementedError",)


def read_trace(answer: Answer, call: Call, board: str, reader: LaunchReader) -> Trace:
    """Return what a call did.

    Args:
        answer: The worker's answer.
        call: The call.
        board: The board, for the record.
        reader: Reader of the release's launches.
    """
    choices = [event for event in answer.events if event["event"] == "choice"]
    choice: dict[str, Any] = choices[0] if choices else {}
    asked: dict[str, Any] | None = choice.get("arguments")
    chosen: dict[str, Any] = choice.get("choice") or {}
    hits = [event for event in answer.events if event["event"] == "lookup"]
    launches = _with_stages([launch for event in answer.events if (launch := reader.read(event)) is not None])
    raised = None if answer.error is None else Raised(**answer.error)
    return Trace(
        board=board,
        call=call,
        status=_status(answer, raised, launches),
        raised=raised,
        died=answer.died,
        dispatch=_dispatch(hits, asked, chosen),
        bucket=None if asked is None else asked.get("token"),
        asked=asked,
        row=next((event["row"] for event in hits if event["hit"]), None),
        lookups=tuple(_unique(hits)),
        one_stage=_one_stage(launches, chosen),
        block_m=chosen.get("block_m"),
        split_k=chosen.get("ksplit"),
        activation_dtype=_pipeline(launches),
        launches=launches,
        warnings=answer.warnings,
    )


def _with_stages(launches: list[Launch]) -> tuple[Launch, ...]:
    """Return launches with their stages, where the kernels' names do not say them.

    The grouped path of gfx1250 calls one matrix product for both stages, once each.
    """
    unnamed = [at for at, launch in enumerate(launches) if launch.role is Role.OTHER and _is_product(launch)]
    products = [launch for launch in launches if launch.role in (Role.ONE_STAGE, Role.STAGE1, Role.STAGE2)]
    if not products and len(unnamed) == 2:
        for at, role in zip(unnamed, (Role.STAGE1, Role.STAGE2), strict=True):
            launches[at] = replace(launches[at], role=role, family="grouped")
    return tuple(launches)


def _is_product(launch: Launch) -> bool:
    return "gemm" in launch.operator.rpartition(".")[2]


def _status(answer: Answer, raised: Raised | None, launches: tuple[Launch, ...]) -> Status:
    if answer.died is not None:
        return Status.DIED
    if raised is None:
        return Status.LAUNCHED
    # What the subject raises before anything is launched is a refusal; afterwards it is about the result.
    said_no = raised.type in ("ValueError", "RuntimeError", "ImportError")
    by_subject = raised.origin == "subject" and said_no and not launches
    impossible = raised.origin == "harness" and raised.type == "LookupError"
    return Status.REFUSED if by_subject or impossible or raised.type in _REFUSALS else Status.RAISED


def _dispatch(hits: list[dict[str, Any]], asked: dict[str, Any] | None, chosen: dict[str, Any]) -> Dispatch:
    found = next((event for event in hits if event["hit"]), None)
    if found is not None:
        return Dispatch.TUNED if found["table"] == 0 else Dispatch.TUNED_BLIND
    if asked is None and not chosen:
        return Dispatch.UNKNOWN
    return Dispatch.DEFAULT


def _unique(hits: list[dict[str, Any]]) -> list[Lookup]:
    lookups: list[Lookup] = []
    for event in hits:
        lookup = Lookup(event["table"], tuple(event["key"]), event["hit"], tuple(event.get("never", ())))
        if lookup not in lookups:
            lookups.append(lookup)
    return lookups


def _one_stage(launches: tuple[Launch, ...], chosen: dict[str, Any]) -> bool | None:
    roles = {launch.role for launch in launches}
    if Role.ONE_STAGE in roles:
        return True
    if roles & {Role.STAGE1, Role.STAGE2}:
        return False
    stages = chosen.get("run_1stage")
    return bool(stages) if stages is not None else None


def _pipeline(launches: tuple[Launch, ...]) -> str | None:
    return next(
        (
            launch.a
            for launch in launches
            if launch.role in (Role.ONE_STAGE, Role.STAGE1) and launch.a is not None
        ),
        None,
    )
