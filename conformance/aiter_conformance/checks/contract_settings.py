"""What the environment variables mean, and that only a call looks into AITER (SPEC 7)."""

from __future__ import annotations

import itertools
import os
from functools import partial
from types import ModuleType
from typing import Any, Final

from aiter_conformance.checks.contract_bridge import base_arguments
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import SUPPORTED_ARCHS
from aiter_conformance.expected_bridge import (
    SITU,
)
from aiter_conformance.protocols import ENABLED, Subject
from aiter_conformance.simulated_aiter import FUTURE, SimulatedAiter, simulate


def fusion_and_policy(subject: Subject) -> Report:
    """Fusion counts only with fused MoE on; the policy is 0, 1 or 2, and 0 without AITER."""
    report = Report()
    fusion = "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS"
    for on, moe, found in itertools.product((None, "0", "1", "true"), ("0", "1"), (True, False)):
        env = {**ENABLED, "VLLM_ROCM_USE_AITER_MOE": moe, **({} if on is None else {fusion: on})}
        with subject.environment("gfx950", env, installed=simulate(FUTURE) if found else None):
            expected = on in ("1", "true") and moe == "1" and found
            report.compare(
                f"fusion with {env}, found {found}", expected, subject.settings().shared_experts_fusion
            )
    policy = "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY"
    for value, found in itertools.product((None, "0", "1", "2"), (True, False)):
        env = {**ENABLED, **({} if value is None else {policy: value})}
        with subject.environment("gfx950", env, installed=simulate(FUTURE) if found else None):
            expected_policy = int(value or 0) if found else 0
            report.compare(
                f"policy with {env}, found {found}", expected_policy, subject.settings().dispatch_policy
            )
    for value in ("3", "-1", "two", ""):
        with subject.environment("gfx950", {**ENABLED, policy: value}, installed=simulate(FUTURE)):
            compare_refusal(
                report,
                subject,
                f"settings with {policy}={value!r}",
                ValueError,
                subject.settings,
                difference="dispatch-policy-unchecked",
                says=(policy,),
                says_difference="terse-refusals" if value in ("two", "") else None,
            )
    return report


# Value of VLLM_ROCM_USE_AITER_MOE_SITUV2 -> the activations of SITU's kernel that it means.
SITU_VALUES: Final = {
    None: "a4w4",
    "auto": "a4w4",
    "1": "a4w4",
    "a4w4": "a4w4",
    "A4W4": "a4w4",
    "a8w4": "a8w4",
    "A8w4": "a8w4",
    "a16w4": "a16w4",
    "0": "a16w4",
    "AUTO": "a4w4",
}
_SITU_VARIABLE: Final = "VLLM_ROCM_USE_AITER_MOE_SITUV2"
_SWITCHES: Final = {"a4w4": {"AITER_SITUV2_A4W4": "1"}, "a8w4": {"AITER_SITUV2_A8W4": "1"}, "a16w4": {}}


def situ_settings(subject: Subject) -> Report:
    """SITU's gate and up rows are interleaved for a8w4 only, MoE on or off; an unknown value is an error."""
    report = Report()
    for (value, means), arch, moe, found in itertools.product(
        SITU_VALUES.items(), (*SUPPORTED_ARCHS, "gfx90a", "gfx1201"), ("0", "1"), (True, False)
    ):
        env = {
            **ENABLED,
            "VLLM_ROCM_USE_AITER_MOE": moe,
            **({} if value is None else {_SITU_VARIABLE: value}),
        }
        with subject.environment(arch, env, installed=simulate(FUTURE) if found else None):
            expected = means == "a8w4" and arch in SUPPORTED_ARCHS and found
            got = subject.settings().situ_interleaved
            report.compare(f"SITU interleaved on {arch} with {env}, found {found}", expected, got)
    for value in ("a2w4", "true", ""):
        with subject.environment("gfx950", {**ENABLED, _SITU_VARIABLE: value}, installed=simulate(FUTURE)):
            compare_refusal(
                report,
                subject,
                f"settings with {_SITU_VARIABLE}={value!r}",
                ValueError,
                subject.settings,
                says=("a4w4", "a8w4", "a16w4"),
            )
    return report


def situ_switches(subject: Subject) -> Report:
    """AITER's own two variables say what vLLM's one means when it is called; a later change is an error."""
    report = Report()
    arguments = {**base_arguments("fused_moe"), "activation_method": SITU, "beta": 4.0, "linear_beta": 25.0}
    stale: tuple[dict[str, str], ...] = ({}, {"AITER_SITUV2_A4W4": "1"}, {"AITER_SITUV2_A8W4": "1"})
    for (value, means), before in itertools.product(SITU_VALUES.items(), stale):
        env = {**ENABLED, **before, **({} if value is None else {_SITU_VARIABLE: value})}
        simulated = simulate(FUTURE)
        with subject.environment("gfx950", env, installed=simulated):
            wrapper = subject.entry("fused_moe").wrapper
            wrapper(**arguments)
            seen = {k: v for k, v in simulated.calls[0].variables.items() if k.startswith("AITER_SITUV2")}
            report.compare(f"AITER's variables with {env}", _SWITCHES[means], seen)
            other = "AITER_SITUV2_A4W4" if means == "a8w4" else "AITER_SITUV2_A8W4"
            os.environ[other] = "1"
            if means != "a16w4":
                os.environ.pop(next(iter(_SWITCHES[means])), None)
            compare_refusal(
                report,
                subject,
                f"SITU with {env} after a change to {other}",
                RuntimeError,
                partial(wrapper, **arguments),
                says=(other,),
                difference="situ-environment-unchecked",
            )
    return report


class _Watched(ModuleType):
    """A module that remembers what was looked up in it, what the import system reads aside."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            vars(self)["__used__"].append(f"{self.__name__}.{name}")
        return super().__getattribute__(name)


def aiter_is_left_alone(subject: Subject) -> Report:
    """Settings and declarations do not look into AITER: it is imported only when a call needs it."""
    report = Report()
    used: list[str] = []
    modules: dict[str, ModuleType] = {}
    for name, module in simulate(FUTURE).modules.items():
        modules[name] = _Watched(name)
        vars(modules[name]).update(vars(module), __used__=used)
    with subject.environment("gfx950", installed=SimulatedAiter(FUTURE, modules)):
        report.compare("fused MoE with this AITER", True, subject.settings().fused_moe_enabled)
        leaf = subject.api.AiterUnquantizedExperts
        report.compare("device with this AITER", True, leaf._supports_current_device())
    report.compare("what was used of AITER", [], used)
    return report
