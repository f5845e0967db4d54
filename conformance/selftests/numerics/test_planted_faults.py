"""Planted faults in formats, quantisers, layouts, activation, oracle and verdict: each is caught by a check.

A mutant is the module's own source with one piece of text replaced; the check must hold of the original and
fail of the mutant.
"""

# ruff: noqa: E501 -- pieces of source are quoted as they stand
from __future__ import annotations

import importlib
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aiter_conformance.numerics import activation, pipeline, quantise
from aiter_conformance.numerics.formats import E4M3FN, E4M3FNUZ, ScaleRounding
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import Expected
from aiter_conformance.numerics.pipeline import Pipeline, nominal_pipeline
from aiter_conformance.numerics.verdict import judge
from aiter_conformance.numerics.weights import ExpertWeights

PACKAGE = "aiter_conformance.numerics"


# --------------------------------------------------------------------------- checks


def check_formats(m: Any, make: Any) -> None:
    """Spot values of every format, by ml_dtypes or by hand."""
    assert m.E4M3FN.round([1e9, -1e9, 17.0]).tolist() == [448, -448, 16]
    assert m.E4M3FNUZ.round([1e9, 15.5]).tolist() == [240, 16]
    assert m.E4M3FNUZ.decode([0x40]).tolist() == [1]
    assert m.E2M1.round([7.0, 2.5, -0.75]).tolist() == [6, 2, -1]
    values = np.array([1.00390625, 1.01171875, 3.0e-40, -2.7182818])
    assert m.round_bf16(values).tolist() == values.astype(ml_dtypes.bfloat16).astype(float).tolist()
    codes = {mode: m.e8m0_scale([6.0, 6.5, 7.0, 8.0], m.E2M1, mode).tolist() for mode in ScaleRounding}
    assert codes == {
        "floor": [127, 127, 127, 128],
        "ceil": [128, 128, 128, 128],
        "rceil": [127, 128, 128, 128],
        "even": [127, 127, 128, 128],
    }
    assert m.e8m0_scale([0.0, np.inf], m.E2M1, ScaleRounding.FLOOR).tolist() == [0, 255]
    assert m.e8m0_scale([448.0, 449.0], m.E4M3FN, ScaleRounding.RCEIL).tolist() == [127, 128]
    assert m.decode_e8m0([0, 127, 130]).tolist() == [2.0**-127, 1.0, 8.0]
    assert np.isnan(m.decode_e8m0([255])).all()
    assert m.pack_nibbles(np.array([1, 2])).tolist() == [0x21]
    assert m.int4_to_nibbles(np.array([-1, -8, 7])).tolist() == [15, 8, 7]


def check_quantise(m: Any, make: Any) -> None:
    """Scales and codes by hand."""
    q = m.quantise_float([[448.0, 3.0], [896.0, 3.0]], E4M3FN, m.ROW)
    assert (q.scale_values().tolist(), q.values().tolist()) == ([[1], [2]], [[448, 3], [896, 3]])
    assert m.quantise_float([[0.0, 0.0]], E4M3FNUZ, m.ROW).scale_values().tolist() == [[1]]
    static = m.quantise_float([[9.0]], E4M3FN, m.TENSOR, np.array([[0.25]], np.float32))
    assert static.values().tolist() == [[9]]
    values = np.ones((2, 64))
    values[0, 32:], values[1, 0] = 2, -7
    mx = m.quantise_mxfp4(values, ScaleRounding.RCEIL)
    assert mx.scale_values().tolist() == [[0.25, 0.5], [2, 0.25]]
    assert (mx.values()[0] == values[0]).all()
    int4 = m.quantise_int4(values)
    assert int4.codes[1, :2].tolist() == [-7, 1]
    assert int4.scale_values()[1, 0] == 1
    assert m.block_amax(values, m.ROW).tolist() == [[2], [7]]


