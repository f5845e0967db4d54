"""Where AITER is not supported, the switches answer None, and so is the dispatch policy that is passed on."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load("gfx90a")
answers = {
    name: getattr(vllm.ops, name)()
    for name in ("is_fused_moe_enabled", "is_fusion_moe_shared_experts_enabled", "get_moe_dispatch_policy")
}
_, call, _ = apply(vllm, "AiterUnquantizedExperts", layer(vllm), vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG)
finish(
    "False, False and 0; and moe_sorting_dispatch_policy, declared int, is 0",
    f"{answers}; moe_sorting_dispatch_policy = {call['moe_sorting_dispatch_policy']}",
    shows=None in answers.values(),
)
