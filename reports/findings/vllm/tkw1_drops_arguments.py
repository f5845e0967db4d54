"""Router weights on the input of an fp8 channel layer: pads, clamp and SITU's parameters are dropped."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
quant = vllm.config.fp8_w8a8_moe_quant_config(
    torch.ones(1), torch.ones(1), per_act_token_quant=True, per_out_ch_quant=True
)
asked = {
    "hidden_dim_unpadded": 384,
    "intermediate_size_per_partition_unpadded": 448,
    "swiglu_limit": 7.0,
    "activation_situ_beta": 1.5,
    "activation_situ_linear_beta": 0.5,
}
config = layer(vllm, vllm.Act.SITU, **asked)
entry, call, _ = apply(vllm, "AiterFp8ChannelExperts", config, quant, on_input=True)
told = sorted(name for name in call if any(part in name for part in ("_pad", "limit", "beta", "gate_mode")))
finish(
    "a refusal that names what asm_moe_tkw1 cannot be told: pads 128 and 64, limit 7.0, beta, linear_beta",
    f"a call of {entry} that says nothing of them ({told or 'no such argument'})",
    shows=entry == "asm_moe_tkw1" and not told,
)
