"""What a shipped kernel computes, read off its file name as AITER's own manifests do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

import ml_dtypes
import numpy as np

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.launch import Family

Scheme = Literal["fp8", "fp8-block", "int8", "mxfp4", "none"]
Routing = Literal["sorted", "flat", "emsort"]
_TILE = re.compile(r"_(?P<m>\d+)x(?P<n>\d+)(?=[_.])")
_DEFAULT_MAX: dict[str, float | None] = {"none": None, "int8": 127.0, "mxfp4": None}


@dataclass(frozen=True, slots=True)
class Variant:
    """What a kernel's file name says.

    Attributes:
        arch: Architecture.
        family: Stage 1 alone, or both in one kernel.
        scheme: How activations and weights are quantised.
        tile_m: Rows of an M block; of no meaning where a work-group has one token.
        tile_n: Columns of the intermediate that one work-group computes.
        half: Whether 16-bit tensors are float16 instead of bfloat16.
        gelu: GELU instead of SiLU (an argument of stage 1, not a property of the object).
        gated: Whether w1 holds gate and up.
        weight_in: Whether the router weight multiplies gate and up, before the activation.
        routing: Who sorts tokens by expert: the host (``sorted``); nobody, a work-group for each token and
            expert (``flat``); or a persistent kernel itself (``emsort``).
        persistent: Whether work-groups loop over blocks.
        xcd_order: Whether a persistent kernel permutes work-groups over eight chiplets.
        per_slot: Whether activations are [topk, tokens, K], quantised for each expert that a token goes to.
        quantises: How the kernel quantises 16-bit activations itself: ``blocks`` per (token, 128), mxfp4 per
            (token, 32), or ``smoothed`` per (token, 256) after it has multiplied them by a smoothing scale
            [E, K], its grid being by blocks and slices; None where it is given codes.
        smooth: Whether the intermediate is multiplied by a smoothing scale [E, I] before it is re-quantised.
        requant_max: Code that the largest element of the intermediate is scaled to; None without a scale, or
            where scales are powers of two.
    """

    arch: str
    family: Family
    scheme: Scheme
    tile_m: int
    tile_n: int
    half: bool
    gelu: bool
    gated: bool
    weight_in: bool
    routing: Routing
    persistent: bool
    xcd_order: bool
    per_slot: bool
    quantises: Literal["blocks", "smoothed"] | None
    smooth: bool
    requant_max: float | None

    @property
    def sixteen(self) -> np.dtype[Any]:
        """The 16-bit format of the output and of tensors that are not quantised."""
        return np.dtype(np.float16 if self.half else ml_dtypes.bfloat16)


def read_variant(arch: str, file: str, requant_max: float | None = None) -> Variant:
    """Read a kernel's file name.

    Args:
        arch: Architecture.
        file: Name of the code object.
        requant_max: Code that the largest element of the intermediate is scaled to, where that is not the
            largest of the format: some gfx950 objects scale to 240 as those of gfx942 do.

    Raises:
        UsageError: The name is of a kind whose launch is not modelled.
    """
    name = PurePath(file).name
    tile = _TILE.search(name)
    unmodelled = re.search(r"[Ii]nt4", name)
    if tile is None or unmodelled or not name.startswith(("fmoe_stage1_bf16_", "fmoe_bf16_", "fmoe_fp16_")):
        raise UsageError(
            f"launch of {name} must be modelled (got {unmodelled[0] if unmodelled else 'no known name'})"
        )
    scheme: Scheme = "none"
    if "lockscale" in name:
        scheme = "fp8-block"
    elif "Int8" in name:
        scheme = "int8"
    elif "MXfp4" in name:
        scheme = "mxfp4"
    elif "pertokenFp8" in name:
        scheme = "fp8"
    elif "noquant" not in name:
        raise UsageError(f"quantisation of {name} must be modelled (got none that is)")
    stage1 = name.startswith("fmoe_stage1")
    if stage1 and scheme == "mxfp4":
        raise UsageError(f"launch of {name} must be modelled (got stage 1 in mxfp4, which no release ships)")
    smoothed = "_smf_" in name
    routing: Routing = "flat" if "_flat_" in name else "emsort" if "_emsort_" in name else "sorted"
    inside = "blockscaleBf16" in name or "_a16_" in name or (scheme == "mxfp4" and routing == "flat")
    per_slot = not smoothed and ("multix" in name or (scheme == "int8" and "g1u0" in name))
    return Variant(
        arch=arch,
        family=Family.STAGE1 if stage1 else Family.ONE_STAGE,
        scheme=scheme,
        tile_m=int(tile["m"]),
        tile_n=int(tile["n"]),
        half=name.startswith("fmoe_fp16_"),
        gelu="gelu" in name,
        gated="g1u0" not in name,
        weight_in="tkw1" in name or "doweight" in name,
        routing=routing,
        persistent=routing == "emsort" or re.search(r"_psx?_", name) is not None,
        xcd_order=re.search(r"_psx?_.*64x", name) is not None,
        per_slot=per_slot,
        quantises="smoothed" if smoothed else "blocks" if inside else None,
        smooth=per_slot or smoothed,
        requant_max=requant_max or _DEFAULT_MAX.get(scheme, ARCHES[arch].fp8_max),
    )
