"""The bridge to AITER: whether it is to be used, and the calls into it.

A bridge is built around one AITER: the installed one, a simulated one, or a release under trace. AITER is
imported only when a call needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiter_moe import env
from aiter_moe.arch import AITER_MOE_ARCHS, current_arch
from aiter_moe.calls import ASM_MOE_TKW1, FUSED_MOE, accepted_names, aiter_keywords
from aiter_moe.library import Aiter, find_aiter

if TYPE_CHECKING:
    from torch import Tensor


class AiterBridge:
    """What the leaves ask of AITER and of the environment.

    Args:
        library: The AITER behind the bridge; None says that there is none. No part of it is loaded before
            a call needs it.
        use_operators: Whether the dispatcher reaches the two kernel calls through their torch operators.
            Without them a call on meta tensors arrives at AITER instead of ending in the operator's fake.
    """

    def __init__(self, library: Aiter | None, *, use_operators: bool = True) -> None:
        self.library = library
        self.use_operators = use_operators

    def is_available(self) -> bool:
        """Whether an AITER was found and the current architecture is one that its fused MoE supports."""
        return self.library is not None and current_arch() in AITER_MOE_ARCHS

    def fused_moe_obstacle(self) -> str | None:
        """Return why AITER's fused MoE is not enabled, in words that follow "because"; None when it is."""
        arch = current_arch()
        device = (
            "there is no ROCm GPU" if arch is None else f"{arch} is not one of {', '.join(AITER_MOE_ARCHS)}"
        )
        obstacles = (
            (arch in AITER_MOE_ARCHS, device),
            (self.library is not None, "AITER is not installed"),
            (env.is_on("VLLM_ROCM_USE_AITER", default=False), "VLLM_ROCM_USE_AITER is not 1"),
            (env.is_on("VLLM_ROCM_USE_AITER_MOE", default=True), "VLLM_ROCM_USE_AITER_MOE is not 1"),
        )
        return next((why for fulfilled, why in obstacles if not fulfilled), None)

    def is_fused_moe_enabled(self) -> bool:
        """Whether AITER's fused MoE is to be used: architecture, AITER and both variables agree."""
        return self.fused_moe_obstacle() is None

    def is_fusion_moe_shared_experts_enabled(self) -> bool:
        """Whether shared experts ride along in the routed call; only with fused MoE enabled."""
        wanted = env.is_on("VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS", default=False)
        return wanted and self.is_fused_moe_enabled()

    def get_moe_dispatch_policy(self) -> int:
        """Return AITER's MoE sorting policy, 0, 1 or 2; 0 where AITER is not available.

        Raises:
            ValueError: ``VLLM_ROCM_AITER_MOE_DISPATCH_POLICY`` is something else.
        """
        return env.dispatch_policy() if self.is_available() else 0

    def is_fused_moe_situv2_gate_up_interleaved(self) -> bool:
        """Whether SITU's kernel wants gate and up interleaved, which is so for a8w4; fused MoE may be off.

        Raises:
            ValueError: ``VLLM_ROCM_USE_AITER_MOE_SITUV2`` is none of its choices.
        """
        return self.is_available() and env.situv2_activation() == "a8w4"

    def part(self, name: str) -> Any:
        """Return a part of the AITER behind the bridge, see `Aiter`.

        Raises:
            ImportError: There is no AITER, or it does not have the part.
            ValueError: ``VLLM_ROCM_USE_AITER_MOE_SITUV2`` is none of its choices.
        """
        return self._told_library.part(name)

    def find_activation(self, name: str) -> Any | None:
        """Return the member of AITER's ``ActivationType`` of that name, e.g. ``Swiglu``; None without one.

        Raises:
            ValueError: ``VLLM_ROCM_USE_AITER_MOE_SITUV2`` is none of its choices.
        """
        try:
            return self.part("ActivationType").__members__.get(name)
        except ImportError:
            return None

    def fused_moe(self, arguments: Mapping[str, Any]) -> Tensor:
        """Call AITER's ``fused_moe``.

        Args:
            arguments: A value for each parameter of `aiter_moe.fused_moe`, by name.

        Returns:
            What AITER returns, ``(M, K)``.

        Raises:
            ImportError: There is no AITER.
            RuntimeError: SITU, and AITER's environment no longer says what the bridge told it.
            ValueError: Arguments that contradict each other, or that this AITER cannot take.
        """
        activation = self._member("activation_method", self._activations, arguments["activation_method"])
        is_situ = activation == self.find_activation("Situv2")
        if is_situ:
            env.check_situv2_switches()
        _check_betas(is_situ, arguments)
        _check_shared_experts(arguments)
        sent = {
            **arguments,
            "activation_method": activation,
            "quant_method": self._member("quant_method", self._quant_types, arguments["quant_method"]),
            # Other kernels have no use for them, and AITER's own defaults are not ours to replace.
            "beta": arguments["beta"] if is_situ else None,
            "linear_beta": arguments["linear_beta"] if is_situ else None,
        }
        version = self._told_library.version
        keywords = aiter_keywords(FUSED_MOE, sent, self._fused_moe_names, version)
        result: Tensor = self.part("fused_moe")(**keywords)
        return result

    def asm_moe_tkw1(self, arguments: Mapping[str, Any]) -> Tensor:
        """Call AITER's ``asm_moe_tkw1``, which applies router weights before the activation.

        Args:
            arguments: A value for each parameter of `aiter_moe.asm_moe_tkw1`, by name.

        Returns:
            What AITER returns, ``(M, K)``.

        Raises:
            ImportError: There is no AITER.
            ValueError: Arguments that this AITER cannot take.
        """
        activation = self._member("activation_method", self._activations, arguments["activation_method"])
        sent = {**arguments, "activation_method": activation}
        version = self._told_library.version
        keywords = aiter_keywords(ASM_MOE_TKW1, sent, self._tkw1_names, version)
        result: Tensor = self.part("asm_moe_tkw1")(**keywords)
        return result

    @functools.cached_property
    def _told_library(self) -> Aiter:
        """The AITER, told by its own variables which SITU kernel is meant; that has to precede its import."""
        if self.library is None:
            msg = "AITER must be installed for this call (got none); AMD's package is called amd-aiter"
            raise ImportError(msg)
        env.set_situv2_switches()
        return self.library

    @functools.cached_property
    def _fused_moe_names(self) -> frozenset[str]:
        return accepted_names(self.part("fused_moe"), FUSED_MOE)

    @functools.cached_property
    def _tkw1_names(self) -> frozenset[str]:
        return accepted_names(self.part("asm_moe_tkw1"), ASM_MOE_TKW1)

    @functools.cached_property
    def _activations(self) -> Mapping[int, Any]:
        return _by_number(self.part("ActivationType"))

    @functools.cached_property
    def _quant_types(self) -> Mapping[int, Any]:
        return _by_number(self.part("QuantType"))

    def _member(self, name: str, members: Mapping[int, Any], number: int) -> Any:
        if number not in members:
            msg = (
                f"{name} must be a number that AITER {self._told_library.version} knows, one of "
                f"{', '.join(str(member) for member in members.values())} (got {number})"
            )
            raise ValueError(msg)
        return members[number]


