"""The oracle: values by hand for K = N = 1 or 2, every step of the pipeline, and the bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.case import Case
from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.activation import Activation, sigmoid
from aiter_conformance.numerics.formats import E2M1, E4M3FN, ScaleRounding
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import Expected, evaluate, expected, sampled_tokens
from aiter_conformance.numerics.pipeline import Pipeline, Requantisation, nominal_pipeline
from aiter_conformance.numerics.quantise import ROW, TENSOR, as_bf16
from aiter_conformance.numerics.weights import ExpertWeights

ProblemOf = Callable[..., Problem]
SILU = Activation("silu")


def one_expert(
    w1: list[list[float]], w2: list[list[float]], **biases: list[float]
) -> dict[int, ExpertWeights]:
    """Return expert 0 with bf16 weights and biases b1, b2."""
    b1, b2 = (np.array(biases[b], np.float32) if b in biases else None for b in ("b1", "b2"))
    return {0: ExpertWeights(as_bf16(w1), as_bf16(w2), b1, b2)}


def run(
    hidden: list[list[float]],
    experts: dict[int, ExpertWeights],
    pipeline: Pipeline = Pipeline("test"),  # noqa: B008 -- frozen
    activation: Activation = SILU,
    ids: list[list[int]] | None = None,
    weights: list[list[float]] | None = None,
    static: tuple[np.float32, np.float32] | None = None,
) -> Expected:
    """Evaluate with one expert per token and weight 1 unless told otherwise."""
    tokens = len(hidden)
    return evaluate(
        np.array(hidden, np.float64),
        np.array(ids if ids is not None else [[0]] * tokens, np.int32),
        np.array(weights if weights is not None else [[1.0]] * tokens, np.float64),
        experts,
        activation,
        pipeline,
        np.arange(tokens),
        static,
    )


def silu(x: float) -> float:
    """Return x sigmoid(x), by the standard library."""
    return x / (1 + math.exp(-x))


def bf16(x: float) -> float:
    """Round a normal number to 8 significant bits, ties to even."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256), exponent - 8)


class TestActivation:
    """`Activation`: SPEC 1's formulas at single points."""

    @pytest.mark.parametrize(
        ("activation", "gate", "up", "value"),
        [
            (SILU, 2.0, 3.0, silu(2) * 3),
            (replace(SILU, limit=1.5), 2.0, 3.0, silu(1.5) * 1.5),
            (replace(SILU, limit=1.5), -2.0, -3.0, silu(-2) * -1.5),
            (replace(SILU, limit=0.0), 2.0, 3.0, silu(2) * 3),
            (Activation("gelu"), 2.0, 3.0, 3 * 2 * 0.5 * math.erfc(-math.sqrt(2))),
            (Activation("gelu", limit=1.0), 2.0, -3.0, -1 * 0.5 * math.erfc(-math.sqrt(0.5))),
            (Activation("gelu_tanh"), 1.0, 3.0, 1.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))),
            (Activation("swigluoai"), 2.0, 3.0, 2 / (1 + math.exp(-3.404)) * 4),
            (Activation("swigluoai"), 9.0, -9.0, 7 / (1 + math.exp(-1.702 * 7)) * -6),
            (Activation("swigluoai_uninterleave", limit=1.0), 2.0, 3.0, 1 / (1 + math.exp(-1.702)) * 2),
            (
                Activation("situ", beta=2.0, linear_beta=4.0),
                1.0,
                3.0,
                8 * math.tanh(0.5) * silu(1) * math.tanh(0.75),
            ),
            (Activation("situ", beta=2.0), 1.0, 3.0, 2 * math.tanh(0.5) * silu(1) * 3),
            (Activation("situ", beta=2.0, limit=0.1), 1.0, 3.0, 2 * math.tanh(0.5) * silu(1) * 3),
        ],
    )
    def test_by_hand(self, activation: Activation, gate: float, up: float, value: float) -> None:
        """One point of each formula, on both sides of its limits."""
        assert activation(np.array([gate]), np.array([up])).item() == pytest.approx(value, rel=1e-14)

    def test_large_arguments(self) -> None:
        """No overflow however large the gate is."""
        gate = np.array([-1e4, 1e4])
        assert SILU(gate, np.ones(2)).tolist() == pytest.approx([0, 1e4])
        assert sigmoid(gate).tolist() == pytest.approx([0, 1])

    def test_bad_input(self) -> None:
        """Unknown activations and SiTU without beta are refused."""
        with pytest.raises(ValueError, match=r"activation must be one of silu, .* \(got 'relu2'\)"):
            Activation("relu2")
        with pytest.raises(ValueError, match=r"situ must have a beta other than 0 \(got None\)"):
            Activation("situ")


