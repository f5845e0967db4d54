"""The same arguments by keyword are not recognised as the same: the second layer's start fails."""

from vllm_on_cpu import CudaIsCpu, finish, load

vllm = load()
seen, shows = "nothing: a no-op", False
with CudaIsCpu():
    vllm.moe.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, 4, False)
    vllm.moe.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, 4, False)
    try:
        vllm.moe.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, max_num_tokens=4, is_EP=False)
    except AssertionError as error:
        seen, shows = f"AssertionError: {error}", True
finish("calling again with the same arguments does nothing, however they are passed", seen, shows=shows)
