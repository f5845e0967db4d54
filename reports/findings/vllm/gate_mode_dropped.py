"""A gate mode that AITER's fused_moe cannot take is left out in silence; the weights are laid out for it."""

import inspect
import sys

import torch
from vllm_on_cpu import finish, load

# As of AITER v0.1.13, of those that vLLM passes by name.
NAMED = ("num_local_tokens", "dtype", "hidden_pad", "intermediate_pad")
vllm = load()
seen: dict[str, object] = {}


def fused_moe(hidden_states: torch.Tensor, *_in_order: object, **named: object) -> torch.Tensor:
    """Take what is passed; what vLLM asks about is the signature below."""
    seen.update(named)
    return hidden_states


names = (*NAMED, "bias1", "bias2", "moe_sorting_dispatch_policy", "swiglu_limit")
fused_moe.__signature__ = inspect.Signature(
    [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
)
sys.modules["aiter.fused_moe"].fused_moe = fused_moe
one = torch.ones(1, 1)
function = vllm.registered["rocm_aiter_fused_moe"]["op_func"]
function(one, one, one, one, one, activation_method=2, quant_method=3, gate_mode="interleave")
finish(
    'an error: the caller asked for gate_mode "interleave", which this AITER cannot be told',
    f"a call without a gate mode ({', '.join(seen)})",
    shows="gate_mode" not in seen,
)
