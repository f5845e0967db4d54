"""The oracle: the mixture of experts in float64, from logical weights, with a bound on honest rounding.

The reference is what the pipeline gives in exact arithmetic between its own roundings. The bound B follows
the errors that a float32-accumulating kernel may make through the same steps (NUMERICS 3): sums of K and N
products, the activation, and one step of bfloat16 or of a quantiser exactly where the error crosses one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.activation import Activation
from aiter_conformance.numerics.formats import Floats, decode_e8m0, e8m0_scale, round_bf16
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.pipeline import Pipeline, Requantisation
from aiter_conformance.numerics.quantise import TENSOR, Quantised, block_amax, spread
from aiter_conformance.numerics.weights import ExpertWeights

_F32: Final = 2.0**-24  # unit roundoff of float32
_BF16: Final = 2.0**-9  # unit roundoff of bfloat16
_SCALE: Final = 2.0**-22  # a float32 scale or quotient, computed one way or another
_ROUNDED_SUM: Final = 2.0  # bfloat16 roundings of a partial result that B allows for
_LIKELY: Final = 8.0  # standard deviations of a sum's rounding error that a kernel may come out at


@dataclass(frozen=True, slots=True)
class Expected:
    """What the oracle says of an output.

    Attributes:
        tokens: Which tokens, ascending [T].
        values: Reference output, float64 [T, K], not rounded to the output's dtype.
        bound: B of each element, [T, K].
        fragile: Tokens with an activation that may round to another code of its quantiser, [T].
    """

    tokens: NDArray[np.int64]
    values: Floats
    bound: Floats
    fragile: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Uncertain:
    """A value with how far a kernel's own may lie from it."""

    value: Floats
    deviation: Floats
    fragile: NDArray[np.bool_]  # of each row


def expected(
    problem: Problem,
    pipeline: Pipeline,
    tokens: Sequence[int] | None = None,
    *,
    activation: Activation | None = None,
) -> Expected:
    """Compute the output of one rank for all tokens, or for some.

    Args:
        problem: The input.
        pipeline: How the kernel computes.
        tokens: Tokens to judge; default all.
        activation: Another activation than the problem's, for a kernel that computes it in another way.

    Raises:
        UsageError: A token is not in the input.
    """
    chosen = np.arange(problem.case.tokens) if tokens is None else np.unique(np.asarray(tokens, np.int64))
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < problem.case.tokens:
        msg = f"tokens must be in 0 .. {problem.case.tokens - 1} (got {chosen.tolist()})"
        raise UsageError(msg)
    return evaluate(
        problem.hidden,
        problem.topk_ids,
        problem.topk_weights.astype(np.float64),
        {expert: problem.expert(expert) for expert in _needed(problem, chosen, pipeline)},
        problem.activation if activation is None else activation,
        pipeline,
        chosen,
        problem.static_scales,
    )


def sampled_tokens(tokens: int, count: int = 16) -> list[int]:
    """Return the tokens by which a large input is judged: both sides of each power of two, and a spread.

    First and last token are among them; where the input has no more than ``count`` tokens, all are.
    """
    if tokens <= count:
        return list(range(tokens))
    edges = {2**power + side for power in range(tokens.bit_length()) for side in (-1, 0)}
    spread = {round(i * (tokens - 1) / (count - 1)) for i in range(count)}
    return sorted({token for token in edges | spread if token < tokens})


def _needed(problem: Problem, chosen: NDArray[np.int64], pipeline: Pipeline) -> list[int]:
    """Return the experts whose weights the chosen tokens need."""
    rows = slice(None) if _whole_tensor(pipeline.intermediate) else chosen
    return sorted(set(np.unique(problem.topk_ids[rows]).tolist()) & set(problem.held_experts))


def _whole_tensor(how: Requantisation | None) -> bool:
    return how is not None and how.block == TENSOR and not how.static


