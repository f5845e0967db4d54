"""A hand-made release that has a little of everything the gate looks at, and a way to compare two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from aiter_conformance.evidence import Level
from aiter_conformance.gate.classes import FAILING, ChangeClass
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.gate.side import Side, observe
from aiter_conformance.ledger import Entry
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.protocols import Subject
from aiter_conformance.release.samples import code_object, sample_files, sample_release
from aiter_conformance.subjects import load_subject

Files = dict[str, bytes]
Gate = Callable[..., Report]

# No window of the project's own ledger has these, so that nothing here is explained by accident.
OLD, NEW = "0.1.18", "0.1.18.post1"
LEVELS = (Level.DECLARED, Level.INVENTORY)

MANIFEST_HEADER = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n"
_FUSED_MOE = """\
def fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask=None,
              activation=ActivationType.Silu, quant_type=QuantType.No, doweight_stage1=False,
              w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_size_M=None,
              num_local_tokens=None, moe_sorting_dispatch_policy=0, dtype=None, hidden_pad=0,
              intermediate_pad=0, bias1=None, bias2=None, swiglu_limit=0.0,
              gate_mode=GateMode.SEPARATED.value):
    shuffled = getattr(w1, "is_shuffled", False)
def get_2stage_cfgs(token, activation, gfx, cu_num):
    keys = (gfx, cu_num, token, str(activation), str(dtype))
def stage1(intermediate_pad, hidden_pad, use_g1u1, k_batch, splitk):
    is_splitk = splitk > 1 and k_batch >= 2
    n_pad_zeros = intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1)
    k_pad_zeros = hidden_pad // 128 * 128
def stage2(intermediate_pad, hidden_pad):
    n_pad_zeros = hidden_pad // 64 * 64
    k_pad_zeros = intermediate_pad // 128 * 128
