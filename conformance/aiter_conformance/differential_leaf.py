"""One use of a leaf as an input of the differential: what it declares, the call it makes, what it writes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any, Literal

import torch

from aiter_conformance.contract import SCHEME_CONFIGS
from aiter_conformance.differential import Observation, Refused
from aiter_conformance.outcome import Reason
from aiter_conformance.protocols import ENABLED, KernelCall, MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import SimulatedAiter, simulate

# What a refusal by the support cascade is about, by the words that the subjects' reasons use for it; the
# first that is found counts, so that e.g. "activation" alone comes last.
_REASON_WORDS: tuple[tuple[Reason, tuple[str, ...]], ...] = (
    (Reason.DEVICE, ("current device",)),
    (Reason.ACT_AND_MUL, ("act_and_mul", "not gated")),
    (Reason.SCHEME, ("quantization scheme", "support weights ")),
    (Reason.PARALLEL_CONFIG, ("parallel config", "all-to-all")),
    (Reason.ROUTER_LOGITS_DTYPE, ("router logits",)),
    (Reason.ROUTING_METHOD, ("routing method",)),
    (Reason.HIDDEN_DIM, ("hidden dim", "hidden size")),
    (Reason.ACTIVATION_FORMAT, ("activation format", "the format ")),
    (Reason.BATCH_INVARIANCE, ("batch invariance", "batch-invariant")),
    (Reason.LORA, ("LoRA",)),
    (Reason.ACTIVATION, ("activation",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafUse:
    """One use of a leaf: where, how it is configured, and what ``apply`` is given.

    Attributes:
        arch: Architecture.
        env: Variables that are set.
        aiter: Simulated AITER (`simulate`), or None for none.
        leaf: Class name.
        keys: Names of the (weight key, activation key) that the leaf is asked about; None is "unquantised".
        batched: Ask about the batched activation format.
        quant: How the weights and activations are quantised.
        tensors: Which of w1_scale, w2_scale, a1_scale, a2_scale, w1_bias, w2_bias the configuration holds.
        config: The layer.
        on_input: Router weights multiply the input.
        tokens: M.
        topk: Experts per token.
        packed: Hidden states are packed fp4, two values a byte.
        output_dtype: Dtype of the output.
        output: ``plain``, a ``view`` of a larger tensor, or not contiguous (``strided``).
        result: What the kernel returns: as asked for (``exact``), one ``row`` or another ``dtype``.
        negative_id: The first token's ids are -1, as in a padding row.
        cast: Router weights are bfloat16 and ids int64, so that they have to be cast.
        mask: An expert mask is given.
        metadata: ``expert_tokens_meta``: absent, with None, with one number, with one number per expert.
        a1q: A scale of already quantised activations is given.
        through: Let the call go on to the simulated AITER, instead of recording it at the bridge.
    """

    arch: str = "gfx950"
    env: tuple[tuple[str, str], ...] = tuple(ENABLED.items())
    aiter: str | None = "0.1.20"
    leaf: str = "AiterUnquantizedExperts"
    keys: tuple[str | None, str | None] = (None, None)
    batched: bool = False
    quant: QuantSpec = field(default_factory=QuantSpec)
    tensors: frozenset[str] = frozenset()
    config: MoEConfigSpec = field(default_factory=MoEConfigSpec)
    on_input: bool = False
    tokens: int = 3
    topk: int = 2
    packed: bool = False
    output_dtype: str = "bfloat16"
    output: Literal["plain", "view", "strided"] = "plain"
    result: Literal["exact", "row", "dtype"] = "exact"
    negative_id: bool = False
    cast: bool = False
    mask: bool = False
    metadata: Literal["absent", "none", "one", "vector"] = "absent"
    a1q: bool = False
    through: bool = False

    def observe(self, subject: Subject) -> Observation:
        """Describe what the leaf declares (``supported``, ``reason``), what it calls and what it writes."""
        installed = None if self.aiter is None else _installed(self.aiter)
        with subject.environment(self.arch, dict(self.env), installed):
            try:
                leaf, config = getattr(subject.api, self.leaf), subject.moe_config(self.config)
                seen = _declared(subject.api, leaf, config, self)
            except Exception as error:
                return {"refused": Refused.of(subject, error)}
            if seen["reason"] is Reason.DEVICE:
                return seen  # vLLM never comes to a call there, and has not even registered its operators
            calls: list[KernelCall] = []
            tensors = _tensors(self)
            try:
                if self.through:
                    _apply(subject, leaf, config, self, tensors)
                else:
                    with subject.recording(lambda _call: tensors["result"]) as calls:
                        _apply(subject, leaf, config, self, tensors)
            except Exception as error:
                return {**seen, "refused": Refused.of(subject, error)}
            reached = (
                [] if installed is None else [(c.function, _effective(installed, c)) for c in installed.calls]
            )
            reached += [(call.entry, dict(call.arguments)) for call in calls]
            seen["calls"] = len(reached)
            for entry, arguments in reached:
                seen["entry"] = entry
                seen |= {f"argument {name}": _describe(value, tensors) for name, value in arguments.items()}
            return seen | _written(tensors)

    @property
    def has_bias(self) -> bool:
        """Whether the quantisation config carries a bias."""
        return bool(self.tensors & {"w1_bias", "w2_bias"})

    @property
    def is_w4a16(self) -> bool:
        """Whether the quantisation config is that of MXFP4 weights and unquantised activations."""
        return (self.quant.weights, self.quant.activations) == ("mxfp4", None)

    @property
    def is_own_config(self) -> bool:
        """Whether the quantisation config is one that the loader of one of the leaf's schemes makes."""
        return self.quant in OWN_CONFIGS[self.leaf]


