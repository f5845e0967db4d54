"""The fake of the operator promises half the columns for packed fp4 input: a traced shape is another."""

import torch
from vllm_on_cpu import finish, load

vllm = load()
hidden = torch.zeros(3, 256, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)  # 3 tokens of hidden size 512
one = torch.ones(1, 1)
fake = vllm.registered["rocm_aiter_fused_moe"]["fake_impl"]
shape = tuple(fake(hidden, one, one, one, one, output_dtype=torch.bfloat16).shape)
finish(
    "shape (3, 512), the hidden size unpacked, as workspace_shapes has it",
    f"shape {shape}",
    shows=shape != (3, 512),
)
