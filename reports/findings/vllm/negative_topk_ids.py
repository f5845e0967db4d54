"""The ids -1 of padding rows reach AITER as they are."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load()
config = vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG
_, call, _ = apply(vllm, "AiterUnquantizedExperts", layer(vllm), config, ids=[[-1, -1], [0, 3]])
seen = call["topk_ids"].tolist()
finish(
    "every id in topk_ids is at least 0: in no release read (up to v0.1.20.post1) is -1 an id to AITER",
    f"topk_ids = {seen}",
    shows=min(map(min, seen)) < 0,
)