OWN_CONFIGS: Mapping[str, tuple[QuantSpec, ...]] = {
    "AiterUnquantizedExperts": (SCHEME_CONFIGS["bf16"],),
    "AiterFp8BlockExperts": (SCHEME_CONFIGS["fp8-block"],),
    "AiterFp8TensorExperts": (SCHEME_CONFIGS["fp8-tensor-static"],),
    "AiterFp8ChannelExperts": (SCHEME_CONFIGS["fp8-channel"],),
    "AiterMxfp4Experts": (SCHEME_CONFIGS["mxfp4-w4a16"], SCHEME_CONFIGS["mxfp4-w4a4"]),
}


@cache
def _simulated(version: str) -> SimulatedAiter:
    return simulate(version)


def _installed(version: str) -> SimulatedAiter:
    """Return a simulated AITER that has seen no call; making one anew takes longer than using it."""
    installed = _simulated(version)
    installed.calls.clear()
    return installed


def _declared(api: Any, leaf: Any, config: Any, given: LeafUse) -> Observation:
    weight_key, activation_key = (None if key is None else getattr(api, key) for key in given.keys)
    formats = api.FusedMoEActivationFormat
    asked = formats.BatchedExperts if given.batched else formats.Standard
    supported, reason = leaf.is_supported_config(leaf, config, weight_key, activation_key, asked)
    if reason is None:
        return {"supported": supported, "reason": None}
    hint = "VLLM_ROCM_USE_AITER=1" in reason and "VLLM_ROCM_USE_AITER_MOE=1" in reason
    return {"supported": supported, "reason": reason_of(reason), "hint to enable AITER": hint}


def reason_of(text: str) -> Reason:
    """Return the step of the support cascade that a subject's reason is about.

    Raises:
        ValueError: The text names none of them.
    """
    for reason, words in _REASON_WORDS:
        if any(word in text for word in words):
            return reason
    msg = f"a reason must name a step of the support cascade (got {text!r})"
    raise ValueError(msg)