class TestEvaluate:
    """`evaluate`."""

    def test_smallest(self) -> None:
        """K = N = 1: w2 * bf16(silu(gate x) * up x)."""
        result = run([[2.0]], one_expert([[0.5], [3.0]], [[4.0]]))
        assert result.values.tolist() == [[4 * bf16(silu(1.0) * 6.0)]]

    def test_two_by_two(self) -> None:
        """K = N = 2: rows of gate, then of up; columns of w2 meet them in order."""
        experts = one_expert([[1, 0], [0, 1], [2, 0], [0, 4]], [[1, 0], [8, 16]])
        first, second = bf16(silu(1.0) * 2), bf16(silu(-2.0) * -8)
        assert run([[1.0, -2.0]], experts).values.tolist() == [[first, 8 * first + 16 * second]]

    def test_biases(self) -> None:
        """Biases are added after each product, b2 weighted with the expert."""
        experts = one_expert([[1.0], [1.0]], [[2.0]], b1=[0.5, -0.25], b2=[10.0])
        value = 2 * bf16(silu(1.5) * 0.75) + 10
        assert run([[1.0]], experts, weights=[[0.5]]).values.tolist() == [[0.5 * value]]

    def test_router_weight_on_input(self) -> None:
        """On input it scales gate and up before b1, and nothing afterwards."""
        experts = one_expert([[1.0], [2.0]], [[4.0]], b1=[0.5, 0.25], b2=[1.0])
        pipeline = Pipeline("test", router="in")
        value = 4 * bf16(silu(0.25 * 1 + 0.5) * (0.25 * 2 + 0.25)) + 1
        assert run([[1.0]], experts, pipeline, weights=[[0.25]]).values.tolist() == [[value]]

    def test_sum_over_experts(self) -> None:
        """A token's experts are weighted and added; an expert that is not held adds nothing."""
        experts = one_expert([[1.0], [1.0]], [[1.0]])
        experts[1] = one_expert([[2.0], [1.0]], [[1.0]])[0]
        a, b = bf16(silu(1.0)), bf16(silu(2.0))
        result = run([[1.0]] * 3, experts, ids=[[0, 1], [1, 5], [7, 6]], weights=[[0.5, 2.0]] * 3)
        assert result.values.tolist() == [[0.5 * a + 2 * b], [0.5 * b], [0.0]]
        assert result.bound[2].tolist() == [0.0]

    def test_hidden_states_are_quantised(self) -> None:
        """fp8 per token: in a row whose maximum is 448, 17 becomes 16, the even one of its neighbours."""
        pipeline = Pipeline("test", hidden=Requantisation(E4M3FN, ROW))
        experts = one_expert([[0, 2.0**-6], [0, 1.0]], [[1.0], [0.0]])
        assert run([[448.0, 17.0]], experts, pipeline).values.tolist() == [[bf16(silu(0.25) * 16), 0.0]]

    def test_intermediate_is_quantised(self) -> None:
        """fp8 per token: of (448, 17) the second becomes 16; in slices of 1 each is its own maximum."""
        # silu of 448 is 448 in bf16; up rows choose the intermediate
        experts = one_expert(
            [[448.0, 0], [448.0, 0], [0, 1.0], [0, 0.0379638671875]], [[1.0, 0.0], [0.0, 1.0]]
        )
        how, hidden = Requantisation(E4M3FN, ROW), [[1.0, 1.0]]
        plain = run(hidden, experts)
        quantised = run(hidden, experts, Pipeline("test", intermediate=how))
        sliced = run(hidden, experts, Pipeline("test", intermediate=how, slice_width=1))
        assert plain.values.tolist() == [[448.0, 17.0]]
        assert quantised.values.tolist() == [[448.0, 16.0]]
        assert sliced.values == pytest.approx(plain.values, rel=1e-6)

    def test_one_scale_for_all_rows(self) -> None:
        """A dynamic scale per tensor comes from every row, judged or not."""
        experts = one_expert([[448.0], [1.0]], [[1.0]])
        how = Requantisation(E4M3FN, TENSOR)
        hidden = [[1.0], [1.0 / 448]]
        both = run(hidden, experts, Pipeline("test", intermediate=how))
        alone = evaluate(
            np.array(hidden), np.zeros((2, 1), np.int32), np.ones((2, 1)), experts, SILU,
            Pipeline("test", intermediate=how), np.array([1]),
        )  # fmt: skip
        assert alone.values.tolist() == both.values[1:].tolist()

    def test_static_scale(self) -> None:
        """Static scales saturate, and must be given."""
        how = Requantisation(E4M3FN, TENSOR, static=True)
        experts = one_expert([[1.0], [1.0]], [[1.0]])
        pipeline = Pipeline("test", hidden=how, intermediate=how)
        value = run([[100.0]], experts, pipeline, static=(np.float32(0.125), np.float32(2.0)))
        assert value.values.tolist() == [[896.0]]  # 100 becomes 56; silu(56) 56 = 3136 becomes 448 * 2
        with pytest.raises(UsageError, match="must be given its scale"):
            run([[100.0]], experts, pipeline)

    def test_mx_rounding_matters(self) -> None:
        """The rounding of the scale is the pipeline's: floor clamps 7 to 6, rceil makes it 8."""
        values = {}
        for rounding in (ScaleRounding.FLOOR, ScaleRounding.RCEIL):
            how = Requantisation(E2M1, (1, 1), rounding)
            values[rounding] = run(
                [[7.0]], one_expert([[16.0], [1.0]], [[1.0]]), Pipeline("t", hidden=how)
            ).values.item()
        assert values == {"floor": bf16(silu(96) * 6), "rceil": bf16(silu(128) * 8)}

    def test_not_rounded_without_a_buffer(self) -> None:
        """A one-stage kernel quantises the intermediate as it is, not its bfloat16 rounding."""
        how = Requantisation(E4M3FN, TENSOR, static=True)
        experts = one_expert([[64.0], [1.0]], [[1.0]])
        # 17.001 rounds up to 18; its bfloat16 rounding is 17, a tie that goes to 16
        scale = (np.float32(1.0), np.float32(1.0))
        hidden = [[math.sqrt(17.001 / 64)]]
        two = run(hidden, experts, Pipeline("t", intermediate=how), static=scale)
        one = run(hidden, experts, Pipeline("t", intermediate=how, intermediate_bf16=False), static=scale)
        assert (two.values.item(), one.values.item()) == (16.0, 18.0)


