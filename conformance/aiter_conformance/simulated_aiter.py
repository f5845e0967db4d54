"""Stand-ins for AITER releases: the real signatures and enums over functions that record their calls.

The facts are read from AITER's tags: ``def fused_moe`` in aiter/fused_moe.py, ``def asm_moe_tkw1`` in
aiter/fused_moe_bf16_asm.py, csrc/include/aiter_enum.h and ``GateMode`` in aiter/ops/flydsl/moe_common.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from importlib.machinery import ModuleSpec
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, Final

from packaging.version import Version

from aiter_conformance.errors import UsageError

_REQUIRED: Final = Parameter.empty

# Parameters of fused_moe in v0.1.7; defaults of enum type are by member name.
_FUSED_MOE: Final[tuple[tuple[str, Any], ...]] = (
    ("hidden_states", _REQUIRED),
    ("w1", _REQUIRED),
    ("w2", _REQUIRED),
    ("topk_weight", _REQUIRED),
    ("topk_ids", _REQUIRED),
    ("expert_mask", None),
    ("activation", "Silu"),
    ("quant_type", "No"),
    ("doweight_stage1", False),
    ("w1_scale", None),
    ("w2_scale", None),
    ("a1_scale", None),
    ("a2_scale", None),
    ("block_size_M", None),
    ("num_local_tokens", None),
    ("moe_sorting_dispatch_policy", 0),
    ("dtype", None),
    ("hidden_pad", 0),
    ("intermediate_pad", 0),
    ("bias1", None),
    ("bias2", None),
)
_ASM_MOE_TKW1: Final[tuple[tuple[str, Any], ...]] = (
    ("hidden_states", _REQUIRED),
    ("w1", _REQUIRED),
    ("w2", _REQUIRED),
    ("topk_weight", _REQUIRED),
    ("topk_ids", _REQUIRED),
    ("fc1_scale", None),
    ("fc2_scale", None),
    ("fc1_smooth_scale", None),
    ("fc2_smooth_scale", None),
    ("a16", False),
    ("per_tensor_quant_scale", None),
    ("expert_mask", None),
    ("activation", "Silu"),
)
_SHARED: Final[tuple[tuple[str, Any], ...]] = (
    ("shared_w1", None),
    ("shared_w2", None),
    ("shared_w1_scale", None),
    ("shared_w2_scale", None),
    ("shared_expert_id", -1),
)
_GATE_MODES: Final = {
    "SEPARATED": "separated",
    "MOCK_GATE_ONLY": "mock_gate_only",
    "GATE_ONLY": "gate_only",
    "INTERLEAVE": "interleave",
}
_QUANT_TYPES: Final = ("No", "per_Tensor", "per_Token", "per_1x32", "per_1x128", "per_128x128")
# A release after every known one: it has everything the contract asks for, and something that it does not.
FUTURE: Final = "0.1.99"
VERSIONS: Final = ("0.1.7", "0.1.13", "0.1.14", "0.1.19", "0.1.20", FUTURE)


def fused_moe_parameters(version: str) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of ``fused_moe`` in order, each with its default (`Parameter.empty` if none)."""
    v = Version(version)
    parameters = list(_FUSED_MOE)
    if v >= Version("0.1.9"):
        parameters.append(("splitk", 0))
    if v >= Version("0.1.14"):
        parameters.append(("swiglu_limit", 0.0 if v < Version("0.1.17") else None))
    if v >= Version("0.1.19"):
        parameters += [("beta", None), ("linear_beta", None)]
    if v >= Version("0.1.14"):
        parameters.append(("gate_mode", "separated"))
    if v >= Version("0.1.19.post1"):
        parameters += _SHARED
    if v >= Version(FUTURE):
        # In an odd place, so that whoever passes by position is found out.
        parameters.insert(13, ("something_new", None))
        parameters.append(("quant_dtype_a", None))
    return tuple(parameters)


def activation_members(version: str) -> dict[str, int]:
    """Return the members of ``ActivationType`` with their values."""
    members = {"No": -1, "Silu": 0, "Gelu": 1, "Swiglu": 2}
    return members | ({"Situv2": 3} if Version(version) >= Version("0.1.19") else {})


