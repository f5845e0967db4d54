"""The declared level: quant keys, what the leaves accept and refuse, and in which order (SPEC 2, 3, 8, 9)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import (
    ACCEPTED_ACTIVATIONS,
    ACTIVATION_METHODS,
    CASCADE,
    LEAVES,
    MORI_ALL2ALL,
    NON_GATED_ACTIVATIONS,
    QUANT_METHODS,
    REFUSED_ACTIVATIONS,
    REFUSED_ALL2ALL,
    SCHEME_CONFIGS,
    SUPPORTED_ARCHS,
    accepts_pair,
    declaration,
    leaf_of_scheme,
)
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.protocols import ENABLED, MoEConfigSpec, ParallelSpec, QuantSpec, Subject
from aiter_conformance.quant_keys import QUANT_KEYS, KeyFacts, ScaleFacts
from aiter_conformance.simulated_aiter import FUTURE, simulate

ARCHS: Final = ("gfx90a", "gfx940", "gfx942", "gfx950", "gfx1250", "gfx1201")
ACTIVATIONS: Final = (*ACCEPTED_ACTIVATIONS, *REFUSED_ACTIVATIONS, *NON_GATED_ACTIVATIONS)
BACKENDS: Final = (
    "allgather_reducescatter",
    "naive",
    "deepep_high_throughput",
    "deepep_low_latency",
    *MORI_ALL2ALL,
    *REFUSED_ALL2ALL,
)
# Deployments that matter: one device, each kind of parallelism alone, all of them, with and without EP.
DEPLOYMENTS: Final = tuple(
    ParallelSpec(tp=tp, pcp=pcp, dp=dp, sp=sp, use_ep=use_ep)
    for tp, pcp, dp, sp in (
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (1, 2, 1, 1),
        (1, 1, 2, 1),
        (2, 1, 1, 2),
        (2, 2, 2, 1),
    )
    for use_ep in (False, True)
)


# --------------------------------------------------------------------------- quant keys and enums


def _dtype_name(dtype: Any, arch: str) -> str:
    """Return the contract's name of a dtype, whatever object the subject has for it."""
    text = str(dtype).removeprefix("torch.")
    platform = "float8_e4m3fnuz" if arch.startswith("gfx94") else "float8_e4m3fn"
    names = {
        platform: "fp8",
        "float8_e8m0fnu": "e8m0",
        "float6_e3m2f": "float6_e3m2",  # vLLM's ScalarType ends in f: "finite"
        "float6_e2m3f": "float6_e2m3",
    }
    return names.get(text, text)


def _scale_facts(scale: Any, arch: str) -> ScaleFacts:
    group = scale.group_shape
    return ScaleFacts(_dtype_name(scale.dtype, arch), scale.static, (group.row, group.col))


def key_structure(subject: Subject, arch: str) -> Report:
    """All 38 keys exist, with the structure of SPEC 2, and the one equal pair is the only one."""
    report = Report()
    with subject.environment(arch, installed=simulate(FUTURE)):
        keys = {name: getattr(subject.api, name) for name in QUANT_KEYS}
        for name, facts in QUANT_KEYS.items():
            key = keys[name]
            got = KeyFacts(
                _dtype_name(key.dtype, arch),
                _scale_facts(key.scale, arch),
                None if key.scale2 is None else _scale_facts(key.scale2, arch),
                key.symmetric,
            )
            report.compare(f"{name} on {arch}", facts, got)
        for a, b in itertools.combinations(QUANT_KEYS, 2):
            report.compare(f"{a} == {b}", QUANT_KEYS[a] == QUANT_KEYS[b], keys[a] == keys[b])
    return report


def key_across_archs(subject: Subject) -> Report:
    """An fp8 key holds a symbol, the same on every arch, and not the flavour of one (ours)."""
    report = Report()
    dtypes: list[dict[str, tuple[str, str]]] = []
    for arch in ("gfx942", "gfx950"):
        with subject.environment(arch, installed=simulate(FUTURE)):
            keys = {name: getattr(subject.api, name) for name in QUANT_KEYS}
        dtypes.append({name: (str(key.dtype), str(key.scale.dtype)) for name, key in keys.items()})
    for name, facts in QUANT_KEYS.items():
        is_fp8 = "fp8" in (facts.dtype, facts.scale.dtype)
        report.compare(
            f"dtypes of {name} on gfx942, against those on gfx950",
            dtypes[1][name],
            dtypes[0][name],
            "fp8-key-baked-at-import" if is_fp8 else None,
        )
    return report


