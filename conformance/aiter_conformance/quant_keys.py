"""The 38 quant keys of the contract, by structure (SPEC 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Group = tuple[int, int]
TENSOR: Final[Group] = (-1, -1)
TOKEN: Final[Group] = (1, -1)
CHANNEL: Final[Group] = (-1, 1)


@dataclass(frozen=True, slots=True)
class ScaleFacts:
    """Scale of a quant key: storage dtype, fixed in the checkpoint or not, and the extent that shares one."""

    dtype: str
    static: bool
    group: Group


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A quant key by structure; two keys are equal exactly when these facts are.

    ``fp8`` is the platform's flavour, whichever that is.
    """

    dtype: str
    scale: ScaleFacts
    scale2: ScaleFacts | None = None
    symmetric: bool = True


def _key(
    dtype: str,
    scale: str,
    static: bool,
    group: Group,
    scale2: ScaleFacts | None = None,
    symmetric: bool = True,
) -> KeyFacts:
    return KeyFacts(dtype, ScaleFacts(scale, static, group), scale2, symmetric)


_F32_TENSOR = ScaleFacts("float32", True, TENSOR)
_F32_TOKEN = ScaleFacts("float32", False, TOKEN)

QUANT_KEYS: Final[dict[str, KeyFacts]] = {
    "kFp8StaticTensorSym": _key("fp8", "float32", True, TENSOR),
    "kFp8DynamicTensorSym": _key("fp8", "float32", False, TENSOR),
    "kFp8StaticChannelSym": _key("fp8", "float32", True, CHANNEL),
    "kFp8StaticTokenSym": _key("fp8", "float32", True, TOKEN),
    "kFp8DynamicTokenSym": _key("fp8", "float32", False, TOKEN),
    "kFp8Static128BlockSym": _key("fp8", "float32", True, (128, 128)),
    "kFp8Dynamic128Sym": _key("fp8", "float32", False, (1, 128)),
    "kFp8Dynamic64Sym": _key("fp8", "float32", False, (1, 64)),
    "kFp8Static128BlockE8M0Sym": _key("fp8", "e8m0", True, (128, 128)),
    "kMxfp4Static": _key("uint8", "uint8", True, (1, 32)),
    "kMxfp4Dynamic": _key("uint8", "uint8", False, (1, 32)),
    "kMxfp8Static": _key("fp8", "uint8", True, (1, 32)),
    "kMxfp8Dynamic": _key("fp8", "uint8", False, (1, 32)),
    "kMxfp6E3M2Static": _key("float6_e3m2", "uint8", True, (1, 32)),
    "kMxfp6E3M2Dynamic": _key("float6_e3m2", "uint8", False, (1, 32)),
    "kMxfp6E2M3Static": _key("float6_e2m3", "uint8", True, (1, 32)),
    "kMxfp6E2M3Dynamic": _key("float6_e2m3", "uint8", False, (1, 32)),
    "kNvfp4Static": _key("uint8", "fp8", True, (1, 16), _F32_TENSOR),
    "kNvfp4Dynamic": _key("uint8", "fp8", False, (1, 16), _F32_TENSOR),
    "kNvfp4DynamicToken": _key("uint8", "fp8", False, (1, 16), _F32_TOKEN),
    "kInt4Static": _key("uint4b8", "float16", True, TOKEN),
    "kInt4Static32": _key("uint4b8", "float16", True, (1, 32)),
    "kInt4StaticAsym": _key("uint4", "float16", True, TOKEN, symmetric=False),
    "kInt4Static32Asym": _key("uint4", "float16", True, (1, 32), symmetric=False),
    "kInt8Static": _key("uint8b128", "float16", True, TOKEN),
    "kInt8StaticChannelSym": _key("int8", "float32", True, CHANNEL),
    "kInt8StaticTensorSym": _key("int8", "float32", True, TENSOR),
    "kInt8StaticTensorAsym": _key("int8", "float32", True, TENSOR, symmetric=False),
    "kInt8DynamicTensorSym": _key("int8", "float32", False, TENSOR),
    "kInt8DynamicTensorAsym": _key("int8", "float32", False, TENSOR, symmetric=False),
    "kInt8DynamicTokenSym": _key("int8", "float32", False, TOKEN),
    "kInt8DynamicTokenAsym": _key("int8", "float32", False, TOKEN, symmetric=False),
    "kInt8Dynamic32Sym": _key("int8", "float32", False, (1, 32)),
    "kInt4W4A8StaticGroup32Sym": _key("int8", "bfloat16", True, (1, 32)),
    "kInt4W4A8StaticGroup64Sym": _key("int8", "bfloat16", True, (1, 64)),
    "kInt4W4A8StaticGroup128Sym": _key("int8", "bfloat16", True, (1, 128)),
    "kInt4W4A8StaticGroupSym": _key("int8", "bfloat16", True, TOKEN),
    "kInt4W4A8StaticChannelSym": _key("int8", "float32", True, CHANNEL),
}
