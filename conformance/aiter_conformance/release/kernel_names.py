"""What the name of a fused-MoE kernel says that the kernel does.

AITER's tuned tables pick kernels by name, and each family of kernels spells out in its names what it was
built for. The grammars were read from the tables and manifests of the releases; a name only claims what it
spells out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ASM_ONE_STAGE = "asm"
ASM_STAGE1 = "asm-stage1"

_MANGLED = re.compile(r"_ZN5aiter(\d+)(\w+)E")
_ASM = re.compile(
    r"fmoe_(?P<stage>stage1_)?(?:bf16|fp16)_(?P<a16>a16_)?"
    r"(?P<quant>pertoken|blockscale|noquant)(?P<dtype>Fp8|Int8|MXfp4|Bf16|Fp16)_(?P<rest>\w+)"
)
_CK = re.compile(
    r"moe_ck2stages_gemm(?P<stage>[12])_\w+?_Quant(?P<quant>\d)_MulRoutedWeight(?P<router>[01])_"
    r"(?:(?P<act>silu|gelu|swiglu)_)?(?P<a>\w+?)_(?P<w>\w+?)_(?:B16|F16)"
)
_FLYDSL = re.compile(
    r"(?:flydsl|opus)_moe(?P<stage>[12])_(?:layout_)?a(?P<a>[a-z]+\d+)_w(?P<w>[a-z]+\d+)_\w+"
)
_MXMOE = re.compile(r"flydsl_mxmoe_g(?P<stage>[12])_a(?P<a>\d+)w(?P<w>\d+)_\w+")
_CK_TILE = re.compile(r"cktile_a(?P<a>\d+)w(?P<w>\d+)_bm\d+")
_GROUPED = re.compile(r"grouped_gemm(?P<stage>[12])_(?P<w>[a-z]+\d+)(?:_\w+)?")

_DTYPES = {
    "Fp8": "fp8", "Int8": "int8", "MXfp4": "fp4", "Bf16": "bf16", "Fp16": "fp16",
    "F8": "fp8", "I8": "int8", "I4": "int4", "WI4": "int4", "FP4X2": "fp4", "B16": "bf16", "F16": "fp16",
    "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp4": "fp4", "int8": "int8", "int4": "int4",
}  # fmt: skip
_MX_DTYPES = {"16": "bf16", "8": "fp8", "4": "fp4"}  # as in a8w4
_ACTIVATIONS = {"silu": "Silu", "gelu": "Gelu", "swiglu": "Swiglu"}
_QUANT_OF_NUMBER = {
    "0": ("No",),
    "1": ("per_Tensor",),
    "2": ("per_Token",),
    "3": ("per_1x32",),
    "4": ("per_1x128", "per_128x128"),
    "5": ("per_1x128", "per_128x128"),
}
_QUANT_OF_ASM = {
    "noquant": ("No",),
    "pertoken": ("per_Token", "per_Tensor"),  # a scale for the whole tensor is repeated for each token
    "blockscale": ("per_1x128", "per_128x128"),
}


@dataclass(frozen=True, slots=True)
class KernelClaim:
    """What a kernel's name claims; None or an empty tuple where it claims nothing.

    Attributes:
        family: ``asm``, ``asm-stage1``, ``ck``, ``ck-tile``, ``flydsl``, ``opus`` or ``grouped``.
        stage: 1 or 2, or 0 for a kernel that does both.
        activation: A member of ``ActivationType``.
        quant: The members of ``QuantType`` that it serves.
        a: Dtype of its activations: bf16, fp16, fp8, fp4, int8.
        w: Dtype of its weights: the same, or int4.
        multiplies_router_weight: Whether this stage multiplies by the router weight.
    """

    family: str
    stage: int | None = None
    activation: str | None = None
    quant: tuple[str, ...] = ()
    a: str | None = None
    w: str | None = None
    multiplies_router_weight: bool | None = None


def read_kernel_name(name: str) -> KernelClaim | None:
    """Return what *name* claims, or None if it is a name of no known family."""
    if (mangled := _MANGLED.fullmatch(name)) is not None:
        return _asm(mangled[2]) if int(mangled[1]) == len(mangled[2]) else None
    if name == "swiglu_mxfp4_bf16_cktile":
        return KernelClaim("ck-tile", activation="Swiglu", quant=("per_1x32",), w="fp4")
    for pattern, read in (
        (_CK, _ck),
        (_FLYDSL, _flydsl),
        (_MXMOE, _mx),
        (_CK_TILE, _mx),
        (_GROUPED, _grouped),
    ):
        if (matched := pattern.fullmatch(name)) is not None:
            return read(matched)
    return None


def _asm(name: str) -> KernelClaim | None:
    matched = _ASM.fullmatch(name)
    if matched is None:
        return None
    words = matched["rest"].split("_")
    dtype = _DTYPES[matched["dtype"]]
    quant = ("per_1x32",) if dtype == "fp4" else _QUANT_OF_ASM[matched["quant"]]
    # A block-scale kernel for bf16 activations, or one marked a16, quantises nothing on the way in.
    takes_bf16 = matched["a16"] is not None or (matched["quant"], dtype) == ("blockscale", "bf16")
    if "blockscale" in words:
        quant = _QUANT_OF_ASM["blockscale"]
    return KernelClaim(
        family=ASM_STAGE1 if matched["stage"] else ASM_ONE_STAGE,
        stage=1 if matched["stage"] else 0,
        activation=next((_ACTIVATIONS[word] for word in words if word in _ACTIVATIONS), None),
        quant=quant,
        a=None if takes_bf16 else dtype,
        w="fp8" if matched["quant"] == "blockscale" else dtype,
        multiplies_router_weight="doweight" in words if matched["stage"] else None,
    )


def _ck(matched: re.Match[str]) -> KernelClaim | None:
    a, w = _DTYPES.get(matched["a"]), _DTYPES.get(matched["w"])
    quant = _QUANT_OF_NUMBER.get(matched["quant"])
    if a is None or w is None or quant is None:
        return None
    activation = _ACTIVATIONS[matched["act"]] if matched["act"] else None
    return KernelClaim("ck", int(matched["stage"]), activation, quant, a, w, matched["router"] == "1")


def _flydsl(matched: re.Match[str]) -> KernelClaim | None:
    a, w = _DTYPES.get(matched["a"]), _DTYPES.get(matched["w"])
    family = matched[0].partition("_")[0]
    return None if a is None or w is None else KernelClaim(family, int(matched["stage"]), a=a, w=w)


def _mx(matched: re.Match[str]) -> KernelClaim | None:
    a, w = _MX_DTYPES.get(matched["a"]), _MX_DTYPES.get(matched["w"])
    if a is None or w is None:
        return None
    stage = int(matched["stage"]) if "stage" in matched.groupdict() else None
    family = "flydsl" if matched[0].startswith("flydsl") else "ck-tile"
    return KernelClaim(family, stage, quant=("per_1x32",), a=a, w=w)


def _grouped(matched: re.Match[str]) -> KernelClaim | None:
    w = _DTYPES.get(matched["w"])
    return None if w is None else KernelClaim("grouped", int(matched["stage"]), w=w)
