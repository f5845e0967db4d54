"""A configuration with int4 weights reaches AITER as unquantised: nobody derives a method from it."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load("gfx942")
one = torch.ones(1)
quant = vllm.config.int4_w4a16_moe_quant_config(
    w1_scale=one, w2_scale=one, w1_zp=None, w2_zp=None, block_shape=[1, 32]
)
_, call, _ = apply(vllm, "AiterMxfp4Experts", layer(vllm), quant)
finish(
    "quant_method 3 (per_1x32), as for the int4 weights that AiterMxfp4Experts takes on gfx942",
    f"quant_method {call['quant_method']}, with a w1_scale: {call['w1_scale'] is not None}",
    shows=call["quant_method"] == 0,
)
