"""Which kernels each input must run: what a trace of the very call launches on the very board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiter_conformance.contract import W4A16_SCHEMES
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.families import launch_kind
from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.kernels import Expected, expected_of
from aiter_conformance.providers.reference_families import FamilyRefusal, choose_family
from aiter_conformance.release.artefact import Release
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call, Situ, call_of_case

_SITU: Final[dict[str, Situ]] = {"a4w4": "a4w4", "a8w4": "a8w4", "a16w4": "a16w4"}


def trace_expected(
    release: Release, board: Board, items: Iterable[Item], cache: Path
) -> tuple[dict[str, Expected], str | None]:
    """Trace the calls of inputs and return what each must run, by the input's id.

    Args:
        release: The release.
        board: The board.
        items: The inputs.
        cache: Folder that keeps traces.

    Returns:
        (what must run, None), or (nothing, why nothing could be traced).
    """
    from aiter_conformance.trace.cached import cached_run

    calls = {str(item): call_of_item(item) for item in items}
    try:
        run = cached_run(release, board, list(dict.fromkeys(calls.values())), cache)
    except (InfrastructureError, ImportError) as error:
        return {}, str(error)
    by_call = {trace.call: expected_of(trace) for trace in run.traces}
    return {name: found for name, call in calls.items() if (found := by_call.get(call)) is not None}, None


def call_of_item(item: Item) -> Call:
    """Return the call of an input as traces describe it; shared experts count as routed ones."""
    from aiter_conformance.golden import SITU_SETTING  # it brings torch, which only a trace needs

    problem = item.problem
    cell, shared = item.case.cell, problem.features.shared_experts
    setting = problem.features.situ or SITU_SETTING.get(cell.scheme, "")
    call = call_of_case(item.case, bias=problem.features.biases)
    return replace(
        call,
        experts=call.experts + shared,
        local_experts=call.local_experts + shared,
        topk=call.topk + shared,
        swiglu_limit=problem.features.swiglu_limit,
        situ=_SITU.get(setting, call.situ) if cell.activation == "situ" else call.situ,
    )


def modelled_expected(items: Iterable[Item]) -> dict[str, Expected]:
    """Return the family that the reference provider stands for, for inputs on a simulated runner."""
    expected = {}
    for item in items:
        cell = item.case.cell
        tkw1 = cell.scheme == "fp8-channel" and cell.router == "in"
        try:
            family = choose_family(cell, tkw1=tkw1, bf16_activations=cell.scheme in W4A16_SCHEMES)
        except FamilyRefusal:
            continue
        expected[str(item)] = Expected(frozenset({launch_kind(family.name)}))
    return expected
