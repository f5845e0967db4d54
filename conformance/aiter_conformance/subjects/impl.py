"""Our own leaves, the package ``aiter_moe``, as a subject."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import aiter_moe
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

if TYPE_CHECKING:  # declarations are asked for on machines without torch
    import torch

# Variables that the subject reads; `environment` sets exactly those that it is given.
_PREFIXES: Final = ("VLLM_", "AITER_")
# Parts of AITER that the bridge asks for -> where AITER has them.
_HOMES: Final = {
    "ActivationType": "aiter",
    "QuantType": "aiter",
    "dtypes": "aiter",
    "fused_moe": "aiter.fused_moe",
    "asm_moe_tkw1": "aiter.fused_moe_bf16_asm",
    "biased_grouped_topk": "aiter",
    "grouped_topk": "aiter",
}


ENTRIES: Final[tuple[Entry, ...]] = ("fused_moe", "asm_moe_tkw1")


def find_version() -> str:
    """Return the version of the installed package."""
    return metadata.version("aiter-moe-conformance")


def load() -> ImplSubject:
    """Return the adapter of ``aiter_moe``."""
    return ImplSubject()


def _load_part(name: str) -> Any:
    return getattr(importlib.import_module(_HOMES[name]), name)


@contextmanager
def _variables(env: Mapping[str, str]) -> Iterator[None]:
    """Set exactly ``env`` of the variables that the subject reads; put everything back at the end."""

    def take_away() -> dict[str, str]:
        return {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_PREFIXES)}

    before = take_away()
    os.environ.update(env)
    try:
        yield
    finally:
        take_away()
        os.environ.update(before)


@contextmanager
def _only_aiter(modules: Mapping[str, Any]) -> Iterator[None]:
    """Let exactly these modules of AITER be imported; other modules stay as they come."""
    # Without the package there is nothing under it, and a whole sys.modules need not be looked through.
    there = (
        [name for name in sys.modules if f"{name}.".startswith("aiter.")] if "aiter" in sys.modules else []
    )
    before = {name: sys.modules.pop(name) for name in there}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@contextmanager
def _no_shared_experts() -> Iterator[None]:
    """Start without the buffers of shared experts, and give back those that were there."""
    module = "aiter_moe.shared_experts"
    names = ("aiter_topK_meta_data", "_layout")
    loaded: Any = sys.modules.get(module)
    before = {name: vars(loaded)[name] for name in names if name in vars(loaded)} if loaded else None
    if loaded:
        loaded.reset_aiter_topK_meta_data()
    try:
        yield
    finally:
        loaded = sys.modules.get(module)
        if before is not None:
            vars(loaded).update(before)
        elif loaded:
            loaded.reset_aiter_topK_meta_data()


class ImplSubject:
    """The adapter (`aiter_conformance.protocols.Subject`): SPEC's names are those of the package."""

    name = "impl"
    differences: Mapping[str, Difference] = {}
    missing: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.version = find_version()

    @property
    def api(self) -> Any:
        """The package itself."""
        return aiter_moe

    @contextmanager
    def environment(
        self, arch: str, env: Mapping[str, str] = ENABLED, installed: FoundAiter | None = None
    ) -> Iterator[None]:
        """See `aiter_conformance.protocols.Subject.environment`."""
        found = None if installed is None else aiter_moe.Aiter(installed.version, _load_part)
        # Whoever imports AITER past the bridge gets the same answer as through it.
        modules: Mapping[str, Any] = {"aiter": None} if installed is None else installed.modules
        with (
            _variables(env),
            _only_aiter(modules),
            _no_shared_experts(),
            aiter_moe.use_arch(arch),
            aiter_moe.use_bridge(aiter_moe.AiterBridge(found)),
        ):
            yield

    @contextmanager
    def recording(
        self, result: Callable[[KernelCall], torch.Tensor] | None = None
    ) -> Iterator[list[KernelCall]]:
        """See `aiter_conformance.protocols.Subject.recording`."""
        calls: list[KernelCall] = []

        def recorder(name: Entry) -> Callable[[Mapping[str, Any]], torch.Tensor]:
            def record(arguments: Mapping[str, Any]) -> torch.Tensor:
                call = KernelCall(name, dict(arguments))
                calls.append(call)
                return zeros(call) if result is None else result(call)

            return record

        # Under the operators: what is recorded has come through their schemas.
        recorders: dict[str, Any] = {name: recorder(name) for name in ENTRIES}
        with mock.patch.multiple(aiter_moe.current_bridge(), **recorders):
            yield calls

    def entry(self, name: Entry) -> KernelEntry:
        """See `aiter_conformance.protocols.Subject.entry`."""
        import torch

        operators = importlib.import_module("aiter_moe.operators")
        packet = getattr(torch.ops.aiter_moe_conf, name)
        return KernelEntry(
            packet, packet.default, getattr(operators, name), getattr(operators, f"{name}_fake")
        )

    def settings(self) -> Settings:
        """See `aiter_conformance.protocols.Subject.settings`."""
        bridge = aiter_moe.current_bridge()
        return Settings(
            fused_moe_enabled=bridge.is_fused_moe_enabled(),
            shared_experts_fusion=bridge.is_fusion_moe_shared_experts_enabled(),
            dispatch_policy=bridge.get_moe_dispatch_policy(),
            situ_interleaved=bridge.is_fused_moe_situv2_gate_up_interleaved(),
        )

    def moe_config(self, spec: MoEConfigSpec) -> Any:
        """See `aiter_conformance.protocols.Subject.moe_config`."""
        where = spec.parallel
        parallel = aiter_moe.FusedMoEParallelConfig.make(
            tp_size=where.tp,
            pcp_size=where.pcp,
            dp_size=where.dp,
            sp_size=where.sp,
            tp_rank=where.tp_rank,
            pcp_rank=where.pcp_rank,
            dp_rank=where.dp_rank,
            enable_expert_parallel=where.use_ep,
            all2all_backend=where.all2all_backend,
        )
        local = spec.num_local_experts
        return aiter_moe.FusedMoEConfig(
            num_experts=spec.num_experts,
            num_local_experts=spec.num_experts // parallel.ep_size if local is None else local,
            num_logical_experts=spec.num_experts,
            experts_per_token=spec.experts_per_token,
            hidden_dim=spec.hidden_dim,
            intermediate_size=spec.intermediate_size,
            in_dtype=spec.in_dtype,
            activation=aiter_moe.MoEActivation(spec.activation),
            device="cpu",
            moe_parallel_config=parallel,
            hidden_dim_unpadded=spec.hidden_dim_unpadded,
            intermediate_size_per_partition_unpadded=spec.intermediate_size_per_partition_unpadded,
            intermediate_pad=spec.intermediate_pad,
            swiglu_limit=spec.swiglu_limit,
            activation_situ_beta=spec.activation_situ_beta,
            activation_situ_linear_beta=spec.activation_situ_linear_beta,
            use_mxfp4_w4a4_dsv4=spec.use_mxfp4_w4a4_dsv4,
            is_lora_enabled=spec.is_lora_enabled,
            has_hash_routing=spec.has_hash_routing,
            require_decomposed_backend=spec.require_decomposed_backend,
        )

    def quant_config(self, spec: QuantSpec, tensors: Mapping[str, torch.Tensor]) -> Any:
        """See `aiter_conformance.protocols.Subject.quant_config`."""
        return make_quant_config(
            aiter_moe.FusedMoEQuantConfig.make, spec, tensors, aiter_moe.DType.FP8.torch_dtype
        )

    def refusal(self, error: Exception) -> type[Exception] | None:
        """See `aiter_conformance.protocols.Subject.refusal`: our errors are SPEC's, subclasses aside."""
        return next((kind for kind in (ValueError, RuntimeError) if type(error) is kind), None)