def check_layout(m: Any, make: Any) -> None:
    """Single elements by their offset, and every layout back and forth."""
    weights = np.arange(32 * 64).reshape(32, 64).astype(np.uint16)
    flat = m.shuffle_16x16(weights).reshape(-1)
    assert flat[16 * 64 + 1 * 16 * 8 + 3 * 8 + 5] == weights[19, 13]
    scales = np.random.default_rng(0).integers(0, 256, (512, 8)).astype(np.uint8)
    assert m.shuffle_e8m0(scales).reshape(-1)[256 * 9 + 2 * 64 + 7 * 4 + 2 + 1] == scales[9 * 32 + 23, 6]
    assert m.interleave_gate_up(np.arange(64).reshape(1, 64, 1)).reshape(-1)[16:18].tolist() == [32, 33]
    values = np.random.default_rng(1).integers(-8, 8, (1, 16, 32)).astype(np.int8)
    packed = m.pack_int4(values).reshape(-1)
    assert (packed[5] & 15, packed[5] >> 4) == (values[0, 0, 9] & 15, values[0, 0, 13] & 15)
    assert m.shuffle_int4_scales(np.arange(8).reshape(1, 2, 4)).reshape(-1).tolist() == [
        0,
        1,
        4,
        5,
        2,
        3,
        6,
        7,
    ]
    for scheme in ("bf16", "fp8-block", "mxfp4-w4a16", "mxfp4-w4a4", "int4-w4a16"):
        for layout, rows in zip(m.weight_layouts(scheme, "silu"), (64, 32), strict=True):
            codes = (
                np.random.default_rng(2)
                .integers(0, 8, (2, rows, 64))
                .astype({"bf16": np.uint16, "int4": np.int8}.get(layout.elements, np.uint8))
            )
            packed = m.pack_weights(codes, layout)
            if layout.elements in ("fp4", "int4"):
                packed = np.stack([packed & 15, packed >> 4])
            assert (np.sort(packed, axis=None) == np.sort(codes, axis=None)).all()
            scale = np.random.default_rng(3).integers(0, 256, (2, rows, 2)).astype(np.uint8)
            assert (m.unpack_scales(m.pack_scales(scale, layout), layout, scale.shape) == scale).all()
    first, second = m.weight_layouts("mxfp4-w4a16", "swigluoai")
    assert (first.gate_up_interleaved, second.gate_up_interleaved) == (True, False)
    assert m.weight_layouts("mxfp4-w4a16", "situ")[0].gate_up_interleaved is False
    assert m.weight_layouts("mxfp4-w4a4", "silu")[0].gate_up_interleaved is False


def check_activation(m: Any, make: Any) -> None:
    """One point of every formula."""

    def at(gate: float, up: float, name: str, **more: float) -> float:
        return float(m.Activation(name, **more)(np.array([gate]), np.array([up])).item())

    def silu(x: float) -> float:
        return x / (1 + math.exp(-x))

    points = [
        (at(2, 3, "silu"), silu(2) * 3),
        (at(2, -3, "silu", limit=1.5), silu(1.5) * -1.5),
        (at(2, 3, "gelu"), 3 * math.erfc(-math.sqrt(2))),
        (at(2, 3, "swigluoai"), 2 / (1 + math.exp(-3.404)) * 4),
        (at(9, -9, "swigluoai"), 7 / (1 + math.exp(-11.914)) * -6),
        (
            at(1, 3, "situ", beta=2.0, linear_beta=4.0),
            8 * math.tanh(0.5) / (1 + math.exp(-1)) * math.tanh(0.75),
        ),
        (at(1, 3, "situ", beta=2.0, limit=0.1), 6 * math.tanh(0.5) / (1 + math.exp(-1))),
    ]
    for got, want in points:
        assert got == pytest.approx(want, rel=1e-12)


