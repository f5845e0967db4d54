"""The simulated AITER: real signatures and enums over the reference kernels, with faults by a plan."""

from __future__ import annotations

import ctypes
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import torch

from aiter_conformance.families import launch_kind
from aiter_conformance.protocols import Entry, KernelCall
from aiter_conformance.providers.reference import ReferenceProvider
from aiter_conformance.providers.reference_call import understand
from aiter_conformance.providers.reference_families import MxActivations
from aiter_conformance.simulated_aiter import simulate
from aiter_conformance.simulated_rocm.plan import Deed, current_plan

_MODEL: Final = simulate("0.1.20")
_PLAN: Final = current_plan()
# AITER's names of arguments -> the contract's; the others are the same.
_NAMES: Final = {"dtype": "output_dtype", "activation": "activation_method", "quant_type": "quant_method"}
_DROPPED: Final = ("bias1", "bias2")
# A name of each family as the profiler or AITER's log has it.
_KERNELS: Final = {
    "asm-1stage": ("_ZN5aiter27fmoe_simulated_g1u1_32x128_E",),
    "ck": ("moe_ck2stages_gemm1_simulated", "moe_ck2stages_gemm2_simulated"),
    "ck-tile": ("moe_cktile2stages_gemm1_simulated", "moe_cktile2stages_gemm2_simulated"),
    "flydsl": ("flydsl_moe1_simulated", "flydsl_moe2_simulated"),
}

logger = logging.getLogger("aiter")
ActivationType: Any = _MODEL.modules["aiter"].ActivationType
QuantType: Any = _MODEL.modules["aiter"].QuantType
dtypes: ModuleType = _MODEL.modules["aiter.utility.dtypes"]

logger.warning("simulated GPU %s", os.environ.get("HIP_VISIBLE_DEVICES"))  # into the worker's log
if any(fault.do == "import-dies" for fault in _PLAN.faults):
    os.abort()


class HipError(RuntimeError):
    """What torch raises for a fault of the device."""


def _mx_activations(cell_activation: int) -> MxActivations | None:
    """Return what SiTU's kernels make of activations, by the variables that AITER reads."""
    if cell_activation != int(ActivationType["Situv2"]):
        return None
    if os.environ.get("AITER_SITUV2_A8W4") == "1":
        return "fp8"
    return "fp4" if os.environ.get("AITER_SITUV2_A4W4") == "1" else "bf16"


def _entry(name: Entry) -> Callable[..., torch.Tensor]:
    module = "aiter.fused_moe" if name == "fused_moe" else "aiter.fused_moe_bf16_asm"
    signature = inspect.signature(getattr(_MODEL.modules[module], name))
    if any(fault.do == "drop-argument" for fault in _PLAN.faults):
        kept = [p for p in signature.parameters.values() if p.name not in _DROPPED]
        signature = signature.replace(parameters=kept)

    def function(*args: Any, **kwargs: Any) -> torch.Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _compute(name, bound.arguments)

    function.__name__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _compute(entry: Entry, given: Mapping[str, Any]) -> torch.Tensor:
    tokens, hidden = given["hidden_states"].shape[0], given["w2"].shape[1]
    deeds = {fault.do for index, fault in enumerate(_PLAN.faults) if _PLAN.happens(index, tokens, hidden)}
    _strike(deeds)
    arguments = {_NAMES.get(name, name): value for name, value in given.items()}
    if entry == "asm_moe_tkw1":
        arguments["topk_weights"] = arguments.pop("topk_weight")
    provider = ReferenceProvider(_mx_activations(int(given["activation"])))
    out = provider.compute(KernelCall(entry, arguments), _PLAN.arch)
    if "say-nothing" not in deeds:
        _log(provider, KernelCall(entry, arguments), other="other-kernel" in deeds)
    return _bent(out, deeds, given)


def _strike(deeds: set[Deed]) -> None:
    """Do what ends the call before there is a result."""
    if "segfault" in deeds:
        ctypes.string_at(0)
    if "abort" in deeds:
        os.abort()
    if "hang" in deeds:
        time.sleep(3600)
    if "out-of-memory" in deeds:
        msg = "HIP out of memory. Tried to allocate 9.99 GiB."
        raise torch.OutOfMemoryError(msg)
    if "device-fault" in deeds:
        msg = "HIP error: an illegal memory access was encountered"
        raise HipError(msg)
    if "build-fails" in deeds:
        msg = "[aiter] build [module_moe_simulated] under /somewhere/build failed !!!!!!"
        raise RuntimeError(msg)
    if "raise" in deeds:
        msg = "no kernel for /somewhere/hsa"
        raise RuntimeError(msg)


def _bent(out: torch.Tensor, deeds: set[Deed], given: Mapping[str, Any]) -> torch.Tensor:
    """Return the result with what is to be wrong in it."""
    if "lie" in deeds:
        out[0, 0] += 0.25 * out[0].abs().max() + 1
    if "nan" in deeds:
        out[-1, 1] = torch.nan
    if "write-weights" in deeds:
        given["w1"].view(torch.uint8)[0, 0, 0] ^= 1
    return out


def _log(provider: ReferenceProvider, call: KernelCall, *, other: bool) -> None:
    """Say which kernels ran, in the words of AITER's log (fused_moe.py, get_2stage_cfgs)."""
    family = launch_kind(understand(call, _PLAN.arch, provider.mx_activations).family.name)
    if other:
        family = "ck" if family == "flydsl" else "flydsl"
    names = _KERNELS[family]
    shown = ", ".join(f"kernelName{number}={name!r}" for number, name in enumerate(names, 1))
    stages = "1stage" if len(names) == 1 else "2stage"
    logger.info("[fused_moe] using %s (%s) for simulated", stages, shown)


fused_moe = _entry("fused_moe")
asm_moe_tkw1 = _entry("asm_moe_tkw1")
