"""The checks of the bridge, its operators and settings catch planted faults."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from aiter_conformance.checks import (
    contract_bridge,
    contract_operators,
    contract_settings,
)
from aiter_conformance.checks.contract_faulty import Arguments, Fault, fake, wrapper
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import (
    Entry,
    KernelEntry,
    Subject,
)
from aiter_conformance.subjects import load_subject


def operator(check: Callable[[Subject, Entry], Report]) -> Callable[[Subject], Report]:
    """Return a check of the common entry."""
    return lambda subject: check(subject, "fused_moe")


def release(version: str, entry: Entry = "fused_moe") -> Callable[[Subject], Report]:
    """Return the check of what reaches a release."""
    return lambda subject: contract_bridge.calls_of_release(subject, entry, version)


def _drops(*names: str) -> dict[str, Any]:
    return wrapper(lambda real, a: real(**{k: v for k, v in a.items() if k not in names}))


def _swaps(first: str, second: str) -> dict[str, Any]:
    names = {first: second, second: first}
    return wrapper(lambda real, a: real(**{names.get(k, k): v for k, v in a.items()}))


def _situ_gets_a_beta(real: Callable[..., Any], arguments: Arguments) -> Any:
    defaults = {"beta": 1.0, "linear_beta": 25.0}
    return real(**{**arguments, **{k: arguments.get(k, v) for k, v in defaults.items()}})


def _without_switches(real: Callable[..., Any], arguments: Arguments) -> Any:
    try:
        return real(**arguments)
    except RuntimeError:
        return None


def _own_result(real: Callable[..., Any], arguments: Arguments) -> Any:
    return real(**arguments).T.contiguous()


def _renamed_in_fake(entry: Entry, real: KernelEntry) -> KernelEntry:
    def bent(hidden_states: Any, w1: Any, w2: Any, weights: Any, ids: Any, **rest: Any) -> Any:
        return real.fake(hidden_states, w1, w2, weights, ids, **rest)

    return replace(real, fake=bent)


_COUNTER: Final = itertools.count()


def _unsound_operator(_: Entry, real: KernelEntry) -> KernelEntry:
    """Replace the operator by one whose fake promises another shape."""
    name = f"aiter_moe_conf_selftest::unsound_{next(_COUNTER)}"
    operator = torch.library.custom_op(name, real.implementation, mutates_args=())

    def promise(hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return hidden_states.new_empty((1, hidden_states.shape[1]))

    operator.register_fake(promise)
    return replace(real, operator=operator._opoverload)


def _mutating_operator(_: Entry, real: KernelEntry) -> KernelEntry:
    """Replace the operator by one that writes to an input without saying so."""
    name = f"aiter_moe_conf_selftest::mutating_{next(_COUNTER)}"
    schema = str(real.operator._schema).partition("(")[2]
    torch.library.define(name, f"({schema}")

    def implementation(*args: Any, **kwargs: Any) -> Any:
        kwargs["hidden_states"].add_(1) if "hidden_states" in kwargs else args[0].add_(1)
        return real.implementation(*args, **kwargs)

    torch.library.impl(name, "CPU", implementation)
    torch.library.register_fake(name, real.fake)
    namespace, _, operator = name.partition("::")
    return replace(real, operator=getattr(getattr(torch.ops, namespace), operator).default)


PARAMETERS: Final = operator(contract_operators.parameters)
FAKES: Final = operator(contract_operators.fakes)
OPCHECK: Final = operator(contract_operators.opcheck)

FAULTS: Final = [
    Fault("gate mode dropped in silence", _drops("gate_mode"), release("0.1.13"), "gate_mode='interleave'"),
    Fault("gate mode dropped for all", _drops("gate_mode"), release("0.1.20"), "gate_mode: must be"),
    Fault(
        "betas exchanged", _swaps("beta", "linear_beta"), release("0.1.19"), "beta: must be 4.0 (got 25.0)"
    ),
    Fault("biases exchanged", _swaps("bias1", "bias2"), release("0.1.7"), "bias1 is the tensor"),
    Fault(
        "smooth scales exchanged",
        _swaps("fc1_smooth_scale", "fc2_smooth_scale"),
        release("0.1.20", "asm_moe_tkw1"),
        "fc1_smooth_scale is the tensor",
    ),
    Fault("AITER's own betas for SITU", wrapper(_situ_gets_a_beta), release("0.1.20"), "beta"),
    Fault("activation quantisation dropped", _drops("q_dtype_a"), release("0.1.20"), "quant_dtype_a"),
    Fault("shared experts halved", _drops("shared_w2"), release("0.1.20"), "shared"),
    Fault("another result", wrapper(_own_result), release("0.1.14"), "result"),
    Fault(
        "policy unchecked",
        {"answers": lambda s: replace(s, dispatch_policy=min(s.dispatch_policy, 1))},
        contract_settings.fusion_and_policy,
        "policy with",
    ),
    Fault(
        "fusion without fused MoE",
        {"answers": lambda s: replace(s, shared_experts_fusion=True)},
        contract_settings.fusion_and_policy,
        "fusion with",
    ),
    Fault(
        "settings that look into AITER",
        {"answers": lambda s: (sys.modules["aiter"].ActivationType, s)[1]},
        contract_settings.aiter_is_left_alone,
        "aiter.ActivationType",
    ),
    Fault(
        "a later change of SITU's variables taken",
        wrapper(_without_switches),
        contract_settings.situ_switches,
        "after a change to AITER_SITUV2_A8W4",
    ),
    Fault(
        "SITU always separated",
        {"answers": lambda s: replace(s, situ_interleaved=False)},
        contract_settings.situ_settings,
        "SITU interleaved on gfx942",
    ),
    Fault("a fake of the packed width", fake(lambda r: r[:, : r.shape[1] // 2]), FAKES, ": fake"),
    Fault("a fake of another dtype", fake(lambda r: r.to(torch.float64)), FAKES, ": fake"),
    Fault("a fake of other parameters", {"faces": _renamed_in_fake}, PARAMETERS, "fused_moe's fake"),
    Fault("an operator with a wrong fake", {"faces": _unsound_operator}, OPCHECK, "test_faketensor"),
    Fault("an operator that writes", {"faces": _mutating_operator}, OPCHECK, "test_schema"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_caught(fault: Fault) -> None:
    """The check finds the planted fault and says what the matter is; the suites run it without one."""
    assert fault.says in fault.verdict(load_subject("impl"))
