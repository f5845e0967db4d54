"""vLLM's own module of AITER expert leaves as a subject, on a CPU and unmodified.

The module comes out of a vLLM wheel (`vllm_wheel`), which is named by the environment variable
`WHEEL_VARIABLE` or lies in ``build/downloads``. vLLM looks at the platform while it is imported: the fp8
flavour of its quant keys and whether AITER is there are settled then. So the wheel is imported once per
(architecture, AITER present or not), each import seeing a machine that reports that architecture; the
second and later imports take about 20 ms.

What differs from a run on a GPU, all of it outside the module under test:

* the operators of MoE and routing are registered for every device, not for "CUDA" only, and no others are;
* ``device="cuda"`` in `init_aiter_topK_meta_data` means the CPU where torch finds no accelerator;
* `vllm_wheel.STUB_AREAS` are placeholders.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.protocols import (
    ENABLED,
    Difference,
    Entry,
    FoundAiter,
    KernelCall,
    KernelEntry,
    MoEConfigSpec,
    ParallelSpec,
    QuantSpec,
    Settings,
)
from aiter_conformance.subjects.vllm_differences import DIFFERENCES
from aiter_conformance.subjects.vllm_wheel import ModuleSet, Wheel, WheelFinder

WHEEL_VARIABLE = "AITER_CONFORMANCE_VLLM_WHEEL"
TARGET = "vllm.model_executor.layers.fused_moe.experts.rocm_aiter_moe"
OPERATORS: Mapping[Entry, str] = MappingProxyType(
    {"fused_moe": "rocm_aiter_fused_moe", "asm_moe_tkw1": "rocm_aiter_asm_moe_tkw1"}
)
ROUTING_OPERATORS = ("rocm_aiter_biased_grouped_topk", "rocm_aiter_grouped_topk")
# Names of SPEC that vLLM may or may not have: 0.33.0 has none of them, its development line the first two.
MAYBE_MISSING = (
    "derive_aiter_quant_method",
    "mxfp4_w4a16_extra_kwargs",
    "make_expert_mask",
    "padded_sizes",
    "prepare_weights",
    "reset_aiter_topK_meta_data",
)
_PREFIXES = ("VLLM_", "AITER_", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
# Where vLLM is enabled while it is imported: every switch is read again at each `environment`.
_IMPORT_ENVIRONMENT = {**ENABLED, "VLLM_CONFIGURE_LOGGING": "0"}


def find_wheel() -> Path:
    """Return the vLLM wheel to test: the one that the variable names, else the newest downloaded one.

    Raises:
        InfrastructureError: There is none.
    """
    named = os.environ.get(WHEEL_VARIABLE)
    if named:
        return Path(named)
    folders = (Path("build/downloads"), Path(__file__).parents[3] / "build" / "downloads")
    wheels = [path for folder in folders for path in folder.glob("vllm-*.whl")]
    if not wheels:
        msg = (
            "there is no vLLM wheel: set "
            f"{WHEEL_VARIABLE} to one, or run `pip download --no-deps vllm -d build/downloads`"
        )
        raise InfrastructureError(msg)
    return max(wheels, key=lambda path: Wheel(path).version)


def find_version() -> str:
    """Return the version of the vLLM wheel, without importing anything out of it.

    Raises:
        InfrastructureError: There is no wheel.
        UsageError: It is not a wheel of vLLM.
    """
    return str(Wheel(find_wheel()).version)


@cache
def load() -> VllmSubject:
    """Return the adapter of the vLLM wheel, the same one in the whole process: torch knows an operator once.

    Raises:
        InfrastructureError: There is no wheel, or its module cannot be imported; the message says why.
        UsageError: It is not a wheel of vLLM.
    """
    return VllmSubject(Wheel(find_wheel()))


class _Ranks:
    """What vLLM's process groups answer: the ranks of the deployment that is being described."""

    def __init__(self) -> None:
        self.current = ParallelSpec()

    def values(self) -> dict[str, Any]:
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


class _Api:
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
class _Registered:
    """What vLLM registered under the name of an operator."""

    implementation: Callable[..., Any]
    fake: Callable[..., Any] | None
    mutates: tuple[str, ...]


