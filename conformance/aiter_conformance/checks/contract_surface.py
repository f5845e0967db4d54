"""The public surface: signatures, configs, and the dispatcher called without a leaf (SPEC 3, 4, 9)."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch

from aiter_conformance.checks.contract_call import ramp
from aiter_conformance.checks.contract_declared import build_leaf
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import LEAVES, MORI_ALL2ALL, QUANT_METHODS, SCHEME_CONFIGS, W4A16_SCHEMES
from aiter_conformance.expected_call import FP4X2
from aiter_conformance.protocols import ENABLED, MoEConfigSpec, ParallelSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate

# Parameters of the public functions, in order; a default follows "=".
SIGNATURES: Final = {
    "aiter_moe_pads": "hidden_pad intermediate_pad activation use_mxfp4_w4a4 tp_size",
    "rocm_aiter_fused_experts": (
        "hidden_states w1 w2 topk_weights topk_ids moe_config quant_method activation=silu "
        "apply_router_weight_on_input=False expert_mask=None quant_config=None a1q_scale=None "
        "num_local_tokens=None output_dtype=None moe_sorting_dispatch_policy=0 gate_mode_override=None "
        "bias1=None bias2=None q_dtype_a=None shared_w1=None shared_w2=None shared_w1_scale=None "
        "shared_w2_scale=None shared_expert_id=-1"
    ),
    "derive_aiter_quant_method": "quant_config",
    "mxfp4_w4a16_extra_kwargs": "quant_config moe_config",
    "inject_shared_expert_weights": (
        "topk_weights topk_ids topk num_fused_shared_experts shared_expert_weights=None"
    ),
    "rocm_aiter_grouped_topk": (
        "hidden_states gating_output topk renormalize num_expert_group=0 topk_group=0 scoring_func=softmax "
        "routed_scaling_factor=1.0 e_score_correction_bias=None num_fused_shared_experts=0"
    ),
    "reset_aiter_topK_meta_data": "",
}
APPLY: Final = (
    "self output hidden_states w1 w2 topk_weights topk_ids activation global_num_experts expert_map "
    "a1q_scale a2_scale workspace13 workspace2 expert_tokens_meta apply_router_weight_on_input"
)
WORKSPACE_SHAPES: Final = "self M N K topk global_num_experts local_num_experts expert_tokens_meta activation"
CONSTRUCTOR: Final = "self moe_config quant_config max_num_tokens=None num_dispatchers=None"


def _signature(function: Any) -> str:
    """Return a function's parameters in the form of `SIGNATURES`."""
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        default = getattr(parameter.default, "value", parameter.default)
        has_default = parameter.default is not inspect.Parameter.empty
        parts.append(f"{parameter.name}={default}" if has_default else parameter.name)
    return " ".join(parts)


def signatures(subject: Subject) -> Report:
    """The public functions and the leaves' methods have SPEC's parameters, in its order."""
    report = Report()
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        for name, expected in SIGNATURES.items():
            if name not in subject.missing:
                difference = "one-dispatcher" if name == "rocm_aiter_fused_experts" else None
                report.compare(name, expected, _signature(getattr(subject.api, name)), difference)
        for leaf in LEAVES:
            cls = getattr(subject.api, leaf)
            report.compare(f"{leaf}.apply", APPLY, _signature(cls.apply))
            report.compare(f"{leaf}.workspace_shapes", WORKSPACE_SHAPES, _signature(cls.workspace_shapes))
            report.compare(f"{leaf}()", CONSTRUCTOR, _signature(cls.__init__))
    return report


# --------------------------------------------------------------------------- configs


@dataclass(frozen=True, slots=True)
class QuantFacts:
    """What a quantisation config says of itself (SPEC 9), by the names of its properties."""

    use_fp8_w8a8: bool
    use_mxfp4_w4a16: bool
    use_mxfp4_w4a4: bool
    use_int4_w4a16: bool
    per_act_token_quant: bool
    per_out_ch_quant: bool
    block_shape: list[int] | None


def expected_quant_facts(spec: QuantSpec) -> QuantFacts:
    """Return what SPEC 9's table says of the config that ``make`` builds from these words."""
    unquantised = spec.activations is None
    return QuantFacts(
        use_fp8_w8a8=spec.activations == "fp8",
        use_mxfp4_w4a16=spec.weights == "mxfp4" and unquantised,
        use_mxfp4_w4a4=spec.weights == "mxfp4" and spec.activations == "mxfp4",
        use_int4_w4a16=spec.weights == "int4" and unquantised,
        per_act_token_quant=spec.per_act_token,
        per_out_ch_quant=spec.per_out_ch,
        block_shape=None if spec.block_shape is None else list(spec.block_shape),
    )


