"""The exact kernel call that the contract asks for, worked out from SPEC's tables alone.

Knows no implementation and no torch: tensors are named, not held. `Same` stands for one of the tensors that
were passed in, `Cast` for its values in another dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiter_conformance.axes import Router
from aiter_conformance.contract import (
    ACCEPTED_ACTIVATIONS,
    QUANT_METHODS,
    SCHEME_CONFIGS,
    W4A16_SCHEMES,
    leaf_of_scheme,
)
from aiter_conformance.protocols import Entry

Metadata = Literal["absent", "none", "one", "vector"]
Situ = Literal["a4w4", "a8w4", "a16w4"]


@dataclass(frozen=True, slots=True)
class Same:
    """The very tensor that was passed in under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Cast:
    """The values of the tensor that was passed in under this name, in the given dtype."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Dtype:
    """A torch dtype, by name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInput:
    """What one ``apply`` of a leaf is told, as far as it decides the call.

    Attributes:
        scheme: The leaf and its quantisation config.
        activation: Value of ``MoEActivation``; one that the leaves take.
        router: Where the router weight multiplies.
        topk: Experts per token.
        tp: Tensor-parallel size of the MoE: 1 under expert parallelism.
        hidden_pad: Dead columns of the hidden size.
        intermediate_pad: Dead columns of the partition's intermediate size.
        intermediate_pad_given: ``moe_config.intermediate_pad``; None leaves it to be derived.
        packed: Hidden states are MoRI's packed MXFP4, two values a byte.
        situ: ``VLLM_ROCM_USE_AITER_MOE_SITUV2``.
        dsv4: ``moe_config.use_mxfp4_w4a4_dsv4``.
        biases: Which of w1_bias, w2_bias the quantisation config carries.
        swiglu_limit: ``moe_config.swiglu_limit``.
        beta: ``moe_config.activation_situ_beta``.
        linear_beta: ``moe_config.activation_situ_linear_beta``.
        policy: ``VLLM_ROCM_AITER_MOE_DISPATCH_POLICY``.
        mask: An expert map is passed.
        metadata: Expert tokens metadata: absent, without counts, with one count, or with one per expert.
        a1q: ``a1q_scale`` is passed.
        output_dtype: Dtype of ``output``.
        input_dtype: Dtype of the hidden states, unless they are packed.
        cast_router: Router weights come as bfloat16 and ids as int64, instead of float32 and int32.
    """

    scheme: str
    activation: str = "silu"
    router: Router = "out"
    topk: int = 2
    tp: int = 1
    hidden_pad: int = 0
    intermediate_pad: int = 0
    intermediate_pad_given: int | None = None
    packed: bool = False
    situ: Situ = "a4w4"
    dsv4: bool = False
    biases: tuple[bool, bool] = (False, False)
    swiglu_limit: float | None = None
    beta: float | None = None
    linear_beta: float | None = None
    policy: int = 0
    mask: bool = False
    metadata: Metadata = "absent"
    a1q: bool = False
    output_dtype: str = "bfloat16"
    input_dtype: str = "bfloat16"
    cast_router: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """The one kernel call: entry and every argument under SPEC 7's parameter names."""

    entry: Entry
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """A ValueError whose message names at least one of ``names`` (more than one thing may be wrong)."""

    names: tuple[str, ...]


FP4X2: Final = "float4_e2m1fn_x2"


def expected_pads(
    hidden_pad: int, intermediate_pad: int, activation: str, use_mxfp4_w4a4: bool, tp_size: int
) -> tuple[int, int]:
    """Return the pads that the kernel must be told (SPEC 5), from the numbers of dead columns."""
    if activation == "situ":
        return hidden_pad, intermediate_pad
    doubled_inside = use_mxfp4_w4a4 and activation == "silu"
    factor = 2 if tp_size == 1 and not doubled_inside else 1
    return hidden_pad - hidden_pad % 128, (intermediate_pad - intermediate_pad % 64) * factor


def expected_gate_mode(given: CallInput) -> str:
    """Return the gate mode of the call; "" says nothing to AITER (SPEC 4 step 6)."""
    if given.activation == "situ":
        return {"a4w4": "separated", "a8w4": "interleave", "a16w4": "separated"}[given.situ]
    if given.scheme in W4A16_SCHEMES:
        return "separated" if given.dsv4 else "interleave"
    return "separated" if given.activation == "swigluoai_uninterleave" else ""


