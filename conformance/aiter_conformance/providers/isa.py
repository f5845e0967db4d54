"""The provider ``isa``: a release's own machine code, executed by the emulator on the tensors of a call.

Which kernels a call gets is what a trace of the release's dispatch says (`isa_plan`). The products run as
shipped; what the release does around them (sorting tokens, quantising activations) is computed here from the
operators' contract, and named. The host's part of a launch (grid, strides, sizes of the buffers that sorting
fills) is that of ``csrc/py_itfs_cu/asm_fmoe.cu`` and ``aiter/fused_moe.py`` of v0.1.20.post1.

Needs torch, numba and a disassembler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from aiter_conformance.axes import Cell
from aiter_conformance.isa import launch
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.arguments import Operands, one_stage
from aiter_conformance.isa.judge import BUDGET, SLACK
from aiter_conformance.isa.packing import BLOCK, F64, Quantiser, Sorted, sort_tokens
from aiter_conformance.isa.variant import Variant
from aiter_conformance.numerics.activation import Activation
from aiter_conformance.numerics.formats import FLOAT_FORMATS
from aiter_conformance.numerics.pipeline import Pipeline, Requantisation
from aiter_conformance.numerics.quantise import BLOCK_1X128, ROW
from aiter_conformance.protocols import KernelCall
from aiter_conformance.providers.isa_plan import Emulator, NotExecutableError, Plan

_FP8: Final = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz}
_UNWRITTEN: Final = 0x7FFF_FFFF
"""What is in the part of a buffer that sorting does not write: whoever uses it as an index is far outside."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a kernel may compute.

    Attributes:
        name: In words, for evidence.
        pipeline: Its pipeline.
        activation: Another activation than the problem's, or None.
    """

    name: str
    pipeline: Pipeline
    activation: Activation | None = None


def ways(plan: Plan, cell: Cell) -> list[Way]:
    """Return how the kernel may compute, the way that it should first.

    It re-quantises its float32 intermediate for each slice of a work-group. Two other ways are findings and
    no faults: GELU by its tanh approximation, and on gfx950 an intermediate that is scaled to gfx942's
    largest code, which costs hardly any precision.
    """
    kind = plan.kernel.kind
    element = FLOAT_FORMATS[ARCHES[kind.arch].fp8.removeprefix("float8_")]
    block = BLOCK_1X128 if kind.scheme == "fp8-block" else ROW
    hidden = Requantisation(element, block)
    nominal = Pipeline(
        name="one-stage",
        hidden=hidden,
        intermediate=hidden,
        intermediate_bf16=False,
        slice_width=kind.tile_n,
        router=cell.router,
    )
    found = [Way(f"slices of {kind.tile_n}", nominal)]
    least = FLOAT_FORMATS["e4m3fnuz"].maximum
    if element.maximum != least:
        other = replace(nominal, intermediate=Requantisation(replace(element, maximum=least), block))
        found.append(Way(f"{found[0].name} scaled to {least:g}", other))
    if cell.activation == "gelu":
        found += [Way(f"{way.name}, GELU by tanh", way.pipeline, Activation("gelu_tanh")) for way in found]
    return found


class IsaProvider:
    """Executes the kernel of a plan (`aiter_conformance.protocols.Provider`).

    Attributes:
        instructions: Wave-instructions executed so far.
    """

    name = "isa"
    level = "isa"

    def __init__(self, emulator: Emulator, plan: Plan) -> None:
        self._emulator = emulator
        self._plan = plan
        self.instructions = 0

    def compute(self, call: KernelCall, arch: str) -> torch.Tensor:
        """Return the result of a call, (M, K) bfloat16.

        Raises:
            KernelFaultError: The kernel did what it must not.
            NotExecutableError: The call has what the kernel's launch has no place for.
        """
        tkw1 = call.entry == "asm_moe_tkw1"
        given = call.arguments
        scales = ("fc1_scale", "fc2_scale") if tkw1 else ("w1_scale", "w2_scale")
        for name in ("bias1", "bias2", "num_local_tokens", "shared_w1"):
            if given.get(name) is not None:
                raise NotExecutableError(f"a launch with {name} is not modelled", self._plan.kernel.name)
        kind = self._plan.kernel.kind
        hidden: torch.Tensor = given["hidden_states"]
        weights: torch.Tensor = given["topk_weights" if tkw1 else "topk_weight"]
        ids: torch.Tensor = given["topk_ids"]
        w1, w2 = (_codes(given[name], arch) for name in ("w1", "w2"))
        x: npt.NDArray[Any]
        if kind.quantises:
            x, x_scales = _bfloat16(hidden), None
        else:
            x, x_scales = _quantised(kind, hidden.to(torch.float64).numpy())
        operands = Operands(
            tokens=hidden.shape[0],
            topk=ids.shape[1],
            x=x,
            x_scales=x_scales,
            w1=w1,
            w1_scales=_scales(given[scales[0]]),
            w2=w2,
            w2_scales=_scales(given[scales[1]]),
            sorted=_sorted(ids, weights, given.get("expert_mask"), w1.shape[0], self._plan.block_m),
        )
        groups = self._plan.kernel.groups_per_unit * self._emulator.board.compute_units
        result = launch.run(
            self._plan.kernel.code,
            self._plan.kernel.program,
            one_stage(kind, operands, groups),
            core=self._emulator.core,
            slack=SLACK,
            budget=BUDGET,
        )
        self.instructions += result.execution.instructions
        bits = np.ascontiguousarray(result.outputs["O"]).view(np.int16)
        return torch.from_numpy(bits).view(torch.bfloat16)


def _codes(weight: torch.Tensor, arch: str) -> npt.NDArray[Any]:
    """The fp8 codes of a weight, as they lie."""
    if str(weight.dtype).removeprefix("torch.") != ARCHES[arch].fp8:
        raise NotExecutableError(f"weights of {arch} must be {ARCHES[arch].fp8} (got {weight.dtype})")
    return weight.contiguous().view(torch.uint8).numpy().view(_FP8[ARCHES[arch].fp8])


def _bfloat16(hidden: torch.Tensor) -> npt.NDArray[Any]:
    """Hidden states as they lie, bfloat16 [M, K]."""
    return hidden.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _scales(scale: torch.Tensor) -> npt.NDArray[np.float32]:
    """Scales by expert, float32 [E, ...]."""
    return np.ascontiguousarray(scale.to(torch.float32).numpy())


def _quantised(kind: Variant, x: F64) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Codes [M, K] and scales: of tokens [M], or of 128 columns each, as the kernel reads them, [K / 128, M].

    ``dynamic_per_token_scaled_quant`` scales the largest magnitude to fp8's largest value.
    """
    quantiser = Quantiser(np.dtype(_FP8[ARCHES[kind.arch].fp8]), ARCHES[kind.arch].fp8_max)
    made = quantiser.groups(x, BLOCK) if kind.scheme == "fp8-block" else quantiser.rows(x)
    scales = made.scales
    assert scales is not None  # noqa: S101 -- fp8 has scales
    return made.codes, np.ascontiguousarray(scales.T) if kind.scheme == "fp8-block" else scales


def _sorted(
    ids: torch.Tensor, weights: torch.Tensor, mask: torch.Tensor | None, experts: int, block_m: int
) -> Sorted:
    """Tokens by local expert in buffers as large as AITER allocates them, the rest of which nobody wrote."""
    local = ids.numpy().astype(np.int64)
    known = experts
    if mask is not None:
        held = mask.numpy() != 0
        local = np.where(held[local], np.cumsum(held)[local] - 1, -1)
        known = len(held)
    found = sort_tokens(local, weights.numpy(), experts, block_m)
    rows = local.size + known * block_m - local.shape[1]
    blocks = -(-rows // block_m)

    def spread(written: npt.NDArray[Any], size: int, rest: float) -> npt.NDArray[Any]:
        return np.concatenate([written, np.full(size - len(written), rest, written.dtype)])

    return replace(
        found,
        ids=spread(found.ids, rows, _UNWRITTEN),
        weights=spread(found.weights, rows, np.nan),
        blocks=spread(found.blocks, blocks, _UNWRITTEN),
    )
