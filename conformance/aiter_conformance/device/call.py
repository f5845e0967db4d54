"""A leaf on a device, its inputs in buffers that stay where they are, to be called again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

from aiter_conformance.contract import SCHEME_CONFIGS
from aiter_conformance.device.variants import GROUPS, SCALE, TOPK_GROUPS, Values, Variant, values
from aiter_conformance.golden import AITER_RELEASE, environment_of, moe_config_spec
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.verdict import judge
from aiter_conformance.protocols import KernelCall, Subject
from aiter_conformance.topk_oracle import simulate_routing

FUSION: Final = {"VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
Pair = tuple[torch.Tensor, torch.Tensor]


class NotRun(Exception):  # noqa: N818 -- no error: it says why there is nothing to look at
    """A check cannot be run on a call; the message says why."""


def default_device() -> torch.device:
    """Return the GPU that torch sees (CUDA or ROCm, which torch calls cuda too), or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@lru_cache(maxsize=64)
def _values(variant: Variant, seed: int) -> Values:
    return values(variant, seed)


class DeviceCall:
    """A call of a leaf on a device; made by `opened`.

    Checks replace `apply`, `route` and `compute` where they want to see or change what happens.

    Attributes:
        variant: What is called.
        device: Where.
        subject: The implementation under test.
        buffers: The inputs that change from call to call, by name.
        constants: Weights, scales, biases and mask, by name.
        apply: The leaf's ``apply``, keywords only.
        route: Returns (router weights, ids) for `apply`.
        compute: Computes the kernel call.
        in_kernel: Whether the kernel call is running now.
        last: The last kernel call.
    """

    def __init__(
        self,
        variant: Variant,
        device: torch.device,
        subject: Subject,
        apply: Callable[..., None],
        packed: Packed,
    ) -> None:
        provider = provider_for(variant.problem.case.cell)
        arch = variant.problem.case.cell.arch
        self.variant = variant
        self.device = device
        self.subject = subject
        self.apply = apply
        self.compute: Callable[[KernelCall], torch.Tensor] = lambda call: provider.compute(call, arch)
        self.route: Callable[[], Pair] = self._route_by_aiter if variant.routed else self._given
        self.in_kernel = False
        self.last: KernelCall | None = None
        self.constants: dict[str, torch.Tensor] = {"w1": packed.w1, "w2": packed.w2, **packed.quant}
        if packed.expert_mask is not None:
            self.constants["expert_mask"] = packed.expert_mask
        self.buffers = self.stage(0)
        if variant.routed:
            del self.buffers["topk_weights"], self.buffers["topk_ids"]
        self._empty = torch.empty(0, dtype=torch.bfloat16, device=device)

    # ----------------------------------------------------------------------- inputs

    def values(self, seed: int) -> Values:
        """Return a set of inputs on the host, and what must come of them."""
        return _values(self.variant, seed)

    def stage(self, seed: int) -> dict[str, torch.Tensor]:
        """Return a set of inputs on the device, for `fill`."""
        return {name: tensor.clone().to(self.device) for name, tensor in self.values(seed).tensors.items()}

    def fill(self, staged: Mapping[str, torch.Tensor]) -> None:
        """Write other inputs into the buffers, in stream order."""
        for name, buffer in self.buffers.items():
            buffer.copy_(staged[name])

    def new_output(self) -> torch.Tensor:
        """Return an output full of NaN, bfloat16 [M, K]."""
        return torch.full_like(self.buffers["hidden_states"], torch.nan)

    # ----------------------------------------------------------------------- the call

    def run(self, output: torch.Tensor | None = None) -> torch.Tensor:
        """Route and apply once, on the current stream, and return the output."""
        written = self.new_output() if output is None else output
        self.experts(written, *self.route())
        return written

    def experts(self, output: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor) -> None:
        """Call the leaf's ``apply``."""
        case, api = self.variant.problem.case, self.subject.api
        meta = None
        if self.variant.counted:
            meta = api.ExpertTokensMetadata(self.buffers["num_local_tokens"], None)
        self.apply(
            output=output,
            hidden_states=self.buffers["hidden_states"],
            w1=self.constants["w1"],
            w2=self.constants["w2"],
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            activation=api.MoEActivation(case.cell.activation),
            global_num_experts=case.experts,
            expert_map=self.constants.get("expert_mask"),
            a1q_scale=None,
            a2_scale=self.constants.get("a2_scale"),
            workspace13=self._empty,
            workspace2=self._empty,
            expert_tokens_meta=meta,
            apply_router_weight_on_input=case.cell.router == "in",
        )

    def kernel(self, call: KernelCall) -> torch.Tensor:
        """Compute a kernel call for the subject."""
        self.last, self.in_kernel = call, True
        try:
            return self.compute(call)
        finally:
            self.in_kernel = False

    def _given(self) -> Pair:
        return self.buffers["topk_weights"], self.buffers["topk_ids"]

    def _route_by_aiter(self) -> Pair:
        api, case = self.subject.api, self.variant.problem.case
        shared = self.variant.problem.features.shared_experts
        routed: Pair = api.rocm_aiter_grouped_topk(
            self.buffers["hidden_states"],
            self.buffers["logits"],
            case.topk,
            True,
            GROUPS,
            TOPK_GROUPS,
            "softmax",
            SCALE,
            self.buffers.get("correction_bias"),
            shared,
        )
        pair: Pair = api.inject_shared_expert_weights(*routed, case.topk, shared, self.buffers["gates"])
        return pair

    # ----------------------------------------------------------------------- what came of it

    def live(self, output: torch.Tensor, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the valid rows and live columns of an output as float64 on the host."""
        rows, columns = self.variant.rows(seed), self.variant.problem.live_hidden
        return output[:rows, :columns].to(torch.float64).cpu().numpy()

    def wrong(self, output: torch.Tensor, seed: int, what: str) -> str | None:
        """Return what is wrong with an output, one sentence that begins with ``what``, or None."""
        verdict = judge(self.live(output, seed), self.values(seed).expected)
        return None if verdict.passed else f"{what}: {verdict.message}"


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Move a tensor, its mark ``is_shuffled`` with it; types without copy kernels go as bytes."""
    small = tensor.element_size() == 1
    moved = tensor.view(torch.uint8).to(device).view(tensor.dtype) if small else tensor.to(device)
    if hasattr(tensor, "is_shuffled"):
        vars(moved)["is_shuffled"] = tensor.is_shuffled
    return moved


@lru_cache(maxsize=32)
def _packed(variant: Variant) -> Packed:
    return pack(variant.problem)


def _on_device(packed: Packed, device: torch.device) -> Packed:
    mask = packed.expert_mask
    return replace(
        packed,
        expert_mask=None if mask is None else mask.to(device),
        w1=to_device(packed.w1, device),
        w2=to_device(packed.w2, device),
        quant={name: to_device(tensor, device) for name, tensor in packed.quant.items()},
    )


@contextmanager
def opened(variant: Variant, subject: Subject, device: torch.device) -> Iterator[DeviceCall]:
    """Build the leaf of a variant and everything that it is called with, on a device.

    AITER's kernels are the provider ``reference``, its routing operators those of `topk_oracle`.
    """
    problem = variant.problem
    cell = problem.case.cell
    env = environment_of(problem) | (FUSION if variant.routed else {})
    found = simulate_routing(AITER_RELEASE)
    packed = _on_device(_packed(variant), device)
    with subject.environment(cell.arch, env, found):
        config = subject.moe_config(moe_config_spec(problem))
        quant = subject.quant_config(SCHEME_CONFIGS[cell.scheme], packed.quant)
        leaf = getattr(subject.api, variant.leaf)(config, quant)
        if variant.routed:
            subject.api.init_aiter_topK_meta_data(*variant.shared_buffers.values())
        call = DeviceCall(variant, device, subject, leaf.apply, packed)
        recorded: list[list[Any]] = [found.calls]

        def kernel(kernel_call: KernelCall) -> torch.Tensor:
            for calls in recorded:
                calls.clear()  # records would keep every tensor of every call alive
            return call.kernel(kernel_call)

        with subject.recording(kernel) as calls:
            recorded.append(calls)
            yield call


def cpu_output(variant: Variant, subject: Subject, seed: int) -> torch.Tensor:
    """Return what the same leaf and kernels give on the CPU, routed by the rule."""
    plain = replace(variant, routed=False) if variant.routed else variant
    with opened(plain, subject, torch.device("cpu")) as call:
        # The rule's ids and weights are among a routed variant's values, not among a plain one's.
        call.buffers = {name: tensor.clone() for name, tensor in _values(variant, seed).tensors.items()}
        return call.run()