def expected_call(given: CallInput) -> ExpectedCall | ExpectedRefusal:
    """Return what ``apply`` of the scheme's leaf must do: one kernel call, or a refusal before any call."""
    leaf = leaf_of_scheme(given.scheme)
    on_input = given.router == "in"
    if on_input and not leaf.router_on_input:
        return ExpectedRefusal((leaf.name,))
    tkw1 = on_input and leaf.name == "AiterFp8ChannelExperts"
    if tkw1 and given.metadata != "absent":
        return ExpectedRefusal(("expert_tokens_meta",))
    wrong: list[str] = []
    if given.scheme not in W4A16_SCHEMES:
        wrong += [name for name, there in zip(("w1_bias", "w2_bias"), given.biases, strict=True) if there]
    if on_input and given.topk != 1:
        wrong.append("topk")
    hidden_pad, intermediate_pad = _call_pads(given)
    if tkw1 and given.topk == 1:
        not_neutral = {
            "hidden_pad": hidden_pad != 0,
            "intermediate_pad": intermediate_pad != 0,
            "swiglu_limit": bool(given.swiglu_limit),
            "a1q_scale": given.a1q,
            "output dtype": given.output_dtype != given.input_dtype,
            "activation": given.activation in ("situ", "swigluoai_uninterleave"),
        }
        wrong += [name for name, is_wrong in not_neutral.items() if is_wrong]
    if wrong:
        return ExpectedRefusal(tuple(wrong))
    return _tkw1_call(given) if tkw1 else _fused_moe_call(given, hidden_pad, intermediate_pad)


def _call_pads(given: CallInput) -> tuple[int, int]:
    raw_intermediate = given.intermediate_pad_given
    if raw_intermediate is None:
        raw_intermediate = given.intermediate_pad
    w4a4 = given.scheme == "mxfp4-w4a4"
    return expected_pads(given.hidden_pad, raw_intermediate, given.activation, w4a4, given.tp)


# Not `Same` even where no cast is needed: ids below 0 are replaced without asking whether there are any, so
# the tensors are new. What a call without such ids must keep are the values.
_WEIGHTS: Final = Cast("topk_weights", "float32")
_IDS: Final = Cast("topk_ids", "int32")


def _tkw1_call(given: CallInput) -> ExpectedCall:
    return ExpectedCall(
        "asm_moe_tkw1",
        {
            "hidden_states": Same("hidden_states"),
            "w1": Same("w1"),
            "w2": Same("w2"),
            "topk_weights": _WEIGHTS,
            "topk_ids": _IDS,
            "fc1_scale": Same("w1_scale"),
            "fc2_scale": Same("w2_scale"),
            "fc1_smooth_scale": None,
            "fc2_smooth_scale": None,
            "a16": False,
            "per_tensor_quant_scale": None,
            "expert_mask": Same("expert_map") if given.mask else None,
            "activation_method": ACCEPTED_ACTIVATIONS[given.activation][1],
        },
    )


def _fused_moe_call(given: CallInput, hidden_pad: int, intermediate_pad: int) -> ExpectedCall:
    quantised = SCHEME_CONFIGS[given.scheme].weights is not None
    static = given.scheme == "fp8-tensor-static"
    w4a16 = given.scheme in W4A16_SCHEMES
    a1_scale = Same("a1_scale") if static else None
    return ExpectedCall(
        "fused_moe",
        {
            "hidden_states": Same("hidden_states"),
            "w1": Same("w1"),
            "w2": Same("w2"),
            "topk_weight": _WEIGHTS,
            "topk_ids": _IDS,
            "expert_mask": Same("expert_map") if given.mask else None,
            "activation_method": ACCEPTED_ACTIVATIONS[given.activation][1],
            "quant_method": QUANT_METHODS[leaf_of_scheme(given.scheme).quant_method],
            "doweight_stage1": given.router == "in",
            "w1_scale": Same("w1_scale") if quantised else None,
            "w2_scale": Same("w2_scale") if quantised else None,
            "a1_scale": Same("a1q_scale") if given.a1q else a1_scale,
            "a2_scale": Same("a2_scale") if static else None,
            "num_local_tokens": Same("expert_num_tokens") if given.metadata == "one" else None,
            "output_dtype": Dtype(given.output_dtype),
            "hidden_pad": hidden_pad,
            "intermediate_pad": intermediate_pad,
            "gate_mode": expected_gate_mode(given),
            "bias1": Same("w1_bias") if w4a16 and given.biases[0] else None,
            "bias2": Same("w2_bias") if w4a16 and given.biases[1] else None,
            "moe_sorting_dispatch_policy": given.policy,
            "swiglu_limit": 0.0 if given.swiglu_limit is None else float(given.swiglu_limit),
            "beta": given.beta,
            "linear_beta": given.linear_beta,
            "shared_w1": None,
            "shared_w2": None,
            "shared_w1_scale": None,
            "shared_w2_scale": None,
            "shared_expert_id": -1,
            "q_dtype_a": Dtype(FP4X2) if w4a16 and given.dsv4 else None,
        },
    )