def check_oracle(m: Any, make: Any) -> None:
    """Values by hand; honest kernels pass and faulty ones fail."""
    one = np.array([[1.0]])
    weights = {
        0: ExpertWeights(
            quantise.as_bf16([[1.0], [2.0]]),
            quantise.as_bf16([[4.0]]),
            np.float32([0.5, 0.25]),
            np.float32([1.0]),
        )
    }

    def value(how: Pipeline, router: float = 0.25) -> float:
        args = (np.zeros((1, 1), np.int32), np.array([[router]]), weights, activation.Activation("silu"), how)
        result = m.evaluate(one, *args, np.arange(1), (np.float32(1), np.float32(1)))
        return float(result.values.item())

    def bf16(x: float) -> float:
        return float(np.float32(x).astype(ml_dtypes.bfloat16))

    assert value(Pipeline("t")) == 0.25 * (4 * bf16(1.5 / (1 + math.exp(-1.5)) * 2.25) + 1)
    assert value(Pipeline("t", router="in")) == 4 * bf16(0.75 / (1 + math.exp(-0.75)) * 0.75) + 1
    static = pipeline.Requantisation(E4M3FN, quantise.TENSOR, static=True)
    assert value(Pipeline("t", intermediate=static)) == 0.25 * (4 * 2.75 + 1)
    for scheme, name in (
        ("bf16", "swigluoai"),
        ("fp8-channel", "silu"),
        ("mxfp4-w4a4", "silu"),
        ("fp8-block", "silu"),
    ):
        problem: Problem = make.problem(scheme, name, experts=4, tokens=9)
        nominal = nominal_pipeline(problem.case.cell)
        expect: Expected = m.expected(problem, nominal)
        honest = judge(make.run(problem), expect)
        assert honest.passed
        assert honest.bound_ratio > 0.05
        assert not judge(make.run(problem, "one-row-masked"), expect).passed
        assert not judge(
            make.run(problem, "gelu-for-silu" if name == "silu" else "limit-ignored"), expect
        ).passed
        if nominal.hidden is not None:
            assert not judge(make.run(problem, "intermediate-not-requantised"), expect).passed
            assert not judge(make.run(problem, "hidden-not-quantised"), expect).passed
    tie = {0: ExpertWeights(quantise.as_bf16([[64.0], [17 / 64]]), quantise.as_bf16([[1.0]]), None, None)}
    how = Pipeline("t", intermediate=static, intermediate_bf16=False)
    args = (np.zeros((1, 1), np.int32), np.array([[1.0]]), tie, activation.Activation("silu"), how)
    at_tie = m.evaluate(one, *args, np.arange(1), (np.float32(1), np.float32(1)))
    assert at_tie.fragile.item()
    assert at_tie.bound.item() > 2


def check_verdict(m: Any, make: Any) -> None:
    """Each rule on both sides of its limit."""
    ref = np.array([[1.0, -2.0], [0.0, 0.0]])
    bound = np.array([[0.01, 0.01], [0.0, 0.0]])

    def rule(out: list[list[float]], b: Any = bound, fragile: bool = False) -> str | None:
        verdict = m.judge(out, Expected(np.arange(2), ref, b, np.array([fragile, False])))
        return None if verdict.broken is None else str(verdict.broken)

    assert rule([[1, -2], [0, 0]]) is None
    assert rule([[1, -2], [0, 1e-30]]) == "zero-row"
    assert rule([[1, np.nan], [0, 0]], bound * 1e9) == "not-finite"
    assert rule([[1.017, -2], [0, 0]]) is None
    assert rule([[1.0201, -2], [0, 0]]) == "element"
    assert rule([[0.9799, -2], [0, 0]]) == "element"
    assert rule([[1.019, -2], [0, 0]], bound * 9) == "row"
    assert rule([[1.019, -2], [0, 0]], bound * 9, fragile=True) is None
    assert rule([[0, 0], [0, 0]]) == "element"


