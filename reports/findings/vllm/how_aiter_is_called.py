"""AITER's fused_moe is called with 13 arguments by position, and with arguments that say nothing."""

import inspect
import sys

import torch
from vllm_on_cpu import finish, load

vllm = load()
seen: list[object] = []


def fused_moe(*in_order: object, **named: object) -> torch.Tensor:
    """Note how the arguments are passed."""
    seen.extend((len(in_order), {name for name, value in named.items() if value in (None, 0)}))
    return torch.zeros(1, 1)


fused_moe.__signature__ = inspect.Signature()
sys.modules["aiter.fused_moe"].fused_moe = fused_moe
one = torch.ones(1, 1)
vllm.registered["rocm_aiter_fused_moe"]["op_func"](one, one, one, one, one)
in_order, nothing = seen
finish(
    "everything by keyword, since AITER has inserted parameters; swiglu_limit, which AITER has from v0.1.14, "
    "only where there is a limit",
    f"{in_order} by position; by keyword without saying anything: {', '.join(sorted(nothing))}",
    shows=in_order > 0 or bool(nothing),
)
