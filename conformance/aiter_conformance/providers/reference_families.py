"""What each family of AITER's kernels makes of a call: pads, biases, limit, mask; what it refuses.

Facts with their source, none of the arithmetic. A call that AITER drops an argument of in silence is modelled
as AITER computes it, so that the difference shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from aiter_conformance.axes import Cell
from aiter_conformance.errors import HarnessError
from aiter_conformance.families import load_families


class FamilyRefusal(HarnessError):  # noqa: N818 -- it is what a kernel family says, not an error of the harness
    """No kernel family takes the call, or the family that would refuses it."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Masked:
    """What a family leaves out because of the pads of a call, counted from the end.

    Attributes:
        hidden: Columns of the hidden states that stage 1 does not read.
        intermediate: Rows of gate, and of up, that stage 1 does not compute: they are zero.
        contracted: Columns of the intermediate that stage 2 does not read.
        output: Columns of the output that stage 2 does not write: they are zero.
    """

    hidden: int = 0
    intermediate: int = 0
    contracted: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """How one family behaves beyond its arithmetic.

    Attributes:
        name: Its name in ``families.toml``.
        pads: Which rule its pads follow.
        biases: Whether it adds biases.
        limit: Whether ``swiglu_limit`` reaches its kernels; swiglu clamps at 7 without.
        mask: Whether it takes an expert mask.
        one_stage: Whether the intermediate stays in the kernel, never rounded to bfloat16.
        source: Where this was read, in AITER's main of 2026-08-22.
    """

    name: str
    pads: Literal["none", "cktile", "flydsl"] = "none"
    biases: bool = False
    limit: bool = False
    mask: bool = True
    one_stage: bool = False
    source: str = ""

    def masked(self, hidden_pad: int, intermediate_pad: int, *, biased: bool) -> Masked:
        """Return what the pads of a call leave out."""
        if self.pads == "cktile":
            # n_pad_zeros of stage 1 counts gate and up rows together, so half of it each.
            return Masked(
                hidden=hidden_pad // 128 * 128,
                intermediate=intermediate_pad // 64 * 64,
                contracted=intermediate_pad // 128 * 128,
                output=hidden_pad // 64 * 64,
            )
        if self.pads == "flydsl" and not biased:  # _get_padding_for_flydsl: a bias turns both pads off
            return Masked(hidden_pad, intermediate_pad, intermediate_pad, hidden_pad)
        return Masked()


_FUSED_MOE: Final = "aiter/fused_moe.py"

# What AITER's kernels make of activations where weights are MXFP4.
MxActivations = Literal["bf16", "fp8", "fp4"]
# From this many tokens on AITER quantises activations that the scheme's name leaves in bfloat16. Both
# variables that move it are 256 by default: AITER_BF16_FP8_MOE_BOUND, GPTOSS_SWIGLU_MXFP4_BF16_BOUND.
QUANTISED_FROM: Final = 256


def dispatched_activations(arch: str, activation: str, gate_mode: str, tokens: int) -> MxActivations:
    """Return what AITER makes of activations where weights are MXFP4, but for SiTU, whose setting decides.

    Read in aiter/fused_moe.py, ``_fused_moe_impl`` (``q_dtype_a``), main of 2026-08-22.

    Args:
        arch: The arch.
        activation: AITER's name of the activation, ``Swiglu`` or another.
        gate_mode: AITER's gate mode; "" is its default, separated.
        tokens: Tokens of the call.
    """
    if activation == "Swiglu" and gate_mode != "interleave":
        return "bf16" if tokens < QUANTISED_FROM else "fp4"
    if gate_mode == "interleave":
        return "bf16" if arch != "gfx950" or tokens < QUANTISED_FROM else "fp8"
    return "fp4"


def size_refusal(scheme: str, hidden: int, intermediate: int) -> str | None:
    """Return what is wrong with the sizes of a call for the kernels of a scheme, or None.

    Tiles of bf16 kernels: SPEC 12, ROCm/rocm-libraries#7920; blocks of 128: vllm-project/vllm#48173.
    """
    granule = {"bf16": 64 if intermediate <= 192 else 128, "fp8-block": 128}.get(scheme, 32)
    if intermediate % granule:
        return f"an intermediate size that is a multiple of {granule} (got N = {intermediate})"
    granule = 128 if scheme == "fp8-block" else 32
    if hidden % granule:
        return f"a hidden size that is a multiple of {granule} (got K = {hidden})"
    return None


KERNEL_FAMILIES: Final = {
    family.name: family
    for family in (
        KernelFamily("ck-2stage", source=f"{_FUSED_MOE}: ck_moe_stage1 takes no pads, biases or limit"),
        KernelFamily("asm-1stage-tkw1", one_stage=True, source="aiter/fused_moe_bf16_asm.py: asm_moe_tkw1"),
        KernelFamily(
            "cktile-2stage",
            pads="cktile",
            biases=True,
            source=f"{_FUSED_MOE}: n_pad_zeros and k_pad_zeros of both stages; no limit is handed on",
        ),
        KernelFamily(
            "flydsl",
            pads="flydsl",
            biases=True,
            limit=True,
            source=f"{_FUSED_MOE}: _flydsl_stage1_wrapper, inter_dim_pad of each half, swiglu_limit",
        ),
        KernelFamily(
            "flydsl-situ-a16w4",
            limit=True,
            mask=False,
            source=f"{_FUSED_MOE}: _is_a16w4_situv2 refuses biases, masks and doweight_stage1; takes no pads",
        ),
    )
}

# Families of families.toml that share the behaviour of another one where the operator's contract goes.
_MODELLED_AS: Final = {
    "asm-1stage-ptpc": "ck-2stage",
    "asm-1stage-blockscale": "ck-2stage",
    "asm-1stage-mxfp4": "ck-2stage",
    "asm-stage1-fp8": "ck-2stage",
    "asm-stage1-fp8-doweight": "ck-2stage",
    "asm-stage1-blockscale": "ck-2stage",
    "ck-2stage-ptpc": "ck-2stage",
    "ck-2stage-tkw1": "ck-2stage",
    "flydsl-int4": "flydsl",
}
# Families that a call through asm_moe_tkw1 reaches, and no other call: its own kernels first.
_TKW1: Final = ("asm-1stage-tkw1", "ck-2stage-tkw1")
# The first that serves a cell is taken: kernels that know pads before those that do not.
_ORDER: Final = (*_TKW1, "cktile-2stage", "flydsl", "ck-2stage", *_MODELLED_AS)


def choose_family(cell: Cell, *, tkw1: bool, bf16_activations: bool) -> KernelFamily:
    """Return the family that computes the calls of a cell.

    Args:
        cell: What the call asks for.
        tkw1: Whether it came through ``asm_moe_tkw1``.
        bf16_activations: Whether activations stay bfloat16.

    Raises:
        FamilyRefusal: No family serves the cell.
    """
    serving = {family.name for family in load_families() if family.serves(cell)}
    for name in _ORDER:
        if name in serving and (name in _TKW1) == tkw1:
            if cell.activation == "situ" and cell.scheme == "mxfp4-w4a16" and bf16_activations:
                return KERNEL_FAMILIES["flydsl-situ-a16w4"]
            return KERNEL_FAMILIES[_MODELLED_AS.get(name, name)]
    entry = "asm_moe_tkw1" if tkw1 else "fused_moe"
    msg = f"no kernel family of AITER computes {cell} through {entry}"
    raise FamilyRefusal(msg)
