"""Makes a call of the release under trace: through the subject's leaf and bridge, or directly."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import torch

import aiter_moe
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, SCHEME_CONFIGS, leaf_of_scheme
from aiter_conformance.protocols import MoEConfigSpec, ParallelSpec
from aiter_conformance.subjects.impl import ImplSubject
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.worker.fake_torch import DEVICE
from aiter_conformance.trace.worker.tensors import Tensors, direct_keywords

# SiTU's parameters play no part in dispatch; the leaf needs some.
_SITU_BETAS: Final = (4.0, 25.0)
_DIRECT_QUANT_TYPES: Final = {
    "bf16": "No",
    "fp8-block": "per_128x128",
    "fp8-tensor-static": "per_Tensor",
    "fp8-tensor-dynamic": "per_Tensor",
    "fp8-channel": "per_Token",
    "int8-token": "per_Token",
}
_SITU_SWITCHES: Final = {"a8w4": "AITER_SITUV2_A8W4", "a4w4": "AITER_SITUV2_A4W4"}


class Caller:
    """Makes calls.

    Args:
        arch: The board's arch.
        version: The release's version, for the bridge's messages.
        parts: The release's own objects by the bridge's names (`aiter_moe.Aiter`).
        tensors: Maker of tensors.
    """

    def __init__(self, arch: str, version: str, parts: Mapping[str, Any], tensors: Tensors) -> None:
        self._arch = arch
        self._version = version
        self._parts = parts
        self._tensors = tensors
        self._subject = ImplSubject()
        self._workspace = torch.empty((0,), dtype=torch.bfloat16, device=DEVICE)
        self._fused_moe_names = frozenset(inspect.signature(parts["fused_moe"]).parameters)
        self._prepared = lru_cache(maxsize=512)(self._prepare)
        self._bridge = lru_cache(maxsize=None)(self._make_bridge)

    def __call__(self, call: Call) -> None:
        """Make one call; what the release or the subject raises passes through."""
        with _situ(call.situ):
            if call.entry == "leaf":
                self._through_leaf(call)
            else:
                self._directly(call)

    def _through_leaf(self, call: Call) -> None:
        leaf, activation, layer = self._prepared(replace(call, tokens=1))
        made = self._tensors.tokens(call)
        output = torch.empty((call.tokens, call.hidden), dtype=torch.bfloat16, device=DEVICE)
        with aiter_moe.use_arch(self._arch), aiter_moe.use_bridge(self._bridge(call.situ)):
            leaf.apply(
                output=output,
                hidden_states=made["hidden_states"],
                w1=layer["w1"],
                w2=layer["w2"],
                topk_weights=made["topk_weights"],
                topk_ids=made["topk_ids"],
                activation=activation,
                global_num_experts=call.experts,
                expert_map=layer.get("expert_mask"),
                a1q_scale=None,
                a2_scale=None,
                workspace13=self._workspace,
                workspace2=self._workspace,
                expert_tokens_meta=None,
                apply_router_weight_on_input=call.router == "in",
            )

    def _prepare(self, call: Call) -> tuple[Any, Any, dict[str, torch.Tensor]]:
        layer = self._tensors.layer(call)
        leaf = getattr(aiter_moe, leaf_of_scheme(call.scheme).name)
        beta, linear_beta = _SITU_BETAS if call.activation == "situ" else (None, None)
        parallel = ParallelSpec(tp=call.experts // call.local_experts, use_ep=True)
        parallel = parallel if call.mask else ParallelSpec(tp=call.tp)
        spec = MoEConfigSpec(
            num_experts=call.experts,
            num_local_experts=call.local_experts,
            experts_per_token=call.topk,
            hidden_dim=call.hidden,
            intermediate_size=call.intermediate * (1 if call.mask else call.tp),
            activation=call.activation,
            parallel=parallel,
            hidden_dim_unpadded=call.hidden - call.hidden_pad,
            intermediate_size_per_partition_unpadded=call.intermediate - call.intermediate_pad,
            swiglu_limit=call.swiglu_limit,
            activation_situ_beta=beta,
            activation_situ_linear_beta=linear_beta,
        )
        names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")
        scales = {name: layer[name] for name in names if name in layer}
        with aiter_moe.use_arch(self._arch), aiter_moe.use_bridge(self._bridge(call.situ)):
            made = leaf(
                self._subject.moe_config(spec),
                self._subject.quant_config(SCHEME_CONFIGS[call.scheme], scales),
            )
        return made, aiter_moe.MoEActivation(call.activation), layer

    def _make_bridge(self, situ: str) -> aiter_moe.AiterBridge:  # noqa: ARG002 -- one a kind: it tells AITER once
        library = aiter_moe.Aiter(self._version, self._parts.__getitem__)
        return aiter_moe.AiterBridge(library, use_operators=False)

    def _directly(self, call: Call) -> None:
        layer, made = self._tensors.layer(call), self._tensors.tokens(call)
        member = ACCEPTED_ACTIVATIONS[call.activation][0]
        activation = getattr(self._parts["ActivationType"], member, None)
        if activation is None:
            msg = f"ActivationType of this release has no {member}"
            raise LookupError(msg)
        quant_type = _DIRECT_QUANT_TYPES.get(call.scheme, "per_1x32")
        keywords = direct_keywords(call, layer)
        if call.activation == "situ":
            keywords |= {"beta": _SITU_BETAS[0], "linear_beta": _SITU_BETAS[1]}
        if unknown := keywords.keys() - self._fused_moe_names:
            msg = f"fused_moe of this release takes no {' and no '.join(sorted(unknown))}"
            raise LookupError(msg)
        self._parts["fused_moe"](
            made["hidden_states"],
            layer["w1"],
            layer["w2"],
            made["topk_weights"],
            made["topk_ids"],
            activation=activation,
            quant_type=getattr(self._parts["QuantType"], quant_type),
            **keywords,
        )


@contextlib.contextmanager
def _situ(kind: str) -> Iterator[None]:
    """Set what vLLM and AITER read to tell which SiTU kernel is meant."""
    names = ("VLLM_ROCM_USE_AITER_MOE_SITUV2", *_SITU_SWITCHES.values())
    before = {name: os.environ.get(name) for name in names}
    os.environ[names[0]] = kind
    for which, name in _SITU_SWITCHES.items():
        if which == kind:
            os.environ[name] = "1"
        else:
            os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
