"""Reads a launch out of the event that the worker recorded, one reader a kernel family."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiter_conformance.release.kernel_names import read_kernel_name
from aiter_conformance.trace.asm import AsmCall, AsmKernels
from aiter_conformance.trace.ck_tile import CkTileKernels
from aiter_conformance.trace.record import Launch, Role

_SHORT: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e8m0fnu": "e8m0",
    "float4_e2m1fn_x2": "fp4",
    "int4": "int4",
    "uint32": "int4",
    "int8": "int8",
    "f16": "fp16",
}
_BYTES: Final = {
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
}  # all else takes one
_CK_TILE: Final = re.compile(r"_gemm[12]_\d+x(\d+)x(\d+)x(\d+)_")
_STAGE: Final = re.compile(r"(?:gemm|stage)_?([12])(?![\dA-Za-z])")
# Arguments that hold weights, or scales of weights.
_WEIGHTS: Final = ("w1", "w2", "gate", "down", "WQ")
_WEIGHT_SCALES: Final = ("w1_scale", "w2_scale", "fc1_scale", "fc2_scale", "w_scale")
# A kernel's name may say its operands by their bits, as in a4w4.
_OPERANDS: Final = re.compile(r"_a(4|8|16)w(4|8|16)(?![0-9])")
_BITS: Final = {"4": "fp4", "8": "fp8", "16": "bf16"}
# Words in the name of an operator or a kernel that say what it does, the first that fits.
_HELPERS: Final = (
    ("quant", Role.QUANTISE),
    ("sort", Role.SORT),
    ("and_mul", Role.ACTIVATION),
    ("reduc", Role.REDUCE),
    ("sum", Role.REDUCE),
    ("gather_reduce", Role.REDUCE),
)
Arguments = Mapping[str, Any]


class LaunchReader:
    """Reads launches of one release on one board.

    Args:
        kernels: Its assembly kernels.
        ck_tile: Its CK-Tile kernels.
        activations: Name of the member of ``ActivationType`` by value.
        quant_types: Name of the member of ``QuantType`` by value.
    """

    def __init__(
        self,
        kernels: AsmKernels,
        ck_tile: CkTileKernels,
        activations: Mapping[int, str],
        quant_types: Mapping[int, str],
    ) -> None:
        self._kernels = kernels
        self._ck_tile_kernels = ck_tile
        self._activations = activations
        self._quant_types = quant_types
        self._operators: dict[str, Callable[[str, Arguments, Mapping[str, Any]], Launch]] = {
            "ck_moe_stage1": self._ck,
            "ck_moe_stage2": self._ck,
            "cktile_moe_gemm1": self._ck_tile,
            "cktile_moe_gemm2": self._ck_tile,
            "moe_stage1_g1u1": self._asm_stage1,
            "fmoe": self._fmoe,
            "fmoe_g1u1": self._fmoe,
            "fmoe_g1u1_tkw1": self._fmoe,
            "fmoe_fp8_blockscale_g1u1": self._fmoe,
            "fmoe_int8_g1u0": self._fmoe,
        }

    def read(self, event: Mapping[str, Any]) -> Launch | None:
        """Return the launch that an event is; None for an event that is none."""
        if event["event"] == "operator":
            name, arguments = event["name"], event["arguments"]
            if name in self._operators:
                return self._operators[name](name, arguments, event.get("instance") or {})
            if "workspace_size" in name:
                return None
            return self._other("helper", name, arguments)
        if event["event"] == "torch":
            return Launch(
                role=Role.ACTIVATION, family="torch", operator=event["name"], activation=event["name"]
            )
        if event["event"] in ("flydsl", "triton", "iris"):
            parameters = event["parameters"]
            if _STAGE.search(event["name"]) and parameters:
                return self._flydsl(event["name"], parameters)
            return self._other(event["event"], event["name"], parameters)
        return None

    def _activation(self, value: Any) -> str | None:
        """Return a member of ``ActivationType``, in lower case, however it was passed."""
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            return self._activations.get(value, str(value)).lower()
        return str(value).rpartition(".")[2].lower()

    def _quant(self, value: Any) -> str | None:
        if isinstance(value, int):
            return self._quant_types.get(value, str(value))
        return None if value is None else str(value).rpartition(".")[2]

    def _ck(self, name: str, arguments: Arguments, instance: Mapping[str, Any]) -> Launch:
        first = name.endswith("1")
        states = arguments["hidden_states" if first else "inter_states"]
        weights = arguments["w1" if first else "w2"]
        called = arguments.get("kernelName") or ""
        made = instance.get("named", True)
        claim = read_kernel_name(called)
        tile = _CK_TILE.search(called) if made else None
        problem = instance.get("error")
        if called and not made and problem is not None:
            problem = f"the generator does not make {called}, and without it: {problem}"
        elif problem is None and "picked" in instance and not instance["candidates"]:
            problem = (
                f"the heuristics pick a kernel of {instance['picked']}, which the generator does not make"
            )
        activation = self._activation(arguments.get("activation")) if first else None
        if claim is not None and claim.activation is not None and made:
            activation = claim.activation.lower()
        sizes = tuple(int(size) for size in tile.groups()) if tile else tuple(instance.get("tile", ()))
        return Launch(
            role=Role.STAGE1 if first else Role.STAGE2,
            family="ck",
            operator=name,
            name=called if made else "",
            candidates=tuple(instance.get("candidates", ())),
            activation=activation,
            a=_short(states),
            w=_short(weights),
            out=_short(arguments["out"]),
            quant=self._quant(arguments.get("quant_type")),
            router_weight=arguments.get("sorted_weights") is not None,
            tile=_tile(sizes),
            block_m=_integer(arguments.get("block_m")),
            split_k=max(1, int(arguments.get("splitk") or 1)),
            depth=_depth(weights),
            largest=_largest(arguments),
            weights=_expert(arguments),
            ignored=None if made else called,
            problem=problem,
        )

    def _ck_tile(self, name: str, arguments: Arguments, _: Mapping[str, Any]) -> Launch:
        first = name.endswith("1")
        activation, weights = self._activation(arguments.get("activation")), _short(arguments["WQ"])
        named = arguments.get("kernel_name") or ""
        split_k = max(1, int(arguments.get("split_k") or 1))
        return Launch(
            role=Role.STAGE1 if first else Role.STAGE2,
            family="ck-tile",
            operator=name,
            name=named,
            activation=activation if first and split_k == 1 else None,
            a=_short(arguments["XQ"]),
            w=weights,
            out=_short(arguments["Y"]),
            quant="per_1x32",
            router_weight=not first,
            block_m=_integer(arguments.get("block_m")),
            split_k=split_k,
            n_pad=_integer(arguments.get("n_padded_zeros")),
            k_pad=_integer(arguments.get("k_padded_zeros")),
            bias=arguments.get("exp_bias") is not None,
            depth=_depth(arguments["WQ"]),
            largest=_largest(arguments),
            weights=_expert(arguments),
            problem=None if named else self._ck_tile_kernels.problem(activation, weights),
        )

    def _asm_stage1(self, name: str, arguments: Arguments, _: Mapping[str, Any]) -> Launch:
        call = AsmCall(
            operator=name,
            activation=self._activation(arguments["activation"]) or "",
            a=_short(arguments["input"]) or "",
            out=_short(arguments["out"]) or "",
            quant=self._quant(arguments["quant_type"]) or "",
            router_weight=arguments.get("sorted_weights") is not None,
            intermediate=int(arguments["inter_dim"]),
            blocks=arguments["sorted_expert_ids"]["shape"][0],
            block_m=int(arguments["block_m"]),
        )
        return self._asm(Role.STAGE1, "asm-stage1", call, arguments, arguments["w1"]["shape"][2])

    def _fmoe(self, name: str, arguments: Arguments, _: Mapping[str, Any]) -> Launch:
        gate, down = arguments["gate"], arguments["down"]
        packed = down["shape"][1] // gate["shape"][2]
        block_m = int(arguments.get("block_size_M") or 32)
        tkw1 = name.endswith("tkw1")
        tokens = arguments["input"]["shape"][0]
        call = AsmCall(
            operator=name,
            activation=self._activation(arguments.get("activation", "silu")) or "",
            a=_short(arguments["input"]) or "",
            out=_short(arguments["out"]) or "",
            quant="",
            router_weight=tkw1,
            intermediate=down["shape"][2] * packed,
            # C++ estimates the blocks of this operator from the tokens, of the others from the sorted list.
            blocks=-(-tokens * int(arguments["topk"]) // block_m)
            if tkw1
            else arguments["sorted_expert_ids"]["shape"][0],
            block_m=block_m,
        )
        return self._asm(Role.ONE_STAGE, "asm-1stage", call, arguments, gate["shape"][2] * packed)

    def _asm(self, role: Role, family: str, call: AsmCall, arguments: Arguments, depth: int) -> Launch:
        name = str(arguments.get("kernelName") or "")
        problem = None
        candidates: tuple[str, ...] = ()
        if call.operator in ("fmoe", "fmoe_int8_g1u0"):
            name = name or call.operator  # C++ names these itself, whatever it is told
        elif name:
            problem = self._kernels.problem(call, name)
        else:
            candidates = self._kernels.candidates(call)
            if candidates:
                problem = self._kernels.problem(call, candidates[0])
            else:
                problem = (
                    f"no kernel in {self._kernels.manifest(call) or 'any manifest'} fits an intermediate "
                    f"size of {call.intermediate} and blocks of {call.block_m}"
                )
        chosen = name or next(iter(candidates), "")
        claim = read_kernel_name(chosen)
        claimed = claim.activation.lower() if claim is not None and claim.activation else None
        weights = arguments["w1"] if "w1" in arguments else arguments["gate"]
        return Launch(
            role=role,
            family=family,
            operator=call.operator,
            name=name,
            candidates=candidates,
            activation=claimed or call.activation,
            a=call.a,
            w=_short(weights),
            out=call.out,
            quant=call.quant or (claim.quant[0] if claim is not None and claim.quant else None),
            router_weight=call.router_weight if role is Role.STAGE1 else True,
            tile=self._kernels.tile(chosen),
            block_m=call.block_m,
            split_k=1 << int(arguments.get("ksplit") or 0),
            depth=depth,
            largest=_largest(arguments),
            weights=_expert(arguments),
            problem=problem,
        )

    def _flydsl(self, name: str, parameters: Arguments) -> Launch:
        found = _STAGE.search(name)
        first = found is not None and found[1] == "1"
        either = _Either(parameters)
        n_pad, k_pad = either.integer("inter_dim_pad"), either.integer("model_dim_pad")
        if first and n_pad is not None:
            n_pad *= 2  # the kernel pads gate and up each
        gate_mode = either.text("gate_mode")
        if gate_mode is None and (interleave := either.boolean("interleave")) is not None:
            gate_mode = "interleave" if interleave else "separated"
        operands = _OPERANDS.search(name)
        a, w = ("", "") if operands is None else operands.groups()
        weights = either.text("doweight_stage1" if first else "doweight_stage2")
        return Launch(
            role=Role.STAGE1 if first else Role.STAGE2,
            family="flydsl",
            operator=name,
            activation=either.text("act") if first else None,
            a=_named(either.text("a_dtype", "A_DTYPE")) or _BITS.get(a),
            w=_named(either.text("b_dtype", "w_dtype", "W_DTYPE")) or _BITS.get(w),
            out=_named(either.text("out_dtype")),
            router_weight=None if weights is None else weights == "True",
            tile=_tile(
                (
                    either.integer("tile_m", "BM", "TILE_M") or 0,
                    either.integer("tile_n", "TILE_N", "BN") or 0,
                    either.integer("tile_k", "TILE_K", "BK") or 0,
                )
            ),
            block_m=either.integer("sort_block_m", "tile_m", "BM") or either.integer("tile_m", "BM"),
            split_k=max(1, either.integer("k_batch") or 1),
            n_pad=n_pad if first else k_pad,
            k_pad=k_pad if first else either.integer("inter_dim_pad"),
            gate_mode=None if gate_mode is None else gate_mode.rpartition(".")[2].lower(),
            bias=either.boolean("enable_bias"),
            depth=either.integer("model_dim", "D_HIDDEN")
            if first
            else either.integer("inter_dim", "D_INTER"),
        )

    def _other(self, family: str, name: str, arguments: Arguments) -> Launch:
        stage = _STAGE.search(name)
        role = next((role for word, role in _HELPERS if word in name), Role.OTHER)
        if stage is not None and role is Role.OTHER:
            role, family = (Role.STAGE1 if stage[1] == "1" else Role.STAGE2), _family_of(name)
        tensors = [value for value in arguments.values() if isinstance(value, dict) and "dtype" in value]
        product = role in (Role.STAGE1, Role.STAGE2)
        claim = read_kernel_name(str(arguments.get("kernelName") or "")) if product else None
        does = name.partition("_and_mul")[0] if role is Role.ACTIVATION else None
        mask = any("mask" in key and isinstance(value, dict) for key, value in arguments.items())
        return Launch(
            role=role,
            family=family,
            operator=name,
            name=str(arguments.get("kernelName") or ""),
            activation=self._activation(arguments.get("activation")) if role is Role.STAGE1 else does,
            a=None if claim is None else claim.a,
            w=None if claim is None else claim.w,
            out=_short(tensors[0]) if tensors else None,
            block_m=_integer(arguments.get("unit_size") or arguments.get("block_m")),
            bias=_has_bias(arguments) if product else None,
            expert_mask=mask if role is Role.SORT else None,
            largest=_largest(arguments),
            weights=_expert(arguments),
        )


class _Either:
    """Looks up a parameter by the first of several spellings that is there."""

    def __init__(self, parameters: Arguments) -> None:
        self._parameters = parameters

    def _value(self, names: tuple[str, ...]) -> Any:
        return next((self._parameters[name] for name in names if name in self._parameters), None)

    def integer(self, *names: str) -> int | None:
        value = self._value(names)
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else None

    def boolean(self, *names: str) -> bool | None:
        value = self._value(names)
        return value if isinstance(value, bool) else None

    def text(self, *names: str) -> str | None:
        value = self._value(names)
        return None if value is None else str(value)


def _has_bias(arguments: Arguments) -> bool | None:
    """Return whether a bias is passed; None where there is no parameter for one."""
    names = [name for name in arguments if "bias" in name]
    return any(isinstance(arguments[name], dict) for name in names) if names else None


def _family_of(name: str) -> str:
    return next((family for family in ("opus", "grouped") if family in name), "other")


def _named(dtype: str | None) -> str | None:
    return None if dtype is None else _SHORT.get(dtype, dtype)


def _short(tensor: Any) -> str | None:
    return _named(tensor["dtype"]) if isinstance(tensor, dict) else None


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _tile(sizes: tuple[int, ...]) -> tuple[int, int, int] | None:
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 and sizes[0] else None


def _depth(weights: Any) -> int:
    """Return the length of the sum over a weight's last axis; packed dtypes hold two values a byte."""
    size = int(weights["shape"][2])
    return size * 2 if _short(weights) == "fp4" else size


def _largest(arguments: Arguments) -> int:
    """Return the bytes of the largest tensor that is no weight and no weight's scale."""
    others = [
        _bytes(value)
        for name, value in arguments.items()
        if isinstance(value, dict) and "shape" in value and name not in (*_WEIGHTS, *_WEIGHT_SCALES)
    ]
    return max(others, default=0)


def _expert(arguments: Arguments) -> int:
    """Return the bytes of the largest weight of one expert."""
    weights = [arguments[name] for name in _WEIGHTS if isinstance(arguments.get(name), dict)]
    return max((_bytes(weight) // max(1, weight["shape"][0]) for weight in weights), default=0)


def _bytes(tensor: Arguments) -> int:
    return math.prod(tensor["shape"]) * _BYTES.get(tensor["dtype"], 1)