def check_inputs(m: Any, make: Any) -> None:
    """Distinct experts, halves and tokens; routing, mask, pads, and the digest that is written down."""
    case = make.problem("fp8-block", experts=4, tokens=8, hidden=128, intermediate=128).case
    problem = m.Problem(case, Features())
    digest = Problem(case, Features()).digest()
    assert problem.digest() == digest == make.digest
    assert all(len(set(row)) == 2 for row in problem.topk_ids.tolist())


def check_weights(m: Any, make: Any) -> None:
    """Experts and halves differ."""
    sizes = m.WeightSizes("fp8-block", "e4m3fn", 128, 128, 128, 128, 1, 0, 0, False)
    first, second = (m.expert_weights(sizes, expert).w1.values() for expert in (0, 1))
    # by their signs, which no scale hides
    assert abs(np.mean(np.sign(first[:128]) * np.sign(first[128:]))) < 0.1
    assert abs(np.mean(np.sign(first) * np.sign(second))) < 0.1


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "formats": check_formats,
    "quantise": check_quantise,
    "layout": check_layout,
    "activation": check_activation,
    "oracle": check_oracle,
    "verdict": check_verdict,
    "inputs": check_inputs,
    "weights": check_weights,
}

# --------------------------------------------------------------------------- mutants: name, module, text, instead

