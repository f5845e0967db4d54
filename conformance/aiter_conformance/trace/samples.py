"""A small hand-made release whose dispatch is sound, for testing the tracer and its checks.

It has the outer form of an AITER: the modules, functions and operators that a tracer meets, with a dispatcher
of its own that is short enough to be seen to be right. `plant` changes one place and so makes one fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiter_conformance.release.samples import code_object, sample_files

_INIT: Final = """\
from .jit import core
from .utility import dtypes
from .ops.enum import ActivationType, QuantType
"""
_CHIP: Final = """\
import os, re, subprocess

GFX_MAP = {0: "native", 1: "gfx942", 2: "gfx950"}

def _info():
    program = os.path.join(os.environ["ROCM_PATH"], "bin", "rocminfo")
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout

def get_gfx():
    return re.search(r"gfx\\w+", _info())[0]

def get_cu_num():
    return int(re.search(r"Compute Unit:\\s*(\\d+)", _info())[1])
"""
_GUARD: Final = """\
def torch_compile_guard(*args, **kwargs):
    raise RuntimeError("needs a GPU")
"""
_CORE: Final = """\
import os
from .utils.chip_info import get_gfx, get_cu_num
from .utils.torch_guard import torch_compile_guard

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

def compile_ops(module, fc_name=None, gen_func=None, gen_fake=None):
    raise RuntimeError("needs a compiler")

def get_module(name):
    raise RuntimeError("needs a compiler")

def build_module(*args):
    raise RuntimeError("needs a compiler")

class Configs:
    @property
    def AITER_CONFIG_FMOE_FILE(self):
        return os.path.join(ROOT, "aiter/configs/tuned_fmoe.csv")

AITER_CONFIGS = Configs()
"""
_DTYPES: Final = """\
import torch
from ..jit.utils.chip_info import get_gfx

fp8 = torch.float8_e4m3fnuz if get_gfx() == "gfx942" else torch.float8_e4m3fn
fp4x2 = torch.float4_e2m1fn_x2
i4x2 = torch.int4
"""
_ENUM: Final = """\
from ..jit.core import compile_ops

@compile_ops("module_aiter_core", "ActivationType")
def _ActivationType(dummy): ...

@compile_ops("module_aiter_core", "QuantType")
def _QuantType(dummy): ...

ActivationType = type(_ActivationType(0))
QuantType = type(_QuantType(0))
"""
_OPERATORS: Final = """\
import os
from torch import Tensor
from ..jit.core import ROOT, compile_ops
from .enum import ActivationType

def _generate(states, activation):
    script = os.path.join(ROOT, "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py")
    act = ActivationType(activation).name.lower()
    command = f"{script} -a {str(states.dtype)[6:]} -act {act} -w {{}}"
    return {"md_name": "module_ck", "blob_gen_cmd": command}

def _generate1(hidden_states, w1, w2, out, kernelName, block_m, sorted_weights, quant_type,
               activation, splitk):
    return _generate(hidden_states, activation)

def _generate2(inter_states, w1, w2, out, kernelName, block_m, sorted_weights, quant_type,
               activation, splitk):
    return _generate(inter_states, activation)

@compile_ops("module_sort")
def moe_sorting_fwd(topk_ids: Tensor, sorted_expert_ids: Tensor, unit_size: int,
                    local_expert_mask: Tensor) -> None: ...

@compile_ops("module_quant")
def dynamic_per_token_scaled_quant(out: Tensor, input: Tensor) -> None: ...

@compile_ops("module_ck", gen_func=_generate1)
def ck_moe_stage1(hidden_states: Tensor, w1: Tensor, w2: Tensor, out: Tensor, kernelName: str,
                  block_m: int, sorted_weights: Tensor, quant_type: int, activation: int,
                  splitk: int) -> None: ...

@compile_ops("module_ck", gen_func=_generate2)
def ck_moe_stage2(inter_states: Tensor, w1: Tensor, w2: Tensor, out: Tensor, kernelName: str,
                  block_m: int, sorted_weights: Tensor, quant_type: int, activation: int,
                  splitk: int) -> None: ...

@compile_ops("module_asm")
def fmoe_g1u1(out: Tensor, input: Tensor, gate: Tensor, down: Tensor, sorted_expert_ids: Tensor, topk: int,
              kernelName: str, activation: int) -> None: ...

@compile_ops("module_asm")
def fmoe_g1u1_tkw1(out: Tensor, input: Tensor, gate: Tensor, down: Tensor, sorted_expert_ids: Tensor,
                   topk: int, kernelName: str, activation: int) -> None: ...

