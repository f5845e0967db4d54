"""What a kernel call asks for, worked out from its arguments alone, and what its kernel family refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from aiter_conformance.axes import Cell
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, QUANT_METHODS
from aiter_conformance.protocols import KernelCall
from aiter_conformance.providers.reference_families import (
    FamilyRefusal,
    KernelFamily,
    MxActivations,
    choose_family,
    dispatched_activations,
    size_refusal,
)

# What MXFP4 kernels are to make of activations: one kind whatever the call, what AITER's dispatch picks for
# it, or None, which is what the scheme's name says.
MxChoice = MxActivations | Literal["dispatched"] | None

_METHOD: Final = {number: name for name, number in QUANT_METHODS.items()}
_ACTIVATION: Final = {number: name for name, number in ACCEPTED_ACTIVATIONS.values()}
_CELL_ACTIVATION: Final = {"Silu": "silu", "Gelu": "gelu", "Swiglu": "swigluoai", "Situv2": "situ"}
_SCALED_METHODS: Final = ("PER_TENSOR", "PER_TOKEN", "BLOCK_1X128", "BLOCK_128x128")
# Names of asm_moe_tkw1 for what the other entry calls otherwise.
_TKW1_NAMES: Final = {"w1_scale": "fc1_scale", "w2_scale": "fc2_scale", "topk_weight": "topk_weights"}


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call, with the names of both entries made one and what follows from them.

    Attributes:
        arguments: The arguments under the names of ``fused_moe``.
        cell: What the call asks for; SWIGLUOAI_UNINTERLEAVE cannot be told from SWIGLUOAI.
        family: The kernel family that computes it.
        method: Member of ``QuantMethod``.
        activation: Member of AITER's ``ActivationType``.
        activations: What becomes of activations: bfloat16, MXFP8, MXFP4, or fp8 with float32 scales.
        on_input: Whether router weights multiply on the input.
    """

    arguments: Mapping[str, Any]
    cell: Cell
    family: KernelFamily
    method: str
    activation: str
    activations: MxActivations | Literal["fp8-scaled"]
    on_input: bool

    def get(self, name: str) -> Any:
        """Return an argument, None where the call has none of this name."""
        return self.arguments.get(name)

    @property
    def interleaved(self) -> bool:
        """Whether the call says that gate and up rows of w1 are interleaved."""
        return bool(self.get("gate_mode") == "interleave")

    @property
    def shared_apart(self) -> bool:
        """Whether the shared expert comes in tensors of its own (aiter/fhmoe.py)."""
        return self.get("shared_w1") is not None


def understand(call: KernelCall, arch: str, mx: MxChoice) -> Call:
    """Work out cell, family and quantisation.

    Raises:
        FamilyRefusal: No kernel family takes the call.
    """
    arguments = dict(call.arguments)
    tkw1 = call.entry == "asm_moe_tkw1"
    if tkw1:
        arguments |= {ours: arguments.get(theirs) for ours, theirs in _TKW1_NAMES.items()}
    method = "PER_TOKEN" if tkw1 else _METHOD[int(arguments["quant_method"])]
    activation = _ACTIVATION[int(arguments["activation_method"])]
    activations: MxActivations | Literal["fp8-scaled"] = "bf16"
    if method in _SCALED_METHODS:
        activations = "fp8-scaled"
        scheme = {"PER_TENSOR": "fp8-tensor-dynamic", "PER_TOKEN": "fp8-channel"}.get(method, "fp8-block")
        if method == "PER_TENSOR" and arguments.get("a1_scale") is not None:
            scheme = "fp8-tensor-static"
    elif method == "NO":
        scheme = "bf16"
    elif arguments["w1"].dtype == getattr(torch, "int4", None):
        scheme = "int4-w4a16"
    else:
        activations = _mx_activations(arguments, arch, activation, mx)
        scheme = "mxfp4-w4a4" if activations == "fp4" else "mxfp4-w4a16"
    on_input = tkw1 or bool(arguments.get("doweight_stage1"))
    cell = Cell(arch, scheme, _CELL_ACTIVATION[activation], "in" if on_input else "out")
    family = choose_family(cell, tkw1=tkw1, bf16_activations=activations == "bf16")
    return Call(arguments, cell, family, method, activation, activations, on_input)


def _mx_activations(arguments: Mapping[str, Any], arch: str, activation: str, mx: MxChoice) -> MxActivations:
    mode = arguments.get("gate_mode") or ""
    if arguments.get("shared_w1") is not None:  # aiter/fhmoe.py, fhmoe_: q_dtype_a
        return "fp8" if mode == "interleave" else "fp4"
    if mx == "dispatched":
        return dispatched_activations(arch, activation, mode, len(arguments["hidden_states"]))
    return mx or ("bf16" if mode == "interleave" else "fp4")


def refuse(call: Call) -> None:
    """Refuse what the family refuses.

    Raises:
        FamilyRefusal: It does; the message names the family, what must be and what came.
    """
    family, cell, apart = call.family, call.cell, call.shared_apart
    biased = call.get("bias1") is not None or call.get("bias2") is not None
    takes_apart = (cell.arch, call.method, call.activation) == ("gfx950", "BLOCK_1X32", "Silu")
    for given, takes, what in (
        (biased, family.biases and not apart, "biases"),
        (call.get("expert_mask") is not None, family.mask and not apart, "expert masks"),
        (apart, takes_apart, "shared experts in tensors of their own"),
    ):
        if given and not takes:
            msg = f"{family.name} must be called without {what} (got them for {cell})"
            raise FamilyRefusal(msg)
    experts, said = call.get("w1").shape[0], call.get("shared_expert_id")
    if apart and said != experts - 1:
        msg = f"shared_expert_id must be that of the last of {experts} experts (got {said})"
        raise FamilyRefusal(msg)
    wrong = size_refusal(cell.scheme, call.get("w2").shape[1], call.get("w1").shape[1] // 2)
    if wrong is not None:
        msg = f"{family.name} must be called with {wrong} for {cell}"
        raise FamilyRefusal(msg)
