"""vLLM's own module of AITER expert leaves as a subject, on a CPU and unmodified.

The module comes out of a vLLM wheel (`vllm_wheel`). vLLM looks at the platform while it is imported: the fp8
flavour of its quant keys and whether AITER is there are settled then. So the wheel is imported once per
(architecture, AITER present or not), each import seeing a machine that reports that architecture; the
second and later imports take about 20 ms (`vllm_import`).

What differs from a run on a GPU, all of it outside the module under test:

* the operators of MoE and routing are registered for every device, not for "CUDA" only, and no others are;
* ``device="cuda"`` in `init_aiter_topK_meta_data` means the CPU where torch finds no accelerator;
* `vllm_wheel.STUB_AREAS` are placeholders.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.protocols import (
    ENABLED,
    Difference,
    Entry,
    FoundAiter,
    KernelCall,
    KernelEntry,
    MoEConfigSpec,
    QuantSpec,
    Settings,
)
from aiter_conformance.subjects.shared import make_quant_config, zeros
from aiter_conformance.subjects.vllm_differences import DIFFERENCES
from aiter_conformance.subjects.vllm_import import OPERATORS, Ranks, VllmImport, exact_variables
from aiter_conformance.subjects.vllm_wheel import Wheel

# Names of SPEC that vLLM may or may not have: 0.33.0 has none of them, its development line the first two.
MAYBE_MISSING = (
    "derive_aiter_quant_method",
    "mxfp4_w4a16_extra_kwargs",
    "make_expert_mask",
    "pack_gate_up",
    "padded_sizes",
    "prepare_weights",
    "reset_aiter_topK_meta_data",
)


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
        self._imports: dict[tuple[str, bool], VllmImport] = {}
        self._active: list[VllmImport] = []
        self._invalid: Exception | None = None
        self._ranks = Ranks()
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
    def _current(self) -> VllmImport:
        if not self._active:
            msg = "the subject must be used inside `environment` (got a use outside)"
            raise UsageError(msg)
        return self._active[-1]

    def _import(self, arch: str, *, aiter_found: bool) -> VllmImport:
        key = (arch, aiter_found)
        if key not in self._imports:
            self._imports[key] = VllmImport(self._wheel, arch, aiter_found=aiter_found, ranks=self._ranks)
            self._define_operators(self._imports[key])
        return self._imports[key]

    def _define_operators(self, imported: VllmImport) -> None:
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
        with exact_variables(env), imported.modules.active(modules):
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
        answer = result or zeros

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
        return make_quant_config(
            self.api.FusedMoEQuantConfig.make, spec, tensors, self._current.config.current_platform.fp8_dtype
        )

    def refusal(self, error: Exception) -> type[Exception] | None:
        """See `aiter_conformance.protocols.Subject.refusal`.

        vLLM asserts where SPEC asks for a ValueError, and for a RuntimeError where the shared-expert buffer
        is missing or already there.
        """
        if isinstance(error, AssertionError):
            return RuntimeError if "initialized" in str(error) else ValueError
        return ValueError if isinstance(error, ValueError) else None
