"""The bridge to AITER: settings, the two operators, and what reaches which release (SPEC 7)."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

import torch

from aiter_conformance.checks.contract_call import ramp
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import SUPPORTED_ARCHS
from aiter_conformance.expected_bridge import (
    PARAMETERS,
    SHARED_TENSORS,
    SITU,
    BridgeRefusal,
    Member,
    expected_aiter_call,
)
from aiter_conformance.expected_call import FP4X2
from aiter_conformance.protocols import ENABLED, Entry, Subject
from aiter_conformance.simulated_aiter import FUTURE, SimulatedAiter, simulate

TOKENS, EXPERTS, HIDDEN, INTERMEDIATE = 3, 4, 8, 16
ENTRIES: Final[tuple[Entry, ...]] = ("fused_moe", "asm_moe_tkw1")

# --------------------------------------------------------------------------- settings


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


# --------------------------------------------------------------------------- what reaches AITER


def base_arguments(entry: Entry) -> dict[str, Any]:
    """Return the arguments that have no default: bf16 hidden states and weights of toy size."""
    weights = "topk_weight" if entry == "fused_moe" else "topk_weights"
    topk = 2 if entry == "fused_moe" else 1
    return {
        "hidden_states": ramp(TOKENS, HIDDEN, dtype=torch.bfloat16),
        "w1": ramp(EXPERTS, 2 * INTERMEDIATE, HIDDEN),
        "w2": ramp(EXPERTS, HIDDEN, INTERMEDIATE),
        weights: ramp(TOKENS, topk),
        "topk_ids": torch.arange(TOKENS * topk, dtype=torch.int32).reshape(TOKENS, topk) % EXPERTS,
    }


def _one(value: float) -> torch.Tensor:
    return torch.full((1,), value)


def single_changes(entry: Entry) -> Iterator[dict[str, Any]]:
    """Yield arguments beyond the base, one meaning at a time; no two values are alike."""
    yield {}
    yield {"activation_method": 1}
    yield {"activation_method": 2}
    yield {"activation_method": SITU}
    yield {"activation_method": 77}
    yield {"expert_mask": torch.ones(EXPERTS + 1, dtype=torch.int32)}
    if entry == "asm_moe_tkw1":
        scales = ("fc1_scale", "fc2_scale", "fc1_smooth_scale", "fc2_smooth_scale", "per_tensor_quant_scale")
        yield from ({name: _one(i)} for i, name in enumerate(scales))
        yield {"a16": True}
        return
    yield from ({"quant_method": method} for method in range(1, 6))
    yield {"doweight_stage1": True}
    names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "bias1", "bias2")
    yield from ({name: _one(i)} for i, name in enumerate(names))
    yield {"num_local_tokens": torch.tensor([2], dtype=torch.int32)}
    yield {"output_dtype": torch.float16}
    yield {"hidden_pad": 128}
    yield {"intermediate_pad": 192}
    yield {"gate_mode": "interleave"}
    yield {"gate_mode": "separated"}
    yield {"moe_sorting_dispatch_policy": 2}
    yield {"swiglu_limit": 7.0}
    yield {"beta": 4.0, "linear_beta": 25.0}
    for situ in ({"beta": 4.0, "linear_beta": 25.0}, {"beta": 4.0}, {"linear_beta": 25.0}):
        yield {"activation_method": SITU, **situ}
    shared = {name: _one(10 + i) for i, name in enumerate(SHARED_TENSORS)}
    yield {**shared, "shared_expert_id": 4}
    yield {**shared, "shared_expert_id": 0}
    yield dict(shared)
    yield {"shared_expert_id": 4}
    yield from ({name: value, "shared_expert_id": 4} for name, value in shared.items())
    yield {"q_dtype_a": getattr(torch, FP4X2)}


def all_at_once(entry: Entry, version: str) -> dict[str, Any]:
    """Return every change that the release can take, in one call: a swap of two arguments shows here."""
    together: dict[str, Any] = {}
    for change in single_changes(entry):
        wanted = {**together, **change}
        situ = wanted.get("activation_method") == SITU and "beta" not in wanted
        refused = isinstance(expected_aiter_call(entry, wanted, version), BridgeRefusal)
        if not refused and not situ:
            together = wanted
    return together


def _refusal_difference(refusal: BridgeRefusal) -> str | None:
    """Return the id under which a subject may not refuse, or not in the form that SPEC asks for."""
    name = refusal.says[0][0]
    if name in ("shared", "activation"):
        return None
    return {
        "beta": "situ-beta-required",
        "linear_beta": "situ-beta-required",
        "gate_mode": "argument-dropped-in-silence",
    }.get(name, "late-type-error")


def _compare_aiter_call(
    report: Report, where: str, simulated: SimulatedAiter, entry: Entry, expected: Mapping[str, Any]
) -> None:
    if not report.compare(
        f"{where}: AITER's functions called", [entry], [c.function for c in simulated.calls]
    ):
        return
    call = simulated.calls[0]
    report.compare(f"{where}: passed by position", (), call.positional, "first-arguments-by-position")
    needless = {name for name in call.arguments if name not in expected}
    report.compare(f"{where}: sent although neutral", [], sorted(needless), "neutral-arguments-sent")
    for name, value in expected.items():
        got = call.arguments.get(name, "not sent")
        if isinstance(value, Member):
            enum = getattr(simulated.modules["aiter"], value.enum)
            report.compare(f"{where}: {name}", enum[value.name], got)
        elif isinstance(value, torch.Tensor):
            report.compare(f"{where}: {name} is the tensor that was passed", True, got is value)
        else:
            report.compare(f"{where}: {name}", value, got)


def calls_of_release(subject: Subject, entry: Entry, version: str) -> Report:
    """The release gets what says something, by keyword and its own names; what it cannot take is an error."""
    report = Report()
    base = base_arguments(entry)
    changes = [*single_changes(entry), all_at_once(entry, version)]
    for change in changes:
        arguments = {**base, **change}
        where = f"{entry}({', '.join(f'{k}={_short(v)}' for k, v in change.items())}) with AITER {version}"
        expected = expected_aiter_call(entry, arguments, version)
        simulated = simulate(version)
        with subject.environment("gfx950", installed=simulated):
            wrapper = subject.entry(entry).wrapper
            call = partial(wrapper, **arguments)
            if isinstance(expected, BridgeRefusal):
                _compare_bridge_refusal(report, subject, where, expected, call, simulated)
            elif _compare_answer(report, where, arguments, call):
                _compare_aiter_call(report, where, simulated, entry, expected)
    return report


def _compare_answer(
    report: Report, where: str, arguments: Mapping[str, Any], call: Callable[[], Any]
) -> bool:
    expected = ([TOKENS, HIDDEN], arguments.get("output_dtype") or torch.bfloat16)
    try:
        result = call()
    except Exception as error:
        # Sending what is neutral is harmless until an AITER does not know it.
        return report.compare(where, expected, f"{type(error).__name__}: {error}", "neutral-arguments-sent")
    return report.compare(f"{where}: result", expected, (list(result.shape), result.dtype))


def _short(value: Any) -> str:
    return f"tensor {value.tolist()}" if isinstance(value, torch.Tensor) else repr(value)


def _compare_bridge_refusal(
    report: Report,
    subject: Subject,
    where: str,
    expected: BridgeRefusal,
    call: Callable[[], Any],
    simulated: SimulatedAiter,
) -> None:
    wanted = (
        f"a ValueError that says {' and '.join('/'.join(dict.fromkeys(group)) for group in expected.says)}"
    )
    try:
        answer = call()
    except Exception as error:
        refused = subject.refusal(error) is ValueError
        said = all(any(text in str(error) for text in group) for group in expected.says)
        clean = refused and said and not simulated.calls
        got = wanted if clean else f"{type(error).__name__}: {error}, {len(simulated.calls)} calls"
    else:
        got = f"the answer {_short(answer)}"
    report.compare(where, wanted, got, _refusal_difference(expected))


# --------------------------------------------------------------------------- operators and fakes


def parameter_names(face: Callable[..., Any]) -> list[str]:
    """Return the parameter names of a function, an operator or an operator packet."""
    schema = getattr(face, "_schema", None)
    if schema is None and hasattr(face, "default"):
        schema = face.default._schema
    if schema is not None:
        return [argument.name for argument in schema.arguments]
    return list(inspect.signature(face).parameters)


def parameters(subject: Subject, entry: Entry) -> Report:
    """vllm-project/vllm#36100 (C7): wrapper, operator, implementation and fake have the same parameters."""
    report = Report()
    expected = list(PARAMETERS[entry])
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        faces = subject.entry(entry)
        for name in ("wrapper", "operator", "implementation", "fake"):
            report.compare(f"parameters of {entry}'s {name}", expected, parameter_names(getattr(faces, name)))
        schema = faces.operator._schema
        report.compare(f"{entry} writes to an argument", False, schema.is_mutable)
    return report


