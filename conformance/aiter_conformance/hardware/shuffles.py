"""Packing by AITER's own shuffles where it has them, compared with the harness's own layouts, byte for byte.

vLLM's loaders call AITER's functions (SPEC 12), so theirs are what a kernel must be given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.layout import WeightLayout, unpack_scales, weight_layouts
from aiter_conformance.numerics.packed import Packed
from aiter_conformance.numerics.quantise import Quantised
from aiter_conformance.protocols import FoundAiter


@dataclass(frozen=True, slots=True)
class _Shuffles:
    """AITER's functions (aiter/ops/shuffle.py, aiter/utility/fp4_utils.py); None for one that it lacks."""

    weight: Callable[..., torch.Tensor] | None
    weight_a16w4: Callable[..., torch.Tensor] | None
    scale_a16w4: Callable[..., torch.Tensor] | None
    e8m0: Callable[..., torch.Tensor] | None
    int4: Callable[..., torch.Tensor] | None
    int4_scale: Callable[..., torch.Tensor] | None


def _find(library: FoundAiter) -> _Shuffles:
    modules = library.modules
    shuffle = modules.get("aiter.ops.shuffle")
    fp4 = modules.get("aiter.utility.fp4_utils")

    def take(module: ModuleType | None, name: str) -> Any:
        return getattr(module, name, None)

    return _Shuffles(
        weight=take(shuffle, "shuffle_weight"),
        weight_a16w4=take(shuffle, "shuffle_weight_a16w4"),
        scale_a16w4=take(shuffle, "shuffle_scale_a16w4"),
        e8m0=take(fp4, "e8m0_shuffle"),
        int4=take(shuffle, "pack_int8_to_packed_int4"),
        int4_scale=take(shuffle, "shuffle_scale_for_int4"),
    )


def pack_with(library: FoundAiter, problem: Problem, ours: Packed) -> tuple[Packed, list[str] | None]:
    """Return the tensors of a problem, packed by AITER where it has every shuffle that the scheme needs.

    Args:
        library: The AITER.
        problem: The input.
        ours: Its tensors as the harness packs them.

    Returns:
        (tensors, names of those that AITER packs otherwise than the harness), or None in place of the names
        where AITER lacks a shuffle and the harness packed all of them.
    """
    shuffles, cell = _find(library), problem.case.cell
    made = [problem.expert(expert) for expert in problem.held_experts]
    packed: dict[str, torch.Tensor] = {}
    scales: dict[str, torch.Tensor] = {}
    differing = []
    interleaved = problem.features.situ == "a8w4"
    layouts = weight_layouts(cell.scheme, cell.activation, situ_interleaved=interleaved)
    for name, layout in zip(("w1", "w2"), layouts, strict=True):
        parts: list[Quantised] = [getattr(expert, name) for expert in made]
        mine: torch.Tensor = getattr(ours, name)
        weight = _weight(np.stack([part.codes for part in parts]), layout, mine.dtype, shuffles, name)
        if weight is None:
            return ours, None
        vars(weight)["is_shuffled"] = True
        packed[name] = weight
        if not torch.equal(_bytes(weight), _bytes(mine)):
            differing.append(name)
        if layout.scales == "plain":
            continue
        plain = np.stack([np.asarray(part.scales) for part in parts])
        scale = _scale(plain, layout, shuffles, name)
        if scale is None:
            return ours, None
        scales[f"{name}_scale"] = scale
        if not _same_scales(scale, plain, layout):
            differing.append(f"{name}_scale")
    return replace(ours, **packed, quant=ours.quant | scales), differing


def _weight(
    codes: np.ndarray[Any, Any], layout: WeightLayout, dtype: torch.dtype, by: _Shuffles, name: str
) -> torch.Tensor | None:
    """Return weights as AITER packs logical codes [E, R, C], or None where it lacks the function."""
    if by.weight is None:
        return None
    if layout.elements == "int4":
        if by.int4 is None:
            return None
        values = by.weight(torch.from_numpy(codes.astype(np.int8)), layout=(16, 16))
        half = (*codes.shape[:2], codes.shape[2] // 2)
        return by.int4(values).view(torch.uint8).reshape(half).view(dtype)
    if layout.elements == "fp4":
        nibbles = codes.astype(np.uint8)
        plain = torch.from_numpy(nibbles[..., ::2] | nibbles[..., 1::2] << 4).view(dtype)
    else:
        unit = np.int16 if layout.elements == "bf16" else np.uint8
        plain = torch.from_numpy(np.ascontiguousarray(codes).view(unit)).view(dtype)
    if layout.gate_up_interleaved:
        if by.weight_a16w4 is None:
            return None
        return by.weight_a16w4(plain, 16, name == "w1")
    return by.weight(plain, layout=(16, 16))


def _scale(
    scales: np.ndarray[Any, Any], layout: WeightLayout, by: _Shuffles, name: str
) -> torch.Tensor | None:
    """Return scales as AITER packs [E, R, G], or None where it lacks the function."""
    experts, rows, groups = scales.shape
    if layout.scales == "int4":
        if by.int4_scale is None:
            return None
        bits = torch.from_numpy(np.ascontiguousarray(scales.swapaxes(1, 2)).view(np.int16))
        return by.int4_scale(bits.view(torch.bfloat16))
    flat = torch.from_numpy(np.ascontiguousarray(scales.reshape(experts * rows, groups)))
    if layout.scales == "e8m0-a16w4":
        if by.scale_a16w4 is None:
            return None
        return by.scale_a16w4(flat, experts, layout.gate_up_interleaved and name == "w1")
    return None if by.e8m0 is None else by.e8m0(flat)


def _same_scales(packed: torch.Tensor, plain: np.ndarray[Any, Any], layout: WeightLayout) -> bool:
    """Compare without the padding, which AITER leaves as it comes."""
    unit = torch.int16 if packed.element_size() > 1 else torch.uint8
    raw = packed.view(unit).numpy()
    experts, rows, groups = plain.shape
    try:
        back = unpack_scales(raw.view(plain.dtype), layout, (experts, rows, groups))
    except ValueError:  # another shape altogether
        return False
    return bool(np.array_equal(back, plain))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
