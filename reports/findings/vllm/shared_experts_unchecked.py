"""Weights and ids of a width that fits nothing are merged or written to without a check."""

import torch
from vllm_on_cpu import CudaIsCpu, finish, load

vllm = load()
with CudaIsCpu():
    vllm.moe.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, 4)
inject = vllm.moe.inject_shared_expert_weights
seen = []
wide = torch.zeros(2, 5)
answer, _ = inject(wide, torch.zeros(2, 5, dtype=torch.int32), 2, 1, torch.ones(2, 1))
if answer is wide:
    seen.append(f"5 columns for topk 2 and 1 shared expert: written to in place {wide[0].tolist()}")
before = vllm.moe.aiter_topK_meta_data[0].clone()
before[:, :2] = vllm.moe.aiter_topK_meta_data[0][:, :2] = 0
try:
    inject(torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.int32), 2, 1, torch.ones(3, 3))
except RuntimeError as error:
    written = not torch.equal(before, vllm.moe.aiter_topK_meta_data[0])
    seen.append(f"3 gate columns for 1 shared expert: {str(error).split('.')[0]!r}, after writing {written}")
finish("a ValueError that names the widths, with nothing written", "; ".join(seen), shows=bool(seen))
