"""The checks of declarations catch planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from aiter_conformance.axes import load_axes
from aiter_conformance.checks import (
    contract_cascade,
    contract_declared,
    contract_keys,
)
from aiter_conformance.checks.contract_faulty import Fault, static
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import (
    Subject,
)
from aiter_conformance.subjects import load_subject


def of_leaf(check: Callable[..., Report], leaf: str, *more: str) -> Callable[[Subject], Report]:
    """Return a check of one leaf."""
    return lambda subject: check(subject, leaf, *more)


def _one_pair_more(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(weight, activation)) or (
        str(weight) == "kMxfp8Static" and activation is None
    )


def _fewer_pairs(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(weight, activation)) and str(activation) != "kMxfp4Dynamic"


def _every_arch(cls: Any, weight: Any, activation: Any) -> bool:
    return any(weight == w and activation == a for w, a, _ in cls._ACCEPTS)


def _swapped_pair(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(activation, weight))


def _lora_first(cls: Any, real: Any, config: Any, *rest: Any) -> tuple[bool, str | None]:
    if config.is_lora_enabled:
        return False, f"{cls.__name__} does not support LoRA"
    answer: tuple[bool, str | None] = cls.is_supported_config(real, config, *rest)
    return answer


def _no_hint(cls: Any, real: Any, *rest: Any) -> tuple[bool, str | None]:
    supported, reason = cls.is_supported_config(real, *rest)
    return supported, reason and reason.partition(";")[0]


def _group_of_128(key: Any) -> Any:
    group = key.scale.group_shape
    return replace(key, scale=replace(key.scale, group_shape=type(group)(1, 128)))


def _takes_batching(cls: Any) -> dict[str, Any]:
    def initialise(self: Any, moe_config: Any, quant_config: Any, **_: Any) -> None:
        cls.__init__(self, moe_config, quant_config)

    return {"__init__": initialise}


def _width_as_it_comes(*sizes: Any) -> tuple[tuple[int, ...], ...]:
    _, tokens, _, hidden = sizes[:4]
    return (0,), (0,), (tokens, hidden)


def _always_supported(cls: Any, real: Any, *rest: Any) -> tuple[bool, str | None]:
    return True, None


MXFP4: Final = "AiterMxfp4Experts"
BLOCK: Final = "AiterFp8BlockExperts"
BF16: Final = "AiterUnquantizedExperts"


def cells_of(scheme: str) -> Callable[[Subject], Report]:
    """Return the check of all declarations of a scheme."""

    def check(subject: Subject) -> Report:
        report = Report()
        for cell in load_axes().cells():
            if cell.scheme == scheme:
                report.merge(contract_cascade.declared(subject, cell))
        return report

    return check


FAULTS: Final = [
    Fault(
        "one pair of keys too many",
        static("_supports_quant_scheme", _one_pair_more),
        of_leaf(contract_declared.quant_schemes, BF16, "gfx950"),
        "weights kMxfp8Static, activations None",
    ),
    Fault(
        "one pair of keys missing",
        static("_supports_quant_scheme", _fewer_pairs),
        of_leaf(contract_declared.quant_schemes, MXFP4, "gfx950"),
        "weights kMxfp4Static, activations kMxfp4Dynamic",
    ),
    Fault(
        "keys on an arch without kernels",
        static("_supports_quant_scheme", _every_arch),
        of_leaf(contract_declared.quant_schemes, MXFP4, "gfx1250"),
        "AiterMxfp4Experts on gfx1250",
    ),
    Fault(
        "weight and activation keys exchanged",
        static("_supports_quant_scheme", _swapped_pair),
        contract_cascade.listed_fp8_pairs,
        "kFp8StaticChannelSym with kFp8DynamicTokenSym",
    ),
    Fault(
        "a key of another structure",
        {"names": {"kInt8StaticTensorSym": lambda key: replace(key, symmetric=False)}},
        lambda subject: contract_keys.key_structure(subject, "gfx950"),
        "kInt8StaticTensorSym on gfx950",
    ),
    Fault(
        "a second pair of equal keys",
        {"names": {"kFp8Dynamic64Sym": _group_of_128}},
        lambda subject: contract_keys.key_structure(subject, "gfx950"),
        "kFp8Dynamic128Sym == kFp8Dynamic64Sym",
    ),
    Fault(
        "an activation too many",
        static("_supports_activation", lambda _, activation: activation.is_gated),
        of_leaf(contract_declared.activations, BF16),
        "with gelu_tanh",
    ),
    Fault(
        "an all-to-all family that is not refused",
        static("_supports_parallel_config", lambda _, config: not config.use_fi_nvl_two_sided_kernels),
        of_leaf(contract_declared.parallel_configs, BF16),
        "flashinfer_nvlink_one_sided",
    ),
    Fault(
        "an all-to-all family that is refused although it is not in use",
        static("_supports_parallel_config", lambda _, config: "flashinfer" not in config.all2all_backend),
        of_leaf(contract_declared.parallel_configs, BF16),
        "use_ep=False",
    ),
    Fault(
        "expert parallelism is not seen",
        {"config": lambda spec: replace(spec, parallel=replace(spec.parallel, use_ep=False))},
        contract_declared.parallel_sizes,
        "tp_size: must be 1",
    ),
    Fault(
        "an answer that is not a boolean",
        static("_supports_current_device", lambda cls: cls._supports_current_device() or None),
        of_leaf(contract_declared.device, BF16, "gfx90a"),
        "must be False (got None)",
    ),
    Fault(
        "a device that AITER does not serve",
        static("_supports_current_device", lambda _: True),
        of_leaf(contract_declared.device, BF16, "gfx1201"),
        "on gfx1201",
    ),
    Fault(
        "LoRA is asked first",
        static("is_supported_config", _lora_first),
        of_leaf(contract_cascade.cascade, BF16),
        "and lora fail",
    ),
    Fault(
        "no hint to switch AITER on",
        static("is_supported_config", _no_hint),
        of_leaf(contract_cascade.cascade, BF16),
        "VLLM_ROCM_USE_AITER=1",
    ),
    Fault(
        "everything is declared supported",
        static("is_supported_config", _always_supported),
        cells_of("mxfp4-w4a4"),
        "gfx942/mxfp4-w4a4/silu/out: supported",
    ),
    Fault(
        "an expert mask is not consumed",
        {"leaf": lambda _: {"consumes_expert_mask": False}},
        of_leaf(contract_declared.constants, BLOCK),
        "consumes_expert_mask",
    ),
    Fault(
        "another quantisation method",
        {"leaf": lambda cls: {"_AITER_QUANT_METHOD": type(cls._AITER_QUANT_METHOD)(4)}},
        of_leaf(contract_declared.constants, BLOCK),
        "_AITER_QUANT_METHOD",
    ),
    Fault(
        "batching arguments are taken",
        {"leaf": _takes_batching},
        of_leaf(contract_declared.constants, BLOCK),
        "max_num_tokens=1",
    ),
    Fault(
        "MoRI's quantised inputs are not expected",
        {"leaf": lambda _: {"expects_unquantized_inputs": property(lambda _: True)}},
        of_leaf(contract_declared.mori, MXFP4),
        "mori_high_throughput, use_ep True: expects_unquantized_inputs",
    ),
    Fault(
        "MoRI's packed width is taken for the output's",
        {"leaf": lambda _: {"workspace_shapes": _width_as_it_comes}},
        of_leaf(contract_declared.mori, MXFP4),
        "workspace_shapes",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_caught(fault: Fault) -> None:
    """The check finds the planted fault and says what the matter is; the suites run it without one."""
    assert fault.says in fault.verdict(load_subject("impl"))
