"""A model of an honest kernel in float32, and the faults that are planted in it."""

from __future__ import annotations

import math
import os
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from aiter_conformance.axes import Cell
from aiter_conformance.case import Case
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.pipeline import Pipeline, nominal_pipeline
from aiter_conformance.numerics.quantise import Quantised

F32 = np.float32
Array = NDArray[Any]

ARCHS = {
    "bf16": "gfx950",
    "fp8-block": "gfx942",
    "fp8-tensor-static": "gfx950",
    "fp8-tensor-dynamic": "gfx942",
    "fp8-channel": "gfx950",
    "mxfp4-w4a16": "gfx950",
    "mxfp4-w4a4": "gfx950",
    "int4-w4a16": "gfx942",
}


def to_bf16(x: Array) -> Array:
    """Round float32 to bfloat16, kept in float32."""
    return np.asarray(x, F32).astype(ml_dtypes.bfloat16).astype(F32)


def quantise(x: Array, how: Any, static: Any) -> Array:
    """Quantise and dequantise rows in float32, by ml_dtypes alone."""
    if how is None:
        return x
    rows, columns = (size if want == -1 else want for size, want in zip(x.shape, how.block, strict=True))
    parts = x.reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)
    amax = np.abs(parts).max(axis=(1, 3), keepdims=True)
    if how.static:
        scale = np.full_like(amax, static)
    elif how.rounding is None:
        scale = np.where(amax == 0, F32(1), amax / F32(how.element.maximum))
    else:  # rceil, the nominal one: the least power of two that fits the largest magnitude
        scale = np.exp2(
            np.ceil(np.log2(np.where(amax == 0, F32(1), amax) / F32(how.element.maximum)))
        ).astype(F32)
    largest = how.element.maximum
    codes = np.clip(parts / scale, -largest, largest).astype(how.element.dtype).astype(F32)
    return (codes * scale).reshape(x.shape).astype(F32)


def gemm(a: Array, b: Array, bf16: bool = False) -> Array:
    """Return a @ b.T, accumulated in float32 over chunks of 16, as matrix cores do."""
    total = np.zeros((a.shape[0], b.shape[0]), F32)
    for k in range(0, a.shape[1], 16):
        total = (total + (a[:, k : k + 16] @ b[:, k : k + 16].T)).astype(F32)
        total = to_bf16(total) if bf16 else total
    return total


def gated(name: str, g: Array, u: Array, limit: float | None, beta: float, linear: float | None) -> Array:
    """Return the activation in float32, written apart from the harness's own."""
    if name.startswith("swigluoai"):
        bound = F32(limit or 7.0)
        g, u = np.minimum(g, bound), np.clip(u, -bound, bound)
        return (g / (1 + np.exp(-F32(1.702) * g)) * (u + 1)).astype(F32)
    if limit and name != "situ":
        g, u = np.minimum(g, F32(limit)), np.clip(u, -F32(limit), F32(limit))
    silu = g / (1 + np.exp(-g))
    if name == "silu":
        return (silu * u).astype(F32)
    if name == "gelu":
        cdf = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(g)
        return (g * cdf.astype(F32) * u).astype(F32)
    up = u if linear is None else F32(linear) * np.tanh(u / F32(linear))
    return (F32(beta) * np.tanh(g / F32(beta)) / (1 + np.exp(-g)) * up).astype(F32)


