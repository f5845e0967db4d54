"""Quantisation keys: a leaf accepts pairs of them, one for the weights and one for the activations."""

# The keys carry upstream's names.
# ruff: noqa: N816

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from aiter_moe.arch import current_arch, is_fp8_fnuz

if TYPE_CHECKING:
    import torch


class QuantMethod(IntEnum):
    """How AITER scales weights and activations: the numbers are those of its ``QuantType``."""

    NO = 0
    PER_TENSOR = 1
    PER_TOKEN = 2
    BLOCK_1X32 = 3
    BLOCK_1X128 = 4
    BLOCK_128x128 = 5


class Scheme(StrEnum):
    """The pairs of keys that the leaves accept, by the names that the compatibility matrix gives them."""

    BF16 = "bf16"
    FP8_BLOCK = "fp8-block"
    FP8_TENSOR_STATIC = "fp8-tensor-static"
    FP8_TENSOR_DYNAMIC = "fp8-tensor-dynamic"
    FP8_CHANNEL = "fp8-channel"
    MXFP4_W4A16 = "mxfp4-w4a16"
    MXFP4_W4A4 = "mxfp4-w4a4"
    INT4_W4A16 = "int4-w4a16"


def scheme_named(name: Scheme | str) -> Scheme:
    """Return the scheme of that name.

    Raises:
        ValueError: There is none.
    """
    if name not in list(Scheme):
        msg = f"scheme must be one of {', '.join(Scheme)} (got {name!r})"
        raise ValueError(msg)
    return Scheme(name)


class DType(StrEnum):
    """Element types by name, so that keys can be told apart without torch.

    ``FP8`` is a symbol: which of the two e4m3 flavours it means depends on the architecture, and is decided
    when it is read. Ours: upstream decides once, at import.
    """

    FP8 = "fp8"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E8M0FNU = "float8_e8m0fnu"
    FLOAT6_E3M2 = "float6_e3m2"
    FLOAT6_E2M3 = "float6_e2m3"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    INT8 = "int8"
    UINT8 = "uint8"
    UINT8B128 = "uint8b128"
    UINT4 = "uint4"
    UINT4B8 = "uint4b8"

    def resolve(self) -> DType:
        """Return the type itself, or for ``FP8`` the flavour of the current architecture."""
        if self is not DType.FP8:
            return self
        return DType.FLOAT8_E4M3FNUZ if is_fp8_fnuz(current_arch()) else DType.FLOAT8_E4M3FN

    def torch_dtype(self) -> torch.dtype:
        """Return torch's type of the same name.

        Raises:
            ValueError: torch has none, as for the 6-bit floats and the biased integers.
        """
        import torch

        found = getattr(torch, self.resolve().value, None)
        if not isinstance(found, torch.dtype):
            msg = f"dtype must be one that torch has (got {self.value!r})"
            raise ValueError(msg)
        return found


class GroupShape(NamedTuple):
    """Rows and columns that share one scale; -1 is the whole extent."""

    row: int
    col: int


PER_TENSOR: Final = GroupShape(-1, -1)
PER_TOKEN: Final = GroupShape(1, -1)
PER_CHANNEL: Final = GroupShape(-1, 1)


@dataclass(frozen=True)
class ScaleDesc:
    """A scale.

    Attributes:
        dtype: Element type of the scales.
        static: Whether the scales come with the checkpoint; otherwise they are computed per call.
        group_shape: What shares one scale.
    """

    dtype: DType
    static: bool
    group_shape: GroupShape


@dataclass(frozen=True)
class QuantKey:
    """How one operand is quantised. Keys are equal when their parts are; ``FP8`` equals only ``FP8``.

    Attributes:
        dtype: Element type; FP4 is stored as uint8.
        scale: The scale of the elements.
        scale2: A second scale on top of the first, for NVFP4.
        symmetric: Whether there is no zero point.
    """

    dtype: DType
    scale: ScaleDesc
    scale2: ScaleDesc | None = None
    symmetric: bool = True

    def __str__(self) -> str:
        """Return the key's name, or its parts when it is none of `QUANT_KEYS`."""
        return next((name for name, key in QUANT_KEYS.items() if key == self), repr(self))


def _key(
    dtype: DType, scale: DType, static: bool, group: tuple[int, int], symmetric: bool = True
) -> QuantKey:
    return QuantKey(dtype, ScaleDesc(scale, static, GroupShape(*group)), symmetric=symmetric)


def _nvfp4(static: bool, scale2_static: bool, scale2_group: GroupShape) -> QuantKey:
    scale = ScaleDesc(DType.FP8, static, GroupShape(1, 16))
    return QuantKey(DType.UINT8, scale, ScaleDesc(DType.FLOAT32, scale2_static, scale2_group))


_STATIC: Final = True
_DYNAMIC: Final = False
_ASYMMETRIC: Final = False

