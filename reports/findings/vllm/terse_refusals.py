"""The refusal of router weights on the input of a block fp8 layer names neither the leaf nor a way out."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
quant = vllm.config.fp8_w8a8_moe_quant_config(torch.ones(1), torch.ones(1), block_shape=[128, 128])
try:
    apply(vllm, "AiterFp8BlockExperts", layer(vllm), quant, on_input=True)
    seen = "a call"
except (AssertionError, ValueError) as error:
    seen = f"{type(error).__name__}: {error}"
finish("a ValueError that names AiterFp8BlockExperts", seen, shows="AiterFp8BlockExperts" not in seen)
