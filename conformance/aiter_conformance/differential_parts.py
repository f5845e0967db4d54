"""Inputs of the differential about what is around a leaf: pads, settings, configurations, shared experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import torch

from aiter_conformance.contract import LEAVES
from aiter_conformance.differential import Observation, Refused
from aiter_conformance.protocols import ENABLED, MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.quant_keys import QUANT_KEYS
from aiter_conformance.simulated_aiter import simulate

AITER = "0.1.20"


@dataclass(frozen=True, slots=True, kw_only=True)
class PadsUse:
    """A call of ``aiter_moe_pads``."""

    hidden_pad: int = 0
    intermediate_pad: int = 0
    activation: str = "silu"
    use_mxfp4_w4a4: bool = False
    tp_size: int = 1

    def observe(self, subject: Subject) -> Observation:
        """Describe the pads that come back."""
        with subject.environment("gfx950", installed=simulate(AITER)):
            activation = subject.api.MoEActivation(self.activation)
            arguments = (
                self.hidden_pad,
                self.intermediate_pad,
                activation,
                self.use_mxfp4_w4a4,
                self.tp_size,
            )
            return _answer(subject, "pads", lambda: subject.api.aiter_moe_pads(*arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsUse:
    """What the environment makes of AITER's switches."""

    arch: str = "gfx950"
    env: tuple[tuple[str, str], ...] = tuple(ENABLED.items())
    aiter: str | None = AITER

    def observe(self, subject: Subject) -> Observation:
        """Describe the settings."""
        installed = None if self.aiter is None else simulate(self.aiter)
        with subject.environment(self.arch, dict(self.env), installed):
            return _answer(subject, "settings", subject.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsUse:
    """A leaf asked about every pair of quant keys on an architecture, None being "unquantised"."""

    arch: str
    leaf: str

    def observe(self, subject: Subject) -> Observation:
        """Name the pairs that the leaf takes, by its own hook and by the whole cascade."""
        with subject.environment(self.arch, installed=simulate(AITER)):
            api = subject.api
            leaf, config = getattr(api, self.leaf), subject.moe_config(MoEConfigSpec())
            standard = api.FusedMoEActivationFormat.Standard
            keys = {None: None} | {name: getattr(api, name) for name in QUANT_KEYS}
            pairs = {(w, a): (keys[w], keys[a]) for w, a in product(keys, repeat=2)}
            return {
                "hook": [p for p, k in pairs.items() if leaf._supports_quant_scheme(*k)],
                "cascade": [
                    p for p, k in pairs.items() if leaf.is_supported_config(leaf, config, *k, standard)[0]
                ],
            }


@dataclass(frozen=True, slots=True)
class KeyEqualityUse:
    """The quant keys compared with one another on an architecture."""

    arch: str

    def observe(self, subject: Subject) -> Observation:
        """Name the equal pairs."""
        with subject.environment(self.arch, installed=simulate(AITER)):
            keys = {name: getattr(subject.api, name) for name in QUANT_KEYS}
            equal = [(a, b) for a, b in product(keys, repeat=2) if a < b and keys[a] == keys[b]]
            return {"equal keys": equal}


_PARALLEL = (
    *("tp_size", "pcp_size", "dp_size", "ep_size", "sp_size", "tp_rank", "pcp_rank", "dp_rank", "ep_rank"),
    *("use_ep", "use_all2all_kernels", "use_fi_nvl_two_sided_kernels", "use_fi_nvl_one_sided_kernels"),
)
_CONFIG = (
    *("num_experts", "num_local_experts", "num_logical_experts", "experts_per_token", "hidden_dim"),
    *("intermediate_size", "hidden_dim_unpadded", "intermediate_size_per_partition", "intermediate_pad"),
    *("intermediate_size_per_partition_unpadded", "swiglu_limit", "activation_situ_beta", "tp_size"),
    *("activation_situ_linear_beta", "use_mxfp4_w4a4_dsv4", "is_act_and_mul", "is_lora_enabled"),
    *("has_hash_routing", "require_decomposed_backend"),
)
_QUANT = (
    *("use_fp8_w8a8", "use_mxfp4_w4a16", "use_mxfp4_w4a4", "use_int4_w4a16", "per_act_token_quant"),
    *("per_out_ch_quant", "block_shape"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigUse:
    """A layer and its quantisation, as the leaves read them."""

    arch: str = "gfx950"
    env: tuple[tuple[str, str], ...] = tuple(ENABLED.items())
    config: MoEConfigSpec = field(default_factory=MoEConfigSpec)
    quant: QuantSpec = field(default_factory=QuantSpec)

    def observe(self, subject: Subject) -> Observation:
        """Describe the derived fields, and what a leaf makes of them."""
        with subject.environment(self.arch, dict(self.env), simulate(AITER)):
            try:
                config, quant = subject.moe_config(self.config), subject.quant_config(self.quant, {})
            except Exception as error:
                return {"refused": Refused.of(subject, error)}
            leaf = subject.api.AiterMxfp4Experts(config, quant)
            parallel = config.moe_parallel_config
            activation = subject.api.MoEActivation(self.config.activation)
            shapes = leaf.workspace_shapes(3, 64, 128, 2, 8, 8, None, activation)
            return (
                {f"parallel {name}": getattr(parallel, name) for name in _PARALLEL}
                | {f"config {name}": getattr(config, name) for name in _CONFIG}
                | {f"quant {name}": getattr(quant, name) for name in _QUANT}
                | {"config use_mori_epv1_kernels": getattr(config, "use_mori_epv1_kernels", "no such name")}
                | {"workspace shapes": shapes, "unquantized": leaf.expects_unquantized_inputs}
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitStep:
    """A call of ``init_aiter_topK_meta_data``; ``keywords`` passes everything by name."""

    n_routed_experts: int = 8
    n_shared_experts: int = 1
    top_k: int = 2
    tp_rank: int = 0
    tp_size: int = 1
    score: float = 1.0
    max_num_tokens: int = 4
    is_ep: bool = False
    keywords: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectStep:
    """A call of ``inject_shared_expert_weights``.

    Attributes:
        tokens: Rows of the routed weights and ids.
        width: Columns of the routed weights.
        ids_width: Columns of the ids, where it is not the same.
        topk: As passed.
        shared: ``num_fused_shared_experts`` as passed.
        gates: (rows, columns) of the shared experts' weights, or None for none.
    """

    tokens: int = 2
    width: int = 2
    ids_width: int | None = None
    topk: int = 2
    shared: int = 1
    gates: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class SharedExpertsUse:
    """A sequence of calls that share the buffers of one environment."""

    steps: tuple[InitStep | InjectStep, ...]

    def observe(self, subject: Subject) -> Observation:
        """Describe what each step gave, and what it left in the buffers."""
        seen: Observation = {}
        with subject.environment("gfx950", installed=simulate(AITER)):
            api = subject.api
            for index, step in enumerate(self.steps):
                call = _init(api, step) if isinstance(step, InitStep) else _inject(api, step, index)
                fresh = api.aiter_topK_meta_data is None
                answer = _answer(subject, "result", call)
                seen |= {f"step {index} {name}": value for name, value in answer.items()}
                buffers = api.aiter_topK_meta_data
                if buffers is None:
                    seen[f"step {index} buffers"] = None
                    continue
                if fresh and isinstance(step, InitStep):
                    for buffer in buffers:
                        buffer[:, : step.top_k] = 0  # what is there before the first call is left open
                seen[f"step {index} buffers"] = [(str(b.dtype), b.tolist()) for b in buffers]
        return seen


def _init(api: Any, step: InitStep) -> Callable[[], Any]:
    arguments = {
        "n_routed_experts": step.n_routed_experts,
        "n_shared_experts": step.n_shared_experts,
        "top_k": step.top_k,
        "tp_rank": step.tp_rank,
        "tp_size": step.tp_size,
        "shared_experts_score": step.score,
        "max_num_tokens": step.max_num_tokens,
        "is_EP": step.is_ep,
    }
    if step.keywords:
        return lambda: api.init_aiter_topK_meta_data(**arguments)
    return lambda: api.init_aiter_topK_meta_data(*arguments.values())


def _inject(api: Any, step: InjectStep, index: int) -> Callable[[], Any]:
    count = step.tokens * step.width
    weights = (torch.arange(count, dtype=torch.float32).reshape(step.tokens, step.width) + 1 + index) / 64
    ids_width = step.width if step.ids_width is None else step.ids_width
    ids = torch.arange(step.tokens * ids_width, dtype=torch.int32).reshape(step.tokens, ids_width) % 8
    gates = None if step.gates is None else torch.full(step.gates, 0.25 + index)

    def call() -> Any:
        buffers = api.aiter_topK_meta_data or (None, None)
        answers = api.inject_shared_expert_weights(weights, ids, step.topk, step.shared, gates)
        return [
            (str(got.dtype), got.tolist(), got is given, buffer is not None and _shares(got, buffer))
            for got, given, buffer in zip(answers, (weights, ids), buffers, strict=True)
        ]

    return call


def _shares(tensor: torch.Tensor, buffer: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingUse:
    """A call of ``rocm_aiter_grouped_topk``."""

    tokens: int = 2
    topk: int = 2
    renormalize: bool = True
    num_expert_group: int = 0
    topk_group: int = 0
    scoring_func: str = "softmax"
    routed_scaling_factor: float = 1.0
    bias: bool = False
    shared: int = 0
    fusion: bool = False
    buffers: Literal["none", "small", "enough"] = "enough"

    def observe(self, subject: Subject) -> Observation:
        """Describe the call that reaches AITER and the shape of what comes back."""
        installed = simulate(AITER)
        calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for name in ("grouped_topk", "biased_grouped_topk"):
            setattr(installed.modules["aiter"], name, _routing_recorder(name, calls))
        env = dict(ENABLED) | {"VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": str(int(self.fusion))}
        logits = torch.zeros(self.tokens, 8)
        bias = torch.ones(8) if self.bias else None
        with subject.environment("gfx950", env, installed):
            api = subject.api
            if self.buffers != "none":
                rows = self.tokens if self.buffers == "enough" else self.tokens - 1
                api.init_aiter_topK_meta_data(8, max(self.shared, 1), self.topk, 0, 1, 1.0, rows, False)

            def route() -> Any:
                answers = api.rocm_aiter_grouped_topk(
                    torch.zeros(self.tokens, 16),
                    logits,
                    self.topk,
                    self.renormalize,
                    self.num_expert_group,
                    self.topk_group,
                    self.scoring_func,
                    self.routed_scaling_factor,
                    bias,
                    self.shared,
                )
                return [(str(a.dtype), a[:, : self.topk].tolist(), tuple(a.shape)) for a in answers]

            return _answer(subject, "result", route) | {"calls": calls}


_ROUTING_PARAMETERS = {
    "grouped_topk": (
        *("gating_output", "topk_weights", "topk_ids", "num_expert_group", "topk_group", "need_renorm"),
        *("is_softmax", "routed_scaling_factor"),
    ),
    "biased_grouped_topk": (
        *("gating_output", "correction_bias", "topk_weights", "topk_ids", "num_expert_group", "topk_group"),
        *("need_renorm", "routed_scaling_factor"),
    ),
}


def _routing_recorder(name: str, calls: list[Any]) -> Callable[..., None]:
    def route(*args: Any, **kwargs: Any) -> None:
        arguments = dict(zip(_ROUTING_PARAMETERS[name], args, strict=False)) | kwargs
        arguments["topk_weights"].fill_(0.5)
        arguments["topk_ids"].fill_(3)
        calls.append(
            (name, {k: tuple(v.shape) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()})
        )

    return route


def _answer(subject: Subject, name: str, call: Callable[[], Any]) -> Observation:
    try:
        return {name: call()}
    except Exception as error:
        return {"refused": Refused.of(subject, error)}


ALL_PAIRS = tuple(
    PairsUse(arch=arch, leaf=leaf)
    for arch in ("gfx90a", "gfx940", "gfx942", "gfx950", "gfx1250", "gfx1201")
    for leaf in LEAVES
)