MUTANTS = [
    ("not-clamped", "formats", "np.clip(values, -self.maximum, self.maximum)", "values"),
    ("fnuz-maximum-224", "formats", "np.uint8, 240.0, 7, 3)", "np.uint8, 224.0, 7, 3)"),
    ("fnuz-is-fn", "formats", "ml_dtypes.float8_e4m3fnuz", "ml_dtypes.float8_e4m3fn"),
    ("bf16-truncates", "formats", "np.rint(np.ldexp(mantissa", "np.trunc(np.ldexp(mantissa"),
    ("bf16-of-9-bits", "formats", "np.maximum(exponent, -125) - 8", "np.maximum(exponent, -125) - 9"),
    ("bf16-without-subnormals", "formats", "np.maximum(exponent, -125) - 8", "exponent - 8"),
    ("rceil-is-ceil", "formats", "mantissa > maximum_mantissa", "mantissa > 0"),
    ("even-half-a-step-off", "formats", "1 << (22 - element", "1 << (21 - element"),
    ("e8m0-bias", "formats", "E8M0_BIAS: Final = 127", "E8M0_BIAS: Final = 128"),
    ("e8m0-nan-is-a-number", "formats", "np.where(exponent == 255, E8M0_NAN, code)", "code"),
    ("nibbles-swapped", "formats", "codes[..., ::2] | codes[..., 1::2] << 4", "codes[..., 1::2] | codes[..., ::2] << 4"),
    ("int4-offset-binary", "formats", "values.astype(np.int8).view(np.uint8) & 15", "values + 8 & 15"),
    ("scale-of-zero", "quantise", "np.where(scales == 0, np.float32(1), scales)", "scales + np.float32(1e-9)"),
    ("static-scale-ignored", "quantise", "if static_scale is None:", "if True:"),
    ("scale-of-another-block", "quantise", "parts.max(axis=(-3, -1))", "np.roll(parts.max(axis=(-3, -1)), 1, axis=-2)"),
    ("amax-signed", "quantise", "np.abs(values).reshape", "values.reshape"),
    ("int4-to-8", "quantise", "INT4_MAXIMUM: Final = 7.0", "INT4_MAXIMUM: Final = 8.0"),
    ("scales-multiplied-twice", "quantise", "return self.elements() * spread(", "return self.elements() * 2 * spread("),
    ("tile-of-8-rows", "layout", "TILE_ROWS: Final = 16", "TILE_ROWS: Final = 8"),
    ("pack-of-8-bytes", "layout", "_PACK_BYTES: Final = 16", "_PACK_BYTES: Final = 8"),
    ("e8m0-lanes-swapped", "layout", "tiles.transpose(0, 3, 5, 2, 4, 1)).reshape(padded.shape)\n\n\ndef unshuffle", "tiles.transpose(0, 3, 5, 2, 1, 4)).reshape(padded.shape)\n\n\ndef unshuffle"),
    ("interleaved-row-by-row", "layout", "rows.reshape(experts, 2, double // (2 * TILE_ROWS), TILE_ROWS, *rest)", "rows.reshape(experts, 2, double // 2, 1, *rest)"),
    ("int4-nibbles-in-order", "layout", ".reshape(-1, 2, 4)", ".reshape(-1, 4, 2).swapaxes(1, 2)"),
    ("int4-scales-not-paired", "layout", "pairs.transpose(0, 2, 1, 3)", "pairs.transpose(0, 2, 3, 1)"),
    ("a16w4-separated", "layout", 'situ_interleaved if activation == "situ" else True', "situ_interleaved"),
    ("a4w4-interleaved", "layout", 'if scheme == "mxfp4-w4a4":\n        return WeightLayout("fp4", scales="e8m0")', 'if scheme == "mxfp4-w4a4":\n        return WeightLayout("fp4", True, "e8m0")'),
    ("w2-interleaved", "layout", 'WeightLayout("fp4", scales=second)', 'WeightLayout("fp4", True, second)'),
    ("gelu-by-tanh", "activation", "(1 + erf(gate / math.sqrt(2)))", "(1 + np.tanh(0.79788456 * (gate + 0.044715 * gate**3)))"),
    ("alpha", "activation", "SWIGLU_ALPHA: Final = 1.702", "SWIGLU_ALPHA: Final = 1.0"),
    ("up-without-one", "activation", ", up + 1", ", up"),
    ("up-clamped-above-only", "activation", "np.clip(up, -self.clamp, self.clamp)", "np.minimum(up, self.clamp)"),
    ("default-limit", "activation", "SWIGLU_LIMIT: Final = 7.0", "SWIGLU_LIMIT: Final = 10.0"),
    ("situ-clamped", "activation", 'if self.name == "situ":\n            return None', "if False:\n            return None"),
    ("linear-beta-ignored", "activation", "up if self.linear_beta is None else", "up if True else"),
    ("gate-and-up-swapped", "oracle", "h = activation(gate, up)", "h = activation(up, gate)"),
    ("bias-1-before-the-router-weight", "oracle", 'if pipeline.router == "in":', 'if weights.b1 is not None:\n        sums = sums + weights.b1\n    if pipeline.router == "in":'),
    ("bias-2-missing", "oracle", "values = values + weights.b2", "values = values + 0"),
    ("router-weight-missing", "oracle", 'factor = router if pipeline.router == "out"', 'factor = np.ones_like(router) if pipeline.router == "out"'),
    ("router-weight-on-both-sides", "oracle", 'if pipeline.router == "out" else np.ones_like(router)', 'if pipeline.router == "out" else router'),
    ("hidden-not-quantised", "oracle", "exact if pipeline.hidden is None else", "exact if True else"),
    ("intermediate-not-requantised", "oracle", "if how is None or not parts:", "if True:"),
    ("intermediate-not-rounded", "oracle", "parts = [_rounded(part) for part in parts]", "pass"),
    ("last-writer-wins", "oracle", "np.add.at(out, token, factor * values)", "out[token] = factor * values"),
    ("bound-ten-times", "oracle", "bound += _BF16 * np.abs(out)", "bound = 10 * (bound + _BF16 * np.abs(out))"),
    ("bound-without-rounding", "oracle", "(error + _ROUNDED_SUM * _BF16 * magnitude)", "error * 0"),
    ("crossings-forgotten", "oracle", "np.maximum(top - value, value - bottom)", "np.zeros_like(value)"),
    ("never-fragile", "oracle", "part.fragile | crossed.any(axis=1)", "part.fragile"),
    ("zero-rows-may-be-small", "verdict", "zero_rows[:, None] & (out != 0)", "zero_rows[:, None] & (np.abs(out) > 1e-6)"),
    ("nan-passes", "verdict", "~finite & np.isfinite(ref)", "~finite & False"),
    ("only-too-large", "verdict", "np.abs(safe - ref)", "(safe - ref)"),
    ("three-bounds", "verdict", "BOUNDS: Final = 2.0", "BOUNDS: Final = 3.0"),
    ("row-rule-off", "verdict", "ROW_ERROR: Final = 8e-3", "ROW_ERROR: Final = 8e-1"),
    ("fragile-rows-judged", "verdict", "& ~expected.fragile", ""),
    ("gate-is-up", "weights", "w1[whole_n:][rows] * _UP_FACTOR", "w1[:whole_n][rows]"),
    ("experts-alike", "weights", "bell(seed, values, expert, shape) * ((4 + expert % 3) / 4)", "bell(seed, values, 0, shape)"),
    ("same-expert-twice", "inputs", 'kind="stable")[:, :topk]', 'kind="stable")[:, :1].repeat(topk, 1)'),
    ("another-generator", "inputs", "_HIDDEN_FACTOR: Final = 0.625", "_HIDDEN_FACTOR: Final = 0.626"),
]  # fmt: skip