@compile_ops("module_tile")
def cktile_moe_gemm1(XQ: Tensor, WQ: Tensor, Y: Tensor, n_padded_zeros: int, k_padded_zeros: int,
                     topk_weight: Tensor, exp_bias: Tensor, activation: int, block_m: int,
                     split_k: int) -> None: ...

@compile_ops("module_tile")
def cktile_moe_gemm2(XQ: Tensor, WQ: Tensor, Y: Tensor, n_padded_zeros: int, k_padded_zeros: int,
                     topk_weight: Tensor, exp_bias: Tensor, activation: int, block_m: int,
                     split_k: int) -> None: ...
"""
_FLYDSL: Final = """\
def compile_moe_gemm1(tile_m, tile_n, tile_k, a_dtype, b_dtype, act, gate_mode, inter_dim_pad,
                      model_dim_pad, enable_bias, model_dim, k_batch=1):
    raise RuntimeError("needs FlyDSL")

def compile_moe_gemm2(tile_m, tile_n, tile_k, a_dtype, b_dtype, inter_dim_pad, model_dim_pad,
                      enable_bias, inter_dim):
    raise RuntimeError("needs FlyDSL")
"""
_FUSED_MOE: Final = """\
import csv
import functools
from dataclasses import dataclass

import torch

from aiter import dtypes
from aiter.jit.core import AITER_CONFIGS
from aiter.jit.utils.chip_info import get_cu_num, get_gfx
from aiter.ops import moe
from aiter.ops.enum import ActivationType, QuantType
from aiter.ops.flydsl.kernels import moe_gemm
from aiter.ops.flydsl.moe_common import GateMode

cfg_2stages = None

@dataclass
class Metadata:
    stage1: object
    stage2: object
    block_m: int
    ksplit: int
    run_1stage: bool = False

def bucket(M):
    return 1 << max(M - 1, 0).bit_length()

def get_ksplit(token, topk, model_dim):
    return 2 if token * topk <= 64 else 0

@functools.lru_cache(maxsize=64)
def get_2stage_cfgs(token, model_dim, inter_dim, expert, topk, dtype, q_dtype_a, q_dtype_w, q_type,
                    activation, doweight_stage1):
    global cfg_2stages
    if cfg_2stages is None:
        with open(AITER_CONFIGS.AITER_CONFIG_FMOE_FILE) as table:
            rows = list(csv.DictReader(table))
        numbers = ("cu_num", "token", "model_dim", "inter_dim", "expert", "topk")
        primary = {(*(int(r[n]) for n in numbers), r["act_type"], r["q_type"]): r for r in rows}
        blind = {key[:6] + ("any",) + key[7:]: r for key, r in primary.items() if r["blind"] == "1"}
        cfg_2stages = (primary, blind)
    key = (get_cu_num(), token, model_dim, inter_dim, expert, topk, str(activation), str(q_type))
    row = cfg_2stages[0].get(key)
    if row is None:
        row = cfg_2stages[1].get(key[:6] + ("any",) + key[7:])
    names = ("", "") if row is None else (row["kernelName1"], row["kernelName2"])
    one = q_type == QuantType.per_Token and token > 16 and not doweight_stage1
    ksplit = get_ksplit(token, topk, model_dim) if q_type == QuantType.per_1x128 else 0
    return Metadata(functools.partial(stage1, kernelName=names[0]),
                    functools.partial(stage2, kernelName=names[1]), 32, ksplit, one)

def stage1(*args, kernelName):
    raise NotImplementedError

def stage2(*args, kernelName):
    raise NotImplementedError

def fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask=None,
              activation=ActivationType.Silu, quant_type=QuantType.No, doweight_stage1=False,
              w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_size_M=None,
              num_local_tokens=None, moe_sorting_dispatch_policy=0, dtype=None, hidden_pad=0,
              intermediate_pad=0, bias1=None, bias2=None, swiglu_limit=0.0, gate_mode=GateMode.SEPARATED):
    M, topk = topk_ids.shape
    E, model_dim, inter_dim = w2.shape
    inter_dim *= model_dim // w1.shape[2]
    if quant_type == QuantType.per_128x128:
        quant_type = QuantType.per_1x128
    packed = w1.dtype == dtypes.fp4x2
    states = hidden_states
    token = bucket(M)
    chosen = get_2stage_cfgs(token, model_dim, inter_dim, E, topk, hidden_states.dtype, states.dtype,
                             w1.dtype, quant_type, activation, doweight_stage1)
    name1, name2 = chosen.stage1.keywords["kernelName"], chosen.stage2.keywords["kernelName"]
    blocks = M * topk + E
    expert_ids = topk_ids.new_empty((blocks,))
    out = hidden_states.new_empty((M, model_dim))
    moe.moe_sorting_fwd(topk_ids, expert_ids, chosen.block_m, expert_mask)
    on_input = topk_weight if doweight_stage1 else None
    on_output = None if doweight_stage1 else topk_weight
    if packed:
        inner = out.new_empty((M, topk, inter_dim))
        if get_gfx() == "gfx950" and activation == ActivationType.Silu:
            gemm1 = moe_gemm.compile_moe_gemm1(32, 128, 256, "bf16", "fp4", "silu", gate_mode,
                                               intermediate_pad, hidden_pad, bias1 is not None, model_dim)
            gemm2 = moe_gemm.compile_moe_gemm2(32, 128, 256, "bf16", "fp4", intermediate_pad,
                                               hidden_pad, bias2 is not None, inter_dim)
            gemm1(states, w1, inner)
            gemm2(inner, w2, out)
            return out
        moe.cktile_moe_gemm1(states, w1, inner, intermediate_pad // 64 * 128, hidden_pad // 128 * 128,
                             on_input, bias1, activation.value, 16, 1)
        moe.cktile_moe_gemm2(inner, w2, out, hidden_pad // 64 * 64, intermediate_pad // 128 * 128,
                             on_output, bias2, activation.value, 16, 1)
        return out
    if quant_type != QuantType.No:
        states = hidden_states.new_empty(hidden_states.shape, dtype=w1.dtype)
        moe.dynamic_per_token_scaled_quant(states, hidden_states)
    if chosen.run_1stage:
        moe.fmoe_g1u1(out, states, w1, w2, expert_ids, topk, name1, activation.value)
        return out
    split = max(chosen.ksplit, 1)
    inner = out.new_empty((M, topk, inter_dim), dtype=torch.float32 if split > 1 else out.dtype)
    moe.ck_moe_stage1(states, w1, w2, inner, name1, chosen.block_m, on_input, quant_type.value,
                      activation.value, split)
    inner = out.new_empty((M, topk, inter_dim), dtype=states.dtype)
    moe.ck_moe_stage2(inner, w1, w2, out, name2, chosen.block_m, on_output, quant_type.value,
                      activation.value, 1)
    return out
"""
_TKW1: Final = """\
from aiter.ops import moe
from aiter.ops.enum import ActivationType

def asm_moe_tkw1(hidden_states, w1, w2, topk_weight, topk_ids, fc1_scale=None, fc2_scale=None,
                 fc1_smooth_scale=None, fc2_smooth_scale=None, a16=False, per_tensor_quant_scale=None,
                 expert_mask=None, activation=ActivationType.Silu):
    out = hidden_states.new_empty(hidden_states.shape)
    states = hidden_states.new_empty(hidden_states.shape, dtype=w1.dtype)
    moe.dynamic_per_token_scaled_quant(states, hidden_states)
    moe.fmoe_g1u1_tkw1(out, states, w1, w2, topk_ids, 1, "", activation.value)
    return out
"""
_GENERATOR: Final = """\
import os, sys

folder = sys.argv[sys.argv.index("-w") + 1]
a = sys.argv[sys.argv.index("-a") + 1]
act = sys.argv[sys.argv.index("-act") + 1]
short = {"bfloat16": "B16", "float8_e4m3fn": "F8", "float8_e4m3fnuz": "F8"}[a]
quants = (0,) if short == "B16" else (1, 2, 4)
TEXT = '''#pragma once
MoeKernel moe_stage%d_heuristic_dispatch(int block_m, int inter_dim, at::ScalarType x_dtype)
{
    if (dtype_checker<%s>{}(x_dtype) && 1 == act_op)
    {
        if (block_m == 32)
        {
            if (inter_dim <= 192)
                return ck_moe_stage%d_gemm<%s, F32, V1, 256, 32, 64, 128/sizeof(%s), 1, 4>;
            else
                return ck_moe_stage%d_gemm<%s, F32, V1, 256, 32, 64, 256/sizeof(%s), 1, 4>;
        }
        else
        {
            TORCH_CHECK(false, "Unsupported block_m value: ", block_m);
        }
    }
    TORCH_CHECK(false, "Unsupported kernel config");
}
'''
size = 2 if short == "B16" else 1
names = []
for stage in (1, 2):
    with open(os.path.join(folder, f"ck2stages_moe_stage{stage}_heuristic_dispatch.hpp"), "w") as f:
        f.write(TEXT % (stage, short, stage, short, short, stage, short, short))
    for depth in (128, 256):
        for quant in quants:
            tile = f"256x32x64x{depth // size}"
            does = f"_{act}" if stage == 1 else ""
            names.append(f"moe_ck2stages_gemm{stage}_{tile}_1x4_Op_v1_Nswizzle0_Quant{quant}_"
                         f"MulRoutedWeight{stage - 1}{does}_{short}_{short}_B16")