class TestBound:
    """The bound and the fragile rows."""

    def test_terms(self) -> None:
        """Where nothing can cross a boundary, B is the sums' error and three roundings to bfloat16."""
        result = run([[1.0]], one_expert([[1.0], [1.0]], [[1.0]]))
        h = bf16(silu(1.0))
        assert result.bound.item() == pytest.approx(h * (2.0**-24 + 3 * 2.0**-9), rel=1e-12)

    def test_crossing_a_code(self) -> None:
        """On the tie between two codes B has the step between them, and the row is fragile; beside it not."""
        how = Requantisation(E4M3FN, TENSOR, static=True)
        pipeline = Pipeline("t", intermediate=how, intermediate_bf16=False)
        scale = (np.float32(1.0), np.float32(1.0))

        def of(up: float) -> Expected:
            return run([[1.0]], one_expert([[64.0], [up]], [[1.0]]), pipeline, static=scale)

        tie, clear = of(17 / 64), of(16.5 / 64)
        assert (tie.fragile.item(), clear.fragile.item()) == (True, False)
        assert tie.bound.item() > 2.0
        assert clear.bound.item() < 0.1

    def test_fragile_is_of_the_token(self) -> None:
        """Only the token whose row is fragile is marked."""
        how = Requantisation(E4M3FN, TENSOR, static=True)
        pipeline = Pipeline("t", hidden=how)
        result = run(
            [[16.0], [17.0]], one_expert([[1.0], [1.0]], [[1.0]]), pipeline, static=(np.float32(1),) * 2
        )
        assert result.fragile.tolist() == [False, True]

    def test_grows_with_k(self) -> None:
        """The error of the sums grows with their length."""
        short = run([[1.0] * 2], one_expert([[1.0] * 2] * 2, [[1.0]] * 2))
        long = run([[1 / 512] * 1024], one_expert([[1.0] * 1024] * 2, [[1.0]] * 1024))
        assert short.values[0, 0] == long.values[0, 0]
        assert long.bound[0, 0] > 1.01 * short.bound[0, 0]


