"""A layer's weights as a checkpoint has them, and the bytes that SPEC 12 makes of them.

Nothing here asks a subject: padding is worked out by halves, and the place of each byte by the formulas of
`properties_layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from aiter_conformance.checks.properties import content
from aiter_conformance.checks.properties_layouts import (
    Bytes,
    gate_up_rows,
    int4_offsets,
    int4_scale_offsets,
    scale_offsets,
    scatter,
    weight_offsets,
)
from aiter_conformance.protocols import ENABLED

FP8_SCHEMES: Final = ("fp8-block", "fp8-tensor-static", "fp8-tensor-dynamic", "fp8-channel")
FNUZ_ARCH: Final = "gfx942"
E8M0_NAN: Final = 0xFF
E8M0_ONE: Final = 0x7F


@dataclass(frozen=True, slots=True)
class Layer:
    """The experts of one layer as a checkpoint has them.

    Attributes:
        scheme: Name of a scheme.
        activation: Value of ``MoEActivation``.
        hidden: K, unpadded.
        intermediate: N, unpadded.
        arch: Arch for which the weights are prepared.
        experts: E.
        situ: Value of ``VLLM_ROCM_USE_AITER_MOE_SITUV2``.
        dsv4: The opt-in of DeepSeek V4.1 to a4w4.
        fnuz: The fp8 checkpoint is e4m3fnuz already; only for gfx942.
        seed: Of the bytes.
    """

    scheme: str
    activation: str
    hidden: int
    intermediate: int
    arch: str = "gfx950"
    experts: int = 2
    situ: str = "a16w4"
    dsv4: bool = False
    fnuz: bool = False
    seed: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables under which the layer is prepared."""
        return {**ENABLED, "VLLM_ROCM_USE_AITER_MOE_SITUV2": self.situ}

    @property
    def reread(self) -> bool:
        """Whether e4m3fn codes are re-read as e4m3fnuz, which halves their values."""
        return self.scheme in FP8_SCHEMES and self.arch == FNUZ_ARCH and not self.fnuz

    @property
    def interleaved(self) -> bool:
        """Whether SPEC 12 interleaves the gate and up rows of w1."""
        if self.scheme != "mxfp4-w4a16":
            return False
        return self.situ == "a8w4" if self.activation == "situ" else not self.dsv4

    def pads_scale_rows(self, name: str) -> bool:
        """Whether the scales of ``w1`` or ``w2`` get AITER's e8m0 shuffle, which adds rows up to 256."""
        if self.scheme == "mxfp4-w4a4":
            return True
        return name == "w2" if self.activation == "situ" else self.dsv4


def expected_sizes(scheme: str, activation: str, hidden: int, intermediate: int) -> tuple[int, int]:
    """Return the sizes that SPEC 12 allocates: (hidden, intermediate)."""

    def up(size: int, granule: int) -> int:
        return next(n for n in range(size, size + granule) if n % granule == 0)

    if scheme == "bf16":
        return hidden, up(intermediate, 64 if intermediate <= 192 else 128)
    if scheme == "mxfp4-w4a4":
        return up(hidden, 256), up(intermediate, 128)
    if scheme in ("mxfp4-w4a16", "int4-w4a16"):
        granule = 128 if activation in ("situ", "silu") else 256
        return up(hidden, granule), up(intermediate, granule)
    return hidden, intermediate