with open(os.path.join(folder, "gemm_moe_ck2stages_lookup.h"), "w") as f:
    f.write("\\n".join('{"%s", 0},' % name for name in names))
"""
# The row for the hidden size of the calls that tests make: bf16, 64 tokens, 8 experts, 2 a token, silu.
TUNED_CK: Final = (
    "moe_ck2stages_gemm1_256x32x64x64_1x4_Op_v1_Nswizzle0_Quant0_MulRoutedWeight0_silu_B16_B16_B16",
    "moe_ck2stages_gemm2_256x32x64x64_1x4_Op_v1_Nswizzle0_Quant0_MulRoutedWeight1_B16_B16_B16",
)
_TUNED_HEADER: Final = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,blind,kernelName1,kernelName2"
)
_ENUMS: Final = """\
#pragma once
enum class ActivationType : int { No = -1, Silu = 0, Gelu, Swiglu };
enum class QuantType : int { No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128 };
"""
_MANIFEST: Final = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n"

Files = Mapping[str, bytes]


def sound_release() -> dict[str, bytes]:
    """Return the files of the release, by canonical path."""
    rows = [
        f"{units},64,1024,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
        f"QuantType.No,1,0,0,{TUNED_CK[0]},{TUNED_CK[1]}"
        for units in (304, 256)
    ]
    texts = {
        "aiter/__init__.py": _INIT,
        "aiter/jit/__init__.py": "",
        "aiter/jit/core.py": _CORE,
        "aiter/jit/utils/__init__.py": "",
        "aiter/jit/utils/chip_info.py": _CHIP,
        "aiter/jit/utils/torch_guard.py": _GUARD,
        "aiter/utility/__init__.py": "",
        "aiter/utility/dtypes.py": _DTYPES,
        "aiter/ops/__init__.py": "",
        "aiter/ops/enum.py": _ENUM,
        "aiter/ops/moe.py": _OPERATORS,
        "aiter/ops/flydsl/__init__.py": "",
        "aiter/ops/flydsl/kernels/__init__.py": "",
        "aiter/ops/flydsl/kernels/moe_gemm.py": _FLYDSL,
        "aiter/fused_moe.py": _FUSED_MOE,
        "aiter/fused_moe_bf16_asm.py": _TKW1,
        "aiter/configs/tuned_fmoe.csv": "\n".join((_TUNED_HEADER, *rows)) + "\n",
        "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py": _GENERATOR,
        "csrc/include/aiter_enum.h": _ENUMS,
        "requirements.txt": "flydsl==0.1.0\n",
    }
    files = sample_files() | {path: text.encode() for path, text in texts.items()}
    files["aiter/ops/flydsl/moe_common.py"] = (
        b"from enum import Enum\n" + files["aiter/ops/flydsl/moe_common.py"]
    )
    for arch in ("gfx942", "gfx950"):
        for activation in ("silu", "gelu"):
            for suffix in ("", "_tkw1"):
                stem = f"fmoe_bf16_pertokenFp8_g1u1_{activation}{suffix}"
                short = f"fmoe_bf16_pertokenFp8_g1u1{suffix}_{activation}_32x256"
                kernel = f"_ZN5aiter{len(short)}{short}E"
                folder = f"hsa/{arch}/fmoe/{activation}"
                files[f"{folder}/{stem}.csv"] = (
                    f"{_MANIFEST}\n{kernel},{short}.co,0,1,0,1,0,32,256\n".encode()
                )
                files[f"{folder}/{short}.co"] = code_object(arch, [kernel])
    return files


def plant(files: Files, path: str, old: str, new: str) -> dict[str, bytes]:
    """Return the files with one place changed.

    Args:
        files: A release.
        path: The file to change.
        old: What is replaced; it must be there exactly once.
        new: What comes there.

    Raises:
        ValueError: ``old`` is not there exactly once.
    """
    text = files[path].decode()
    if text.count(old) != 1:
        msg = f"{old!r} must be in {path} exactly once (it is there {text.count(old)} times)"
        raise ValueError(msg)
    return {**files, path: text.replace(old, new).encode()}