def _packed() -> torch.Tensor:
    return torch.zeros(TOKENS, HIDDEN // 2, dtype=torch.uint8).view(getattr(torch, FP4X2))


def fakes(subject: Subject, entry: Entry) -> Report:
    """The fake's result has the shape and dtype of the real one, packed fp4 input included."""
    report = Report()
    cases: list[dict[str, Any]] = []
    inputs = [ramp(TOKENS, HIDDEN, dtype=dtype) for dtype in (torch.bfloat16, torch.float16)]
    inputs.append(torch.zeros(0, HIDDEN, dtype=torch.bfloat16))
    for hidden in inputs:
        cases.append({"hidden_states": hidden})
        if entry == "fused_moe":
            cases.append({"hidden_states": hidden, "output_dtype": torch.float16})
            cases.append({"hidden_states": hidden, "output_dtype": torch.float32})
    if entry == "fused_moe":
        cases += [
            {"hidden_states": _packed(), "output_dtype": dtype} for dtype in (torch.bfloat16, torch.float16)
        ]
    for case in cases:
        arguments = {**base_arguments(entry), **case}
        hidden = case["hidden_states"]
        where = f"{entry} of {list(hidden.shape)} {hidden.dtype}, output_dtype {case.get('output_dtype')}"
        difference = "fake-of-packed-fp4" if hidden.dtype == getattr(torch, FP4X2) else None
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            faces = subject.entry(entry)
            real = faces.wrapper(**arguments)
            fake = faces.fake(**arguments)
            meta = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
            traced = faces.operator(**meta)
        facts = (list(real.shape), real.dtype)
        expected = ([hidden.shape[0], HIDDEN], case.get("output_dtype") or hidden.dtype)
        report.compare(f"{where}: real", expected, facts)
        report.compare(f"{where}: fake", facts, (list(fake.shape), fake.dtype), difference)
        report.compare(f"{where}: on meta tensors", facts, (list(traced.shape), traced.dtype), difference)
        report.compare(f"{where}: device on meta tensors", "meta", traced.device.type)
    return report


def opcheck(subject: Subject, entry: Entry) -> Report:
    """The operator passes torch.library.opcheck: schema, autograd registration, fakes, tracing."""
    report = Report()
    changes: list[dict[str, Any]] = [{}]
    if entry == "fused_moe":
        changes.append({"output_dtype": torch.float16, "bias1": _one(1), "gate_mode": "interleave"})
    for change in changes:
        arguments = {**base_arguments(entry), **change}
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            answers = torch.library.opcheck(
                subject.entry(entry).operator, (), arguments, raise_exception=False
            )
        for test, answer in answers.items():
            report.compare(f"{entry} with {list(change)}: {test}", "SUCCESS", str(answer))
    return report