def _by_number(enum: Any) -> dict[int, Any]:
    """Return the members of one of AITER's enums by their numbers; called, those enums accept any number."""
    return {int(member): member for member in enum.__members__.values()}


def _check_betas(is_situ: bool, arguments: Mapping[str, Any]) -> None:
    """Refuse SITU without its parameters. Ours: AITER makes a missing one 1 or 25, by kernel."""
    missing = [name for name in ("beta", "linear_beta") if arguments[name] is None]
    if is_situ and missing:
        msg = f"{' and '.join(missing)} must be given for SITU (got None)"
        raise ValueError(msg)


def _check_shared_experts(arguments: Mapping[str, Any]) -> None:
    names = ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")
    given = [name for name in names if arguments[name] is not None]
    identity = arguments["shared_expert_id"]
    if given not in ([], list(names)) or (identity >= 0) != bool(given):
        msg = (
            f"{', '.join(names)} and a shared_expert_id of 0 or more must come together or not at all "
            f"(got {', '.join(given) or 'none of them'} and shared_expert_id {identity})"
        )
        raise ValueError(msg)


@functools.cache
def _installed_bridge() -> AiterBridge:
    return AiterBridge(find_aiter())


_CHOSEN: ContextVar[AiterBridge | None] = ContextVar("aiter_moe_bridge", default=None)


def current_bridge() -> AiterBridge:
    """Return the bridge chosen with `use_bridge`, or else the one to the installed AITER."""
    return _CHOSEN.get() or _installed_bridge()


@contextmanager
def use_bridge(bridge: AiterBridge) -> Iterator[AiterBridge]:
    """Make `bridge` the current one inside the ``with`` block."""
    token = _CHOSEN.set(bridge)
    try:
        yield bridge
    finally:
        _CHOSEN.reset(token)
