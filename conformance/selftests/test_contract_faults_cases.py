"""The checks of public reports and of the surface catch planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from aiter_conformance.checks import (
    contract_cases,
    contract_surface,
)
from aiter_conformance.checks.contract_faulty import Arguments, Fault, apply
from aiter_conformance.subjects import load_subject


def _rounded_to_128(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(scheme: str, activation: Any, hidden: int, intermediate: int) -> tuple[int, int]:
        return (real(scheme, activation, hidden, intermediate)[0], -(-intermediate // 128) * 128)

    return bent


def _terse(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(*args: Any, **kwargs: Any) -> Any:
        try:
            return real(*args, **kwargs)
        except ValueError:
            msg = "too many tokens"
            raise ValueError(msg) from None

    return bent


def _another_activation(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError:
        real(**{**arguments, "activation": type(arguments["activation"])("silu")})


REPORTS: Final = [
    Fault(
        "bf16 rounded to 128", {"names": {"padded_sizes": _rounded_to_128}}, contract_cases.padded_sizes, "64"
    ),
    Fault(
        "no advice",
        {"names": {"inject_shared_expert_weights": _terse}},
        contract_cases.too_many_tokens,
        "leaves out",
    ),
    Fault(
        "silently another activation",
        apply(_another_activation),
        contract_cases.activations_by_release,
        "situ with AITER 0.1.14: ended: must be 'refused'",
    ),
    Fault(
        "silently another activation, down to AITER",
        apply(_another_activation),
        contract_cases.gate_mode_reaches_aiter,
        "must be 'refused' (got 'a call')",
    ),
]


def _pads_first_for_last(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(
        intermediate_pad: int, hidden_pad: int, activation: Any, use_mxfp4_w4a4: bool, tp_size: int
    ) -> tuple[int, int]:
        pads: tuple[int, int] = real(hidden_pad, intermediate_pad, activation, use_mxfp4_w4a4, tp_size)
        return pads

    return bent


def _without_override(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **a: real(**{k: v for k, v in a.items() if k != "gate_mode_override"})


def _first_weight_counts(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(**arguments: Any) -> Any:
        if arguments.get("apply_router_weight_on_input"):
            for name in ("topk_weights", "topk_ids"):
                arguments[name] = arguments[name].reshape(3, -1)[:, :1]
        return real(**arguments)

    return bent


def _without_dtype(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: {k: v for k, v in real(*a).items() if k != "q_dtype_a"}


def _only_biases_there(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: {k: v for k, v in real(*a).items() if v is not None}


SURFACE: Final = [
    Fault(
        "a parameter in another place",
        {"names": {"aiter_moe_pads": _pads_first_for_last}},
        contract_surface.signatures,
        "aiter_moe_pads",
    ),
    Fault(
        "MoRI without AITER's MoE",
        {"config": lambda s: replace(s, parallel=replace(s.parallel, all2all_backend="naive"))},
        contract_surface.moe_configs,
        "mori_low_latency with {}",
    ),
    Fault(
        "an override that is not heard",
        {"names": {"rocm_aiter_fused_experts": _without_override}},
        contract_surface.dispatcher,
        "gelu, gate_mode_override interleave",
    ),
    Fault(
        "the first of several weights on the input",
        {"names": {"rocm_aiter_fused_experts": _first_weight_counts}},
        contract_surface.dispatcher_refusals,
        "router weights of shape [3, 2] on the input",
    ),
    Fault(
        "the opt-in's dtype left out",
        {"names": {"mxfp4_w4a16_extra_kwargs": _without_dtype}},
        contract_surface.extra_kwargs,
        "mxfp4-w4a16, DSV4.1 True, []: names",
    ),
    Fault(
        "biases left out where there are none",
        {"names": {"mxfp4_w4a16_extra_kwargs": _only_biases_there}},
        contract_surface.extra_kwargs,
        "DSV4.1 False, []: names",
    ),
    Fault(
        "per-channel scales that are not seen",
        {"quant": lambda spec: replace(spec, per_out_ch=False)},
        contract_surface.quant_configs,
        "per_out_ch_quant=True",
    ),
]


FAULTS: Final = [*REPORTS, *SURFACE]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_caught(fault: Fault) -> None:
    """The check finds the planted fault and says what the matter is; the suites run it without one."""
    assert fault.says in fault.verdict(load_subject("impl"))
