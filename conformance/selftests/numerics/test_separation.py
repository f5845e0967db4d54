"""Honest kernels stay under the bound, and each fault of NUMERICS 3's table goes over it, in every scheme."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance.axes import load_axes
from aiter_conformance.case import Case
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import Expected, expected
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import Rule, judge

ProblemOf = Callable[..., Problem]
RunKernel = Callable[..., Any]

SCHEMES = list(load_axes().schemes)
FP8 = [s for s in SCHEMES if s.startswith("fp8")]
QUANTISED = [s for s in SCHEMES if s != "bf16"]
REQUANTISED = [*FP8, "mxfp4-w4a4"]
MXFP4 = ["mxfp4-w4a16", "mxfp4-w4a4"]
FNUZ = ["fp8-block", "fp8-tensor-dynamic"]  # those whose arch here is gfx942
ON_INPUT = [s for s in SCHEMES if s != "fp8-block"]  # the leaf of fp8-block refuses weights on the input

BIASED = Features(biases=True)
LIMITED = Features(swiglu_limit=2.0)

# fault, schemes, (activation, router, features)
PLAIN = ("silu", "out", Features())
SWIGLU = ("swigluoai", "out", Features())
SITU = ("situ", "out", Features())
FAULTS = [
    ("zeros-returned", SCHEMES, PLAIN),
    ("nan-in-one-element", SCHEMES, PLAIN),
    ("tokens-shifted", SCHEMES, PLAIN),
    ("one-row-masked", SCHEMES, PLAIN),
    ("one-router-weight-missing", SCHEMES, PLAIN),
    ("router-weight-missing", SCHEMES, PLAIN),
    ("router-weight-missing", ON_INPUT, ("silu", "in", Features())),
    ("router-weight-on-the-wrong-side", SCHEMES, PLAIN),
    ("router-weight-on-the-wrong-side", ON_INPUT, ("silu", "in", Features())),
    ("next-expert-read", SCHEMES, PLAIN),
    ("gate-and-up-swapped", SCHEMES, PLAIN),
    ("gate-and-up-read-interleaved", SCHEMES, PLAIN),
    ("pad-doubled", SCHEMES, PLAIN),
    ("last-block-of-k-dropped", SCHEMES, PLAIN),
    ("scale-shifted", QUANTISED, PLAIN),
    ("weight-scale-ignored", QUANTISED, PLAIN),
    ("intermediate-not-requantised", REQUANTISED, PLAIN),
    ("hidden-not-quantised", REQUANTISED, PLAIN),
    ("fnuz-read-as-fn", FNUZ, PLAIN),
    ("scale-off-by-one", MXFP4, PLAIN),
    ("nibbles-swapped", MXFP4, PLAIN),
    ("gelu-for-silu", SCHEMES, PLAIN),
    ("silu-for-gelu", SCHEMES, ("gelu", "out", Features())),
    ("limit-ignored", SCHEMES, ("silu", "out", LIMITED)),
    ("limit-ignored", SCHEMES, SWIGLU),
    ("up-without-one", SCHEMES, SWIGLU),
    ("linear-beta-ignored", SCHEMES, SITU),
    ("beta-replaced", SCHEMES, SITU),
    ("bias-1-missing", ["mxfp4-w4a16"], ("swigluoai", "out", BIASED)),
    ("bias-2-missing", ["mxfp4-w4a16"], ("swigluoai", "out", BIASED)),
]


def documented() -> dict[tuple[str, str], tuple[str, float]]:
    """Return the table of docs/numerics.md: (row, scheme) -> (<=, >= or NaN, number)."""
    page = Path(__file__).parents[2] / "docs" / "numerics.md"
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    header = next(line for line in lines if line.startswith("| what is wrong |"))
    schemes = [field.strip() for field in header.strip("|").split("|")][1:]
    next(lines)
    found = {}
    for line in lines:
        if not line.startswith("|"):
            return found
        label, *fields = (field.strip() for field in line.strip("|").split("|"))
        for scheme, field in zip(schemes, fields, strict=True):
            if field:
                sign, _, number = field.partition(" ")
                found[label, scheme] = sign, float(number or "inf")
    return found


DOCUMENTED = documented()
HONEST = "honest: float32 sums, in chunks of 16"
PARTIAL = "honest: partial results rounded to bfloat16"
EDGE = 0.05  # numbers differ a little between machines


def row_of(fault: str, activation: str, router: str) -> str:
    """Return the label of a fault's row in the table of the docs."""
    if fault == "limit-ignored":
        return f"{fault} ({activation})"
    return f"{fault} (in)" if router == "in" else fault


