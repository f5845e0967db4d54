"""With SITU and a8w4, even bf16 and fp8 layers are called with interleaved gate and up."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load(VLLM_ROCM_USE_AITER_MOE_SITUV2="a8w4")
vllm.ops.refresh_env_variables()
one = torch.ones(1)
cases = {
    "AiterUnquantizedExperts": vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG,
    "AiterFp8TensorExperts": vllm.config.fp8_w8a8_moe_quant_config(one, one),
    "AiterMxfp4Experts": vllm.config.ocp_mx_moe_quant_config("mxfp4", w1_scale=one, w2_scale=one),
}
config = layer(vllm, vllm.Act.SITU, activation_situ_beta=1.0, activation_situ_linear_beta=1.0)
seen = {leaf: apply(vllm, leaf, config, quant)[1]["gate_mode"] for leaf, quant in cases.items()}
finish(
    "separated for these: their loaders keep gate and up rows apart",
    f"{seen}",
    shows=set(seen.values()) == {"interleave"},
)
