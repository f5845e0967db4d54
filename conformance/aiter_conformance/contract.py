"""What the contract says, as data and small pure functions: leaves, refusals, what a call needs of AITER.

This module knows no implementation: it imports neither torch nor a subject, so an expectation is never
computed by the code that it judges. The quant keys are in `aiter_conformance.quant_keys`, the exact kernel
call in `aiter_conformance.expected_call`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import QuantSpec

# --------------------------------------------------------------------------- enums

QUANT_METHODS: Final[dict[str, int]] = {
    "NO": 0,
    "PER_TENSOR": 1,
    "PER_TOKEN": 2,
    "BLOCK_1X32": 3,
    "BLOCK_1X128": 4,
    "BLOCK_128x128": 5,
}
# The same as members of AITER's QuantType.
QUANT_TYPES: Final[dict[str, str]] = {
    "NO": "No",
    "PER_TENSOR": "per_Tensor",
    "PER_TOKEN": "per_Token",
    "BLOCK_1X32": "per_1x32",
    "BLOCK_1X128": "per_1x128",
    "BLOCK_128x128": "per_128x128",
}
ACTIVATION_METHODS: Final[dict[str, int]] = {"SILU": 0, "GELU": 1}

# Activations that every leaf takes -> member of AITER's ActivationType, and its value there.
ACCEPTED_ACTIVATIONS: Final[dict[str, tuple[str, int]]] = {
    "silu": ("Silu", 0),
    "gelu": ("Gelu", 1),
    "situ": ("Situv2", 3),
    "swigluoai": ("Swiglu", 2),
    "swigluoai_uninterleave": ("Swiglu", 2),
}
REFUSED_ACTIVATIONS: Final = ("gelu_tanh", "relu2", "swiglustep")
NON_GATED_ACTIVATIONS: Final = ("silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul")


# --------------------------------------------------------------------------- leaves

SUPPORTED_ARCHS: Final = ("gfx942", "gfx950", "gfx1250")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One experts class.

    Attributes:
        name: Class name.
        quant_method: Member of ``QuantMethod`` that it hands on.
        pairs: Accepted (weight key, activation key) -> the archs on which the leaf itself takes that pair.
        router_on_input: Whether ``apply`` takes router weights on the input.
    """

    name: str
    quant_method: str
    pairs: dict[tuple[str | None, str | None], tuple[str, ...]]
    router_on_input: bool = True


# "Every arch" for a leaf's own condition; whether the device is served at all is decided before it.
EVERY_ARCH: Final = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx1201", "gfx1250")

LEAVES: Final[dict[str, Leaf]] = {
    leaf.name: leaf
    for leaf in (
        Leaf("AiterUnquantizedExperts", "NO", {(None, None): EVERY_ARCH}),
        Leaf(
            "AiterFp8BlockExperts",
            "BLOCK_128x128",
            {("kFp8Static128BlockSym", "kFp8Dynamic128Sym"): EVERY_ARCH},
            router_on_input=False,
        ),
        Leaf(
            "AiterFp8TensorExperts",
            "PER_TENSOR",
            {
                ("kFp8StaticTensorSym", "kFp8StaticTensorSym"): EVERY_ARCH,
                ("kFp8StaticTensorSym", "kFp8DynamicTensorSym"): EVERY_ARCH,
            },
        ),
        Leaf(
            "AiterFp8ChannelExperts",
            "PER_TOKEN",
            {("kFp8StaticChannelSym", "kFp8DynamicTokenSym"): EVERY_ARCH},
        ),
        Leaf(
            "AiterMxfp4Experts",
            "BLOCK_1X32",
            {
                ("kMxfp4Static", None): ("gfx950",),
                ("kMxfp4Static", "kMxfp4Dynamic"): ("gfx950",),
                ("kInt4Static32", None): ("gfx942",),
            },
        ),
    )
}

# What each scheme's loader tells FusedMoEQuantConfig.make (SPEC 9; int4-w4a16 is labelled mxfp4, SPEC 4).
SCHEME_CONFIGS: Final[dict[str, QuantSpec]] = {
    "bf16": QuantSpec(),
    "fp8-block": QuantSpec("fp8", "fp8", block_shape=(128, 128)),
    "fp8-tensor-static": QuantSpec("fp8", "fp8"),
    "fp8-tensor-dynamic": QuantSpec("fp8", "fp8"),
    "fp8-channel": QuantSpec("fp8", "fp8", per_act_token=True, per_out_ch=True),
    "mxfp4-w4a16": QuantSpec(None, "mxfp4"),
    "mxfp4-w4a4": QuantSpec("mxfp4", "mxfp4"),
    "int4-w4a16": QuantSpec(None, "mxfp4"),
}
# The schemes whose config says "mxfp4 weights, unquantised activations": their leaf names the gate mode.
W4A16_SCHEMES: Final = ("mxfp4-w4a16", "int4-w4a16")

