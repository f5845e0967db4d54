"""The enums and the 38 quant keys (SPEC 1 and 2)."""

from __future__ import annotations

import itertools
from typing import Any, Final

from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import (
    ACCEPTED_ACTIVATIONS,
    ACTIVATION_METHODS,
    NON_GATED_ACTIVATIONS,
    QUANT_METHODS,
    REFUSED_ACTIVATIONS,
)
from aiter_conformance.protocols import Subject
from aiter_conformance.quant_keys import QUANT_KEYS, KeyFacts, ScaleFacts
from aiter_conformance.simulated_aiter import FUTURE, simulate

ACTIVATIONS: Final = (*ACCEPTED_ACTIVATIONS, *REFUSED_ACTIVATIONS, *NON_GATED_ACTIVATIONS)


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