def evaluate(
    hidden: Floats,
    topk_ids: NDArray[np.int32],
    topk_weights: Floats,
    experts: dict[int, ExpertWeights],
    activation: Activation,
    pipeline: Pipeline,
    chosen: NDArray[np.int64],
    static_scales: tuple[np.float32, np.float32] | None = None,
) -> Expected:
    """Compute the mixture from its parts.

    Args:
        hidden: Hidden states [M, K].
        topk_ids: Ids [M, k]; an id that is not a key of ``experts`` contributes nothing.
        topk_weights: Router weights [M, k].
        experts: The experts held, by id.
        activation: The activation with its parameters.
        pipeline: How the kernel computes.
        chosen: Tokens to judge, ascending.
        static_scales: Scales of (hidden states, intermediate) for static requantisation.
    """
    hidden_scale, intermediate_scale = static_scales or (None, None)
    exact = _Uncertain(hidden, np.zeros_like(hidden), np.zeros(len(hidden), bool))
    inputs = exact if pipeline.hidden is None else _requantise(exact, pipeline.hidden, hidden_scale)

    # With one scale for the whole intermediate every row counts, judged or not.
    rows_judged = np.arange(len(hidden)) if _whole_tensor(pipeline.intermediate) else chosen
    slots: list[tuple[int, NDArray[np.int64], Floats]] = []
    stages: list[tuple[_Uncertain, _Uncertain]] = []
    for expert, weights in experts.items():
        token, slot = np.nonzero(topk_ids[rows_judged] == expert)
        if token.size:
            token = rows_judged[token]
            router = topk_weights[token, slot][:, None]
            slots.append((expert, token, router))
            stages.append(_first_stage(inputs, token, router, weights, activation, pipeline))
    parts = _between([worst for worst, _ in stages], pipeline, intermediate_scale)
    likely = _between([likely for _, likely in stages], pipeline, intermediate_scale)

    out = np.zeros(hidden.shape)
    bound = np.zeros(hidden.shape)
    fragile = np.zeros(len(hidden), bool)
    for (expert, token, router), part, likely_part in zip(slots, parts, likely, strict=True):
        factor = router if pipeline.router == "out" else np.ones_like(router)
        values, error, magnitude = _second_stage(part, experts[expert], pipeline)
        np.add.at(out, token, factor * values)
        np.add.at(bound, token, factor * (error + _ROUNDED_SUM * _BF16 * magnitude))
        np.logical_or.at(fragile, token, likely_part.fragile | inputs.fragile[token])
    bound += _BF16 * np.abs(out)
    return Expected(chosen, out[chosen], bound[chosen], fragile[chosen])


def _first_stage(
    inputs: _Uncertain,
    token: NDArray[np.int64],
    router: Floats,
    weights: ExpertWeights,
    activation: Activation,
    pipeline: Pipeline,
) -> tuple[_Uncertain, _Uncertain]:
    """Return the activated intermediate of one expert's tokens, with its worst error and its likely one.

    B is made of the worst; which rows are fragile is decided by the likely one, without which no row of an
    fp8 scheme would be left to rule 3.
    """
    w1 = _weights(weights.w1, pipeline)
    x, width = inputs.value[token], w1.shape[0] // 2
    sums = x @ w1.T
    worst = x.shape[1] * _F32 * (np.abs(x) @ np.abs(w1).T)
    # Independent roundings add up like the root of their number (Higham and Mary, SIAM J. Sci. Comput. 2019).
    likely = _LIKELY * np.sqrt(x.shape[1]) * _F32 * np.sqrt(x**2 @ (w1**2).T)
    given = inputs.deviation[token] @ np.abs(w1).T + _SCALE * np.abs(sums)
    if pipeline.router == "in":
        sums, worst, likely, given = (v * router for v in (sums, worst, likely, given))
    if weights.b1 is not None:
        sums, given = sums + weights.b1, given + _F32 * np.abs(weights.b1)
    gate, up = sums[:, :width], sums[:, width:]
    h = activation(gate, up)
    intrinsic = activation.function_error(gate, up)

    def moved(error: Floats) -> _Uncertain:
        # By differences, so that one formula serves every activation, the clamps' edges included.
        gate_error, up_error = error[:, :width], error[:, width:]
        ends = [
            np.maximum(
                np.abs(activation(gate + gate_error, up) - h), np.abs(activation(gate - gate_error, up) - h)
            ),
            np.maximum(
                np.abs(activation(gate, up + up_error) - h), np.abs(activation(gate, up - up_error) - h)
            ),
        ]
        return _Uncertain(h, ends[0] + ends[1] + intrinsic, np.zeros(len(token), bool))

    at_worst = moved(np.abs(worst + given))
    if pipeline.intermediate is None:  # nothing is quantised behind it, so no row can be fragile by it
        return at_worst, at_worst
    return at_worst, moved(np.abs(np.minimum(likely, worst) + given))


def _between(
    parts: list[_Uncertain], pipeline: Pipeline, static_scale: np.float32 | None
) -> list[_Uncertain]:
    """Return the intermediate as the second stage reads it: rounded, and quantised where that is done."""
    if pipeline.intermediate_bf16 or pipeline.intermediate is None:
        parts = [_rounded(part) for part in parts]
    how = pipeline.intermediate
    if how is None or not parts:
        return parts
    if _whole_tensor(how):
        joined = _Uncertain(
            np.concatenate([p.value for p in parts]),
            np.concatenate([p.deviation for p in parts]),
            np.concatenate([p.fragile for p in parts]),
        )
        joined = _requantise(joined, how, None)
        ends = np.cumsum([len(p.value) for p in parts])[:-1]
        fields = [np.split(field, ends) for field in (joined.value, joined.deviation, joined.fragile)]
        return [_Uncertain(*fields) for fields in zip(*fields, strict=True)]
    width = pipeline.slice_width
    if width is None:
        return [_requantise(part, how, static_scale) for part in parts]
    return [
        _join_slices([_requantise(cut, how, static_scale) for cut in _cut(part, width)]) for part in parts
    ]


