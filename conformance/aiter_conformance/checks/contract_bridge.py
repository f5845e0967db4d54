"""What reaches which AITER release through the two kernel entries (SPEC 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch

from aiter_conformance.checks.contract_call import ramp
from aiter_conformance.checks.report import Report
from aiter_conformance.expected_bridge import (
    SHARED_TENSORS,
    SITU,
    BridgeRefusal,
    Member,
    expected_aiter_call,
)
from aiter_conformance.expected_call import FP4X2
from aiter_conformance.protocols import Entry, Subject
from aiter_conformance.simulated_aiter import SimulatedAiter, simulate

TOKENS, EXPERTS, HIDDEN, INTERMEDIATE = 3, 4, 8, 16
ENTRIES: Final[tuple[Entry, ...]] = ("fused_moe", "asm_moe_tkw1")


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
