"""What a leaf accepts, one question at a time, and what it says of itself (SPEC 3 and 9)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any, Final

from aiter_conformance.axes import load_axes
from aiter_conformance.checks.contract_keys import ACTIVATIONS
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import (
    ACCEPTED_ACTIVATIONS,
    LEAVES,
    MORI_ALL2ALL,
    REFUSED_ALL2ALL,
    SCHEME_CONFIGS,
    SUPPORTED_ARCHS,
    accepts_pair,
    leaf_of_scheme,
)
from aiter_conformance.protocols import MoEConfigSpec, ParallelSpec, QuantSpec, Subject
from aiter_conformance.quant_keys import QUANT_KEYS
from aiter_conformance.simulated_aiter import FUTURE, simulate

ARCHS: Final = ("gfx90a", "gfx940", "gfx942", "gfx950", "gfx1250", "gfx1201")
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