"""
_SOURCES = {
    "aiter/fused_moe.py": _FUSED_MOE,
    "aiter/ops/flydsl/moe_kernels.py": "",
    "aiter/ops/flydsl/kernels/stages.py": (
        "def stage1(inter_dim_pad):\n    inter_dim_pad_total = 2 * inter_dim_pad\n"
        "def stage2(base_k, inter_dim, inter_dim_pad):\n    return base_k < inter_dim - inter_dim_pad\n"
    ),
    "aiter/utility/dtypes.py": (
        'defaultDtypes = {"gfx942": {"fp8": torch.float8_e4m3fnuz}, "gfx950": {"fp8": torch.float8_e4m3fn}}\n'
        'def get_dtype_fp8():\n    return defaultDtypes.get(get_gfx_runtime(), {})["fp8"]\n'
        'fp4x2 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)\n'
    ),
    "aiter/ops/shuffle.py": (
        "def shuffle_weight(x, layout=(16, 16), use_int4=False, is_guinterleave=False): pass\n"
        "def shuffle_scale(src, experts_cnt=None, is_guinterleave=False): pass\n"
        "def shuffle_weight_a16w4(src, NLane, gate_up): pass\n"
        "def shuffle_scale_a16w4(src, experts_cnt, gate_up): pass\n"
        "def shuffle_scale_for_int4(scale, group_size=32): pass\n"
    ),
    "aiter/utility/fp4_utils.py": "def e8m0_shuffle(scale): pass\n",
    "csrc/include/aiter_enum.h": (
        "enum class ActivationType : int { No = -1, Silu = 0, Gelu, Swiglu };\n"
        "enum class QuantType : int { No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128 };\n"
    ),
    "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py": (
        'parser.add_argument("--activation", default="silu", choices=["silu", "gelu", "swiglu"])\n'
    ),
    "csrc/ck_tile_gemm_moe_2stages/gen_instances.py": "",
}
_TUNED_HEADER = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,block_m,kernelName1,kernelName2,run_1stage,us"
)


def kernel(activation: str, tile: str, quant: str = "pertokenFp8") -> str:
    """Return the symbol of a one-stage assembly kernel."""
    name = f"fmoe_bf16_{quant}_g1u1_vs_{activation}_1tg_ps_{tile}"
    return f"_ZN5aiter{len(name)}{name}E"


def manifest_path(arch: str, activation: str, quant: str = "pertokenFp8") -> str:
    """Return where the manifest of the one-stage kernels lies."""
    return f"hsa/{arch}/fmoe/{activation}/fmoe_bf16_{quant}_g1u1_{activation}.csv"


def tuned_row(arch: str, units: int, fp8: str, token: int, picked: str) -> str:
    """Return a tuned row that picks a one-stage kernel for Silu, per token."""
    dtype = f"torch.float8_{fp8}"
    return (
        f"{arch},{units},{token},4096,512,64,8,ActivationType.Silu,torch.bfloat16,{dtype},{dtype},"
        f"QuantType.per_Token,1,0,32,{picked},Null,1,{token}.5"
    )


@pytest.fixture(scope="session")
def release_files() -> Files:
    """The files of a good release: on each of two archs one-stage kernels of two tiles, and tuned rows."""
    files = sample_files(OLD)
    files |= {path: text.encode() for path, text in _SOURCES.items()}
    for arch in ("gfx942", "gfx950"):
        for activation in ("silu", "gelu"):
            rows = []
            for width in (128, 256):
                name = kernel(activation, f"32x{width}")
                rows.append(f"{name},{activation}{width}.co,0,1,0,1,1,32,{width}")
                files[f"hsa/{arch}/fmoe/{activation}/{activation}{width}.co"] = code_object(arch, [name])
            text = "\n".join([MANIFEST_HEADER, *rows, ""])
            files[manifest_path(arch, activation)] = text.encode()
    on_input = kernel("silu", "32x128").replace("vs_silu", "vs_tkw1_silu").replace("aiter48", "aiter53")
    files["hsa/gfx942/fmoe/silu/tkw1.co"] = code_object("gfx942", [on_input])
    files["hsa/gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu_tkw1.csv"] = (
        f"{MANIFEST_HEADER}\n{on_input},tkw1.co,0,1,0,1,1,32,128\n".encode()
    )
    rows = [_TUNED_HEADER]
    for token in (16, 64, 1024):
        rows.append(tuned_row("gfx942", 304, "e4m3fnuz", token, kernel("silu", "32x128")))
        rows.append(tuned_row("gfx950", 256, "e4m3fn", token, kernel("silu", "32x256")))
    files["aiter/configs/tuned_fmoe.csv"] = "\n".join([*rows, ""]).encode()
    return files


@pytest.fixture(scope="session")
def subject() -> Subject:
    """The implementation that declares the cells."""
    return load_subject("impl")


@pytest.fixture(scope="session")
def side(subject: Subject) -> Callable[[Mapping[str, bytes], str], Side]:
    """Observe the files of a release as a version."""

    def side(files: Mapping[str, bytes], version: str) -> Side:
        return observe(sample_release(files, version), subject, LEVELS)

    return side


@pytest.fixture(scope="session")
def good_side(side: Callable[[Mapping[str, bytes], str], Side], release_files: Files) -> Side:
    """The good release, observed once."""
    return side(release_files, OLD)


@pytest.fixture(scope="session")
def gate(side: Callable[[Mapping[str, bytes], str], Side], good_side: Side, subject: Subject) -> Gate:
    """Compare the good release with the files of another one."""

    def gate(
        files: Mapping[str, bytes],
        ledger: Sequence[Entry] = (),
        fail_on: Sequence[ChangeClass] = FAILING,
        board: str | None = None,
    ) -> Report:
        return compare(
            good_side,
            side(files, NEW),
            labels=("old", "new"),
            subject=f"{subject.name}@{subject.version}",
            ledger=ledger,
            fail_on=fail_on,
            board=board,
        )

    return gate


@pytest.fixture(scope="session")
def completed() -> Callable[[str], tuple[Entry, ...]]:
    """Read proposed entries as a person could have completed them."""

    def completed(stubs: str) -> tuple[Entry, ...]:
        text = stubs.replace('title = ""', 'title = "Known"')
        return parse_ledger(text.replace('upstream = ""', 'upstream = "ROCm/aiter#1"'))

    return completed
