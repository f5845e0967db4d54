"""What must reach AITER when a kernel entry is called, worked out from SPEC 7 and a release's signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, QUANT_METHODS, QUANT_TYPES
from aiter_conformance.protocols import Entry
from aiter_conformance.simulated_aiter import activation_members, fused_moe_parameters

# Parameters of each entry in the order of SPEC 7, with the name that AITER has for it.
PARAMETERS: Final[dict[Entry, dict[str, str]]] = {
    "fused_moe": {
        "hidden_states": "hidden_states",
        "w1": "w1",
        "w2": "w2",
        "topk_weight": "topk_weight",
        "topk_ids": "topk_ids",
        "expert_mask": "expert_mask",
        "activation_method": "activation",
        "quant_method": "quant_type",
        "doweight_stage1": "doweight_stage1",
        "w1_scale": "w1_scale",
        "w2_scale": "w2_scale",
        "a1_scale": "a1_scale",
        "a2_scale": "a2_scale",
        "num_local_tokens": "num_local_tokens",
        "output_dtype": "dtype",
        "hidden_pad": "hidden_pad",
        "intermediate_pad": "intermediate_pad",
        "gate_mode": "gate_mode",
        "bias1": "bias1",
        "bias2": "bias2",
        "moe_sorting_dispatch_policy": "moe_sorting_dispatch_policy",
        "swiglu_limit": "swiglu_limit",
        "beta": "beta",
        "linear_beta": "linear_beta",
        "shared_w1": "shared_w1",
        "shared_w2": "shared_w2",
        "shared_w1_scale": "shared_w1_scale",
        "shared_w2_scale": "shared_w2_scale",
        "shared_expert_id": "shared_expert_id",
        "q_dtype_a": "quant_dtype_a",
    },
    "asm_moe_tkw1": {
        "hidden_states": "hidden_states",
        "w1": "w1",
        "w2": "w2",
        "topk_weights": "topk_weight",
        "topk_ids": "topk_ids",
        "fc1_scale": "fc1_scale",
        "fc2_scale": "fc2_scale",
        "fc1_smooth_scale": "fc1_smooth_scale",
        "fc2_smooth_scale": "fc2_smooth_scale",
        "a16": "a16",
        "per_tensor_quant_scale": "per_tensor_quant_scale",
        "expert_mask": "expert_mask",
        "activation_method": "activation",
    },
}

# Neutral values besides None, which is neutral wherever it is allowed.
NEUTRAL: Final[dict[str, Any]] = {
    "hidden_pad": 0,
    "intermediate_pad": 0,
    "gate_mode": "",
    "moe_sorting_dispatch_policy": 0,
    "swiglu_limit": 0.0,
    "shared_expert_id": -1,
}

# First release with a parameter that not every simulated one has; None: none that was ever seen.
FIRST_RELEASE: Final[dict[str, str | None]] = {
    "gate_mode": "0.1.14",
    "swiglu_limit": "0.1.14",
    "beta": "0.1.19",
    "linear_beta": "0.1.19",
    "shared_w1": "0.1.19.post1",
    "shared_w2": "0.1.19.post1",
    "shared_w1_scale": "0.1.19.post1",
    "shared_w2_scale": "0.1.19.post1",
    "shared_expert_id": "0.1.19.post1",
    "quant_dtype_a": None,
}
SHARED_TENSORS: Final = ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")
SITU: Final = ACCEPTED_ACTIVATIONS["situ"][1]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of one of AITER's enums."""

    enum: str
    name: str


@dataclass(frozen=True, slots=True)
class BridgeRefusal:
    """A ValueError whose message has a text of each group in it (any one of a group is enough)."""

    says: tuple[tuple[str, ...], ...]


def expected_aiter_call(
    entry: Entry, arguments: Mapping[str, Any], version: str
) -> dict[str, Any] | BridgeRefusal:
    """Return the keywords that AITER must be called with, under its own names, or the refusal.

    Args:
        entry: The kernel entry.
        arguments: What the entry is called with, by SPEC 7's names.
        version: One of `aiter_conformance.simulated_aiter.VERSIONS`.
    """
    activations = {value: name for name, value in activation_members(version).items()}
    method = arguments.get("activation_method", 0)
    if method not in activations:
        return BridgeRefusal((("activation", "ActivationType"),))
    sent: dict[str, Any] = {"activation": Member("ActivationType", activations[method])}
    if entry == "fused_moe":
        wrong = _contradiction(arguments, is_situ=method == SITU)
        if wrong is not None:
            return wrong
        quants = {value: QUANT_TYPES[name] for name, value in QUANT_METHODS.items()}
        sent["quant_type"] = Member("QuantType", quants[arguments.get("quant_method", 0)])
        sent["doweight_stage1"] = arguments.get("doweight_stage1", False)
        takes = {name for name, _ in fused_moe_parameters(version)}
    else:
        sent["a16"] = arguments.get("a16", False)
        takes = set(PARAMETERS[entry].values())
    for name, value in arguments.items():
        aiter_name = PARAMETERS[entry][name]
        betas_unused = name in ("beta", "linear_beta") and method != SITU
        if aiter_name in sent or value is None or betas_unused or _is_neutral(name, value):
            continue
        if aiter_name not in takes:
            first = FIRST_RELEASE[aiter_name]
            return BridgeRefusal(((aiter_name, name), (version,), (first or "later than",)))
        sent[aiter_name] = value
    return sent


def _is_neutral(name: str, value: Any) -> bool:
    return name in NEUTRAL and type(value) in (int, float, str, bool) and bool(value == NEUTRAL[name])


def _contradiction(arguments: Mapping[str, Any], *, is_situ: bool) -> BridgeRefusal | None:
    """Return the refusal of arguments that cannot go together, whatever the AITER."""
    if is_situ:
        missing = tuple(name for name in ("beta", "linear_beta") if arguments.get(name) is None)
        if missing:
            return BridgeRefusal((missing,))
    there = [name for name in SHARED_TENSORS if arguments.get(name) is not None]
    has_id = arguments.get("shared_expert_id", -1) >= 0
    if len(there) not in (0, len(SHARED_TENSORS)) or has_id != bool(there):
        return BridgeRefusal((("shared",),))
    return None