class _Import:
    """One import of the wheel: its modules, and what vLLM registered as operators."""

    def __init__(self, wheel: Wheel, arch: str, *, aiter_found: bool, ranks: _Ranks) -> None:
        self.registered: dict[str, _Registered] = {}
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
                _variables(_IMPORT_ENVIRONMENT),
                self.modules.active({"aiter": found}),
                warnings.catch_warnings(action="ignore"),
                _quiet(logging.getLogger("vllm")),
                _without_opaque_types(),
            ):
                torch_utils: Any = importlib.import_module("vllm.utils.torch_utils")
                torch_utils.direct_register_custom_op = self._register
                self.target: Any = importlib.import_module(TARGET)
        except Exception as error:
            missing = [f"{package} (by {module})" for module, package in finder.stubbed.items()]
            needs = f"; not installed but needed: {', '.join(missing)}" if missing else ""
            msg = (
                f"vLLM {wheel.version} cannot be imported for {arch}: {type(error).__name__}: {error}{needs}"
            )
            raise InfrastructureError(msg) from error
        finder.seal.closed = True
        self.ops: Any = self.target.rocm_aiter_ops
        self.config = self._home("FusedMoEConfig")
        self.api = _Api(
            [
                self.target,
                self.config,
                self._home("MoEActivation"),
                self._home("QuantKey"),
                self.target.mk,
                self._home("rocm_aiter_ops"),
            ]
        )

        self._cached = _cached_functions(self)

    def forget(self) -> None:
        """Empty vLLM's caches."""
        for function in self._cached:
            function.cache_clear()

    def _home(self, name: str) -> ModuleType:
        """Return the module that defines what the module under test imported as ``name``."""
        with self.modules.active():
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
            self.registered[op_name] = _Registered(op_func, fake_impl, tuple(mutates_args or ()))


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
def _variables(env: Mapping[str, str]) -> Iterator[None]:
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
    """Skip vLLM's registration of an opaque type with torch, which can be made once per process only."""
    try:
        registry = importlib.import_module("torch._library.opaque_object")
    except ImportError:  # torch before 2.11 has no such registry, and vLLM then does not ask for it
        yield
        return
    with mock.patch.object(registry, "register_opaque_type", return_value=None):
        yield