def enums(subject: Subject) -> Report:
    """The enums have the members and values of SPEC 1, and activation names read back."""
    report = Report()
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        api = subject.api
        activation = api.MoEActivation
        report.compare("QuantMethod", QUANT_METHODS, {m.name: int(m) for m in api.QuantMethod})
        report.compare("ActivationMethod", ACTIVATION_METHODS, {m.name: int(m) for m in api.ActivationMethod})
        report.compare("MoEActivation", set(ACTIVATIONS), {m.value for m in activation})
        for value in ACTIVATIONS:
            member = activation.from_str(value)
            report.compare(f"from_str({value!r})", value, member.value)
            report.compare(f"{value} is gated", not value.endswith("_no_mul"), member.is_gated)
        alias = "gelu_pytorch_tanh"
        report.compare(f"from_str({alias!r})", "gelu_tanh", activation.from_str(alias).value)
        compare_refusal(
            report,
            subject,
            "from_str('swish')",
            ValueError,
            lambda: activation.from_str("swish"),
            says=("swish",),
        )
    return report


# --------------------------------------------------------------------------- the leaves, one question each


def quant_schemes(subject: Subject, leaf: str, arch: str) -> Report:
    """The leaf takes the listed pairs of quant keys on the arch and refuses all others, None included."""
    report = Report()
    with subject.environment(arch, installed=simulate(FUTURE)):
        supports = getattr(subject.api, leaf)._supports_quant_scheme
        keys: dict[str | None, Any] = {
            None: None,
            **{name: getattr(subject.api, name) for name in QUANT_KEYS},
        }
        for weight, activation in itertools.product(keys, repeat=2):
            expected = accepts_pair(leaf, weight, activation, arch)
            got = supports(keys[weight], keys[activation])
            report.compare(f"{leaf} on {arch}: weights {weight}, activations {activation}", expected, got)
    return report


def activations(subject: Subject, leaf: str) -> Report:
    """The leaf takes the five activations that AITER computes, and no other."""
    report = Report()
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        supports = getattr(subject.api, leaf)._supports_activation
        for value in ACTIVATIONS:
            got = supports(subject.api.MoEActivation(value))
            report.compare(f"{leaf} with {value}", value in ACCEPTED_ACTIVATIONS, got)
    return report


def _uses_all2all(spec: ParallelSpec) -> bool:
    devices = spec.dp * spec.pcp * spec.tp
    return spec.use_ep and devices > 1 and (spec.dp > 1 or spec.pcp > 1 or spec.sp > 1)


def parallel_sizes(subject: Subject) -> Report:
    """A deployment gives the MoE's own sizes and all-to-all flags of SPEC 9."""
    report = Report()
    for deployment, backend in itertools.product(DEPLOYMENTS, BACKENDS):
        spec = replace(deployment, all2all_backend=backend)
        devices = spec.dp * spec.pcp * spec.tp
        with_ep = spec.use_ep and devices > 1
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            config = subject.moe_config(MoEConfigSpec(parallel=spec))
            parallel = config.moe_parallel_config
            mori = "use_mori_epv1_kernels"
            where = f"{spec}"
            report.compare(f"{where} tp_size", 1 if with_ep else devices, parallel.tp_size)
            report.compare(f"{where} config.tp_size", 1 if with_ep else devices, config.tp_size)
            report.compare(f"{where} ep_size", devices if with_ep else 1, parallel.ep_size)
            report.compare(f"{where} use_ep", with_ep, parallel.use_ep)
            report.compare(f"{where} use_all2all_kernels", _uses_all2all(spec), parallel.use_all2all_kernels)
            report.compare(
                f"{where} {mori}",
                _uses_all2all(spec) and backend in MORI_ALL2ALL,
                getattr(config, mori, "no such attribute"),
                "mori-flag-name",
            )
    return report


def parallel_configs(subject: Subject, leaf: str) -> Report:
    """The leaf refuses the FlashInfer NVLink all-to-all families where they are used, and takes all else."""
    report = Report()
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        supports = getattr(subject.api, leaf)._supports_parallel_config
        for deployment, backend in itertools.product(DEPLOYMENTS, BACKENDS):
            spec = replace(deployment, all2all_backend=backend)
            parallel = subject.moe_config(MoEConfigSpec(parallel=spec)).moe_parallel_config
            refused = _uses_all2all(spec) and backend in REFUSED_ALL2ALL
            report.compare(f"{leaf} with {spec}", not refused, supports(parallel))
    return report


