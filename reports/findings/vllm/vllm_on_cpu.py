"""Load vLLM's module of AITER expert leaves out of a vLLM wheel, on any machine; what the scripts here share.

Needs the wheel (`pip download --no-deps vllm==0.33.0`), torch and numpy. Nothing of the conformance harness
is used, and the module is not changed: packages' ``__init__`` files are passed over, modules that the leaves
import but do not use are replaced by empty ones, and the GPU and AITER are simulated.
"""

from __future__ import annotations

import enum
import importlib
import importlib.machinery
import inspect
import logging
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LAYERS = "vllm.model_executor.layers"
TARGET = f"{LAYERS}.fused_moe.experts.rocm_aiter_moe"
PACKAGES = f"""
vllm vllm.model_executor {LAYERS} {LAYERS}.fused_moe {LAYERS}.fused_moe.experts {LAYERS}.quantization
""".split()
UNUSED = f"""
vllm._custom_ops vllm.config vllm.config.kernel vllm.distributed vllm.distributed.parallel_state vllm.plugins
vllm.v1 vllm.v1.attention vllm.v1.attention.backends vllm.v1.attention.backends.registry
vllm.v1.attention.ops vllm.v1.attention.ops.rocm_aiter_mla_sparse vllm.v1.worker vllm.v1.worker.ubatching
vllm.v1.worker.workspace vllm.third_party {LAYERS}.fused_moe.routed_experts_capturer
{LAYERS}.fused_moe.runner {LAYERS}.fused_moe.runner.shared_experts {LAYERS}.fused_moe.utils
""".split()


class Empty(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


def module(name: str, kind: type[types.ModuleType] = types.ModuleType, **members: Any) -> Any:
    """Put a new module into `sys.modules`, and into its parent."""
    made = kind(name)
    made.__path__ = []
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    vars(made).update(members)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, made)
    return made


def load(arch: str = "gfx950", **env: str) -> types.SimpleNamespace:
    """Import the module as on a machine with one GPU of ``arch``; ``env`` are more variables.

    The wheel is the script's argument, or else lies in the current folder. Returns vLLM's modules and classes
    by short names, ``calls`` (what reached the two kernel entries of vLLM's bridge) and ``result`` (what the
    next call answers).
    """
    wheels = [Path(a) for a in sys.argv[1:]] or sorted(Path.cwd().glob("vllm-*.whl"))
    if not wheels:
        sys.exit(f"usage: python {Path(sys.argv[0]).name} vllm-0.33.0-....whl")
    os.environ.update({"VLLM_ROCM_USE_AITER": "1"} | env)
    sys.modules.setdefault("regex", re)
    for name in PACKAGES:
        module(name).__path__ = [f"{wheels[0]}/{name.replace('.', '/')}"]
    for name in UNUSED:
        module(name, Empty)
    vars(sys.modules["vllm.plugins"])["load_plugins_by_group"] = lambda _group: {}
    scheduler = types.SimpleNamespace(DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP=256)
    vars(sys.modules["vllm.config"])["SchedulerConfig"] = scheduler
    logging.disable(logging.CRITICAL)  # it reports what a machine without ROCm lacks
    gpu = {"target_graphics_version": arch}
    module(
        "amdsmi",
        Empty,
        AmdSmiException=Exception,
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: [0],
        amdsmi_get_gpu_asic_info=lambda _handle: gpu,
    )
    _simulate_aiter()
    # The operators are for ROCm's torch; what they are made of can be called without them.
    registered: dict[str, Any] = {}
    torch_utils = importlib.import_module("vllm.utils.torch_utils")
    torch_utils.direct_register_custom_op = lambda op_name, **made: registered.update({op_name: made})
    moe = importlib.import_module(TARGET)
    return _recording(moe, registered)