def _weights(weights: Quantised, pipeline: Pipeline) -> Floats:
    values = weights.values()
    return round_bf16(values) if pipeline.weights_bf16 else values


def _cut(part: _Uncertain, width: int) -> list[_Uncertain]:
    starts = range(0, part.value.shape[1], width)
    return [
        _Uncertain(part.value[:, s : s + width], part.deviation[:, s : s + width], part.fragile)
        for s in starts
    ]


def _join_slices(slices: list[_Uncertain]) -> _Uncertain:
    return _Uncertain(
        np.concatenate([s.value for s in slices], axis=1),
        np.concatenate([s.deviation for s in slices], axis=1),
        np.any([s.fragile for s in slices], axis=0),
    )


def _second_stage(
    part: _Uncertain, weights: ExpertWeights, pipeline: Pipeline
) -> tuple[Floats, Floats, Floats]:
    """Return one expert's results, their error, and the magnitudes that are rounded on the way."""
    w2 = _weights(weights.w2, pipeline)
    values = part.value @ w2.T
    error = part.deviation @ np.abs(w2).T + w2.shape[1] * _F32 * (np.abs(part.value) @ np.abs(w2).T)
    width = pipeline.slice_width or max(w2.shape[1], 1)
    magnitude = np.zeros_like(values)
    for start in range(0, w2.shape[1], width):
        cut = slice(start, start + width)
        magnitude += np.abs(part.value[:, cut] @ w2[:, cut].T)
    if weights.b2 is not None:
        values = values + weights.b2
        error = error + _F32 * np.abs(weights.b2)
        magnitude = np.maximum(magnitude, np.abs(values))
    return values, error, magnitude


def _rounded(part: _Uncertain) -> _Uncertain:
    """Round to bfloat16; the deviation becomes what the error can move the rounded value by."""
    value = round_bf16(part.value)
    low, high = round_bf16(part.value - part.deviation), round_bf16(part.value + part.deviation)
    return _Uncertain(value, np.maximum(high - value, value - low), part.fragile)


def _requantise(part: _Uncertain, how: Requantisation, static_scale: np.float32 | None) -> _Uncertain:
    """Quantise; the deviation becomes what the error can move the quantised value by, scale included."""
    low, high = part.value - part.deviation, part.value + part.deviation
    size = np.maximum(np.abs(low), np.abs(high))
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    shape = part.value.shape
    middle, small, large = (_scales(v, how, static_scale) for v in (part.value, least, size))
    # e8m0 quotients are exact; with float32 scales x / s and x * (1 / s) may differ in the last place.
    slack = 0.0 if how.rounding is not None else _SCALE
    s, s_low, s_high = (spread(v, shape) for v in (middle, small * (1 - slack), large * (1 + slack)))

    value = how.element.round(part.value / s) * s
    # Smallest and largest quotient of the interval, then the extremes of code times scale.
    q_low = how.element.round(np.where(low < 0, low / s_low, low / s_high) - slack * np.abs(low / s))
    q_high = how.element.round(np.where(high < 0, high / s_high, high / s_low) + slack * np.abs(high / s))
    bottom = np.where(q_low < 0, q_low * s_high, q_low * s_low)
    top = np.where(q_high < 0, q_high * s_low, q_high * s_high)
    crossed = (q_low != q_high) | (s_high > s_low * (1 + 4 * slack))
    return _Uncertain(value, np.maximum(top - value, value - bottom), part.fragile | crossed.any(axis=1))


def _scales(values: Floats, how: Requantisation, static_scale: np.float32 | None) -> Floats:
    """Return the scales of the blocks, as `quantise_float` and `quantise_mx` choose them."""
    if how.static:
        if static_scale is None:
            msg = "a static requantisation must be given its scale (got None)"
            raise UsageError(msg)
        return np.full((1, 1), np.float64(static_scale))
    amax = block_amax(values, how.block)
    if how.rounding is not None:
        return decode_e8m0(e8m0_scale(amax, how.element, how.rounding))
    scales = amax.astype(np.float32) / np.float32(how.element.maximum)
    return np.where(scales == 0, np.float32(1), scales).astype(np.float64)
