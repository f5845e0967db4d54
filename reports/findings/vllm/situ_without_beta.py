"""SITU without its parameters is passed on; AITER then takes numbers of its own, which differ by path."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load()
config = layer(vllm, vllm.Act.SITU)
_, call, _ = apply(vllm, "AiterUnquantizedExperts", config, vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG)
said = f"activation {int(call['activation_method'])}, beta {call['beta']}, linear_beta {call['linear_beta']}"
finish(
    "an error: SITU is not defined without beta",
    f"a call with {said}",
    shows=call["beta"] is None,
)
