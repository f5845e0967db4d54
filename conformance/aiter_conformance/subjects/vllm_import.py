"""One import of vLLM's module out of its wheel, on a machine with a given GPU, with AITER or without.

vLLM settles both while it is imported, so there is one import for each combination that is asked about.
Where vLLM keeps a name is found by following the module under test, not by a list of places.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.protocols import ENABLED, Entry, ParallelSpec
from aiter_conformance.subjects.vllm_wheel import ModuleSet, Wheel, WheelFinder

TARGET = "vllm.model_executor.layers.fused_moe.experts.rocm_aiter_moe"
OPERATORS: Mapping[Entry, str] = MappingProxyType(
    {"fused_moe": "rocm_aiter_fused_moe", "asm_moe_tkw1": "rocm_aiter_asm_moe_tkw1"}
)
ROUTING_OPERATORS = ("rocm_aiter_biased_grouped_topk", "rocm_aiter_grouped_topk")
_PREFIXES = ("VLLM_", "AITER_", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
# Where vLLM is enabled while it is imported: every switch is read again at each `environment`.
_IMPORT_ENVIRONMENT = {**ENABLED, "VLLM_CONFIGURE_LOGGING": "0"}


class Ranks:
    """What vLLM's process groups answer: the ranks of the deployment that is being described."""

    def __init__(self) -> None:
        self.current = ParallelSpec()

    def values(self) -> dict[str, Any]:
        """Return the functions of ``vllm.distributed`` that tell them."""
        return {
            "get_dp_group": lambda: SimpleNamespace(rank_in_group=self.current.dp_rank),
            "get_pcp_group": lambda: SimpleNamespace(rank_in_group=self.current.pcp_rank),
            "get_tensor_model_parallel_rank": lambda: self.current.tp_rank,
        }


class _CudaIsCpu(TorchFunctionMode):
    """Lets a function that asks for "cuda" run where there is none."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") == "cuda":
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


class Api:
    """SPEC's public names, read from the modules where vLLM keeps them each time that they are asked for."""

    def __init__(self, modules: list[ModuleType]) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if name in vars(module):
                return vars(module)[name]
        msg = f"vLLM has no {name}"
        raise AttributeError(msg)

    def init_aiter_topK_meta_data(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 -- SPEC's name
        """Call vLLM's function, on the CPU where there is no accelerator."""
        real = self._modules[0].init_aiter_topK_meta_data
        if torch.accelerator.is_available():
            return real(*args, **kwargs)
        with _CudaIsCpu():
            return real(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Registered:
    """What vLLM registered under the name of an operator."""

    implementation: Callable[..., Any]
    fake: Callable[..., Any] | None
    mutates: tuple[str, ...]


class VllmImport:
    """One import of the wheel: its modules, and what vLLM registered as operators."""

    def __init__(self, wheel: Wheel, arch: str, *, aiter_found: bool, ranks: Ranks) -> None:
        self.registered: dict[str, Registered] = {}
        finder = WheelFinder(
            wheel,
            values={
                "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
                "vllm.distributed": ranks.values(),
                "vllm.distributed.parallel_state": {  # who writes log messages
                    "is_global_first_rank": lambda: True,
                    "is_local_first_rank": lambda: True,
                },
                "vllm.plugins": {
                    "PLATFORM_PLUGINS_GROUP": "vllm.platform_plugins",
                    "load_plugins_by_group": lambda _group: {},
                },
            },
            essential=(TARGET, "vllm._aiter_ops", "vllm.platforms.rocm"),
        )
        self.modules = ModuleSet(finder, {"amdsmi": _amdsmi(arch)})
        found = ModuleType("aiter") if aiter_found else None
        if found is not None:
            found.__spec__ = importlib.machinery.ModuleSpec("aiter", None)  # it is looked for, not imported
        try:
            with (
                exact_variables(_IMPORT_ENVIRONMENT),
                self.modules.active({"aiter": found}),
                warnings.catch_warnings(action="ignore"),
                _quiet(logging.getLogger("vllm")),
                _without_opaque_types(),
            ):
                torch_utils: Any = importlib.import_module("vllm.utils.torch_utils")
                torch_utils.direct_register_custom_op = self._register
                self.target: Any = importlib.import_module(TARGET)
                self.config = self._home("FusedMoEConfig")
                homes = [self._home(name) for name in ("MoEActivation", "QuantKey", "rocm_aiter_ops")]
            self.ops: Any = self.target.rocm_aiter_ops
            self.api = Api([self.target, self.config, self.target.mk, *homes])
            self._cached = _cached_functions(self)
        except Exception as error:
            missing = [f"{package} (by {module})" for module, package in finder.stubbed.items()]
            needs = f"; not installed but needed: {', '.join(missing)}" if missing else ""
            reason = f"{type(error).__name__}: {error}{needs}"
            msg = f"vLLM {wheel.version} cannot be imported for {arch}: {reason}"
            raise InfrastructureError(msg) from error
        finder.seal.closed = True

    def forget(self) -> None:
        """Empty vLLM's caches."""
        for function in self._cached:
            function.cache_clear()

    def _home(self, name: str) -> ModuleType:
        """Return the module that defines what the module under test imported as ``name``."""
        return sys.modules[getattr(self.target, name).__module__]

    def _register(
        self,
        op_name: str,
        op_func: Callable[..., Any],
        mutates_args: list[str] | None = None,
        fake_impl: Callable[..., Any] | None = None,
        **_unused: Any,
    ) -> None:
        """Take the place of vLLM's ``direct_register_custom_op``: remember what an operator is made of."""
        if op_name in (*OPERATORS.values(), *ROUTING_OPERATORS):
            self.registered[op_name] = Registered(op_func, fake_impl, tuple(mutates_args or ()))


def _amdsmi(arch: str) -> ModuleType:
    """Return the part of AMD's system management library by which vLLM recognises a machine with one GPU."""
    module = ModuleType("amdsmi")
    unused = dict.fromkeys(
        (
            "AmdSmiMemoryType",
            "amdsmi_get_gpu_device_uuid",
            "amdsmi_get_gpu_memory_total",
            "amdsmi_topo_get_link_type",
            "amdsmi_topo_get_numa_node_number",
        )
    )
    vars(module).update(
        unused,
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["gpu 0"],
        amdsmi_get_gpu_asic_info=lambda _handle: {"target_graphics_version": arch},
    )
    return module


@contextmanager
def exact_variables(env: Mapping[str, str]) -> Iterator[None]:
    """Set exactly ``env`` of the variables that vLLM and AITER read; put everything back at the end."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_PREFIXES)}
    os.environ.update(env)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Let a logger and those below it say nothing: vLLM warns of all that a machine without ROCm lacks."""
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _without_opaque_types() -> Iterator[None]:
    """Skip vLLM's registration of an opaque type with torch, which can be made once per process only.

    It serves compiled models; torch before 2.11 has none, and vLLM then asks for none.
    """
    try:
        registry: Any = importlib.import_module("torch._library.opaque_object")
    except ImportError:
        registry = ModuleType("none")
    if not hasattr(registry, "register_opaque_type"):
        yield
        return
    with mock.patch.object(registry, "register_opaque_type"):
        yield


def _cached_functions(imported: VllmImport) -> list[Any]:
    """Return the functions that remember what vLLM last saw of AITER and of the buffers."""
    found = [imported.target.init_aiter_topK_meta_data]
    for member in vars(imported.ops).values():
        function = getattr(member, "__func__", member)
        while function is not None:
            if hasattr(function, "cache_clear"):
                found.append(function)
            function = getattr(function, "__wrapped__", None)
    return found