def _tensors(given: LeafUse) -> dict[str, torch.Tensor]:
    """Make the tensors of an input. Weights are expanded from one element: their values play no part."""
    rows, topk, hidden = given.tokens, given.topk, given.config.hidden_dim
    experts, width = given.config.num_experts, given.config.intermediate_size
    one = torch.zeros(1, dtype=torch.bfloat16)
    ids = torch.arange(rows * topk).reshape(rows, topk) % experts
    if given.negative_id:
        ids[0] = -1
    weights = torch.arange(1, rows * topk + 1).reshape(rows, topk) / 16
    out_dtype = getattr(torch, given.output_dtype)
    result_dtype = torch.float32 if given.result == "dtype" else out_dtype
    shape = (1 if given.result == "row" else rows, hidden)
    tensors = {
        "hidden_states": torch.zeros(rows, hidden // 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        if given.packed
        else torch.zeros(rows, hidden, dtype=getattr(torch, given.config.in_dtype)),
        "w1": one.expand(experts, 2 * width, hidden),
        "w2": one.expand(experts, hidden, width),
        "topk_weights": weights.to(torch.bfloat16 if given.cast else torch.float32),
        "topk_ids": ids.to(torch.int64 if given.cast else torch.int32),
        "output": {
            "plain": lambda: torch.full((rows, hidden), 7, dtype=out_dtype),
            "view": lambda: torch.full((rows + 1, hidden), 7, dtype=out_dtype)[:rows],
            "strided": lambda: (
                torch.full((hidden, rows), 7, dtype=out_dtype).t().clone(memory_format=torch.preserve_format)
            ),
        }[given.output](),
        "result": (torch.arange(shape[0] * shape[1]) % 5).reshape(shape).to(result_dtype),
    }
    if given.mask:
        tensors["expert_map"] = torch.ones(experts + 1, dtype=torch.int32)
    if given.a1q:
        tensors["a1q_scale"] = torch.ones(rows, 1)
    if given.metadata in ("one", "vector"):
        tensors["expert_num_tokens"] = torch.ones(
            1 if given.metadata == "one" else experts, dtype=torch.int32
        )
    return tensors | {name: torch.ones(1) for name in sorted(given.tensors)}


def _apply(
    subject: Subject, leaf: Any, config: Any, given: LeafUse, tensors: Mapping[str, torch.Tensor]
) -> None:
    api = subject.api
    quant = subject.quant_config(given.quant, {name: tensors[name] for name in given.tensors})
    metadata = None
    if given.metadata != "absent":
        metadata = api.ExpertTokensMetadata(tensors.get("expert_num_tokens"), None)
    leaf(moe_config=config, quant_config=quant).apply(
        output=tensors["output"],
        hidden_states=tensors["hidden_states"],
        w1=tensors["w1"],
        w2=tensors["w2"],
        topk_weights=tensors["topk_weights"],
        topk_ids=tensors["topk_ids"],
        activation=api.MoEActivation(given.config.activation),
        global_num_experts=given.config.num_experts,
        expert_map=tensors.get("expert_map"),
        a1q_scale=tensors.get("a1q_scale"),
        a2_scale=None,
        workspace13=torch.empty(0),
        workspace2=torch.empty(0),
        expert_tokens_meta=metadata,
        apply_router_weight_on_input=given.on_input,
    )


def _effective(installed: Any, call: Any) -> dict[str, Any]:
    """Return what a call tells AITER: an argument that repeats its default, or no limit, tells nothing."""
    module = "aiter.fused_moe" if call.function == "fused_moe" else "aiter.fused_moe_bf16_asm"
    parameters = inspect.signature(getattr(installed.modules[module], call.function)).parameters
    return {
        name: value
        for name, value in call.arguments.items()
        if isinstance(value, torch.Tensor)
        or not (value == parameters[name].default or (name == "swiglu_limit" and value == 0))
    }


def _describe(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        name = next((name for name, tensor in tensors.items() if tensor is value), None)
        # Ids and router weights are told by their values: a subject may replace padding rows by a new tensor.
        return name if name and not name.startswith("topk_") else (str(value.dtype), value.tolist())
    return int(value) if isinstance(value, IntEnum) else value


def _written(tensors: Mapping[str, torch.Tensor]) -> Observation:
    output, result = tensors["output"], tensors["result"]
    return {
        "output values": output.tolist(),
        "output takes over the result": output.data_ptr() == result.data_ptr(),
        "output shape": tuple(output.shape),
    }