class TestExpected:
    """`expected`."""

    @pytest.mark.parametrize("scheme", ["fp8-tensor-dynamic", "fp8-channel", "mxfp4-w4a4"])
    def test_some_tokens(self, scheme: str, problem_of: ProblemOf) -> None:
        """Asking for some tokens gives what asking for all gives of them."""
        problem = problem_of(scheme, tokens=16)
        pipeline = nominal_pipeline(problem.case.cell)
        everything, some = expected(problem, pipeline), expected(problem, pipeline, [15, 3, 3])
        assert some.tokens.tolist() == [3, 15]
        assert np.allclose(some.values, everything.values[[3, 15]], rtol=1e-12, atol=1e-11)
        assert np.allclose(some.bound, everything.bound[[3, 15]], rtol=1e-9, atol=0)
        assert (some.fragile == everything.fragile[[3, 15]]).all()

    def test_no_tokens(self, problem_of: ProblemOf) -> None:
        """No tokens give an empty expectation, for every scheme."""
        for scheme in load_axes().schemes:
            problem = problem_of(scheme, tokens=0)
            assert expected(problem, nominal_pipeline(problem.case.cell)).values.shape == (0, 256)

    def test_unknown_token(self, problem_of: ProblemOf) -> None:
        """A token outside the input is refused."""
        problem = problem_of("bf16", tokens=4)
        with pytest.raises(UsageError, match=r"tokens must be in 0 .. 3 \(got \[4\]\)"):
            expected(problem, nominal_pipeline(problem.case.cell), [4])

    # Not fp8-tensor-dynamic: one scale for all rows makes a rank's numbers depend on the rows that it holds.
    @pytest.mark.parametrize("scheme", [s for s in load_axes().schemes if s != "fp8-tensor-dynamic"])
    def test_experts_add_up(self, scheme: str, problem_of: ProblemOf) -> None:
        """The ranks of expert parallelism add up to the whole, whatever is quantised per row."""
        whole = problem_of(scheme, features=Features(shared_experts=0), tokens=8)
        pipeline = nominal_pipeline(whole.case.cell)
        ranks = [Problem(replace(whole.case, ep=2), whole.features, rank) for rank in (0, 1)]
        parts = [expected(rank, pipeline).values for rank in ranks]
        assert np.allclose(sum(parts), expected(whole, pipeline).values, rtol=1e-11, atol=1e-11)

    def test_partitions_add_up(self, problem_of: ProblemOf) -> None:
        """The ranks of tensor parallelism add up to the whole in bf16."""
        whole = problem_of("bf16", tokens=8)
        pipeline = nominal_pipeline(whole.case.cell)
        ranks = [Problem(replace(whole.case, tp=2), rank=rank) for rank in (0, 1)]
        total = sum(expected(rank, pipeline).values for rank in ranks)
        assert np.allclose(total, expected(whole, pipeline).values, rtol=1e-11, atol=1e-11)

    def test_pads_change_nothing(self, problem_of: ProblemOf) -> None:
        """A padded problem is the unpadded one on its live columns, and zero on the dead ones."""
        padded = problem_of("bf16", hidden_pad=32, intermediate_pad=32, tokens=8, experts=2)
        bare = problem_of("bf16", hidden=224, intermediate=224, tokens=8, experts=2)
        pipeline = nominal_pipeline(bare.case.cell)
        with_pads = expected(padded, pipeline).values
        assert np.allclose(with_pads[:, :224], expected(bare, pipeline).values, rtol=1e-12, atol=1e-12)
        assert not with_pads[:, 224:].any()


