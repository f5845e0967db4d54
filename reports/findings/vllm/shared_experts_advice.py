"""The error of a too small shared-expert buffer does not say what to call, and with how much."""

import torch
from vllm_on_cpu import CudaIsCpu, finish, load

vllm = load()
with CudaIsCpu():
    vllm.moe.init_aiter_topK_meta_data(128, 1, 8, 0, 1, 1.0, 64)
try:
    vllm.moe.inject_shared_expert_weights(torch.ones(128, 8), torch.ones(128, 8, dtype=torch.int32), 8, 1)
    seen = "the tokens are merged"
except (AssertionError, ValueError) as error:
    seen = f"{type(error).__name__}: {error}"
finish(
    "both numbers, and that init_aiter_topK_meta_data is to be called with max_num_tokens of at least 128",
    seen,
    shows="max_num_tokens" not in seen,
)
