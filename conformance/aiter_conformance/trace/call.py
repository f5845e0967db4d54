"""What is asked of a release: one call of its fused MoE, described without tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from aiter_conformance.axes import Router
from aiter_conformance.case import Case
from aiter_conformance.contract import SCHEME_CONFIGS
from aiter_conformance.errors import UsageError

Entry = Literal["leaf", "fused_moe"]
Situ = Literal["a4w4", "a8w4", "a16w4"]

# Schemes that no leaf serves and a direct call can ask for; the others are the axes'.
DIRECT_SCHEMES = ("mxfp8", "int8-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. Sizes are those of one rank; what is padded counts as part of a size.

    Attributes:
        entry: ``leaf``: through ``apply`` of the subject's leaf and its bridge. ``fused_moe``: straight into
            the release's function, for what no leaf asks.
        scheme: A scheme of the axes, or with a direct call one of `DIRECT_SCHEMES`.
        activation: A value of ``MoEActivation``.
        router: Where the router weight multiplies.
        tokens: Tokens M.
        experts: Experts of the model.
        local_experts: Experts on this rank; fewer than `experts` under expert parallelism.
        topk: Experts per token.
        hidden: Hidden size K.
        intermediate: Intermediate size N of one partition.
        hidden_pad: How many of K are dead.
        intermediate_pad: How many of N are dead.
        tp: Tensor-parallel size of the MoE.
        mask: An expert mask is passed, as under expert parallelism.
        bias: Biases are passed, if the leaf takes any.
        shared: Shared experts that lie behind the routed ones, on every rank; every token goes to each.
        shared_apart: Direct calls only: the one shared expert has tensors of its own (``shared_w1`` and its
            like), and the row behind the routed ones is not read.
        shuffled: The weights carry ``is_shuffled``.
        swiglu_limit: The activation's clamp, None for none.
        situ: Which kernel SiTU asks for.
        gate_mode: Direct calls only: the gate mode that is named, "" for none.
        sent_pads: Direct calls only: (hidden, intermediate) pads as they are sent.
    """

    entry: Entry = "leaf"
    scheme: str = "bf16"
    activation: str = "silu"
    router: Router = "out"
    tokens: int = 64
    experts: int = 8
    local_experts: int = 8
    topk: int = 2
    hidden: int = 256
    intermediate: int = 256
    hidden_pad: int = 0
    intermediate_pad: int = 0
    tp: int = 1
    mask: bool = False
    bias: bool = False
    shared: int = 0
    shared_apart: bool = False
    shuffled: bool = True
    swiglu_limit: float | None = None
    situ: Situ = "a4w4"
    gate_mode: str = ""
    sent_pads: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        known = (*SCHEME_CONFIGS, *(DIRECT_SCHEMES if self.entry == "fused_moe" else ()))
        if self.scheme not in known:
            msg = f"scheme must be one of {', '.join(known)} for entry {self.entry} (got {self.scheme!r})"
            raise UsageError(msg)
        if self.entry == "leaf" and (self.gate_mode or self.sent_pads != (0, 0)):
            msg = "gate_mode and sent_pads must be left alone for entry leaf, which works them out itself"
            raise UsageError(msg)
        if self.shared_apart and (self.entry == "leaf" or self.shared != 1):
            msg = (
                "shared_apart must be said of one shared expert in a direct call "
                f"(got {self.shared} with entry {self.entry})"
            )
            raise UsageError(msg)

    @property
    def held(self) -> int:
        """How many experts' weights the rank holds, shared ones among them."""
        return self.local_experts + self.shared

    @property
    def columns(self) -> int:
        """How many experts a token is sent to: routed and shared ones, and with a mask the sentinel."""
        return self.topk + self.shared + (self.mask and self.shared > 0)

    def to_json(self) -> dict[str, Any]:
        """Return the call as plain JSON values."""
        return asdict(self)


def call_from_json(data: dict[str, Any]) -> Call:
    """Return the call that `Call.to_json` gave."""
    return Call(**{**data, "sent_pads": tuple(data["sent_pads"])})


def call_of_case(case: Case, *, situ: Situ = "a4w4", bias: bool = False, shared: int = 0) -> Call:
    """Return the call of a case through the leaf, with the sizes of rank 0.

    Args:
        case: The case.
        situ: Which kernel SiTU asks for; vLLM's default unless told.
        bias: Whether the model has biases.
        shared: Shared experts that are fused behind the routed ones.
    """
    return Call(
        scheme=case.cell.scheme,
        activation=case.cell.activation,
        router=case.cell.router,
        tokens=case.tokens,
        experts=case.experts,
        local_experts=case.experts // case.ep,
        topk=case.topk,
        hidden=case.hidden,
        intermediate=case.intermediate // case.tp,
        hidden_pad=case.hidden_pad,
        intermediate_pad=case.intermediate_pad,
        tp=case.tp,
        mask=case.ep > 1,
        bias=bias,
        shared=shared,
        situ=situ,
    )
