"""With SITU, DeepSeek V4.1's opt-in to MXFP4 activations does not reach AITER."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
quant = vllm.config.mxfp4_w4a16_moe_quant_config(torch.ones(1), torch.ones(1))
seen = {}
for activation in (vllm.Act.SILU, vllm.Act.SITU):
    config = layer(vllm, activation, activation_situ_beta=1.0, activation_situ_linear_beta=1.0)
    config.use_mxfp4_w4a4_dsv4 = True
    seen[activation.value] = apply(vllm, "AiterMxfp4Experts", config, quant)[1]["q_dtype_a"]
finish(
    "q_dtype_a is torch.float4_e2m1fn_x2 whatever the activation",
    ", ".join(f"{name}: {dtype}" for name, dtype in seen.items()),
    shows=seen["situ"] is None and seen["silu"] is not None,
)
