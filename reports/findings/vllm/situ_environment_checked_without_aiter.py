"""A bad VLLM_ROCM_USE_AITER_MOE_SITUV2 ends the import of vLLM, even with AITER switched off."""

from vllm_on_cpu import finish, load

try:
    load(VLLM_ROCM_USE_AITER="0", VLLM_ROCM_USE_AITER_MOE_SITUV2="a2w4")
    seen, shows = "the import works", False
except ValueError as error:
    seen, shows = f"the import fails with ValueError: {error}", True
finish("the variable is not read while AITER is off", seen, shows=shows)
