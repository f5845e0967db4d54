"""What the golden tests share: problems of cells, and their observation through leaf, bridge and provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiter_conformance.axes import Router, load_axes
from aiter_conformance.case import Case
from aiter_conformance.golden import Observation, observe
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.protocols import Subject

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
        return observe(problem, subject, provider_for(problem.case.cell), **more)

    return run
