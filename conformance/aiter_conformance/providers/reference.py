"""The provider ``reference``: the operator contract of AITER's two MoE kernels, on packed inputs, in torch.

It is the harness's model of the kernels, not a release: it reads the bytes that a loader left, in the layout
that the call names, and computes as `reference_families` says the kernel family does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from aiter_conformance.protocols import KernelCall
from aiter_conformance.providers import reference_tensors as rt
from aiter_conformance.providers.reference_call import Call, MxChoice, refuse, understand

_SWIGLU_ALPHA: Final = 1.702
_SWIGLU_LIMIT: Final = 7.0
_WEIGHT_SCALES: Final = {"PER_TENSOR": "tensor", "PER_TOKEN": "channel"}


class ReferenceProvider:
    """Computes kernel calls as AITER's operators are specified (`aiter_conformance.protocols.Provider`)."""

    name = "reference"
    level = "reference"

    def __init__(self, mx_activations: MxChoice = None) -> None:
        """Choose what MXFP4 kernels make of activations; AITER decides it by environment and tokens.

        Args:
            mx_activations: bf16, fp8 or fp4; ``dispatched`` is what AITER's dispatch picks for the tokens of
                the call; None is what the scheme's name says, bf16 for an interleaved layout, else fp4.
        """
        self.mx_activations = mx_activations

    def compute(self, call: KernelCall, arch: str) -> torch.Tensor:
        """Return the result of a call, (M, K) in its output dtype.

        Raises:
            FamilyRefusal: No kernel family takes the call.
        """
        known = understand(call, arch, self.mx_activations)
        refuse(known)
        weights1, weights2 = _read_weights(known)
        masked = known.family.masked(
            known.get("hidden_pad") or 0,
            known.get("intermediate_pad") or 0,
            biased=known.get("bias1") is not None,
        )
        fp8 = torch.float8_e4m3fnuz if arch.startswith("gfx94") else torch.float8_e4m3fn
        x = _without_last(_read_hidden(known, weights1.shape[-1], fp8), masked.hidden)
        routes = _routes(known, weights1.shape[0], len(x))

        sums = routes.own(torch.matmul(x, weights1.transpose(1, 2)))
        if known.on_input:
            sums = sums * routes.weight[..., None]
        if known.get("bias1") is not None:
            sums = sums + known.get("bias1").to(torch.float32)[routes.expert]
        h = _without_last(_activate(known, *sums.chunk(2, dim=-1)), masked.intermediate)
        h = _without_last(_between(known, h, routes.held, fp8), masked.contracted)
        y = routes.own(torch.matmul(routes.spread(h), weights2.transpose(1, 2)))
        if known.get("bias2") is not None:
            y = y + known.get("bias2").to(torch.float32)[routes.expert]
        if not known.on_input:
            y = y * routes.weight[..., None]
        out = torch.where(routes.held[..., None], y, 0.0).sum(dim=1)
        out = _poison(known, _without_last(out, masked.output))
        hidden = known.get("hidden_states")
        dtype = known.get("output_dtype") or (hidden.dtype if hidden.is_floating_point() else torch.bfloat16)
        return out.to(dtype)


# --------------------------------------------------------------------------- reading


