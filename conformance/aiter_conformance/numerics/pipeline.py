"""How a kernel computes: which activations it quantises and when, what it rounds, how it adds up.

A pipeline is no property of the scheme alone (NUMERICS 2), so it is an explicit input of the oracle: the
nominal one below, or one that a trace of a release names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from aiter_conformance.axes import Cell, Router, load_axes
from aiter_conformance.numerics.formats import E2M1, E4M3FN, FLOAT_FORMATS, FloatFormat, ScaleRounding
from aiter_conformance.numerics.quantise import BLOCK_1X32, BLOCK_1X128, ROW, TENSOR, Block

if TYPE_CHECKING:
    from aiter_conformance.numerics.inputs import Problem


@dataclass(frozen=True, slots=True)
class Requantisation:
    """How activations are quantised: of the hidden states, or of the intermediate.

    Attributes:
        element: Format of the codes.
        block: Which elements share a scale; ``TENSOR`` is all rows of all experts.
        rounding: How e8m0 scales are chosen; None means float32 scales, amax / maximum.
        static: The scale is the checkpoint's, not the data's.
    """

    element: FloatFormat
    block: Block
    rounding: ScaleRounding | None = None
    static: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One way to compute the mixture of experts.

    Attributes:
        name: Short name for messages and evidence.
        hidden: How the hidden states are quantised, or None: they stay bfloat16.
        intermediate: How the intermediate is quantised, or None: it is rounded to bfloat16 only.
        intermediate_bf16: Whether the intermediate is rounded to bfloat16 before it is quantised (two
            kernels with a buffer between them) or not (one kernel).
        slice_width: Width of the slices of the intermediate that are quantised and added on their own, as
            one-stage kernels do; None is the whole width.
        router: Where the router weight multiplies.
        weights_bf16: Whether dequantised weights are rounded to bfloat16, as the int4 kernels do with code
            times scale (ISA-FACTS 3.4); of MXFP4 that changes nothing.
    """

    name: str
    hidden: Requantisation | None = None
    intermediate: Requantisation | None = None
    intermediate_bf16: bool = True
    slice_width: int | None = None
    router: Router = "out"
    weights_bf16: bool = False


# What kernels for MXFP4 weights may make of activations: nothing, MXFP8 or MXFP4, in blocks of 32.
MX_ELEMENTS: Final[dict[str, FloatFormat | None]] = {"bf16": None, "fp8": E4M3FN, "fp4": E2M1}

# AITER's default from v0.1.17 on (aiter/utility/mx_types.py: RoundUp); EVEN before (dynamic_mxfp4_quant).
NOMINAL_MX_ROUNDING: Final = ScaleRounding.RCEIL


def nominal_pipeline(cell: Cell) -> Pipeline:
    """Return the pipeline that the scheme's name promises, two stages with a bfloat16 buffer between.

    With router weights on the input of fp8-channel, ``asm_moe_tkw1`` has one-stage kernels for SiLU and GELU
    on gfx942 and gfx950 instead (SPEC 3), which quantise the float32 intermediate per token (ISA-FACTS 2.5).
    """
    fp8 = FLOAT_FORMATS[load_axes().archs[cell.arch].fp8]
    one_stage = (
        (cell.scheme, cell.router) == ("fp8-channel", "in")
        and cell.activation in ("silu", "gelu")
        and cell.arch in ("gfx942", "gfx950")
    )
    how = {
        "bf16": None,
        "fp8-block": Requantisation(fp8, BLOCK_1X128),
        "fp8-tensor-static": Requantisation(fp8, TENSOR, static=True),
        "fp8-tensor-dynamic": Requantisation(fp8, TENSOR),
        "fp8-channel": Requantisation(fp8, ROW),
        "mxfp4-w4a16": None,
        "mxfp4-w4a4": Requantisation(E2M1, BLOCK_1X32, NOMINAL_MX_ROUNDING),
        "int4-w4a16": None,
    }[cell.scheme]
    return Pipeline(
        name="one-stage" if one_stage else "nominal",
        hidden=how,
        intermediate=how,
        intermediate_bf16=not one_stage,
        router=cell.router,
        weights_bf16=cell.scheme == "int4-w4a16",
    )


def mx_pipeline(cell: Cell, activations: str) -> Pipeline:
    """Return the pipeline of an MXFP4 cell whose kernel makes something else of activations.

    Args:
        cell: The cell.
        activations: A key of `MX_ELEMENTS`: bf16 (w4a16), fp8 (a8w4) or fp4 (w4a4).
    """
    element = MX_ELEMENTS[activations]
    how = None if element is None else Requantisation(element, BLOCK_1X32, NOMINAL_MX_ROUNDING)
    return replace(nominal_pipeline(cell), name=f"{activations} activations", hidden=how, intermediate=how)


def pipeline_of(problem: Problem) -> Pipeline:
    """Return how a kernel is to compute a problem: as scheme, setting and opt-in say."""
    cell = problem.case.cell
    if problem.features.situ == "a8w4" and cell.scheme.startswith("mxfp4"):
        return mx_pipeline(cell, "fp8")
    if problem.features.dsv4:
        return mx_pipeline(cell, "fp4")
    return nominal_pipeline(cell)
