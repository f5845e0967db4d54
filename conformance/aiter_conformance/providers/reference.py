"""The provider ``reference``: the operator contract of AITER's two MoE kernels, on packed inputs, in torch.

It is the harness's model of the kernels, not a release: it reads the bytes that a loader left, in the layout
that the call names, and computes as `reference_families` says the kernel family does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from aiter_conformance.axes import Cell
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, QUANT_METHODS
from aiter_conformance.protocols import KernelCall
from aiter_conformance.providers import reference_tensors as rt
from aiter_conformance.providers.reference_families import FamilyRefusal, KernelFamily, choose_family

MxActivations = Literal["bf16", "fp8", "fp4"]

_METHOD: Final = {number: name for name, number in QUANT_METHODS.items()}
_ACTIVATION: Final = {number: name for name, number in ACCEPTED_ACTIVATIONS.values()}
_SWIGLU_ALPHA: Final = 1.702
_SWIGLU_LIMIT: Final = 7.0
_WEIGHT_SCALES: Final = {"PER_TENSOR": "tensor", "PER_TOKEN": "channel"}


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel call, with the names of both entries made one and what follows from them."""

    arguments: Mapping[str, Any]
    cell: Cell
    family: KernelFamily
    method: str
    activation: str
    activations: MxActivations | Literal["fp8-scaled"]
    on_input: bool

    def get(self, name: str) -> Any:
        return self.arguments.get(name)