class VllmSubject:
    """The adapter (`aiter_conformance.protocols.Subject`).

    Args:
        wheel: The vLLM wheel.

    Raises:
        InfrastructureError: The module cannot be imported; the message says what was missing.
    """

    name = "vllm"

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._imports: dict[tuple[str, bool], _Import] = {}
        self._active: list[_Import] = []
        self._invalid: Exception | None = None
        self._ranks = _Ranks()
        self._library: Any = None
        logging.getLogger("vllm").addHandler(logging.NullHandler())
        self.version = str(wheel.version)
        self.differences: Mapping[str, Difference] = DIFFERENCES
        api = self._import("gfx950", aiter_found=True).api
        self.missing = frozenset(name for name in MAYBE_MISSING if not hasattr(api, name))

    @property
    def api(self) -> Any:
        """SPEC's public names, as the module has them in the current `environment`."""
        return self._current.api

    @property
    def placeholders(self) -> Mapping[str, str]:
        """Modules that became placeholders because a package is not installed: {module: package}."""
        return dict(self._current.modules.finder.stubbed)

    @property
    def _current(self) -> _Import:
        if not self._active:
            msg = "the subject must be used inside `environment` (got a use outside)"
            raise UsageError(msg)
        return self._active[-1]

    def _import(self, arch: str, *, aiter_found: bool) -> _Import:
        key = (arch, aiter_found)
        if key not in self._imports:
            self._imports[key] = _Import(self._wheel, arch, aiter_found=aiter_found, ranks=self._ranks)
            self._define_operators(self._imports[key])
        return self._imports[key]

    def _define_operators(self, imported: _Import) -> None:
        """Define the operators, once per process: what runs is the current import's own function."""
        if self._library is not None or not imported.registered:
            return
        library: Any = torch.library.Library("vllm", "FRAGMENT")  # type: ignore[no-untyped-call]
        for op_name, first in imported.registered.items():
            library.define(
                op_name + torch.library.infer_schema(first.implementation, mutates_args=first.mutates)
            )

            def implementation(*args: Any, _op_name: str = op_name, **kwargs: Any) -> Any:
                return self._current.registered[_op_name].implementation(*args, **kwargs)

            def fake(*args: Any, _op_name: str = op_name, **kwargs: Any) -> Any:
                own: Any = self._current.registered[_op_name].fake
                return own(*args, **kwargs)

            library.impl(op_name, implementation, "CompositeExplicitAutograd")
            if first.fake is not None:
                library._register_fake(op_name, fake)
        self._library = library

    @contextmanager
    def environment(
        self, arch: str, env: Mapping[str, str] = ENABLED, installed: FoundAiter | None = None
    ) -> Iterator[None]:
        """See `aiter_conformance.protocols.Subject.environment`."""
        imported = self._import(arch, aiter_found=installed is not None)
        modules: Mapping[str, ModuleType | None] = {"aiter": None} if installed is None else installed.modules
        target = imported.target
        saved = (target.aiter_topK_meta_data, self._invalid)
        with _variables(env), imported.modules.active(modules):
            imported.forget()
            target.aiter_topK_meta_data = None
            self._invalid = None
            try:
                imported.ops.refresh_env_variables()
            except ValueError as error:
                self._invalid = error  # at a real start the import fails with it: `settings` tells
            self._active.append(imported)
            try:
                yield
            finally:
                self._active.pop()
                imported.forget()
                target.aiter_topK_meta_data, self._invalid = saved

    @contextmanager
    def recording(
        self, result: Callable[[KernelCall], torch.Tensor] | None = None
    ) -> Iterator[list[KernelCall]]:
        """See `aiter_conformance.protocols.Subject.recording`."""
        calls: list[KernelCall] = []
        ops = self._current.ops
        answer = result or _zeros

        def recorder(name: Entry, real: Callable[..., Any]) -> Any:
            signature = inspect.signature(real)

            def record(*args: Any, **kwargs: Any) -> torch.Tensor:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                arguments = dict(bound.arguments)
                for key in ("activation_method", "quant_method"):
                    if key in arguments:
                        arguments[key] = int(arguments[key])
                call = KernelCall(name, arguments)
                calls.append(call)
                return answer(call)

            return staticmethod(record)

        recorders = {name: recorder(name, getattr(ops, name)) for name in OPERATORS}
        with mock.patch.multiple(ops, **recorders):
            yield calls

    def entry(self, name: Entry) -> KernelEntry:
        """See `aiter_conformance.protocols.Subject.entry`."""
        op_name = OPERATORS[name]
        if op_name not in self._current.registered:
            msg = f"vLLM registers {op_name} only where AITER is supported and installed"
            raise InfrastructureError(msg)
        registered = self._current.registered[op_name]
        if registered.fake is None:
            msg = f"vLLM registers {op_name} without a fake"
            raise InfrastructureError(msg)
        operator = getattr(torch.ops.vllm, op_name).default
        wrapper = getattr(self._current.ops, name)
        return KernelEntry(wrapper, operator, registered.implementation, registered.fake)

    def settings(self) -> Settings:
        """See `aiter_conformance.protocols.Subject.settings`."""
        if self._invalid is not None:
            raise self._invalid
        ops = self._current.ops
        # None is vLLM's answer where AITER is not supported or not installed.
        return Settings(
            fused_moe_enabled=bool(ops.is_fused_moe_enabled()),
            shared_experts_fusion=bool(ops.is_fusion_moe_shared_experts_enabled()),
            dispatch_policy=ops.get_moe_dispatch_policy() or 0,
            situ_interleaved=bool(ops.is_fused_moe_situv2_gate_up_interleaved()),
        )

    def moe_config(self, spec: MoEConfigSpec) -> Any:
        """See `aiter_conformance.protocols.Subject.moe_config`."""
        api = self.api
        fields = asdict(spec)
        where = spec.parallel
        self._ranks.current = where
        deployed = SimpleNamespace(
            enable_expert_parallel=where.use_ep, all2all_backend=where.all2all_backend, enable_eplb=False
        )
        parallel = api.FusedMoEParallelConfig.make(where.tp, where.pcp, where.dp, where.sp, deployed)
        dsv4 = fields.pop("use_mxfp4_w4a4_dsv4")
        local = fields.pop("num_local_experts")
        fields.update(
            activation=api.MoEActivation(spec.activation),
            device="cpu",
            in_dtype=getattr(torch, spec.in_dtype),
            max_num_tokens=256,
            moe_parallel_config=parallel,
            num_local_experts=spec.num_experts // parallel.ep_size if local is None else local,
            num_logical_experts=spec.num_experts,
            routing_method=api.RoutingMethodType.Default,
        )
        del fields["parallel"]
        config = api.FusedMoEConfig(**fields)
        if dsv4:
            # vLLM sets it itself for certain model types, which needs a whole model configuration.
            config.use_mxfp4_w4a4_dsv4 = True
        return config

    def quant_config(self, spec: QuantSpec, tensors: Mapping[str, torch.Tensor]) -> Any:
        """See `aiter_conformance.protocols.Subject.quant_config`."""
        return self.api.FusedMoEQuantConfig.make(
            self._quant_dtype(spec.activations),
            weight_dtype=self._quant_dtype(spec.weights),
            per_act_token_quant=spec.per_act_token,
            per_out_ch_quant=spec.per_out_ch,
            block_shape=None if spec.block_shape is None else list(spec.block_shape),
            **tensors,
        )

    def _quant_dtype(self, name: str | None) -> torch.dtype | str | None:
        return self._current.config.current_platform.fp8_dtype() if name == "fp8" else name

    def refusal(self, error: Exception) -> type[Exception] | None:
        """See `aiter_conformance.protocols.Subject.refusal`.

        vLLM asserts where SPEC asks for a ValueError, and for a RuntimeError where the shared-expert buffer
        is missing or already there.
        """
        if isinstance(error, AssertionError):
            return RuntimeError if "initialized" in str(error) else ValueError
        return ValueError if isinstance(error, ValueError) else None


def _zeros(call: KernelCall) -> torch.Tensor:
    """Return what a kernel returns in shape and dtype: (M, K), K unpacked where the input is packed fp4."""
    hidden = call.arguments["hidden_states"]
    packed = hidden.dtype == torch.float4_e2m1fn_x2
    rows, columns = hidden.shape
    dtype = call.arguments.get("output_dtype") or hidden.dtype
    return torch.zeros(rows, columns * 2 if packed else columns, dtype=dtype)


def _cached_functions(imported: _Import) -> list[Any]:
    """Return the functions that remember what vLLM last saw of AITER and of the buffers."""
    found = [imported.target.init_aiter_topK_meta_data]
    for member in vars(imported.ops).values():
        function = getattr(member, "__func__", member)
        while function is not None:
            if hasattr(function, "cache_clear"):
                found.append(function)
            function = getattr(function, "__wrapped__", None)
    return found
