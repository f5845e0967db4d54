"""The two torch operators: parameters, fakes and torch's own checks (SPEC 7)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from aiter_conformance.checks.contract_bridge import HIDDEN, TOKENS, base_arguments
from aiter_conformance.checks.contract_call import ramp
from aiter_conformance.checks.report import Report
from aiter_conformance.expected_bridge import (
    PARAMETERS,
)
from aiter_conformance.expected_call import FP4X2
from aiter_conformance.protocols import Entry, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate


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
        changes.append({"output_dtype": torch.float16, "bias1": torch.ones(1), "gate_mode": "interleave"})
    for change in changes:
        arguments = {**base_arguments(entry), **change}
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            answers = torch.library.opcheck(
                subject.entry(entry).operator, (), arguments, raise_exception=False
            )
        for test, answer in answers.items():
            report.compare(f"{entry} with {list(change)}: {test}", "SUCCESS", str(answer))
    return report