# All-to-all families that every leaf refuses, by the names under which vLLM selects them.
REFUSED_ALL2ALL: Final = (
    "flashinfer_all2allv",
    "flashinfer_nvlink_two_sided",
    "flashinfer_nvlink_one_sided",
)
MORI_ALL2ALL: Final = ("mori_high_throughput", "mori_low_latency")

# The support cascade: the first that fails gives the reason (SPEC 8).
CASCADE: Final = (
    Reason.DEVICE,
    Reason.ACT_AND_MUL,
    Reason.ACTIVATION,
    Reason.SCHEME,
    Reason.PARALLEL_CONFIG,
    Reason.ROUTING_METHOD,
    Reason.ROUTER_LOGITS_DTYPE,
    Reason.HIDDEN_DIM,
    Reason.ACTIVATION_FORMAT,
    Reason.BATCH_INVARIANCE,
    Reason.LORA,
)


def leaf_of_scheme(scheme: str) -> Leaf:
    """Return the leaf that takes the scheme's pair of quant keys."""
    facts = load_axes().schemes[scheme]
    return next(leaf for leaf in LEAVES.values() if (facts.weight_key, facts.activation_key) in leaf.pairs)


def accepts_pair(leaf: str, weight_key: str | None, activation_key: str | None, arch: str) -> bool:
    """Say whether the leaf itself takes the pair of quant keys on the arch (SPEC 3)."""
    return arch in LEAVES[leaf].pairs.get((weight_key, activation_key), ())


# --------------------------------------------------------------------------- what a leaf declares


def declaration(cell: Cell) -> Outcome:
    """Return what the leaf of the cell's scheme must declare with AITER's MoE switched on and found.

    ``details["leaf"]`` names the leaf; for a refusal ``details["when"]`` is ``configuration`` (the support
    cascade says no) or ``call`` (the leaf supports the configuration, and ``apply`` refuses).
    """
    leaf = leaf_of_scheme(cell.scheme)
    scheme = load_axes().schemes[cell.scheme]

    def refused(reason: Reason, message: str, when: str = "configuration") -> Outcome:
        return Outcome(Kind.REFUSED, reason, message, {"leaf": leaf.name, "when": when})

    if cell.arch not in SUPPORTED_ARCHS:
        return refused(
            Reason.DEVICE,
            f"vLLM uses AITER's fused MoE on {', '.join(SUPPORTED_ARCHS)} only (this is {cell.arch})",
        )
    if cell.activation in NON_GATED_ACTIVATIONS:
        return refused(
            Reason.ACT_AND_MUL,
            f"{leaf.name} computes gated activations only; {cell.activation} multiplies no gate",
        )
    if cell.activation not in ACCEPTED_ACTIVATIONS:
        return refused(
            Reason.ACTIVATION,
            f"{leaf.name} takes {', '.join(ACCEPTED_ACTIVATIONS)}; not {cell.activation}",
        )
    archs = leaf.pairs[scheme.weight_key, scheme.activation_key]
    if cell.arch not in archs:
        return refused(
            Reason.SCHEME, f"{leaf.name} takes {cell.scheme} on {', '.join(archs)} only (this is {cell.arch})"
        )
    if cell.router == "in":
        if not leaf.router_on_input:
            return refused(
                Reason.ROUTER_WEIGHT_ON_INPUT,
                f"{leaf.name} does not apply router weights to the input; apply() refuses the call",
                "call",
            )
        if leaf.name == "AiterFp8ChannelExperts" and cell.activation in ("situ", "swigluoai_uninterleave"):
            argument = "beta" if cell.activation == "situ" else "gate_mode"
            return refused(
                Reason.ROUTER_WEIGHT_ON_INPUT,
                f"Router weights on the input go through asm_moe_tkw1 here, which takes no {argument}: "
                f"{cell.activation} cannot be asked for",
                "call",
            )
    return Outcome(Kind.PASS, details={"leaf": leaf.name})


# --------------------------------------------------------------------------- what the call needs of AITER


class NeedKind(StrEnum):
    """What part of AITER's interface a need is about."""

    FUNCTION = "function"
    ARGUMENT = "argument"
    ACTIVATION = "activation"
    QUANT_TYPE = "quant-type"


