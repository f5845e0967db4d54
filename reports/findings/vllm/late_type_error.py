"""An argument that the installed AITER does not take ends in Python's own TypeError."""

# ruff: noqa: ARG001 -- the parameters are what matters

import sys

import torch
from vllm_on_cpu import finish, load

vllm = load()


def fused_moe(
    *in_order,
    num_local_tokens=None,
    dtype=None,
    hidden_pad=0,
    intermediate_pad=0,
    bias1=None,
    bias2=None,
    moe_sorting_dispatch_policy=0,
    swiglu_limit=None,
    gate_mode="separated",
):
    """Take what AITER v0.1.20 takes of what vLLM passes by name."""
    return torch.zeros(1, 1)


sys.modules["aiter.fused_moe"].fused_moe = fused_moe
one = torch.ones(1, 1)
function = vllm.registered["rocm_aiter_fused_moe"]["op_func"]
try:
    function(one, one, one, one, one, q_dtype_a=torch.float4_e2m1fn_x2)
    seen, shows = "a call", False
except TypeError as error:
    seen, shows = f"TypeError: {error}", True
except ValueError as error:
    seen, shows = f"ValueError: {error}", False
finish(
    "a ValueError that names the argument, the AITER at hand and the one that is needed", seen, shows=shows
)
