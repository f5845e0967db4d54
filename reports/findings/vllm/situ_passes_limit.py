"""SITU is defined without a limit, and a layer's swiglu_limit is passed on with it all the same."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load(VLLM_ROCM_USE_AITER_MOE_SITUV2="a16w4")
vllm.ops.refresh_env_variables()
one = torch.ones(1)
config = layer(
    vllm,
    vllm.Act.SITU,
    activation_situ_beta=4.0,
    activation_situ_linear_beta=25.0,
    swiglu_limit=7.0,
)
quant = vllm.config.mxfp4_w4a16_moe_quant_config(one, one)
_, call, _ = apply(vllm, "AiterMxfp4Experts", config, quant)
finish(
    "a swiglu_limit of 0.0 or None: nothing in SITU is clamped",
    f"swiglu_limit {call['swiglu_limit']}",
    shows=call["swiglu_limit"] == 7.0,
)
