"""A sorting policy that AITER does not have is passed on."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load(VLLM_ROCM_AITER_MOE_DISPATCH_POLICY="7")
vllm.ops.refresh_env_variables()
_, call, _ = apply(vllm, "AiterUnquantizedExperts", layer(vllm), vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG)
seen = call["moe_sorting_dispatch_policy"]
finish("an error: the policies are 0, 1 and 2", f"moe_sorting_dispatch_policy = {seen}", shows=seen == 7)