@dataclass(frozen=True, slots=True)
class AiterCall:
    """One call that reached a simulated AITER.

    Attributes:
        function: ``fused_moe`` or ``asm_moe_tkw1``.
        positional: Names of the parameters that were passed by position.
        arguments: What was passed, by parameter name; what was left out is not in it.
        variables: AITER's own environment variables at the time of the call.
    """

    function: str
    positional: tuple[str, ...]
    arguments: Mapping[str, Any]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class SimulatedAiter:
    """An AITER made of signatures, for `Subject.environment`; its functions record into ``calls``."""

    version: str
    modules: Mapping[str, ModuleType]
    calls: list[AiterCall] = field(default_factory=list)


def _recorder(
    name: str, parameters: tuple[tuple[str, Any], ...], calls: list[AiterCall]
) -> Callable[..., Any]:
    signature = Signature(
        [Parameter(p, Parameter.POSITIONAL_OR_KEYWORD, default=default) for p, default in parameters]
    )

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        variables = {key: value for key, value in os.environ.items() if key.startswith("AITER_")}
        calls.append(AiterCall(name, tuple(signature.parameters)[: len(args)], bound.arguments, variables))
        hidden, w2 = bound.arguments["hidden_states"], bound.arguments["w2"]
        dtype = bound.arguments.get("dtype") or hidden.dtype
        # w2 is [E, K, N]: like AITER, take the width of the result from it, not from a packed input.
        return hidden.new_zeros((hidden.shape[0], w2.shape[1]), dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    vars(module).update(members)
    return module


def _enum(name: str, members: Mapping[str, int]) -> type[IntEnum]:
    # The type's name is in messages, so it must be AITER's.
    return IntEnum(name, members)  # type: ignore[return-value]


def simulate(version: str) -> SimulatedAiter:
    """Build a stand-in for an AITER release.

    Args:
        version: One of `VERSIONS`.

    Raises:
        UsageError: The version is not one whose interface is recorded here.
    """
    if version not in VERSIONS:
        msg = f"simulated AITER must be one of {', '.join(VERSIONS)} (got {version!r})"
        raise UsageError(msg)
    import torch  # the enums and signatures alone would not need it; AITER's dtypes are torch's

    v = Version(version)
    quant_types = [*_QUANT_TYPES]
    if v >= Version("0.1.12"):
        quant_types += ["per_256x128", "per_1024x128"]
    activation_type = _enum("ActivationType", activation_members(version))
    quant_type = _enum("QuantType", {name: i for i, name in enumerate(quant_types)})
    defaults = {"activation": activation_type["Silu"], "quant_type": quant_type["No"]}

    def with_enums(parameters: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        return tuple((name, defaults.get(name, default)) for name, default in parameters)

    calls: list[AiterCall] = []
    fused_moe = _recorder("fused_moe", with_enums(fused_moe_parameters(version)), calls)
    asm_moe_tkw1 = _recorder("asm_moe_tkw1", with_enums(_ASM_MOE_TKW1), calls)
    dtypes = _module("aiter.utility.dtypes", fp4x2=torch.float4_e2m1fn_x2)
    modules = [
        _module("aiter", ActivationType=activation_type, QuantType=quant_type, dtypes=dtypes),
        _module("aiter.utility", dtypes=dtypes),
        dtypes,
        _module("aiter.fused_moe", fused_moe=fused_moe),
        _module("aiter.fused_moe_bf16_asm", asm_moe_tkw1=asm_moe_tkw1),
        _module("aiter.ops"),
        _module("aiter.ops.enum", ActivationType=activation_type, QuantType=quant_type),
    ]
    if v >= Version("0.1.14"):
        gate_mode: Any = Enum("GateMode", _GATE_MODES, type=str)  # type: ignore[misc]
        modules += [
            _module("aiter.ops.flydsl"),
            _module("aiter.ops.flydsl.moe_common", GateMode=gate_mode),
        ]
    by_name = {module.__name__: module for module in modules}
    for name, module in by_name.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(by_name[parent], child, module)
    return SimulatedAiter(version, by_name, calls)
