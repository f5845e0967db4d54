"""At tensor parallel size 1 the intermediate pad is doubled, even if that masks more rows than are dead."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
sizes = {"hidden_dim": 3072, "intermediate_size": 3072}
sizes |= {"hidden_dim_unpadded": 2880, "intermediate_size_per_partition_unpadded": 2880}
one = torch.ones(1)
quant = vllm.config.mxfp4_w4a16_moe_quant_config(one, one)
_, call, _ = apply(vllm, "AiterMxfp4Experts", layer(vllm, vllm.Act.SWIGLUOAI, **sizes), quant)
dsv4 = layer(vllm, **sizes)
dsv4.use_mxfp4_w4a4_dsv4 = True
_, opt_in, _ = apply(vllm, "AiterMxfp4Experts", dsv4, quant)
seen = call["intermediate_pad"], opt_in["intermediate_pad"]
finish(
    "intermediate_pad at most 192, the number of dead rows of gate and of up (2880 of 3072 are live)",
    f"{seen[0]} for swigluoai; {seen[1]} for DeepSeek V4.1's opt-in, whose activations are MXFP4 as well",
    shows=max(seen) > 192,
)