class Make:
    """What checks need of the fixtures, and a digest that was written down."""

    digest = "b5a3539fcae0fc93de3e8faf722a0d0d75727cbee4042229a0ddb4ec4b70d464"

    def __init__(self, problem: Callable[..., Problem], run: Callable[..., Any]) -> None:
        self.problem, self.run = problem, run


@pytest.fixture
def make(problem_of: Callable[..., Problem], run_kernel: Callable[..., Any]) -> Make:
    """Return the makers that checks use."""
    return Make(problem_of, run_kernel)


@pytest.fixture
def mutant(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], types.ModuleType]:
    """Return a maker of mutated modules; the module itself is untouched."""

    def build(name: str, text: str, instead: str) -> types.ModuleType:
        original = importlib.import_module(f"{PACKAGE}.{name}")
        path = Path(str(original.__file__))
        source = path.read_text(encoding="utf-8")
        assert source.count(text) == 1, f"{text!r} must be in {path.name} once (found {source.count(text)})"
        module = types.ModuleType(f"{PACKAGE}.mutant_of_{name}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source.replace(text, instead), path.name, "exec"), module.__dict__)  # noqa: S102
        return module

    return build


@pytest.mark.parametrize("name", CHECKS)
def test_original_passes(name: str, make: Make) -> None:
    """The checks hold of the modules as they are."""
    CHECKS[name](importlib.import_module(f"{PACKAGE}.{name}"), make)


@pytest.mark.parametrize("name", CHECKS)
def test_unchanged_copy_passes(name: str, mutant: Any, make: Make) -> None:
    """A copy made as the mutants are, with nothing replaced, passes: what fails of a mutant is the fault."""
    CHECKS[name](
        mutant(name, "from __future__ import annotations", "from __future__ import annotations"), make
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("fault", "module", "text", "instead"), MUTANTS, ids=[f"{m[1]}-{m[0]}" for m in MUTANTS]
)
def test_mutant_is_caught(fault: str, module: str, text: str, instead: str, mutant: Any, make: Make) -> None:
    """The check of its module fails of a mutant."""
    broken = mutant(module, text, instead)
    with pytest.raises(Exception):  # noqa: B017, PT011 -- a fault may show as a wrong value or as a crash
        CHECKS[module](broken, make)


def test_names_are_unique() -> None:
    """Every fault has a name of its own within its module."""
    assert len({(m[0], m[1]) for m in MUTANTS}) == len(MUTANTS)
    assert {m[1] for m in MUTANTS} == set(CHECKS)