@pytest.fixture(scope="module")
def expectation(problem_of: ProblemOf) -> Callable[..., tuple[Problem, Expected]]:
    """Return a maker of (problem, expectation) that computes each once."""
    made: dict[tuple[str, str, str, Features, int], tuple[Problem, Expected]] = {}

    def make(
        scheme: str, activation: str, router: str, features: Features, seed: int
    ) -> tuple[Problem, Expected]:
        key = (scheme, activation, router, features, seed)
        if key not in made:
            problem = problem_of(scheme, activation, router, features, seed=seed, experts=5, tokens=17)
            made[key] = problem, expected(problem, nominal_pipeline(problem.case.cell))
        return made[key]

    return make


@pytest.mark.parametrize("scheme", SCHEMES)
class TestHonestKernels:
    """float32 accumulation in chunks, in another order than the oracle's, is under the bound."""

    @pytest.mark.parametrize(
        ("activation", "router"), [("silu", "out"), ("swigluoai", "out"), ("situ", "out"), ("gelu", "in")]
    )
    def test_under_the_bound(
        self, scheme: str, activation: str, router: str, expectation: Any, run_kernel: RunKernel
    ) -> None:
        """An honest kernel uses at most 0.75 B; with bfloat16 partial sums at most 1.5 B of the 2 allowed."""
        if (scheme, router) == ("fp8-block", "in"):
            router = "out"
        problem, expect = expectation(scheme, activation, router, Features(), 0)
        honest = judge(run_kernel(problem), expect)
        partial = judge(run_kernel(problem, bf16_partials=True), expect)
        assert (honest.broken, partial.broken) == (None, None)
        assert honest.bound_ratio <= 0.75
        assert partial.bound_ratio <= 1.5
        if (activation, router) == ("silu", "out"):
            assert honest.bound_ratio <= DOCUMENTED[HONEST, scheme][1] * (1 + EDGE)
            assert partial.bound_ratio <= DOCUMENTED[PARTIAL, scheme][1] * (1 + EDGE)
        assert honest.row_error <= 2.2e-3
        assert partial.row_error <= 4e-3
        assert honest.rows_judged + honest.rows_fragile == 17


@pytest.mark.parametrize(
    ("fault", "scheme", "how"),
    [(fault, scheme, how) for fault, schemes, how in FAULTS for scheme in schemes],
    ids=lambda value: value if isinstance(value, str) else "-".join(value[:2]),
)
class TestFaults:
    """Every planted fault breaks a rule."""

    def test_over_the_bound(
        self,
        fault: str,
        scheme: str,
        how: tuple[str, str, Features],
        expectation: Any,
        run_kernel: RunKernel,
    ) -> None:
        """The fault is called, and its largest error is at least 4 B: twice what is allowed."""
        problem, expect = expectation(scheme, *how, 0)
        verdict = judge(run_kernel(problem, fault), expect)
        assert verdict.broken in (Rule.ELEMENT, Rule.NOT_FINITE)
        assert verdict.bound_ratio >= 4
        sign, least = DOCUMENTED[row_of(fault, how[0], how[1]), scheme]
        assert sign == (">=" if np.isfinite(verdict.bound_ratio) else "NaN")
        assert verdict.bound_ratio >= least * (1 - EDGE)


