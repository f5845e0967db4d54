"""The support cascade: which step refuses, in which order, and what a user is told (SPEC 8)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import (
    CASCADE,
    LEAVES,
    REFUSED_ALL2ALL,
    SUPPORTED_ARCHS,
    declaration,
)
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.protocols import ENABLED, MoEConfigSpec, ParallelSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate


def _support(
    subject: Subject, leaf: str, arch: str, failures: frozenset[Reason], layer: MoEConfigSpec | None = None
) -> tuple[Any, Any]:
    """Ask for the support of a configuration in which exactly the given steps of the cascade fail."""
    good = next(pair for pair, archs in LEAVES[leaf].pairs.items() if arch in archs)
    env = ENABLED
    if Reason.DEVICE in failures:
        env = {**env, "VLLM_ROCM_USE_AITER_MOE": "0"}
    if Reason.BATCH_INVARIANCE in failures:
        env = {**env, "VLLM_BATCH_INVARIANT": "1"}
    activation = "silu"
    if Reason.ACTIVATION in failures:
        activation = "gelu_tanh"
    if Reason.ACT_AND_MUL in failures:
        activation = "silu_no_mul"  # which no leaf takes as an activation either
    backend = REFUSED_ALL2ALL[-1] if Reason.PARALLEL_CONFIG in failures else "allgather_reducescatter"
    spec = replace(
        layer or MoEConfigSpec(),
        activation=activation,
        parallel=ParallelSpec(dp=2, use_ep=True, all2all_backend=backend),
        is_lora_enabled=Reason.LORA in failures,
    )
    pair = ("kNvfp4Static", "kNvfp4Dynamic") if Reason.SCHEME in failures else good
    with subject.environment(arch, env, installed=simulate(FUTURE)):
        api = subject.api
        hooks = {hook: staticmethod(lambda *_: False) for step, hook in _HOOKS.items() if step in failures}
        # Without hooks the class itself is asked, so that its own name is in its reasons.
        cls: Any = type(leaf, (getattr(api, leaf),), hooks) if hooks else getattr(api, leaf)
        formats = api.FusedMoEActivationFormat
        answer: tuple[Any, Any] = cls.is_supported_config(
            cls,
            subject.moe_config(spec),
            *(None if name is None else getattr(api, name) for name in pair),
            formats.BatchedExperts if Reason.ACTIVATION_FORMAT in failures else formats.Standard,
        )
    return answer


# Steps that every configuration of these leaves passes: only a subclass that does not shows their place.
_HOOKS: Final[dict[Reason, str]] = {
    Reason.ROUTING_METHOD: "_supports_routing_method",
    Reason.ROUTER_LOGITS_DTYPE: "_supports_router_logits_dtype",
    Reason.HIDDEN_DIM: "_supports_shape",
}
# One of these must be in the reason, so that a user knows what to change.
_MENTIONS: Final[dict[Reason, tuple[str, ...]]] = {
    Reason.DEVICE: ("VLLM_ROCM_USE_AITER=1 and VLLM_ROCM_USE_AITER_MOE=1",),
    Reason.ACT_AND_MUL: ("gated", "act_and_mul"),
    Reason.ACTIVATION: ("gelu_tanh", "GELU_TANH"),
    Reason.SCHEME: ("kNvfp4Static", "quantization scheme"),
    Reason.PARALLEL_CONFIG: (REFUSED_ALL2ALL[-1], "parallel config"),
    Reason.ROUTING_METHOD: ("routing method",),
    Reason.ROUTER_LOGITS_DTYPE: ("router logits", "router-logits"),
    Reason.HIDDEN_DIM: ("hidden",),
    Reason.ACTIVATION_FORMAT: ("batched_experts",),
    Reason.BATCH_INVARIANCE: ("batch invarian", "batch-invarian"),
    Reason.LORA: ("LoRA",),
}


def cascade(subject: Subject, leaf: str) -> Report:
    """The first failing step gives the reason, for every pair of simultaneous failures."""
    report = Report()
    arch = "gfx950"
    report.compare(f"{leaf}: nothing wrong", (True, None), _support(subject, leaf, arch, frozenset()))
    # Only an experts class that routes by itself has to know how.
    for layer in (MoEConfigSpec(has_hash_routing=True), MoEConfigSpec(require_decomposed_backend=True)):
        answer = _support(subject, leaf, arch, frozenset(), layer)
        report.compare(f"{leaf}: {layer}", (True, None), answer)
    alone: dict[Reason, Any] = {}
    for step in CASCADE:
        supported, alone[step] = _support(subject, leaf, arch, frozenset({step}))
        where = f"{leaf}: {step} fails"
        report.compare(where, False, supported)
        said = any(words in str(alone[step]) for words in _MENTIONS[step])
        report.compare(f"{where}: {alone[step]!r} says one of {_MENTIONS[step]}", True, said)
        hints = "VLLM_ROCM_USE_AITER" in str(alone[step])
        report.compare(f"{where}: the reason has the hint to switch AITER on", step is Reason.DEVICE, hints)
    report.compare(f"{leaf}: distinct reasons", len(CASCADE), len(set(alone.values())))
    for first, second in itertools.combinations(CASCADE, 2):
        got = _support(subject, leaf, arch, frozenset({first, second}))
        report.compare(f"{leaf}: {first} and {second} fail", (False, alone[first]), got)
    return report


def declared(subject: Subject, cell: Cell) -> Report:
    """The leaf of the cell declares what `contract.declaration` says, refusals by ``apply`` aside."""
    report = Report()
    expected = declaration(cell)
    refused = expected.kind is Kind.REFUSED and expected.details["when"] == "configuration"
    scheme = load_axes().schemes[cell.scheme]
    with subject.environment(cell.arch, installed=simulate(FUTURE)):
        api = subject.api
        cls = getattr(api, expected.details["leaf"])
        keys = (scheme.weight_key, scheme.activation_key)
        supported, reason = cls.is_supported_config(
            cls,
            subject.moe_config(MoEConfigSpec(activation=cell.activation)),
            *(None if name is None else getattr(api, name) for name in keys),
            api.FusedMoEActivationFormat.Standard,
        )
    report.compare(f"{cell}: supported", not refused, supported)
    report.compare(f"{cell}: a reason is given exactly for a refusal", refused, isinstance(reason, str))
    return report


def listed_fp8_pairs(subject: Subject) -> Report:
    """ROCm/aiter#2419: no leaf takes channel weights with static per-tensor activations, and users are told.

    AITER has no kernel for that pair; the four fp8 pairs that it has are each taken by one leaf.
    """
    report = Report()
    pairs = {
        ("kFp8StaticChannelSym", "kFp8StaticTensorSym"): [],
        ("kFp8Static128BlockSym", "kFp8Dynamic128Sym"): ["AiterFp8BlockExperts"],
        ("kFp8StaticTensorSym", "kFp8StaticTensorSym"): ["AiterFp8TensorExperts"],
        ("kFp8StaticTensorSym", "kFp8DynamicTensorSym"): ["AiterFp8TensorExperts"],
        ("kFp8StaticChannelSym", "kFp8DynamicTokenSym"): ["AiterFp8ChannelExperts"],
    }
    for arch in SUPPORTED_ARCHS:
        with subject.environment(arch, installed=simulate(FUTURE)):
            api = subject.api
            for pair, expected in pairs.items():
                keys = [getattr(api, name) for name in pair]
                standard = api.FusedMoEActivationFormat.Standard
                answers = {
                    name: getattr(api, name).is_supported_config(
                        getattr(api, name), subject.moe_config(MoEConfigSpec()), *keys, standard
                    )
                    for name in LEAVES
                }
                where = f"{' with '.join(pair)} on {arch}"
                taken = [name for name, (supported, _) in answers.items() if supported]
                report.compare(f"{where}: taken by", expected, taken)
                unsaid = [
                    name for name, (supported, reason) in answers.items() if not supported and not reason
                ]
                report.compare(f"{where}: refused without a reason by", [], unsaid)
    return report
