"""With MoRI, a layer whose activation is not gated is refused for something else."""

from vllm_on_cpu import finish, layer, load

vllm = load()
parallel = vllm.config.FusedMoEParallelConfig
parallel.use_mori_kernels = property(lambda _self: True)  # as with expert parallelism over MoRI
gated = layer(vllm).use_mori_kernels
try:
    layer(vllm, vllm.Act.SILU_NO_MUL)
    seen, shows = "the layer is made", False
except AssertionError as error:
    seen, shows = f"AssertionError: {error}", True
enabled = vllm.ops.is_fused_moe_enabled()
finish(
    f"a refusal that names the activation: AITER's MoE is on ({enabled}), a gated layer works ({gated})",
    seen,
    shows=shows,
)
