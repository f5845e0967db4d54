"""The kernel call follows from the quantisation configuration alone: a leaf takes another leaf's."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
one = torch.ones(1)
fp8 = vllm.config.fp8_w8a8_moe_quant_config
cases = {
    "AiterFp8ChannelExperts": vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG,
    "AiterMxfp4Experts": fp8(one, one),
    "AiterUnquantizedExperts": vllm.config.ocp_mx_moe_quant_config("mxfp4", w1_scale=one, w2_scale=one),
}
wanted = {"AiterFp8ChannelExperts": 2, "AiterMxfp4Experts": 3, "AiterUnquantizedExperts": 0}
seen = {leaf: apply(vllm, leaf, layer(vllm), quant)[1]["quant_method"] for leaf, quant in cases.items()}
per_token = fp8(one, one, per_act_token_quant=True)
entry, _, _ = apply(vllm, "AiterFp8TensorExperts", layer(vllm), per_token, on_input=True)
finish(
    f"each leaf's own quant_method ({wanted}), and asm_moe_tkw1 from AiterFp8ChannelExperts only",
    f"{seen}, and AiterFp8TensorExperts with per-token activations calls {entry}",
    shows=seen != wanted or entry == "asm_moe_tkw1",
)
