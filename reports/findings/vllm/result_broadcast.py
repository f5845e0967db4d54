"""A result of another shape is broadcast into the output in silence."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
vllm.result = torch.ones(1, 512, dtype=torch.bfloat16)
try:
    quant = vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG
    _, _, output = apply(vllm, "AiterUnquantizedExperts", layer(vllm), quant)
    seen, shows = f"all {output.shape[0]} rows hold the one row of the result", bool((output == 1).all())
except (RuntimeError, ValueError) as error:
    seen, shows = f"{type(error).__name__}: {error}", False
finish("an error: the kernel gave 1 row for 3 tokens", seen, shows=shows)
