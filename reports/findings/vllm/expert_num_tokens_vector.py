"""One number of tokens per expert reaches AITER as the number of rows: it reads element 0."""

import torch
from vllm_on_cpu import apply, finish, layer, load

vllm = load()
per_expert = torch.tensor([0, 5, 3, 0], dtype=torch.int32)
_, call, _ = apply(
    vllm,
    "AiterUnquantizedExperts",
    layer(vllm),
    vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG,
    expert_num_tokens=per_expert,
)
seen = call["num_local_tokens"]
finish(
    "num_local_tokens is None (or one number): AITER reads element 0 as the number of rows",
    f"num_local_tokens = {seen if seen is None else seen.tolist()}",
    shows=seen is not None and seen.numel() != 1,
)
