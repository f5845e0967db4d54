"""Without shared-expert weights, a call keeps those of the call before, of whatever layer that was."""

import torch
from vllm_on_cpu import CudaIsCpu, finish, load

vllm = load()
with CudaIsCpu():
    vllm.moe.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, 4)
weights, ids = torch.tensor([[0.6, 0.4]]), torch.tensor([[1, 2]], dtype=torch.int32)
inject = vllm.moe.inject_shared_expert_weights
inject(weights, ids, 2, 1, torch.tensor([[0.25]]))
seen = inject(weights, ids, 2, 1)[0].tolist()
finish(
    "the shared expert's weight is the score that was set at the start, 1.0",
    f"it is {seen[0][2]}, the gate of the call before",
    shows=seen[0][2] == 0.25,
)