kFp8StaticTensorSym: Final = _key(DType.FP8, DType.FLOAT32, _STATIC, PER_TENSOR)
kFp8DynamicTensorSym: Final = _key(DType.FP8, DType.FLOAT32, _DYNAMIC, PER_TENSOR)
kFp8StaticChannelSym: Final = _key(DType.FP8, DType.FLOAT32, _STATIC, PER_CHANNEL)
kFp8StaticTokenSym: Final = _key(DType.FP8, DType.FLOAT32, _STATIC, PER_TOKEN)
kFp8DynamicTokenSym: Final = _key(DType.FP8, DType.FLOAT32, _DYNAMIC, PER_TOKEN)
kFp8Static128BlockSym: Final = _key(DType.FP8, DType.FLOAT32, _STATIC, (128, 128))
kFp8Dynamic128Sym: Final = _key(DType.FP8, DType.FLOAT32, _DYNAMIC, (1, 128))
kFp8Dynamic64Sym: Final = _key(DType.FP8, DType.FLOAT32, _DYNAMIC, (1, 64))
kFp8Static128BlockE8M0Sym: Final = _key(DType.FP8, DType.FLOAT8_E8M0FNU, _STATIC, (128, 128))

kMxfp4Static: Final = _key(DType.UINT8, DType.UINT8, _STATIC, (1, 32))
kMxfp4Dynamic: Final = _key(DType.UINT8, DType.UINT8, _DYNAMIC, (1, 32))
kMxfp8Static: Final = _key(DType.FP8, DType.UINT8, _STATIC, (1, 32))
kMxfp8Dynamic: Final = _key(DType.FP8, DType.UINT8, _DYNAMIC, (1, 32))
kMxfp6E3M2Static: Final = _key(DType.FLOAT6_E3M2, DType.UINT8, _STATIC, (1, 32))
kMxfp6E3M2Dynamic: Final = _key(DType.FLOAT6_E3M2, DType.UINT8, _DYNAMIC, (1, 32))
kMxfp6E2M3Static: Final = _key(DType.FLOAT6_E2M3, DType.UINT8, _STATIC, (1, 32))
kMxfp6E2M3Dynamic: Final = _key(DType.FLOAT6_E2M3, DType.UINT8, _DYNAMIC, (1, 32))

kNvfp4Static: Final = _nvfp4(_STATIC, _STATIC, PER_TENSOR)
kNvfp4Dynamic: Final = _nvfp4(_DYNAMIC, _STATIC, PER_TENSOR)
kNvfp4DynamicToken: Final = _nvfp4(_DYNAMIC, _DYNAMIC, PER_TOKEN)

kInt4Static: Final = _key(DType.UINT4B8, DType.FLOAT16, _STATIC, PER_TOKEN)
kInt4Static32: Final = _key(DType.UINT4B8, DType.FLOAT16, _STATIC, (1, 32))
kInt4StaticAsym: Final = _key(DType.UINT4, DType.FLOAT16, _STATIC, PER_TOKEN, _ASYMMETRIC)
kInt4Static32Asym: Final = _key(DType.UINT4, DType.FLOAT16, _STATIC, (1, 32), _ASYMMETRIC)

kInt8Static: Final = _key(DType.UINT8B128, DType.FLOAT16, _STATIC, PER_TOKEN)
kInt8StaticChannelSym: Final = _key(DType.INT8, DType.FLOAT32, _STATIC, PER_CHANNEL)
kInt8StaticTensorSym: Final = _key(DType.INT8, DType.FLOAT32, _STATIC, PER_TENSOR)
kInt8StaticTensorAsym: Final = _key(DType.INT8, DType.FLOAT32, _STATIC, PER_TENSOR, _ASYMMETRIC)
kInt8DynamicTensorSym: Final = _key(DType.INT8, DType.FLOAT32, _DYNAMIC, PER_TENSOR)
kInt8DynamicTensorAsym: Final = _key(DType.INT8, DType.FLOAT32, _DYNAMIC, PER_TENSOR, _ASYMMETRIC)
kInt8DynamicTokenSym: Final = _key(DType.INT8, DType.FLOAT32, _DYNAMIC, PER_TOKEN)
kInt8DynamicTokenAsym: Final = _key(DType.INT8, DType.FLOAT32, _DYNAMIC, PER_TOKEN, _ASYMMETRIC)
kInt8Dynamic32Sym: Final = _key(DType.INT8, DType.FLOAT32, _DYNAMIC, (1, 32))

kInt4W4A8StaticGroup32Sym: Final = _key(DType.INT8, DType.BFLOAT16, _STATIC, (1, 32))
kInt4W4A8StaticGroup64Sym: Final = _key(DType.INT8, DType.BFLOAT16, _STATIC, (1, 64))
kInt4W4A8StaticGroup128Sym: Final = _key(DType.INT8, DType.BFLOAT16, _STATIC, (1, 128))
kInt4W4A8StaticGroupSym: Final = _key(DType.INT8, DType.BFLOAT16, _STATIC, PER_TOKEN)
kInt4W4A8StaticChannelSym: Final = _key(DType.INT8, DType.FLOAT32, _STATIC, PER_CHANNEL)

QUANT_KEYS: Final[Mapping[str, QuantKey]] = MappingProxyType(
    {name: value for name, value in globals().items() if isinstance(value, QuantKey)}
)
"""Every key by name. Only kInt8StaticChannelSym and kInt4W4A8StaticChannelSym are equal, as upstream."""
