"""What the golden tests share: problems of cells, and their observation through leaf, bridge and provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiter_conformance.axes import Router, load_axes
from aiter_conformance.case import Case
from aiter_conformance.golden import Observation, apply_leaf, live, live_rows, observe, pipeline_of
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import pack
from aiter_conformance.numerics.verdict import Verdict, judge
from aiter_conformance.protocols import KernelCall, Subject

pytest.importorskip("torch", reason="the golden suite computes with torch")

SMALL = {"experts": 5, "tokens": 17}


@pytest.fixture(scope="session")
def problem_of() -> Callable[..., Problem]:
    """Return a maker of small problems: ``arch/scheme/activation/router``, features, rank and numbers."""

    def make(cell: str, features: Features = Features(), rank: int = 0, **numbers: int) -> Problem:  # noqa: B008 -- frozen
        parsed = load_axes().parse_cell(cell)
        router: Router = parsed.router
        topk = {"topk": 1} if router == "in" else {}
        return Problem(Case(parsed, **(SMALL | topk | numbers)), features, rank)

    return make


@pytest.fixture(scope="session")
def observed(subject: Subject) -> Callable[..., Observation]:
    """Return an observer: the subject's leaf, with the reference kernels of the problem's scheme."""

    def run(problem: Problem, **more: Any) -> Observation:
        return observe(problem, subject, provider_for(problem.case.cell, problem.features), **more)

    return run


@pytest.fixture(scope="session")
def changed(subject: Subject) -> Callable[[Problem, Mapping[str, Any]], Verdict]:
    """Return a judge of what the kernels make of the leaf's call with some arguments changed."""

    def run(problem: Problem, change: Mapping[str, Any]) -> Verdict:
        provider = provider_for(problem.case.cell, problem.features)

        def compute(call: KernelCall) -> Any:
            assert set(change) <= set(call.arguments)
            return provider.compute(
                KernelCall(call.entry, dict(call.arguments) | dict(change)), problem.case.cell.arch
            )

        output, _ = apply_leaf(problem, pack(problem), subject, compute)
        return judge(live_rows(output, problem), live(expected(problem, pipeline_of(problem)), problem))

    return run
