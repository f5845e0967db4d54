"""When AITER's own SITU switch was changed after the start, vLLM goes on with the layout of the other one."""

import os

from vllm_on_cpu import apply, finish, layer, load

vllm = load(VLLM_ROCM_USE_AITER_MOE_SITUV2="a8w4")
set_at_start = os.environ.pop("AITER_SITUV2_A8W4")  # what AITER reads
config = layer(vllm, vllm.Act.SITU, activation_situ_beta=1.0, activation_situ_linear_beta=1.0)
quant = vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG
try:
    _, call, _ = apply(vllm, "AiterUnquantizedExperts", config, quant)
    seen, shows = f"a call with gate_mode {call['gate_mode']!r}, as for a8w4", True
except (RuntimeError, ValueError) as error:
    seen, shows = repr(error), False
finish(
    f"an error: AITER_SITUV2_A8W4 was {set_at_start!r} at the start and is unset now, so AITER takes a16w4",
    seen,
    shows=shows,
)