_QUANT_SPECS: Final = (
    *dict.fromkeys(SCHEME_CONFIGS.values()),
    QuantSpec("fp8", "fp8", per_act_token=True),
    QuantSpec("fp8", "fp8", per_out_ch=True),
    QuantSpec(None, "int4"),
    QuantSpec(None, "int4", block_shape=(1, 32)),
    QuantSpec(None, "fp8"),
    QuantSpec("mxfp4", "int4"),
)


def quant_configs(subject: Subject) -> Report:
    """A quantisation config's properties are those of SPEC 9 on each fp8 flavour, its tensors those given."""
    report = Report()
    names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")
    tensors = {name: torch.ones(1) for name in names}
    for arch, spec in itertools.product(("gfx942", "gfx950"), _QUANT_SPECS):
        with subject.environment(arch, installed=simulate(FUTURE)):
            config = subject.quant_config(spec, tensors)
            facts = {name: getattr(config, name) for name in QuantFacts.__dataclass_fields__}
            report.compare(f"{spec} on {arch}", expected_quant_facts(spec), QuantFacts(**facts))
            for name, tensor in tensors.items():
                same = getattr(config, name) is tensor
                report.compare(f"{spec} on {arch}: {name} is the given tensor", True, same)
    return report


def moe_configs(subject: Subject) -> Report:
    """A layer's config fills in its defaults, checks that TP divides, and has MoRI over AITER's MoE only."""
    report = Report()
    tp2 = ParallelSpec(tp=2)
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        config = subject.moe_config(MoEConfigSpec(hidden_dim=512, intermediate_size=384, parallel=tp2))
        expected: Mapping[str, Any] = {
            "hidden_dim_unpadded": 512,
            "intermediate_size_per_partition": 192,
            "intermediate_size_per_partition_unpadded": 192,
            "intermediate_pad": None,
            "swiglu_limit": None,
            "is_act_and_mul": True,
            "tp_size": 2,
        }
        for name, value in expected.items():
            report.compare(f"config.{name}", value, getattr(config, name))
        report.compare("dtype of router logits", str(config.in_dtype), str(config.router_logits_dtype))
        compare_refusal(
            report,
            subject,
            "an intermediate size of 129 at tp_size 2",
            ValueError,
            partial(subject.moe_config, MoEConfigSpec(intermediate_size=129, parallel=tp2)),
        )
    fusion = {"VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
    for backend, env in itertools.product(MORI_ALL2ALL, ({}, ENABLED, {**ENABLED, **fusion})):
        spec = MoEConfigSpec(parallel=ParallelSpec(dp=2, use_ep=True, all2all_backend=backend))
        where = f"{backend} with {dict(env)}"
        with subject.environment("gfx950", env, installed=simulate(FUTURE)):
            if env is ENABLED:
                parallel = subject.moe_config(spec).moe_parallel_config
                report.compare(where, True, parallel.use_all2all_kernels)
            else:
                compare_refusal(report, subject, where, ValueError, partial(subject.moe_config, spec))
    return report


# --------------------------------------------------------------------------- the dispatcher without a leaf


def extra_kwargs(subject: Subject) -> Report:
    """What w4a16 adds to a call: gate mode and biases; the DSV4.1 opt-in has its own gate mode and dtype."""
    report = Report()
    biases = {"w1_bias": torch.ones(1), "w2_bias": torch.ones(1)}
    for (scheme, quant), dsv4, given in itertools.product(
        SCHEME_CONFIGS.items(), (False, True), ({}, biases, {"w2_bias": biases["w2_bias"]})
    ):
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            got = subject.api.mxfp4_w4a16_extra_kwargs(
                subject.quant_config(quant, given),
                subject.moe_config(MoEConfigSpec(use_mxfp4_w4a4_dsv4=dsv4)),
            )
            leaf = next(name for name in LEAVES if name == "AiterMxfp4Experts")
            experts = build_leaf(subject, leaf, MoEConfigSpec(use_mxfp4_w4a4_dsv4=dsv4), quant)
            own = experts._extra_fused_moe_kwargs()
        expected: dict[str, Any] = {}
        if scheme in W4A16_SCHEMES:
            mode = "separated" if dsv4 else "interleave"
            expected = {
                "gate_mode_override": mode,
                "bias1": given.get("w1_bias"),
                "bias2": given.get("w2_bias"),
            }
            if dsv4:
                expected["q_dtype_a"] = getattr(torch, FP4X2)
        where = f"mxfp4_w4a16_extra_kwargs for {scheme}, DSV4.1 {dsv4}, {list(given)}"
        report.compare(f"{where}: names", sorted(expected), sorted(got))
        for name, value in expected.items():
            same = value is got.get(name) if isinstance(value, torch.Tensor) else value == got.get(name)
            report.compare(f"{where}: {name}", True, same)
        report.compare(f"{where}: those of the leaf", sorted(expected), sorted(own))
    return report


def _dispatch(subject: Subject, config: MoEConfigSpec, **arguments: Any) -> Any:
    api = subject.api
    tensors: dict[str, Any] = {
        "hidden_states": ramp(3, config.hidden_dim, dtype=torch.bfloat16),
        "w1": torch.zeros(1).expand(8, 2 * config.intermediate_size, config.hidden_dim),
        "w2": torch.zeros(1).expand(8, config.hidden_dim, config.intermediate_size),
        "topk_weights": ramp(3, 1),
        "topk_ids": torch.zeros(3, 1, dtype=torch.int32),
        "moe_config": subject.moe_config(config),
        "quant_method": api.QuantMethod.NO,
    }
    return api.rocm_aiter_fused_experts(**{**tensors, **arguments})


# Arguments that go on to the kernel as they are -> the kernel's name for them.
_PASSED: Final = {
    "expert_mask": "expert_mask",
    "a1q_scale": "a1_scale",
    "num_local_tokens": "num_local_tokens",
    "bias1": "bias1",
    "bias2": "bias2",
    "shared_w1": "shared_w1",
    "shared_w2": "shared_w2",
    "shared_w1_scale": "shared_w1_scale",
    "shared_w2_scale": "shared_w2_scale",
}


def dispatcher(subject: Subject) -> Report:
    """The dispatcher hands on what it is given, prefers what is named, and fills in the rest."""
    report = Report()
    tensors = {name: torch.ones(1, dtype=torch.int32) for name in _PASSED}
    spec = MoEConfigSpec()
    silu, gelu, packed, situ = (
        replace(spec, activation=value) for value in ("silu", "gelu", "swigluoai_uninterleave", "situ")
    )
    with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording() as calls:
        activation = subject.api.MoEActivation
        _dispatch(subject, silu)
        plain = calls[-1].arguments
        # Without a quantisation config there are no scales, without a dtype the kernel chooses.
        absent = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "output_dtype", "expert_mask", "q_dtype_a")
        report.compare("by default", dict.fromkeys(absent), {name: plain[name] for name in absent})
        report.compare("by default: shared_expert_id", -1, plain["shared_expert_id"])
        report.compare("by default: policy", 0, plain["moe_sorting_dispatch_policy"])
        report.compare("by default: activation", 0, plain["activation_method"])
        _dispatch(subject, silu, **tensors, shared_expert_id=8, moe_sorting_dispatch_policy=2)
        for name, kernel_name in _PASSED.items():
            same = calls[-1].arguments[kernel_name] is tensors[name]
            report.compare(f"{name} goes on as it is", True, same)
        report.compare("shared_expert_id", 8, calls[-1].arguments["shared_expert_id"])
        report.compare("policy", 2, calls[-1].arguments["moe_sorting_dispatch_policy"])
        for name, value in QUANT_METHODS.items():
            _dispatch(subject, silu, quant_method=getattr(subject.api.QuantMethod, name))
            report.compare(f"quant_method {name}", value, calls[-1].arguments["quant_method"])
        _dispatch(subject, silu, q_dtype_a=getattr(torch, FP4X2), output_dtype=torch.float16)
        report.compare("q_dtype_a", getattr(torch, FP4X2), calls[-1].arguments["q_dtype_a"])
        report.compare("output_dtype", torch.float16, calls[-1].arguments["output_dtype"])
        # An override beats the activation's hint, and SITU beats both.
        for config, override, expected in (
            (silu, None, ""),
            (gelu, "interleave", "interleave"),
            (packed, None, "separated"),
            (packed, "interleave", "interleave"),
            (situ, "interleave", "separated"),
            (situ, None, "separated"),
        ):
            value = activation(config.activation)
            _dispatch(subject, config, activation=value, gate_mode_override=override)
            where = f"{config.activation}, gate_mode_override {override}"
            report.compare(where, expected, calls[-1].arguments["gate_mode"])
    return report


def dispatcher_refusals(subject: Subject) -> Report:
    """Router weights on the input need one expert a token in two dimensions; unpadded sizes must be there."""
    report = Report()
    spec = MoEConfigSpec()
    with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording() as calls:
        for shape in ((3, 2), (3,), (3, 1, 1), (3, 0)):
            weights = ramp(*shape)
            arguments = {
                "topk_weights": weights,
                "topk_ids": torch.zeros(shape, dtype=torch.int32),
                "apply_router_weight_on_input": True,
            }
            compare_refusal(
                report,
                subject,
                f"router weights of shape {list(shape)} on the input",
                ValueError,
                partial(_dispatch, subject, spec, **arguments),
                says=("topk",),
            )
        for name in ("hidden_dim_unpadded", "intermediate_size_per_partition_unpadded"):
            config = subject.moe_config(spec)
            setattr(config, name, None)
            compare_refusal(
                report,
                subject,
                f"a config without {name}",
                ValueError,
                partial(_dispatch, subject, spec, moe_config=config),
                says=(name,),
            )
        report.compare("kernel calls", [], [call.entry for call in calls])
    return report