def _simulate_aiter() -> None:
    module(
        "aiter",
        ActivationType=enum.IntEnum(
            "ActivationType", {"No": -1, "Silu": 0, "Gelu": 1, "Swiglu": 2, "Situv2": 3}
        ),
        QuantType=enum.IntEnum(
            "QuantType", "No per_Tensor per_Token per_1x32 per_1x128 per_128x128", start=0
        ),
        dtypes=types.SimpleNamespace(fp4x2=torch.float4_e2m1fn_x2),
    )
    for name in ("aiter.fused_moe", "aiter.fused_moe_bf16_asm", "aiter.ops", "aiter.ops.flydsl"):
        module(name)
    gate_mode = enum.Enum("GateMode", {"SEPARATED": "separated", "INTERLEAVE": "interleave"})
    module("aiter.ops.flydsl.moe_common", GateMode=gate_mode)


def _recording(moe: Any, registered: dict[str, Any]) -> types.SimpleNamespace:
    vllm = types.SimpleNamespace(
        moe=moe,
        ops=moe.rocm_aiter_ops,
        config=sys.modules[moe.FusedMoEConfig.__module__],
        Act=moe.MoEActivation,
        registered=registered,
        calls=[],
        result=None,
    )

    def recorder(real: Any) -> Any:
        signature = inspect.signature(real)

        def record(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            vllm.calls.append((real.__name__, bound.arguments))
            hidden = bound.arguments["hidden_states"]
            return torch.zeros_like(hidden) if vllm.result is None else vllm.result

        return staticmethod(record)

    for name in ("fused_moe", "asm_moe_tkw1"):
        setattr(vllm.ops, name, recorder(getattr(vllm.ops, name)))
    return vllm


def layer(vllm: Any, activation: Any = None, tp: int = 1, **fields: Any) -> Any:
    """Return a ``FusedMoEConfig`` of 4 experts, hidden size 512 and intermediate size 512 per rank."""
    config = vllm.config
    parallel = config.FusedMoEParallelConfig.make_no_parallel()
    parallel.tp_size = tp
    given = {"hidden_dim": 512, "intermediate_size": 512 * tp} | fields
    return config.FusedMoEConfig(
        num_experts=4,
        experts_per_token=2,
        num_local_experts=4,
        num_logical_experts=4,
        activation=activation or vllm.Act.SILU,
        device="cpu",
        routing_method=config.RoutingMethodType.Default,
        moe_parallel_config=parallel,
        in_dtype=torch.bfloat16,
        max_num_tokens=256,
        **given,
    )


def apply(
    vllm: Any,
    leaf: str,
    moe_config: Any,
    quant_config: Any,
    *,
    ids: list[list[int]] | None = None,
    on_input: bool = False,
    expert_num_tokens: torch.Tensor | None = None,
) -> tuple[str, Any, torch.Tensor]:
    """Apply a leaf to three tokens; return the kernel entry, what it was told, and the output."""
    topk_ids = torch.tensor(ids or ([[1]] * 3 if on_input else [[0, 1]] * 3), dtype=torch.int32)
    tokens, topk = topk_ids.shape
    hidden = torch.zeros(tokens, moe_config.hidden_dim, dtype=torch.bfloat16)
    output = torch.full_like(hidden, 7)
    metadata = None
    if expert_num_tokens is not None:
        metadata = vllm.moe.mk.ExpertTokensMetadata(expert_num_tokens, None)
    experts = getattr(vllm.moe, leaf)(moe_config, quant_config)
    weights = torch.ones(tokens, topk)
    empty = torch.empty(0)
    activation = moe_config.activation
    experts.apply(
        *(output, hidden, empty, empty, weights, topk_ids, activation, 4, None, None, None, empty, empty),
        *(metadata, on_input),
    )
    name, arguments = vllm.calls[-1]
    return name, arguments, output


class CudaIsCpu(TorchFunctionMode):
    """Inside it, a tensor that is asked for on "cuda" is made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with the device replaced."""
        kwargs = kwargs or {}
        return func(*args, **(kwargs | {"device": "cpu"} if kwargs.get("device") == "cuda" else kwargs))


def finish(expected: str, observed: str, *, shows: bool) -> None:
    """Say what was expected and what was observed, and exit: 1 while the finding shows, 0 when it is gone."""
    verdict = "the finding shows" if shows else "the finding is gone"
    sys.stdout.write(f"expected: {expected}\nobserved: {observed}\n{verdict}\n")
    sys.exit(1 if shows else 0)