class ReferenceProvider:
    """Computes kernel calls as AITER's operators are specified (`aiter_conformance.protocols.Provider`)."""

    name = "reference"
    level = "reference"

    def __init__(self, mx_activations: MxActivations | None = None) -> None:
        """Choose what MXFP4 kernels make of activations; AITER decides it by environment and tokens.

        Args:
            mx_activations: bf16, fp8 or fp4; None is bf16 for an interleaved layout (w4a16), else fp4.
        """
        self.mx_activations = mx_activations

    def compute(self, call: KernelCall, arch: str) -> torch.Tensor:
        """Return the result of a call, (M, K) in its output dtype.

        Raises:
            FamilyRefusal: No kernel family takes the call.
        """
        known = self._understand(call, arch)
        self._refuse(known)
        hidden, w1, w2 = (known.get(name) for name in ("hidden_states", "w1", "w2"))
        weights1, weights2 = self._read_weights(known)
        experts, width = w1.shape[0], weights2.shape[-1]
        biased = known.get("bias1") is not None
        masked = known.family.masked(
            known.get("hidden_pad") or 0, known.get("intermediate_pad") or 0, biased=biased
        )
        fp8 = torch.float8_e4m3fnuz if arch.startswith("gfx94") else torch.float8_e4m3fn

        x = self._read_hidden(known, weights1.shape[-1], fp8)
        share, routed = _shares(known, experts)

        x = _without_last(x, masked.hidden)
        sums = torch.matmul(x, weights1.transpose(1, 2))
        if known.on_input:
            sums = sums * share.T[..., None]
        if biased:
            sums = sums + known.get("bias1").to(torch.float32)[:, None, :]
        h = _activate(known, sums[..., :width], sums[..., width:])
        h = _without_last(h, masked.intermediate)
        h = self._between(known, h, routed, fp8)
        y = torch.matmul(_without_last(h, masked.contracted), weights2.transpose(1, 2))
        if known.get("bias2") is not None:
            y = y + known.get("bias2").to(torch.float32)[:, None, :]
        factor = routed.to(torch.float32) if known.on_input else share
        weighted = torch.where(routed.T[..., None], y * factor.T[..., None], 0.0)
        out = _without_last(weighted.sum(dim=0), masked.output)
        out = _poison(known, out, w2)
        dtype = known.get("output_dtype") or (hidden.dtype if hidden.is_floating_point() else torch.bfloat16)
        return out.to(dtype)

    # ----------------------------------------------------------------------- what is asked

    def _understand(self, call: KernelCall, arch: str) -> _Call:
        """Work out cell, family and quantisation from the arguments alone."""
        arguments = dict(call.arguments)
        tkw1 = call.entry == "asm_moe_tkw1"
        if tkw1:
            for ours, theirs in (
                ("w1_scale", "fc1_scale"),
                ("w2_scale", "fc2_scale"),
                ("topk_weight", "topk_weights"),
            ):
                arguments[ours] = arguments.get(theirs)
        method = "PER_TOKEN" if tkw1 else _METHOD[int(arguments["quant_method"])]
        activation = _ACTIVATION[int(arguments["activation_method"])]
        on_input = tkw1 or bool(arguments.get("doweight_stage1"))
        activations: Any = "bf16"
        if method in ("PER_TENSOR", "PER_TOKEN", "BLOCK_1X128", "BLOCK_128x128"):
            activations = "fp8-scaled"
            scheme = {"PER_TENSOR": "fp8-tensor-dynamic", "PER_TOKEN": "fp8-channel"}.get(method, "fp8-block")
            if method == "PER_TENSOR" and arguments.get("a1_scale") is not None:
                scheme = "fp8-tensor-static"
        elif method == "NO":
            scheme = "bf16"
        elif _is_int4(arguments["w1"]):
            scheme = "int4-w4a16"
        else:
            interleaved = arguments.get("gate_mode") == "interleave"
            activations = self.mx_activations or ("bf16" if interleaved else "fp4")
            scheme = "mxfp4-w4a4" if activations == "fp4" else "mxfp4-w4a16"
        name = {"Silu": "silu", "Gelu": "gelu", "Swiglu": "swigluoai", "Situv2": "situ"}[activation]
        cell = Cell(arch, scheme, name, "in" if on_input else "out")
        family = choose_family(cell, tkw1=tkw1, bf16_activations=activations == "bf16")
        return _Call(arguments, cell, family, method, activation, activations, on_input)

    def _refuse(self, known: _Call) -> None:
        """Refuse what the family refuses."""
        family = known.family
        for given, takes, what in (
            (known.get("bias1") is not None or known.get("bias2") is not None, family.biases, "biases"),
            (known.get("expert_mask") is not None, family.mask, "expert masks"),
            (known.get("shared_w1") is not None, False, "shared experts in tensors of their own"),
        ):
            if given and not takes:
                msg = f"{family.name} must be called without {what} (got them for {known.cell})"
                raise FamilyRefusal(msg)

    # ----------------------------------------------------------------------- reading

    def _read_weights(self, known: _Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both weights as float32, [E, 2N, K] and [E, K, N], as the call says they lie."""
        w1, w2 = known.get("w1"), known.get("w2")
        scale1, scale2 = known.get("w1_scale"), known.get("w2_scale")
        interleaved = known.get("gate_mode") == "interleave"
        # AITER takes both as shuffled where either carries the mark.
        shuffled = bool(getattr(w1, "is_shuffled", False) or getattr(w2, "is_shuffled", False))
        if known.cell.scheme == "int4-w4a16":
            first = rt.read_int4(w1, scale1, interleaved=interleaved)
            return first, rt.read_int4(w2, scale2, interleaved=False)
        if known.method == "BLOCK_1X32":
            first = rt.read_fp4(w1, scale1, shuffled=shuffled, interleaved=interleaved)
            return first, rt.read_fp4(w2, scale2, shuffled=shuffled, interleaved=False)
        first, second = rt.read_plain(w1, shuffled=shuffled), rt.read_plain(w2, shuffled=shuffled)
        if known.method != "NO":
            kind = _WEIGHT_SCALES.get(known.method, "block")
            first = first * rt.spread_scale(scale1, first.shape, kind)
            second = second * rt.spread_scale(scale2, second.shape, kind)
        return first, second

    def _read_hidden(self, known: _Call, width: int, fp8: torch.dtype) -> torch.Tensor:
        """Return the hidden states as stage 1 sees them: quantised, and back in float32."""
        hidden: torch.Tensor = known.get("hidden_states")
        scale: torch.Tensor = known.get("a1_scale")
        if hidden.dtype == getattr(torch, "float4_e2m1fn_x2", None):
            blocks = rt.e8m0_values(scale.view(torch.uint8))
            return rt.e2m1_values(hidden.view(torch.uint8)) * blocks.repeat_interleave(32, dim=1)
        if hidden.dtype in rt.FP8_MAXIMUM:
            blocks = scale.reshape(hidden.shape[0] if scale.numel() > 1 else 1, -1)
            return hidden.to(torch.float32) * blocks.repeat_interleave(width // blocks.shape[1], dim=1)
        x = hidden.to(torch.float32)
        if known.activations == "bf16":
            return x
        if known.activations == "fp4":
            return rt.mxfp4_roundtrip(x)
        if known.activations == "fp8":
            return rt.mxfp8_roundtrip(x, fp8)
        return _fp8(known, x[None], torch.ones_like(x[None, :, 0], dtype=torch.bool), fp8, scale)[0]

    def _between(self, known: _Call, h: torch.Tensor, routed: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
        """Return the intermediate [E, M, N] as stage 2 sees it."""
        h = h if known.family.one_stage else rt.to_bf16(h)
        if known.activations == "bf16":
            return h
        if known.activations == "fp4":
            return rt.mxfp4_roundtrip(h)
        if known.activations == "fp8":
            return rt.mxfp8_roundtrip(h, fp8)
        return _fp8(known, h, routed.T, fp8, known.get("a2_scale"))


def _is_int4(weight: torch.Tensor) -> bool:
    return weight.dtype == getattr(torch, "int4", None)


def _fp8(
    known: _Call, x: torch.Tensor, counts: torch.Tensor, fp8: torch.dtype, static: torch.Tensor | None
) -> torch.Tensor:
    """Quantise [E, M, C] to fp8 by the method of the call; ``counts`` [E, M] says which rows are real."""
    if known.method == "PER_TENSOR":
        amax = torch.where(counts[..., None], x.abs(), 0.0).flatten()
        largest = torch.cat([amax, amax.new_zeros(1)]).max()
        scale = rt.fp8_scale(largest, fp8) if static is None else static.reshape(())
        return rt.fp8_roundtrip(x, scale, fp8)
    if known.method == "PER_TOKEN":
        return rt.fp8_roundtrip(x, rt.fp8_scale(x.abs().amax(-1, keepdim=True), fp8), fp8)
    blocks = rt.in_blocks(x, 128)
    scale = rt.fp8_scale(blocks.abs().amax(-1, keepdim=True), fp8)
    return rt.fp8_roundtrip(blocks, scale, fp8).flatten(-2)


def _shares(known: _Call, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the router weight of each token for each expert held here, and whether it goes there, [M, E]."""
    ids, weights, mask = (known.get(name) for name in ("topk_ids", "topk_weight", "expert_mask"))
    local = ids.to(torch.int64)
    if mask is not None:
        position = torch.where(mask != 0, (mask != 0).to(torch.int64).cumsum(0) - 1, experts)
        local = position[local.clamp(0, mask.numel() - 1)]
    held = (local >= 0) & (local < experts)
    local = torch.where(held, local, experts)  # one column more takes what belongs elsewhere
    share = torch.zeros((ids.shape[0], experts + 1), device=ids.device)
    routed = share.scatter_add(1, local, torch.ones_like(weights, dtype=torch.float32)) > 0
    return share.scatter_add(1, local, weights.to(torch.float32))[:, :experts], routed[:, :experts]


def _activate(known: _Call, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return the gated activation in float32."""
    limit = float(known.get("swiglu_limit") or 0.0) if known.family.limit else 0.0
    if known.activation == "Swiglu":
        bound = limit or _SWIGLU_LIMIT
        gate, up = gate.clamp(max=bound), up.clamp(-bound, bound)
        return gate * torch.sigmoid(_SWIGLU_ALPHA * gate) * (up + 1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    if known.activation == "Situv2":
        beta, linear = float(known.get("beta")), float(known.get("linear_beta"))
        return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * (linear * torch.tanh(up / linear))
    kind = torch.nn.functional.gelu if known.activation == "Gelu" else torch.nn.functional.silu
    return kind(gate) * up


def _without_last(x: torch.Tensor, count: int) -> torch.Tensor:
    """Return x with the last ``count`` columns zero."""
    if not count:
        return x
    keep = torch.arange(x.shape[-1], device=x.device) < x.shape[-1] - count
    return torch.where(keep, x, 0.0)


def _poison(known: _Call, out: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """Make NaN of rows that no kernel defines.

    They are rows with an id outside its range, rows whose expert the mask claims and the weights do not hold,
    and rows beyond ``num_local_tokens``.
    """
    ids, mask, count = (known.get(name) for name in ("topk_ids", "expert_mask", "num_local_tokens"))
    limit = w2.shape[0] if mask is None else mask.numel()
    bad = ((ids < 0) | (ids >= limit)).any(dim=1)
    if mask is not None:
        beyond = (mask != 0) & ((mask != 0).to(torch.int64).cumsum(0) > w2.shape[0])
        bad = bad | beyond[ids.to(torch.int64).clamp(0, limit - 1)].any(dim=1)
    if count is not None:
        bad = bad | (torch.arange(ids.shape[0], device=ids.device) >= count.reshape(-1)[0])
    return torch.where(bad[:, None], torch.nan, out)
