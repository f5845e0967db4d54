"""Small hand-made releases, good ones to begin with, for testing what reads releases.

A sample is a dictionary of file contents by canonical path (see `release.files`): change it to
plant a fault, then write it out as a tree or as a wheel.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgpack

from aiter_conformance.release.artefact import Release, ReleaseKind
from aiter_conformance.release.codeobject import ARCH_OF_MACH

VERSION = "0.1.99"
ARCHS = ("gfx942", "gfx950")
_MANIFEST_HEADER = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n"

_FUSED_MOE = """\
def fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask=None,
              activation=ActivationType.Silu, quant_type=QuantType.No, doweight_stage1=False,
              w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_size_M=None,
              num_local_tokens=None, moe_sorting_dispatch_policy=0, dtype=None, hidden_pad=0,
              intermediate_pad=0, bias1=None, bias2=None, gate_mode=GateMode.SEPARATED.value):
    raise NotImplementedError
"""
_TKW1 = """\
def asm_moe_tkw1(hidden_states, w1, w2, topk_weight, topk_ids, fc1_scale=None, fc2_scale=None,
                 fc1_smooth_scale=None, fc2_smooth_scale=None, a16=False,
                 per_tensor_quant_scale=None, expert_mask=None,
                 activation=ActivationType.Silu):
    raise NotImplementedError
"""
_ENUMS = """\
#pragma once
enum class ActivationType : int
{
    No   = -1, // none
    Silu = 0,
    Gelu,
};
enum class QuantType : int { No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128 };
"""
_GATE_MODE = """\
class GateMode(str, Enum):
    SEPARATED = "separated"
    INTERLEAVE = "interleave"
"""


def code_object(arch: str, kernels: Sequence[str]) -> bytes:
    """Return an ELF code object of *arch* with the descriptor and the code symbol of each of *kernels*."""
    mach = next(number for number, name in ARCH_OF_MACH.items() if name == arch)
    names = [name for kernel in kernels for name in (kernel, f"{kernel}.kd")]
    strings = b"\0"
    symbols = bytes(24)  # the first entry of a symbol table is undefined
    for name in names:
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, 0, 0)  # global, a function, in section 1
        strings += name.encode() + b"\0"
    metadata = msgpack.packb(
        {"amdhsa.kernels": [{".name": kernel, ".symbol": f"{kernel}.kd"} for kernel in kernels]}
    )
    note = struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + metadata + bytes(-len(metadata) % 4)
    labels = b"\0.note\0.dynstr\0.dynsym\0.shstrtab\0"
    parts = [  # name, section type, content, number of the section it refers to, entry size
        (1, 7, note, 0, 0),
        (7, 3, strings, 0, 0),
        (15, 11, symbols, 2, 24),
        (23, 3, labels, 0, 0),
    ]
    body = b""
    table = bytes(64)  # the first entry of a section table is void
    for label, kind, content, link, entry in parts:
        body += bytes(-len(body) % 8)
        table += struct.pack(
            "<IIQQQQIIQQ", label, kind, 0, 0, 64 + len(body), len(content), link, 1, 8, entry
        )
        body += content
    body += bytes(-len(body) % 8)
    identification = b"\x7fELF\x02\x01\x01\x40\x03".ljust(16, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", identification, 3, 224, 1, 0, 0, 64 + len(body), mach, 64, 56, 0, 64, 5, 4
    )
    return header + body + table


def sample_files(version: str = VERSION) -> dict[str, bytes]:
    """Return a good release with one one-stage kernel and one stage-1 kernel for each of `ARCHS`."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: amd-aiter\nVersion: {version}\n",
        "aiter/__init__.py": "",
        "aiter/fused_moe.py": _FUSED_MOE,
        "aiter/fused_moe_bf16_asm.py": _TKW1,
        "aiter/ops/flydsl/moe_common.py": _GATE_MODE,
        "aiter/jit/utils/chip_info.py": f'GFX_MAP = {{0: "native", 1: "{ARCHS[0]}", 2: "{ARCHS[1]}"}}\n',
        "csrc/include/aiter_enum.h": _ENUMS,
    }
    binary: dict[str, bytes] = {}
    for arch in ARCHS:
        one, stage1 = "_ZN5aiter9fmoe_siluE", "_ZN5aiter11fmoe_stage1E"
        files[f"hsa/{arch}/fmoe/silu/fmoe_silu.csv"] = f"{_MANIFEST_HEADER}\n{one},one.co,0,1,0,1,0,32,128\n"
        files[f"hsa/{arch}/fmoe_2stages/stage1.csv"] = (
            f"tile_m,tile_n,knl_name,co_name\n16,128,{stage1},stage1.co\n"
        )
        binary[f"hsa/{arch}/fmoe/silu/one.co"] = code_object(arch, [one])
        binary[f"hsa/{arch}/fmoe_2stages/stage1.co"] = code_object(arch, [stage1])
    return {path: text.encode() for path, text in files.items()} | binary


class SampleFiles:
    """The files of a sample, in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)
        self.paths = tuple(sorted(self._files))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        return self._files[path]

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """See `Files.read_many`."""
        return ((path, self._files[path]) for path in paths)

    def close(self) -> None:
        """See `Files.close`; nothing is held open."""


def sample_release(files: Mapping[str, bytes], version: str = VERSION) -> Release:
    """Return *files* as an open release, without a disk in between."""
    return Release(version, ReleaseKind.TREE, "sample", SampleFiles(files))


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write *files* below *folder* in the layout of a source checkout, and return *folder*."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def write_wheel(folder: Path, files: Mapping[str, bytes], version: str = VERSION) -> Path:
    """Write *files* as a wheel of amd-aiter *version* into *folder*, and return the wheel's path."""
    wheel = folder / f"amd_aiter-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(wheel_path(path, version), content)
    return wheel


def wheel_path(path: str, version: str = VERSION) -> str:
    """Return where a wheel of amd-aiter *version* keeps the file with the canonical path *path*."""
    if path == "PKG-INFO":
        return f"amd_aiter-{version}.dist-info/METADATA"
    return f"aiter_meta/{path}" if path.startswith(("csrc/", "hsa/")) else path
