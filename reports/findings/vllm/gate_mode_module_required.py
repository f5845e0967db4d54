"""Every call imports AITER's GateMode, so an AITER without it (before v0.1.14) cannot even run bf16."""

import sys

from vllm_on_cpu import apply, finish, layer, load

vllm = load()
for name in ("aiter.ops.flydsl", "aiter.ops.flydsl.moe_common"):
    sys.modules[name] = None  # as in AITER v0.1.13
try:
    _, call, _ = apply(vllm, "AiterUnquantizedExperts", layer(vllm), vllm.config.FUSED_MOE_UNQUANTIZED_CONFIG)
    seen, shows = f"a call with gate_mode {call['gate_mode']!r}", False
except ImportError as error:
    seen, shows = f"{type(error).__name__}: {error}", True
finish("a bf16 SILU call, which names no gate mode, does not need the module", seen, shows=shows)
