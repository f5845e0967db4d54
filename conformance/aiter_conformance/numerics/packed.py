"""The tensors of an input as a loader leaves them: what is handed to a leaf, in torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.layout import WeightLayout, pack_scales, pack_weights, weight_layouts
from aiter_conformance.numerics.quantise import Quantised
from aiter_conformance.numerics.weights import ExpertWeights

_FP8 = {"e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz}


@dataclass(frozen=True, slots=True)
class Packed:
    """Everything that one rank's leaf is given.

    Attributes:
        hidden_states: bfloat16 [M, K].
        topk_weights: float32 [M, k + shared].
        topk_ids: int32 [M, k + shared].
        expert_mask: int32 [E + shared + 1], or None.
        w1: Shuffled weights [E, 2N, K] of bf16 or fp8, bytes [E, 2N, K / 2] of 4-bit types; ``is_shuffled``.
        w2: The same, [E, K, N].
        quant: Scales and biases under the names of ``FusedMoEQuantConfig.make``: those that the scheme has.
    """

    hidden_states: torch.Tensor
    topk_weights: torch.Tensor
    topk_ids: torch.Tensor
    expert_mask: torch.Tensor | None
    w1: torch.Tensor
    w2: torch.Tensor
    quant: dict[str, torch.Tensor]


def layouts_of(problem: Problem) -> tuple[WeightLayout, WeightLayout]:
    """Return how (w1, w2) of a problem lie: by scheme, setting and opt-in."""
    cell, features = problem.case.cell, problem.features
    first, second = weight_layouts(cell.scheme, cell.activation, situ_interleaved=features.situ == "a8w4")
    return (replace(first, gate_up_interleaved=False) if features.dsv4 else first), second


def pack(problem: Problem) -> Packed:
    """Lay the logical weights of a problem out as its scheme's loader does (SPEC 12)."""
    cell = problem.case.cell
    made = [problem.expert(expert) for expert in problem.held_experts]
    layouts = layouts_of(problem)
    quant: dict[str, torch.Tensor] = {}
    weights = []
    for name, layout in zip(("w1", "w2"), layouts, strict=True):
        parts: list[Quantised] = [getattr(expert, name) for expert in made]
        weights.append(_weight(np.stack([part.codes for part in parts]), layout, problem))
        if parts[0].scales is not None:
            quant[f"{name}_scale"] = _scale(parts, layout, cell.scheme)
    if (static := problem.static_scales) is not None:
        quant |= {
            f"{name}_scale": torch.tensor([scale]) for name, scale in zip(("a1", "a2"), static, strict=True)
        }
    if problem.features.biases:
        quant |= {f"{w}_bias": _biases(made, b) for w, b in (("w1", "b1"), ("w2", "b2"))}
    mask = problem.expert_mask
    return Packed(
        hidden_states=torch.from_numpy(problem.hidden_bits.view(np.int16).copy()).view(torch.bfloat16),
        topk_weights=torch.from_numpy(problem.topk_weights.copy()),
        topk_ids=torch.from_numpy(problem.topk_ids.copy()),
        expert_mask=None if mask is None else torch.from_numpy(mask.copy()),
        w1=weights[0],
        w2=weights[1],
        quant=quant,
    )


def _weight(codes: NDArray[Any], layout: WeightLayout, problem: Problem) -> torch.Tensor:
    packed = pack_weights(codes, layout)
    if layout.elements == "bf16":
        weight = torch.from_numpy(packed.view(np.int16)).view(torch.bfloat16)
    elif layout.elements == "fp8":
        weight = torch.from_numpy(packed).view(_FP8[problem.fp8.name])
    else:
        weight = torch.from_numpy(packed).view(_four_bits(layout))
    vars(weight)["is_shuffled"] = True  # AITER reads this mark off the tensor
    return weight


def _four_bits(layout: WeightLayout) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, "float4_e2m1fn_x2" if layout.elements == "fp4" else "int4")
    return dtype


def _scale(parts: list[Quantised], layout: WeightLayout, scheme: str) -> torch.Tensor:
    scales = np.stack([np.asarray(part.scales) for part in parts])
    if scheme.startswith("fp8-tensor"):
        scales = scales.reshape(-1)  # one number an expert
    packed = pack_scales(scales, layout)
    if packed.dtype == np.uint16:
        return torch.from_numpy(packed.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(packed))


def _biases(made: list[ExpertWeights], name: str) -> torch.Tensor:
    return torch.from_numpy(np.stack([getattr(expert, name) for expert in made]))
