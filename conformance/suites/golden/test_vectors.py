"""The committed golden vectors: inputs bit for bit, expected values to 1e-12, and each subject's output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance import vectors
from aiter_conformance.axes import load_axes
from aiter_conformance.case import parse_case
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, judge

FOLDER = Path(__file__).with_name("vectors")
COMMITTED: list[dict[str, Any]] = [
    vector
    for arch in load_axes().archs
    for vector in json.loads((FOLDER / f"{arch}.json").read_text(encoding="utf-8"))["vectors"]
]


def test_every_accepted_cell_has_one() -> None:
    """Each arch's file holds its accepted cells, in order, and no others."""
    cases = [str(case) for arch in load_axes().archs for case in vectors.vector_cases(arch)]
    assert [vector["case"] for vector in COMMITTED] == cases


@pytest.mark.parametrize("vector", COMMITTED, ids=lambda vector: vector["case"].partition("@")[0])
class TestVectors:
    """One committed vector each."""

    def test_inputs_and_expected(self, vector: dict[str, Any]) -> None:
        """The inputs are what they were, bit for bit, and so is the output but for its last digits."""
        problem = Problem(parse_case(vector["case"]))
        assert problem.digest() == vector["inputs"]
        values = expected(problem, nominal_pipeline(problem.case.cell)).values
        committed = vectors.read_expected(vector)
        assert np.abs(values - committed).max() <= vectors.TOLERANCE * np.abs(committed).max()
        assert np.abs(committed).max() > 0.01

    def test_zeros_fail(self, vector: dict[str, Any]) -> None:
        """An output of zeros is called, in every cell (KernelBench#165)."""
        problem = Problem(parse_case(vector["case"]))
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        assert judge(np.zeros_like(expect.values), expect).broken is Rule.ELEMENT