def device(subject: Subject, leaf: str, arch: str) -> Report:
    """The device is supported exactly where AITER's MoE is enabled: arch, both variables, AITER found."""
    report = Report()
    for use, moe, found in itertools.product((None, "0", "1", "TRUE"), (None, "0", "1"), (True, False)):
        variables = {"VLLM_ROCM_USE_AITER": use, "VLLM_ROCM_USE_AITER_MOE": moe}
        env = {name: value for name, value in variables.items() if value is not None}
        enabled = arch in SUPPORTED_ARCHS and found and use in ("1", "TRUE") and moe != "0"
        where = f"{leaf} on {arch} with {env}, AITER {'found' if found else 'not found'}"
        with subject.environment(arch, env, installed=simulate(FUTURE) if found else None):
            got = getattr(subject.api, leaf)._supports_current_device()
            # An answer that is neither True nor False passes where it is negated or compared.
            difference = "device-answer-not-boolean" if arch not in SUPPORTED_ARCHS or not found else None
            report.compare(where, enabled, got, difference)
            report.compare(f"{where}, as settings", enabled, subject.settings().fused_moe_enabled)
    return report


def constants(subject: Subject, leaf: str) -> Report:
    """What a leaf says of itself, whatever the configuration (SPEC 3)."""
    report = Report()
    facts = LEAVES[leaf]
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        api = subject.api
        cls = getattr(api, leaf)
        report.compare(f"{leaf}.consumes_expert_mask", True, cls.consumes_expert_mask)
        report.compare(
            f"{leaf}.activation_format()", api.FusedMoEActivationFormat.Standard, cls.activation_format()
        )
        report.compare(f"{leaf}._supports_no_act_and_mul()", False, cls._supports_no_act_and_mul())
        report.compare(
            f"{leaf}._AITER_QUANT_METHOD",
            getattr(api.QuantMethod, facts.quant_method),
            getattr(cls, "_AITER_QUANT_METHOD", "no such attribute"),
            "one-dispatcher",
        )
        report.compare(
            f"{leaf}._SUPPORTS_ROUTER_WEIGHT_ON_INPUT",
            facts.router_on_input,
            getattr(cls, "_SUPPORTS_ROUTER_WEIGHT_ON_INPUT", "no such attribute"),
            "one-dispatcher",
        )
        experts = build_leaf(subject, leaf, MoEConfigSpec())
        report.compare(
            f"{leaf}.finalize_weight_and_reduce_impl()",
            "TopKWeightAndReduceNoOP",
            type(experts.finalize_weight_and_reduce_impl()).__name__,
        )
        for name in ("max_num_tokens", "num_dispatchers"):
            compare_refusal(
                report,
                subject,
                f"{leaf}({name}=1)",
                ValueError,
                partial(build_leaf, subject, leaf, MoEConfigSpec(), None, **{name: 1}),
                says=(name,),
            )
    return report


def build_leaf(
    subject: Subject, leaf: str, spec: MoEConfigSpec, quant: QuantSpec | None = None, **arguments: Any
) -> Any:
    """Build an experts object inside an environment; its quantisation is that of the leaf's first scheme."""
    if quant is None:
        scheme = next(s for s in load_axes().schemes if leaf_of_scheme(s).name == leaf)
        quant = SCHEME_CONFIGS[scheme]
    return getattr(subject.api, leaf)(
        moe_config=subject.moe_config(spec), quant_config=subject.quant_config(quant, {}), **arguments
    )


def mori(subject: Subject, leaf: str) -> Report:
    """MoRI quantises while it dispatches: the leaf then wants quantised inputs, packed ones for w4a4."""
    report = Report()
    schemes = [s for s in load_axes().schemes if leaf_of_scheme(s).name == leaf]
    for scheme, backend, use_ep in itertools.product(schemes, BACKENDS, (False, True)):
        spec = MoEConfigSpec(parallel=ParallelSpec(dp=2, use_ep=use_ep, all2all_backend=backend))
        uses_mori = use_ep and backend in MORI_ALL2ALL
        where = f"{leaf} for {scheme} with {backend}, use_ep {use_ep}"
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            experts = build_leaf(subject, leaf, spec, SCHEME_CONFIGS[scheme])
            report.compare(
                f"{where}: expects_unquantized_inputs", not uses_mori, experts.expects_unquantized_inputs
            )
            shapes = experts.workspace_shapes(5, 512, 192, 2, 8, 4, None, subject.api.MoEActivation("silu"))
            columns = 384 if uses_mori and scheme == "mxfp4-w4a4" else 192
            report.compare(
                f"{where}: workspace_shapes(M=5, N=512, K=192)",
                [[0], [0], [5, columns]],
                [list(shape) for shape in shapes],
            )
    return report


# --------------------------------------------------------------------------- the support cascade


def _support(
    subject: Subject, leaf: str, arch: str, failures: frozenset[Reason], env: Mapping[str, str] = ENABLED
) -> tuple[Any, Any]:
    """Ask for the support of a configuration in which exactly the given steps of the cascade fail."""
    good = next(pair for pair, archs in LEAVES[leaf].pairs.items() if arch in archs)
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
    spec = MoEConfigSpec(
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
