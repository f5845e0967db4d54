"""The checks of calls and of results catch planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from aiter_conformance.checks import (
    contract_call,
    contract_cases,
    contract_results,
)
from aiter_conformance.checks.contract_faulty import Arguments, Fault, apply, put, swap
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import (
    Entry,
    MoEConfigSpec,
    Subject,
)
from aiter_conformance.subjects import load_subject


def arguments_of(scheme: str, activation: str = "silu") -> Callable[[Subject], Report]:
    """Return the check of single arguments."""
    return lambda subject: contract_call.call_of_arguments(subject, scheme, activation)


def pads_of(scheme: str, activation: str = "silu") -> Callable[[Subject], Report]:
    """Return the check of pads and deployments."""
    return lambda subject: contract_call.call_of_pads(subject, scheme, activation)


def _pads_twice(_: Entry, arguments: Arguments) -> Arguments:
    return {**arguments, "intermediate_pad": 2 * arguments["intermediate_pad"]}


def _pads_halved(_: Entry, arguments: Arguments) -> Arguments:
    return {**arguments, "intermediate_pad": arguments["intermediate_pad"] // 2}


def _number(name: str, bend: Callable[[Any], Any]) -> dict[str, Any]:
    return {"call": lambda _, a: {**a, name: bend(a[name])} if name in a else a}


def _summed(real: Callable[..., None], arguments: Arguments) -> None:
    metadata = arguments["expert_tokens_meta"]
    if metadata is not None and metadata.expert_num_tokens is not None:
        total = metadata.expert_num_tokens.sum().reshape(1)
        arguments["expert_tokens_meta"] = replace(metadata, expert_num_tokens=total)
    real(**arguments)


def _in_place(real: Callable[..., None], arguments: Arguments) -> None:
    arguments["topk_ids"].clamp_(min=0)
    real(**arguments)


def _scaled_back(real: Callable[..., None], arguments: Arguments) -> None:
    # The bytes are those of before: only the version tells.
    arguments["hidden_states"].view(torch.uint8).bitwise_not_().bitwise_not_()
    real(**arguments)


def _twice(real: Callable[..., None], arguments: Arguments) -> None:
    real(**arguments)
    real(**arguments)


def _as_type_error(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError as error:
        raise TypeError(str(error)) from error


def _router_as_out(real: Callable[..., None], arguments: Arguments) -> None:
    real(**{**arguments, "apply_router_weight_on_input": False})


def _without_biases(cls: Any) -> dict[str, Any]:
    def initialise(self: Any, moe_config: Any, quant_config: Any) -> None:
        cls.__init__(self, moe_config, quant_config)
        unbiased = {n: replace(getattr(quant_config, n), bias=None) for n in ("_w1", "_w2")}
        self.quant_config = replace(quant_config, **unbiased)

    return {"__init__": initialise}


def _only_gates_of_silu(config: MoEConfigSpec) -> MoEConfigSpec:
    return replace(config, swiglu_limit=None, hidden_dim_unpadded=None)


CALLS: Final = [
    Fault(
        "gate mode dropped", put(gate_mode=""), arguments_of("mxfp4-w4a16"), "gate_mode: must be 'interleave'"
    ),
    Fault(
        "packed rows said to be interleaved",
        put(gate_mode="interleave"),
        arguments_of("bf16", "swigluoai_uninterleave"),
        "gate_mode: must be 'separated'",
    ),
    Fault("pads doubled twice", {"call": _pads_twice}, pads_of("bf16"), "intermediate_pad: must be"),
    Fault("pads not doubled", {"call": _pads_halved}, pads_of("bf16"), "intermediate_pad: must be"),
    Fault("hidden pad not rounded", _number("hidden_pad", lambda p: p + 1), pads_of("bf16"), "hidden_pad"),
    Fault("pads exchanged", swap("hidden_pad", "intermediate_pad"), pads_of("bf16"), "hidden_pad"),
    Fault(
        "data parallelism doubles",
        {
            "config": lambda s: (
                replace(s, intermediate_size=s.intermediate_size // 2, parallel=replace(s.parallel, dp=1))
                if s.parallel.dp == 2 and not s.parallel.use_ep
                else s
            )
        },
        pads_of("bf16"),
        "tp=2",
    ),
    Fault("scales exchanged", swap("w1_scale", "w2_scale"), arguments_of("fp8-block"), "w1_scale"),
    Fault("biases exchanged", swap("bias1", "bias2"), arguments_of("mxfp4-w4a16"), "bias1"),
    Fault("weights exchanged", swap("w1", "w2"), arguments_of("bf16"), "w1"),
    Fault("tkw1 scales exchanged", swap("fc1_scale", "fc2_scale"), arguments_of("fp8-channel"), "fc1_scale"),
    Fault("betas exchanged", swap("beta", "linear_beta"), arguments_of("bf16", "situ"), "beta"),
    Fault("mask dropped", put(expert_mask=None), arguments_of("bf16"), "mask=True): expert_mask"),
    Fault("quantised input's scale dropped", put(a1_scale=None), arguments_of("fp8-block"), "a1_scale"),
    Fault("output dtype dropped", put(output_dtype=None), arguments_of("bf16"), "output_dtype"),
    Fault("policy dropped", put(moe_sorting_dispatch_policy=0), arguments_of("bf16"), "policy"),
    Fault("limit dropped", put(swiglu_limit=0.0), arguments_of("bf16", "swigluoai"), "swiglu_limit=7.0"),
    Fault("limit of another type", _number("swiglu_limit", int), arguments_of("bf16"), "swiglu_limit"),
    Fault("opt-in's dtype dropped", put(q_dtype_a=None), arguments_of("mxfp4-w4a16"), "q_dtype_a"),
    Fault(
        "another activation",
        _number("activation_method", lambda n: 0 if n == 1 else n),
        arguments_of("bf16", "gelu"),
        "activation_method: must be 1 (got 0)",
    ),
    Fault(
        "another quantisation",
        _number("quant_method", lambda n: 4 if n == 5 else n),
        arguments_of("fp8-block"),
        "quant_method: must be 5 (got 4)",
    ),
    Fault(
        "SITU's layout ignores the variable",
        put(gate_mode="separated"),
        arguments_of("mxfp4-w4a16", "situ"),
        "situ='a8w4'): gate_mode: must be 'interleave'",
    ),
    Fault(
        "router weights not cast",
        _number("topk_weight", lambda w: w.to(torch.bfloat16)),
        arguments_of("bf16"),
        "topk_weight",
    ),
    Fault(
        "router weights on the output instead",
        apply(_router_as_out),
        arguments_of("bf16"),
        "doweight_stage1: must be True",
    ),
    Fault(
        "the common route instead of tkw1",
        apply(_router_as_out),
        arguments_of("fp8-channel"),
        "must be ['asm_moe_tkw1'] (got ['fused_moe'])",
    ),
    Fault(
        "block fp8 takes router weights on the input",
        apply(_router_as_out),
        arguments_of("fp8-block"),
        "names AiterFp8BlockExperts",
    ),
    Fault(
        "two kernel calls", apply(_twice), arguments_of("bf16"), "calls: must be ['fused_moe'] (got ['fused"
    ),
    Fault(
        "a parameter left out",
        {"call": lambda _, a: dict(list(a.items())[:-1])},
        arguments_of("bf16"),
        "param",
    ),
    Fault("biases dropped in silence", {"leaf": _without_biases}, arguments_of("bf16"), "names w1_bias"),
    Fault(
        "tkw1 drops pads and limit",
        {"config": _only_gates_of_silu},
        arguments_of("fp8-channel"),
        "names swiglu_limit",
    ),
    Fault("a refusal of another type", apply(_as_type_error), arguments_of("fp8-block"), '(got "TypeError('),
    Fault("an input overwritten", apply(_scaled_back), arguments_of("bf16"), "['hidden_states']"),
    Fault("ids clamped in place", apply(_in_place), contract_cases.padding_rows, "['topk_ids']"),
    Fault("counts per expert summed", apply(_summed), contract_cases.expert_token_counts, "num_local_tokens"),
    Fault(
        "-1 passed on",
        _number("topk_ids", lambda ids: torch.where(ids == 0, -1, ids)),
        contract_cases.padding_rows,
        "ids: must be",
    ),
    Fault(
        "a padding row keeps its weight",
        _number("topk_weight", lambda w: w + 1),
        contract_cases.padding_rows,
        "weights: must be",
    ),
]


def _always_copies(real: Callable[..., None], arguments: Arguments) -> None:
    output = arguments["output"]
    inner = torch.empty_like(output)
    real(**{**arguments, "output": inner})
    output.copy_(inner)


def _always_takes_over(real: Callable[..., None], arguments: Arguments) -> None:
    output = arguments["output"]
    inner = torch.empty(output.shape, dtype=output.dtype)
    real(**{**arguments, "output": inner})
    output.set_(inner)


def _broadcasts(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError:
        arguments["output"].fill_(1)


def _forgets(real: Callable[..., None], arguments: Arguments) -> None:
    real(**{**arguments, "output": torch.empty_like(arguments["output"])})


RESULTS: Final = [
    Fault("always a copy", apply(_always_copies), contract_results.writing, "alike: output takes over"),
    Fault(
        "storage taken over always", apply(_always_takes_over), contract_results.writing, "output is a view"
    ),
    Fault("nothing written", apply(_forgets), contract_results.writing, "output holds the result"),
    Fault(
        "a wrong shape broadcast",
        apply(_broadcasts),
        contract_results.other_shapes,
        "result of shape [1, 512]",
    ),
]


FAULTS: Final = [*CALLS, *RESULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_caught(fault: Fault) -> None:
    """The check finds the planted fault and says what the matter is; the suites run it without one."""
    assert fault.says in fault.verdict(load_subject("impl"))