class TestSampledTokens:
    """`sampled_tokens`."""

    @pytest.mark.parametrize("tokens", [0, 1, 16])
    def test_few(self, tokens: int) -> None:
        """A small input is judged whole."""
        assert sampled_tokens(tokens) == list(range(tokens))

    @pytest.mark.parametrize("tokens", [17, 1000, 1024, 32769])
    def test_many(self, tokens: int) -> None:
        """At least 16, ascending, with first, last and both sides of every bucket's edge."""
        chosen = sampled_tokens(tokens)
        assert len(chosen) >= 16
        assert chosen == sorted(set(chosen))
        assert (chosen[0], chosen[-1]) == (0, tokens - 1)
        edges = [2**power + side for power in range(16) for side in (-1, 0) if 2**power + side < tokens]
        assert set(edges) <= set(chosen)

    def test_model_shape(self) -> None:
        """A model's shape is judged by its sample without making the experts that no sampled token needs."""
        cell = Cell("gfx942", "fp8-block", "silu", "out")
        case = Case(cell, experts=64, topk=1, hidden=512, intermediate=128, tokens=300)
        problem = Problem(case)
        tokens = sampled_tokens(300)
        expect = expected(problem, nominal_pipeline(cell), tokens)
        assert expect.tokens.tolist() == tokens
        assert expect.values.any(axis=1).all()


class TestNominalPipeline:
    """`nominal_pipeline`."""

    @pytest.mark.parametrize(
        ("cell", "hidden", "two_stages"),
        [
            (Cell("gfx950", "bf16", "silu", "out"), None, True),
            (Cell("gfx942", "fp8-block", "silu", "out"), ("e4m3fnuz", (1, 128), None, False), True),
            (Cell("gfx950", "fp8-tensor-static", "silu", "in"), ("e4m3fn", (-1, -1), None, True), True),
            (Cell("gfx942", "fp8-tensor-dynamic", "silu", "out"), ("e4m3fnuz", (-1, -1), None, False), True),
            (Cell("gfx1250", "fp8-channel", "silu", "out"), ("e4m3fn", (1, -1), None, False), True),
            (Cell("gfx942", "fp8-channel", "silu", "in"), ("e4m3fnuz", (1, -1), None, False), False),
            (Cell("gfx942", "fp8-channel", "swigluoai", "in"), ("e4m3fnuz", (1, -1), None, False), True),
            (Cell("gfx1250", "fp8-channel", "silu", "in"), ("e4m3fn", (1, -1), None, False), True),
            (Cell("gfx950", "mxfp4-w4a16", "situ", "out"), None, True),
            (Cell("gfx950", "mxfp4-w4a4", "silu", "out"), ("e2m1", (1, 32), "rceil", False), True),
            (Cell("gfx942", "int4-w4a16", "situ", "out"), None, True),
        ],
        ids=str,
    )
    def test_table(self, cell: Cell, hidden: tuple[object, ...] | None, two_stages: bool) -> None:
        """Each scheme quantises what its name says, in the flavour of the arch."""
        pipeline = nominal_pipeline(cell)
        how = pipeline.hidden
        assert (None if how is None else (how.element.name, how.block, how.rounding, how.static)) == hidden
        assert pipeline.intermediate == how
        assert (pipeline.intermediate_bf16, pipeline.router) == (two_stages, cell.router)