def _read_weights(known: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both weights as float32, [E, 2N, K] and [E, K, N], as the call says they lie."""
    w1, w2 = known.get("w1"), known.get("w2")
    scale1, scale2 = known.get("w1_scale"), known.get("w2_scale")
    interleaved = known.interleaved
    # AITER takes both as shuffled where either carries the mark.
    shuffled = bool(getattr(w1, "is_shuffled", False) or getattr(w2, "is_shuffled", False))
    if known.cell.scheme == "int4-w4a16":
        first = rt.read_int4(w1, scale1, interleaved=interleaved)
        return first, rt.read_int4(w2, scale2, interleaved=False)
    if known.method == "BLOCK_1X32":
        first = rt.read_fp4(w1, scale1, shuffled=shuffled, interleaved=interleaved)
        second = rt.read_fp4(w2, scale2, shuffled=shuffled, interleaved=False)
        if known.shared_apart:  # in the place of a last expert that is not read
            first[-1:], second[-1:] = _read_shared(known, interleaved)
        return first, second
    first, second = rt.read_plain(w1, shuffled=shuffled), rt.read_plain(w2, shuffled=shuffled)
    if known.method != "NO":
        kind = _WEIGHT_SCALES.get(known.method, "block")
        first = first * rt.spread_scale(scale1, first.shape, kind)
        second = second * rt.spread_scale(scale2, second.shape, kind)
    return first, second


def _read_shared(known: Call, interleaved: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the MXFP8 weights of a shared expert in tensors of its own (aiter/fhmoe.py)."""
    w1, w2, scale1, scale2 = (
        known.get(name) for name in ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")
    )
    first = rt.read_mxfp8(w1, scale1, shuffled=True, interleaved=interleaved)
    return first, rt.read_mxfp8(w2, scale2, shuffled=True, interleaved=False)


def _read_hidden(known: Call, width: int, fp8: torch.dtype) -> torch.Tensor:
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
    return _fp8(known, x, torch.ones_like(x[:, 0], dtype=torch.bool), fp8, scale)


def _between(known: Call, h: torch.Tensor, held: torch.Tensor, fp8: torch.dtype) -> torch.Tensor:
    """Return the intermediate [M, k, N] as stage 2 sees it."""
    h = h if known.family.one_stage else rt.to_bf16(h)
    if known.activations == "bf16":
        return h
    if known.activations == "fp4":
        return rt.mxfp4_roundtrip(h)
    if known.activations == "fp8":
        return rt.mxfp8_roundtrip(h, fp8)
    return _fp8(known, h, held, fp8, known.get("a2_scale"))


def _fp8(
    known: Call, x: torch.Tensor, counts: torch.Tensor, fp8: torch.dtype, static: torch.Tensor | None
) -> torch.Tensor:
    """Quantise [..., C] to fp8 by the method of the call; ``counts`` [...] says which rows are real."""
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


@dataclass(frozen=True, slots=True)
class _Routes:
    """Where the slots of the tokens go. Shapes depend on the call's alone, never on what is routed.

    Attributes:
        expert: Position among the experts held here, 0 where the slot's is held elsewhere, [M, k].
        held: Whether it is held here, [M, k].
        weight: Router weights, float32 [M, k].
        experts: How many are held.
    """

    expert: torch.Tensor
    held: torch.Tensor
    weight: torch.Tensor
    experts: int

    def own(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what each slot's expert made of its token: [M, k, C] of [E, M, C]."""
        return rows[self.expert, self._token]

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """Undo `own`: [E, M, C], zero where no slot goes."""
        dense = rows.new_zeros(self.experts + 1, rows.shape[0], rows.shape[-1])
        place = torch.where(self.held, self.expert, self.experts)  # one row more for what is held elsewhere
        dense[place, self._token] = rows
        return dense[: self.experts]

    @property
    def _token(self) -> torch.Tensor:
        return torch.arange(self.expert.shape[0], device=self.expert.device)[:, None]


def _routes(known: Call, experts: int, tokens: int) -> _Routes:
    """Work out from ids and mask which of the experts held here each slot goes to."""
    ids, weights, mask = (known.get(name) for name in ("topk_ids", "topk_weight", "expert_mask"))
    local = ids[:tokens].to(torch.int64)
    if mask is not None:
        position = torch.where(mask != 0, (mask != 0).to(torch.int64).cumsum(0) - 1, experts)
        local = position[local.clamp(0, mask.numel() - 1)]
    held = (local >= 0) & (local < experts)
    return _Routes(torch.where(held, local, 0), held, weights[:tokens].to(torch.float32), experts)


def _activate(known: Call, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
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


def _poison(known: Call, out: torch.Tensor) -> torch.Tensor:
    """Make NaN of rows that no kernel defines.

    They are rows with an id outside its range, rows whose expert the mask claims and the weights do not hold,
    and rows beyond ``num_local_tokens``.
    """
    ids, mask, count = (known.get(name) for name in ("topk_ids", "expert_mask", "num_local_tokens"))
    experts = known.get("w2").shape[0]
    limit = experts if mask is None else mask.numel()
    bad = ((ids < 0) | (ids >= limit)).any(dim=1)
    if mask is not None:
        beyond = (mask != 0) & ((mask != 0).to(torch.int64).cumsum(0) > experts)
        bad = bad | beyond[ids.to(torch.int64).clamp(0, limit - 1)].any(dim=1)
    if count is not None:
        bad = bad | (torch.arange(ids.shape[0], device=ids.device) >= count.reshape(-1)[0])
    return torch.where(bad[:, None], torch.nan, out)
