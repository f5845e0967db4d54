"""What a subject's own loader makes of logical weights is what the harness packs, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.packed import pack
from aiter_conformance.protocols import Subject

ProblemOf = Callable[..., Problem]

# Sizes that no loader pads: padding has its own checks in the property suite.
CELLS = [
    ("gfx950/bf16/silu/out", Features()),
    ("gfx950/fp8-block/silu/out", Features()),
    ("gfx950/fp8-tensor-static/silu/out", Features()),
    ("gfx950/fp8-tensor-dynamic/silu/out", Features()),
    ("gfx950/fp8-channel/silu/out", Features()),
    ("gfx950/mxfp4-w4a16/swigluoai/out", Features(biases=True)),
    ("gfx950/mxfp4-w4a16/silu/out", Features()),
    ("gfx950/mxfp4-w4a16/situ/out", Features()),
    ("gfx950/mxfp4-w4a4/silu/out", Features()),
    ("gfx942/int4-w4a16/situ/out", Features()),
]


def logical(problem: Problem) -> dict[str, torch.Tensor]:
    """Return the weights as a checkpoint has them, before any shuffle."""
    made = [problem.expert(expert) for expert in problem.held_experts]
    scheme = problem.case.cell.scheme
    tensors: dict[str, torch.Tensor] = {}
    for name in ("w1", "w2"):
        parts: list[Any] = [getattr(expert, name) for expert in made]
        codes = np.stack([part.codes for part in parts])
        if scheme.startswith("mxfp4"):
            codes = codes[..., ::2] | codes[..., 1::2] << 4
        tensor = torch.from_numpy(codes.view(np.int16) if codes.dtype == np.uint16 else codes)
        tensors[name] = tensor.view(torch.bfloat16) if scheme == "bf16" else tensor
        if scheme.startswith("fp8"):
            tensors[name] = tensor.view(torch.float8_e4m3fn)
        if parts[0].scales is not None:
            scales = np.stack([np.asarray(part.scales) for part in parts])
            scales = scales.reshape(-1) if "tensor" in scheme else scales
            scale = torch.from_numpy(scales.view(np.int16) if scales.dtype == np.uint16 else scales)
            tensors[f"{name}_scale"] = scale.view(torch.bfloat16) if scheme == "int4-w4a16" else scale
    if problem.features.biases:
        for name, bias in (("w1_bias", "b1"), ("w2_bias", "b2")):
            tensors[name] = torch.from_numpy(np.stack([getattr(expert, bias) for expert in made]))
    return tensors


@pytest.mark.parametrize(("cell", "features"), CELLS, ids=[cell for cell, _ in CELLS])
def test_same_bytes(cell: str, features: Features, subject: Subject, problem_of: ProblemOf) -> None:
    """Weights, scales and biases; a subject that loads elsewhere has no function to compare."""
    if "prepare_weights" in subject.missing:
        pytest.skip(f"{subject.name} {subject.version} has no prepare_weights")
    problem = problem_of(cell, features, experts=4)
    ours = pack(problem)
    env = {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a16w4"}
    with subject.environment(problem.case.cell.arch, env):
        api = subject.api
        activation = api.MoEActivation(problem.case.cell.activation)
        theirs = api.prepare_weights(
            problem.case.cell.scheme, activation, api.ExpertWeights(**logical(problem))
        )
    assert theirs.w1.is_shuffled
    assert theirs.w2.is_shuffled
    for name, expected in {"w1": ours.w1, "w2": ours.w2, **ours.quant}.items():
        if name in ("a1_scale", "a2_scale"):  # not a loader's business
            continue
        got = getattr(theirs, name)
        assert got.shape == expected.shape, name
        assert torch.equal(got.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)), name
