"""Biases of a layer that is not MXFP4 with unquantised activations are dropped in silence."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
bias = torch.ones(4, 1024), torch.ones(4, 512)
one = torch.ones(1)
cases = {
    "AiterUnquantizedExperts": vllm.config.biased_moe_quant_config(*bias),
    "AiterFp8TensorExperts": vllm.config.fp8_w8a8_moe_quant_config(
        one, one, w1_bias=bias[0], w2_bias=bias[1]
    ),
    "AiterMxfp4Experts": vllm.config.ocp_mx_moe_quant_config(
        "mxfp4", w1_scale=one, w2_scale=one, w1_bias=bias[0], w2_bias=bias[1]
    ),
}
dropped = []
for leaf, quant in cases.items():
    _, call, _ = apply(vllm, leaf, layer(vllm), quant)
    if call["bias1"] is None and call["bias2"] is None:
        dropped.append(leaf)
finish(
    "the biases reach AITER, or the leaf refuses", f"no bias in the call of {dropped}", shows=bool(dropped)
)
