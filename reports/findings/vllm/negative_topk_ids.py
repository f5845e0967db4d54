"""The ids -1 of padding rows reach AITER as they are."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load()
config = vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG
_, call, _ = apply(vllm, "AiterUnquantizedExperts", layer(vllm), config, ids=[[-1, -1], [0, 3]])
seen = call["topk_ids"].tolist()
finish(
    "every id in topk_ids is at least 0: before v0.1.22.post1, AITER takes -1 for an expert",
    f"topk_ids = {seen}",
    shows=min(map(min, seen)) < 0,
)