def checkpoint(layer: Layer) -> dict[str, torch.Tensor]:
    """Build the tensors of a layer from its seed: every byte that the format allows comes up.

    bf16 has no NaNs and fp8 all codes. e8m0 scales have no NaN.
    """
    rng = np.random.Generator(np.random.Philox(layer.seed))
    experts, k, n = layer.experts, layer.hidden, layer.intermediate
    shapes = {"w1": (experts, 2 * n, k), "w2": (experts, k, n)}
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in shapes.items():
        rows, columns = shape[1:]
        groups = -(-columns // 32)
        if layer.scheme == "bf16":
            values = rng.integers(-1000, 1000, shape)
            tensors[name] = torch.from_numpy(values).to(torch.bfloat16)
        elif layer.scheme in FP8_SCHEMES:
            codes = rng.integers(0, 256, shape, dtype=np.uint8)
            flavour = torch.float8_e4m3fnuz if layer.fnuz else torch.float8_e4m3fn
            tensors[name] = torch.from_numpy(codes).view(flavour)
            tensors[f"{name}_scale"] = torch.from_numpy(rng.random((experts, rows, 1), dtype=np.float32))
        elif layer.scheme == "int4-w4a16":
            tensors[name] = torch.from_numpy(rng.integers(-8, 8, shape, dtype=np.int8))
            scales = rng.random((experts, rows, groups), dtype=np.float32)
            tensors[f"{name}_scale"] = torch.from_numpy(scales).to(torch.bfloat16)
        else:
            codes = rng.integers(0, 256, (*shape[:2], columns // 2), dtype=np.uint8)
            tensors[name] = torch.from_numpy(codes)
            exponents = rng.integers(0, E8M0_NAN, (experts, rows, groups), dtype=np.uint8)
            tensors[f"{name}_scale"] = torch.from_numpy(exponents)
    if layer.scheme == "fp8-tensor-static":
        tensors |= {"a1_scale": torch.tensor([0.5]), "a2_scale": torch.tensor([0.75])}
    if layer.scheme == "mxfp4-w4a16":
        tensors["w1_bias"] = torch.arange(experts * 2 * n, dtype=torch.float32).reshape(experts, -1) + 1
        tensors["w2_bias"] = torch.arange(experts * k, dtype=torch.float32).reshape(experts, -1) + 1
    return tensors


def pad_halves(values: NDArray[Any], rows: int, columns: int, *, halves: bool, fill: int = 0) -> NDArray[Any]:
    """Return [E, rows, columns] with the values in it: of gate and up each, rows are added to each half."""
    experts, live_rows, live_columns = values.shape
    grown = np.full((experts, rows, columns), fill, dtype=values.dtype)
    parts = 2 if halves else 1
    for part in range(parts):
        source = values[:, part * live_rows // parts : (part + 1) * live_rows // parts]
        start = part * rows // parts
        grown[:, start : start + live_rows // parts, :live_columns] = source
    return grown


def _bytes(tensor: torch.Tensor) -> Bytes:
    """Return a tensor as uint8 of shape [E, rows, row bytes]."""
    return np.frombuffer(content(tensor), np.uint8).reshape(*tensor.shape[:2], -1)


@dataclass(frozen=True)
class Stored:
    """What a prepared tensor must hold.

    Attributes:
        data: Its bytes in order.
        live: Which of them SPEC fixes. The others pad scales, and only must not be NaN.
    """

    data: Bytes
    live: NDArray[np.bool_]


def expected_bytes(layer: Layer, raw: Mapping[str, torch.Tensor]) -> dict[str, Stored]:
    """Return the bytes that SPEC 12 asks for, from the formulas of `properties_layouts`."""
    hidden, intermediate = expected_sizes(layer.scheme, layer.activation, layer.hidden, layer.intermediate)
    shapes = {"w1": (2 * intermediate, hidden), "w2": (hidden, intermediate)}
    stored: dict[str, Stored] = {}
    for name, (rows, columns) in shapes.items():
        order = gate_up_rows(rows, interleaved=layer.interleaved and name == "w1")
        halves = name == "w1"
        if layer.scheme == "int4-w4a16":
            stored[name] = _fixed(_int4_weight(pad_halves(raw[name].numpy(), rows, columns, halves=halves)))
            stored[f"{name}_scale"] = _int4_scale(raw[f"{name}_scale"], rows, columns // 32, halves)
            continue
        row_bytes = columns * raw[name].element_size()
        if layer.scheme.startswith("mxfp4"):
            row_bytes = columns // 2
            scale = pad_halves(
                _bytes(raw[f"{name}_scale"]), rows, columns // 32, halves=halves, fill=E8M0_ONE
            )
            live = pad_halves(np.ones_like(_bytes(raw[f"{name}_scale"])), rows, columns // 32, halves=halves)
            stored[f"{name}_scale"] = _e8m0(
                scale[:, np.argsort(order)], live[:, np.argsort(order)], layer.pads_scale_rows(name)
            )
        data = pad_halves(_bytes(raw[name]), rows, row_bytes, halves=halves)
        if layer.reread:
            data = np.where(data == 0x80, np.uint8(0), data)
        offsets = weight_offsets(rows, row_bytes)
        moved = offsets[order]
        stored[name] = _fixed(np.concatenate([scatter(expert, moved) for expert in data]))
    return stored


def _fixed(data: Bytes) -> Stored:
    return Stored(data, np.ones(data.shape, dtype=np.bool_))


def _int4_weight(values: NDArray[np.int8]) -> Bytes:
    experts, rows, columns = values.shape
    place, high = int4_offsets(rows, columns)
    packed = np.zeros((experts, rows * columns // 2), dtype=np.uint8)
    codes = values.view(np.uint8) & 0xF
    for expert in range(experts):
        packed[expert, place[~high]] |= codes[expert][~high]
        packed[expert, place[high]] |= codes[expert][high] << 4
    return packed.reshape(-1)


def _int4_scale(scale: torch.Tensor, rows: int, groups: int, halves: bool) -> Stored:
    codes = scale.view(torch.uint16).numpy()
    offsets = int4_scale_offsets(rows, groups)
    parts = []
    for values in (codes, np.ones_like(codes)):
        grown = pad_halves(values, rows, groups, halves=halves)
        parts.append(np.concatenate([scatter(expert, offsets) for expert in grown]))
    return Stored(parts[0].view(np.uint8), np.repeat(parts[1] == 1, 2))


def _e8m0(scale: Bytes, live: Bytes, padded_rows: bool) -> Stored:
    """Return scales whose rows are in the order of the weight's rows, stored by `scale_offsets`."""
    rows, groups = scale.shape[0] * scale.shape[1], scale.shape[2]
    to_rows = -(-rows // 256) * 256 if padded_rows else rows
    to_groups = -(-groups // 8) * 8
    offsets = scale_offsets(to_rows, to_groups)
    parts = [
        scatter(
            pad_halves(values.reshape(1, rows, groups), to_rows, to_groups, halves=False, fill=fill), offsets
        )
        for values, fill in ((scale, E8M0_ONE), (live, 0))
    ]
    return Stored(parts[0], parts[1] == 1)