@dataclass
class Kernel:
    """An honest kernel, or one with the fault that ``fault`` names."""

    problem: Problem
    pipeline: Pipeline
    fault: str = ""
    bf16_partials: bool = False

    def weights(self, made: Any, which: str, e: int) -> Array:
        """Return dequantised weights of an expert in float32."""
        q: Quantised = getattr(made, which)
        elements, scales = q.elements(), q.scale_values()
        if self.fault == "fnuz-read-as-fn" and which == "w1":
            elements = q.codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        if self.fault == "nibbles-swapped" and which == "w1":
            elements = elements.reshape(*elements.shape[:-1], -1, 2)[..., ::-1].reshape(elements.shape)
        if self.fault == "scale-shifted" and which == "w1":
            if scales.size == 1:  # the scale of the expert beside it
                held = self.problem.held_experts
                scales = self.problem.expert(held[(held.index(e) + 1) % len(held)]).w1.scale_values()
            else:
                scales = np.roll(scales, 1, axis=1 if scales.shape[1] > 1 else 0)
        if self.fault == "scale-off-by-one" and which == "w1":
            scales = scales * 2
        if self.fault == "weight-scale-ignored" and which == "w2":
            scales = np.ones_like(scales)
        rows, columns = (a // b for a, b in zip(elements.shape, scales.shape, strict=True))
        values = (elements * np.repeat(np.repeat(scales, rows, 0), columns, 1)).astype(F32)
        return to_bf16(values) if self.pipeline.weights_bf16 else values

    def first(self, x: Array, w: Array, e: int, made: Any) -> Array:
        """Return the intermediate of one expert's rows."""
        p, fault = self.problem, self.fault
        sums = gemm(x, self.weights(made, "w1", e), bf16=fault == "accumulates-in-bf16")
        if (self.pipeline.router == "in") != (fault == "router-weight-on-the-wrong-side"):
            sums = sums if fault == "router-weight-missing" else sums * w
        if made.b1 is not None and fault != "bias-1-missing":
            sums = sums + made.b1
        half = sums.shape[1] // 2
        g, u = sums[:, :half], sums[:, half:]
        if fault == "gate-and-up-swapped":
            g, u = u, g
        if fault == "gate-and-up-read-interleaved":
            g, u = sums[:, ::2], sums[:, 1::2]
        act = p.activation
        name, limit, linear = act.name, act.limit, act.linear_beta
        if fault == "gelu-for-silu":
            name = "gelu"
        if fault == "silu-for-gelu":
            name = "silu"
        if fault == "limit-ignored":
            limit = 1e9 if name.startswith("swigluoai") else None
        if fault == "linear-beta-ignored":
            linear = None
        beta = 1.0 if fault == "beta-replaced" else act.beta or 0.0
        h = gated(name, g, u, limit, beta, linear)
        if fault == "up-without-one":
            h = (h - gated(name, g, np.zeros_like(u), limit, beta, linear)).astype(F32)
        if fault == "pad-doubled":
            h[:, -16:] = 0
        return h

    def run(self) -> Array:
        """Return the output, bfloat16 in float32 [M, K]."""
        p, fault = self.problem, self.fault
        hidden = p.hidden.astype(F32)
        static = p.static_scales or (None, None)
        hidden_how = None if fault == "hidden-not-quantised" else self.pipeline.hidden
        x = quantise(hidden, hidden_how, static[0])
        if fault == "last-block-of-k-dropped":
            x = x.copy()
            x[:, -32:] = 0
        held = p.held_experts
        rows: list[tuple[Array, Array, Any, Array]] = []
        for e in held:
            token, slot = np.nonzero(p.topk_ids == e)
            if not token.size:
                continue
            read = held[(held.index(e) + 1) % len(held)] if fault == "next-expert-read" else e
            made = p.expert(read)
            w = p.topk_weights[token, slot][:, None]
            rows.append((token, w, (made, e), self.first(x[token], w, e, made)))
        intermediate = [r[3] for r in rows]
        if self.pipeline.intermediate_bf16 or self.pipeline.intermediate is None:
            intermediate = [to_bf16(h) for h in intermediate]
        how = None if fault == "intermediate-not-requantised" else self.pipeline.intermediate
        if how is not None and how.block == (-1, -1) and rows:
            joined = quantise(np.concatenate(intermediate), how, static[1])
            intermediate = np.split(joined, np.cumsum([len(h) for h in intermediate])[:-1])
        elif how is not None:
            intermediate = [quantise(h, how, static[1]) for h in intermediate]
        out = np.zeros((p.case.tokens, p.hidden_size), F32)
        for number, ((token, w, (made, e), _), h) in enumerate(zip(rows, intermediate, strict=True)):
            y = gemm(h, self.weights(made, "w2", e))
            if made.b2 is not None and fault != "bias-2-missing":
                y = y + made.b2
            factor = w if self.pipeline.router == "out" else np.ones_like(w)
            if fault == "router-weight-on-the-wrong-side":
                factor = np.ones_like(w) if self.pipeline.router == "out" else w
            if fault == "router-weight-missing":
                factor = np.ones_like(w)
            if number == 0 and fault == "one-router-weight-missing":
                factor = factor.copy()
                factor[0] = 1
            if number == 0 and fault == "one-row-masked":
                factor = factor.copy()
                factor[0] = 0
            part = factor * y
            if self.bf16_partials:
                part = to_bf16(part)
            for i, t in enumerate(token):
                out[t] = out[t] + part[i]
                if self.bf16_partials:
                    out[t] = to_bf16(out[t])
        if fault == "zeros-returned":
            out[:] = 0
        if fault == "tokens-shifted":
            out = np.roll(out, 1, axis=0)
        if fault == "nan-in-one-element":
            out[0, 0] = np.nan
        return to_bf16(out)


@pytest.fixture(scope="session")
def problem_of() -> Callable[..., Problem]:
    """Return a maker of problems: scheme, activation, router, features, and numbers of the case."""

    def make(
        scheme: str,
        activation: str = "silu",
        router: str = "out",
        features: Features = Features(),  # noqa: B008 -- frozen
        arch: str | None = None,
        **numbers: int,
    ) -> Problem:
        cell = Cell(arch or ARCHS[scheme], scheme, activation, "in" if router == "in" else "out")
        if router == "in":
            numbers = {"topk": 1} | numbers
        return Problem(Case(cell, **numbers), features)

    return make


@pytest.fixture(scope="session")
def run_kernel() -> Callable[..., Array]:
    """Return a runner of the honest kernel, or of one with a fault."""

    def run(problem: Problem, fault: str = "", bf16_partials: bool = False, **pipeline: Any) -> Array:
        nominal = nominal_pipeline(problem.case.cell)
        return Kernel(problem, replace(nominal, **pipeline), fault, bf16_partials).run()

    return run


@pytest.fixture(scope="session")
def release_file() -> Callable[[str], bytes]:
    """Return a reader of a real release's files, of a clone, a tree or a wheel; it skips without one."""
    tree, wheel = os.environ.get("AITER_GIT_DIR"), os.environ.get("AITER_CONFORMANCE_WHEEL")
    ref = os.environ.get("AITER_GIT_REF", "HEAD")

    def read(path: str) -> bytes:
        if tree is not None:
            if (Path(tree) / path).is_file():
                return (Path(tree) / path).read_bytes()
            command = ["git", "-C", tree, "show", f"{ref}:{path}"]
            return subprocess.run(command, check=True, capture_output=True).stdout
        if wheel is not None:
            with zipfile.ZipFile(wheel) as archive:
                return archive.read(path)
        pytest.skip(
            "NOT RUN: set AITER_GIT_DIR to a clone of ROCm/aiter, or AITER_CONFORMANCE_WHEEL to a wheel of it"
        )

    return read
