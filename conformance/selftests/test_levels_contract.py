"""Level contract: an exact call passes, and one planted fault anywhere in it fails the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aiter_moe.dispatch
from aiter_conformance.axes import Cell
from aiter_conformance.checks.contract_call import PADS, PARALLEL
from aiter_conformance.levels.contract import _deployments, observe_cell
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.protocols import ParallelSpec
from aiter_conformance.subjects import load_subject

CELL = Cell("gfx950", "mxfp4-w4a16", "swigluoai", "out")


def test_impl_makes_the_exact_calls() -> None:
    """A cell of this project's implementation passes, and says on how many cases."""
    outcome = observe_cell(load_subject("impl"), CELL)
    assert outcome.kind is Kind.PASS
    assert outcome.details["cases"] > 50


@pytest.mark.parametrize(
    "fault",
    [
        lambda hidden, intermediate: (hidden, 2 * intermediate),
        lambda hidden, intermediate: (hidden, intermediate // 2),
        lambda hidden, intermediate: (intermediate, hidden),
    ],
    ids=["doubled twice", "never doubled", "swapped"],
)
def test_a_wrong_pad_fails_the_cell(
    fault: Callable[[int, int], tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pads that are not what the contract asks for are seen."""
    sound = aiter_moe.dispatch.aiter_moe_pads

    def wrong(*arguments: Any, **named: Any) -> tuple[int, int]:
        return fault(*sound(*arguments, **named))

    monkeypatch.setattr(aiter_moe.dispatch, "aiter_moe_pads", wrong)
    outcome = observe_cell(load_subject("impl"), CELL)
    assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.CALL_DIFFERS)
    assert "pad" in str(outcome.message)


@pytest.mark.parametrize(
    "write",
    [
        lambda ids: ids.add_(0),
        lambda ids: ids.numpy().fill(0),  # past torch, so that no version counter moves
    ],
    ids=["by torch", "past torch"],
)
def test_an_input_that_is_written_to_fails_the_cell(
    write: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject that writes into its inputs is seen, whether it asks torch to or not."""
    sound = aiter_moe.dispatch.aiter_routing

    def wrong(weights: Any, ids: Any, mask: Any) -> Any:
        routing = sound(weights, ids.clone(), mask)
        write(ids)
        return routing

    monkeypatch.setattr(aiter_moe.dispatch, "aiter_routing", wrong)
    outcome = observe_cell(load_subject("impl"), CELL)
    assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.CALL_DIFFERS)


def test_every_deployment_is_tried() -> None:
    """One deployment of each tp_size gets all pads, every other one at least some."""
    tried: dict[ParallelSpec, set[Any]] = {}
    for (deployment, _), pads in _deployments():
        tried.setdefault(deployment, set()).add(pads)
    assert set(tried) == {deployment for deployment, _ in PARALLEL.values()}
    full = {tp for deployment, tp in PARALLEL.values() if tried[deployment] == set(PADS)}
    assert full == {1, 2, 8}
    assert all((192, 192, None) in pads for pads in tried.values())