def test_table_is_whole() -> None:
    """The table of the docs has each honest kernel and each fault of every scheme, and no more."""
    faults = {(row_of(f, how[0], how[1]), scheme) for f, schemes, how in FAULTS for scheme in schemes}
    assert set(DOCUMENTED) == faults | {(row, scheme) for row in (HONEST, PARTIAL) for scheme in SCHEMES}


class TestAccumulation:
    """Lesser sins than the table's."""

    @pytest.mark.parametrize("scheme", ["bf16", "mxfp4-w4a16", "int4-w4a16", "mxfp4-w4a4"])
    def test_bf16_accumulation_is_called(self, scheme: str, expectation: Any, run_kernel: RunKernel) -> None:
        """A first GEMM that accumulates in bfloat16 breaks a rule."""
        problem, expect = expectation(scheme, "silu", "out", Features(), 0)
        assert not judge(run_kernel(problem, "accumulates-in-bf16"), expect).passed

    def test_aiter_gate_misses_what_the_bound_sees(self, expectation: Any, run_kernel: RunKernel) -> None:
        """AITER's logits_diff > 0.01 misses a masked row, a missing weight and GELU for SiLU (NUMERICS 3)."""
        problem, expect = expectation("bf16", "silu", "out", Features(), 0)
        for fault in ("one-row-masked", "one-router-weight-missing", "gelu-for-silu"):
            verdict = judge(run_kernel(problem, fault), expect)
            assert verdict.logits_diff <= 0.01
            assert not verdict.passed

    def test_padding_rows_must_be_zero(self, problem_of: ProblemOf, run_kernel: RunKernel) -> None:
        """A padding row, all of whose ids are no expert, must be exactly zero."""
        problem = problem_of("bf16", tokens=17, experts=5)
        problem.topk_ids[5] = -1
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        out = run_kernel(problem)
        assert judge(out, expect).passed
        out[5, 3] = np.finfo(np.float32).tiny
        assert judge(out, expect).broken is Rule.NOT_ZERO


# --------------------------------------------------------------------------- the table anew: python FILE

STEPS = (4, 10, 20, 30, 50, 100, 200, 300, 500, *(n * 10**p for p in (3, 4) for n in (1, 2, 3, 5)), 100_000)


def field(label: str, ratio: float) -> str:
    """Return how a ratio is shown: at most for honest kernels, at least for faults, in coarse steps."""
    if not np.isfinite(ratio):
        return "NaN"
    if label in (HONEST, PARTIAL):
        return f"<= {next(step for step in (0.5, 0.75, 1, 1.5, 2) if ratio <= step):g}"
    return f">= {max(step for step in STEPS if step <= ratio)}"


def table() -> str:
    """Measure every field and return the table of docs/numerics.md."""
    from conftest import ARCHS, Kernel

    rows: dict[str, dict[str, str]] = {}
    plan = [(HONEST, "", SCHEMES, PLAIN), (PARTIAL, "", SCHEMES, PLAIN)]
    plan += [(row_of(fault, how[0], how[1]), fault, schemes, how) for fault, schemes, how in FAULTS]
    for label, fault, schemes, (activation, router, features) in plan:
        for scheme in schemes:
            cell = load_axes().parse_cell(f"{ARCHS[scheme]}/{scheme}/{activation}/{router}")
            case = Case(cell, experts=5, tokens=17, topk=1 if router == "in" else 2)
            problem, pipeline = Problem(case, features), nominal_pipeline(cell)
            output = Kernel(problem, pipeline, fault, bf16_partials=label == PARTIAL).run()
            ratio = judge(output, expected(problem, pipeline)).bound_ratio
            rows.setdefault(label, {})[scheme] = field(label, ratio)
    lines = [["what is wrong", *SCHEMES], ["---"] * (len(SCHEMES) + 1)]
    lines += [[label, *(found.get(scheme, "") for scheme in SCHEMES)] for label, found in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())  # noqa: T201 -- it is what this is for