@dataclass(frozen=True, slots=True)
class ApiNeed:
    """One thing that every call of a cell needs of AITER's interface.

    Attributes:
        kind: A function, one of its parameters, or a member of an enum of the ``aiter`` package.
        name: Name of the function, parameter or member.
        function: Function that is called, by its name in ``module``.
        module: Module of the function, e.g. ``aiter.fused_moe``.
        why: One sentence that says what the need comes from.
        value: For ``gate_mode`` the member value of ``GateMode`` that is sent, for enum members the value.
    """

    kind: NeedKind
    name: str
    function: str
    module: str
    why: str
    value: str | int | None = None

    @property
    def reason(self) -> Reason:
        """The reason code of a release that does not have it."""
        if self.kind is NeedKind.FUNCTION:
            return Reason.API_MISSING_FUNCTION
        if self.kind is NeedKind.ACTIVATION:
            return Reason.API_MISSING_ACTIVATION
        return Reason.API_MISSING_ARGUMENT


def api_needs(cell: Cell) -> tuple[ApiNeed, ...]:
    """Return what every call of the cell sends to AITER, whatever the shapes and with default settings.

    What only some cases send (pads, biases, an expert mask, shared experts, ...) is not in it. A cell that
    its leaf refuses needs nothing.
    """
    if declaration(cell).kind is not Kind.PASS:
        return ()
    leaf = leaf_of_scheme(cell.scheme)
    tkw1 = leaf.name == "AiterFp8ChannelExperts" and cell.router == "in"
    function = "asm_moe_tkw1" if tkw1 else "fused_moe"
    module = "aiter.fused_moe_bf16_asm" if tkw1 else "aiter.fused_moe"
    member, value = ACCEPTED_ACTIVATIONS[cell.activation]

    def need(kind: NeedKind, name: str, why: str, value: str | int | None = None) -> ApiNeed:
        return ApiNeed(kind, name, function, module, why, value)

    needs = [
        need(NeedKind.FUNCTION, function, f"{leaf.name} calls {module}.{function}"),
        need(NeedKind.ACTIVATION, member, f"{cell.activation} is AITER's ActivationType.{member}", value),
        need(NeedKind.ARGUMENT, "activation", "the activation is named in every call"),
    ]
    if tkw1:
        needs += [
            need(NeedKind.ARGUMENT, name, "the weights' scales are part of every call of this scheme")
            for name in ("fc1_scale", "fc2_scale")
        ]
        return tuple(needs)

    method = leaf.quant_method
    needs += [
        need(
            NeedKind.QUANT_TYPE,
            QUANT_TYPES[method],
            f"{cell.scheme} is AITER's QuantType.{QUANT_TYPES[method]}",
            QUANT_METHODS[method],
        ),
        need(NeedKind.ARGUMENT, "quant_type", "the quantisation is named in every call"),
        need(NeedKind.ARGUMENT, "doweight_stage1", "every call says where the router weight multiplies"),
        need(NeedKind.ARGUMENT, "dtype", "every call names the dtype of the result"),
    ]
    if cell.scheme != "bf16":
        needs += [
            need(NeedKind.ARGUMENT, name, "the weights' scales are part of every call of this scheme")
            for name in ("w1_scale", "w2_scale")
        ]
    if cell.scheme == "fp8-tensor-static":
        needs += [
            need(NeedKind.ARGUMENT, name, "the checkpoint's activation scales are part of every call")
            for name in ("a1_scale", "a2_scale")
        ]
    gate = _needed_gate_mode(cell)
    if gate is not None:
        needs.append(need(NeedKind.ARGUMENT, "gate_mode", gate[1], gate[0]))
    if cell.activation == "situ":
        needs += [
            need(NeedKind.ARGUMENT, name, "SiTU is defined by beta and linear_beta; AITER's defaults differ")
            for name in ("beta", "linear_beta")
        ]
    return tuple(needs)


def _needed_gate_mode(cell: Cell) -> tuple[str, str] | None:
    """Return (value, why) of the gate mode that every call of the cell must name, or None (SPEC 4 step 6)."""
    if cell.activation == "situ":
        return "separated", "the call must say that SiTU's gate and up rows lie separated"
    if cell.scheme in W4A16_SCHEMES:
        return "interleave", "the w4a16 route names the layout of its weights, interleaved, in every call"
    if cell.activation == "swigluoai_uninterleave":
        return (
            "separated",
            "the activation's gate and up rows are packed, and only gate_mode=separated says so",
        )
    return None
