"""The release's own torch references, run in a process of their own, judged as if they were a kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.pipeline import nominal_pipeline
from aiter_conformance.numerics.verdict import judge
from aiter_conformance.protocols import Subject

FILES = (
    "aiter/fused_moe.py",
    "aiter/utility/fp4_utils.py",
    "aiter/ops/quant.py",
)

# The functions stand in modules that want ROCm; they are taken out one by one and given what they name.
SCRIPT = """
import ast, enum, functools, sys, types
import numpy as np, torch
import torch.nn.functional as F
folder, scheme, activation, arch = sys.argv[1:5]

def take(path, names, space):
    tree = ast.parse(open(f"{folder}/{path}").read())
    kept = []
    for node in tree.body:
        places = [*getattr(node, "targets", []), *([node.target] if isinstance(node, ast.AnnAssign) else [])]
        targets = [n.id for place in places for n in ast.walk(place) if isinstance(n, ast.Name)]
        if getattr(node, "name", None) in names or set(targets) & set(names):
            node.decorator_list = []
            kept.append(node)
    exec(compile(ast.Module(kept, []), path, "exec"), space)

class QuantType(enum.IntEnum):
    No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128 = range(6)

class ActivationType(enum.IntEnum):
    Silu, Gelu, Swiglu, Situv2 = range(4)

class MxDtypeInt:
    FP4_E2M1, FP8_E4M3, FP8_E4M3_FNUZ = 0, 1, 2

class MxScaleRoundModeInt:
    RoundDown, RoundUp, Even, Ceil = range(4)

fp8 = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
dtypes = types.SimpleNamespace(
    fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16, i8=torch.int8, i32=torch.int32, fp8=fp8,
    i4x2=torch.int4, fp4x2=torch.float4_e2m1fn_x2, fp8_e8m0=torch.float8_e8m0fnu,
)
fp4 = {"torch": torch, "Tensor": torch.Tensor, "dtypes": dtypes, "MxDtypeInt": MxDtypeInt,
       "MxScaleRoundModeInt": MxScaleRoundModeInt, "MX_DEFAULT_ROUND_MODE": MxScaleRoundModeInt.RoundUp}
take("aiter/utility/fp4_utils.py", {
    "f32_to_mxfp4", "mxfp4_to_f32", "_DTYPE_CFG", "f32_to_mx_e8m0_scale", "_f32_to_e8m0_floor_impl",
    "_f32_to_e8m0_ceil_impl", "e8m0_to_f32", "down_size", "pack_uint4", "_n_ones", "EBITS_F32", "MBITS_F32",
    "F32_EXP_BIAS", "_f32_to_floatx_unpacked"}, fp4)
fp4_utils = types.ModuleType("aiter.utility.fp4_utils")
fp4_utils.__dict__.update(fp4)
quant = {"torch": torch, "F": F, "functools": functools, "dtypes": dtypes, "fp4_utils": fp4_utils,
         "MX_DEFAULT_ROUND_MODE": 1, "MxDtypeInt": MxDtypeInt, "RoundModeLike": int}
take("aiter/ops/quant.py", {"get_dtype_max", "pertoken_quant", "per_1x32_f4_quant"}, quant)
utility = types.ModuleType("aiter.utility")
utility.fp4_utils = fp4_utils
package = types.ModuleType("aiter")
package.ActivationType, package.utility = ActivationType, utility
package.get_torch_act = lambda a: {0: F.silu, 1: F.gelu}.get(int(a))
sys.modules.update({"aiter": package, "aiter.utility": utility, "aiter.utility.fp4_utils": fp4_utils})
moe = {"torch": torch, "F": F, "aiter": package, "dtypes": dtypes, "QuantType": QuantType,
       "ActivationType": ActivationType}
take("aiter/fused_moe.py", {
    "get_inter_dim", "quant_remap", "swiglu", "situv2", "torch_moe_stage1", "torch_moe_stage2",
    "_mxfp4_per_1x32_weight_expert_to_f32", "_int4_per_1x32_weight_expert_to_f32"}, moe)

data = np.load(f"{folder}/in.npz")
given = {k: torch.from_numpy(data[k]) for k in data.files}
method = {"bf16": QuantType.No, "fp8-channel": QuantType.per_Token, "fp8-block": QuantType.per_128x128,
          "mxfp4-w4a16": QuantType.per_1x32, "mxfp4-w4a4": QuantType.per_1x32,
          "int4-w4a16": QuantType.per_1x32}[scheme]
weight_dtype = {"bf16": torch.bfloat16, "int4-w4a16": torch.int4}.get(
    scheme, fp8 if scheme.startswith("fp8") else torch.float4_e2m1fn_x2)
w1, w2 = (given[n].view(weight_dtype) for n in ("w1", "w2"))
s1, s2 = (given.get(n) for n in ("w1_scale", "w2_scale"))
if scheme.startswith("mxfp4"):
    s1, s2 = s1.view(torch.float8_e8m0fnu), s2.view(torch.float8_e8m0fnu)
if scheme == "int4-w4a16":
    s1, s2 = s1.view(torch.bfloat16), s2.view(torch.bfloat16)

def quantise(x):
    if scheme == "fp8-channel":
        return quant["pertoken_quant"](x, quant_dtype=fp8)
    if scheme == "fp8-block":
        q, s = quant["pertoken_quant"](x.reshape(-1, 128), quant_dtype=fp8)
        return q.view(x.shape), s.view(x.shape[0], -1)
    if scheme == "mxfp4-w4a4":
        return quant["per_1x32_f4_quant"](x)
    return x, None

act = ActivationType[{"silu": "Silu", "gelu": "Gelu", "swigluoai": "Swiglu", "situ": "Situv2"}[activation]]
extra = {}
if activation == "situ":
    extra = {"situ_beta": float(data["beta"]), "situ_linear_beta": float(data["linear_beta"])}
hidden = given["hidden"].view(torch.bfloat16)
ids, weights = given["topk_ids"], given["topk_weights"]
a1, a1_scale = quantise(hidden)
h = moe["torch_moe_stage1"](a1, w1, w2, weights, ids, dtype=torch.bfloat16, activation=act, quant_type=method,
                            a1_scale=a1_scale, w1_scale=s1, w1_bias=given.get("b1"), **extra)
tokens, topk, width = h.shape
a2, a2_scale = quantise(h.view(-1, width))
if scheme == "fp8-channel":
    a2_scale = a2_scale.view(tokens, topk, 1)
    a2 = (a2.float() * 1).to(fp8)
if scheme == "fp8-channel":  # the reference scales whole tokens: apply the scale of each slot beforehand
    a2, a2_scale = a2.float().view(tokens, topk, width) * a2_scale, torch.ones(tokens, 1)
out = moe["torch_moe_stage2"](a2, w1, w2, weights, ids, dtype=torch.float32, quant_type=method, w2_scale=s2,
                              a2_scale=a2_scale, w2_bias=given.get("b2"))
np.save(f"{folder}/out.npy", out.numpy())
"""


def inputs(problem: Problem) -> dict[str, Any]:
    """Return the arrays that AITER's references take: logical order, nothing shuffled."""
    made = [problem.expert(expert) for expert in problem.held_experts]
    arrays: dict[str, Any] = {
        "hidden": problem.hidden_bits.view(np.int16),
        "topk_ids": problem.topk_ids,
        "topk_weights": problem.topk_weights,
        "beta": problem.features.beta,
        "linear_beta": problem.features.linear_beta,
    }
    for name in ("w1", "w2"):
        parts = [getattr(expert, name) for expert in made]
        codes = np.stack([part.codes for part in parts])
        if problem.case.cell.scheme.startswith("mxfp4"):
            codes = codes[..., ::2] | codes[..., 1::2] << 4
        arrays[name] = codes.view(np.int16) if codes.dtype == np.uint16 else codes
        if parts[0].scales is not None:
            scales = np.stack([np.asarray(part.scales) for part in parts])
            if problem.case.cell.scheme == "int4-w4a16":  # the reference has the groups before the rows
                scales = np.ascontiguousarray(scales.transpose(0, 2, 1)).view(np.int16)
            arrays[f"{name}_scale"] = scales
    if made[0].b1 is not None:
        arrays |= {"b1": np.stack([m.b1 for m in made]), "b2": np.stack([m.b2 for m in made])}
    return arrays


# Texts that a release's references have from some version on; an older one cannot be asked.
SWIGLU = ("aiter/fused_moe.py", "swiglu_limit=None")
MX_SCALE = ("aiter/utility/fp4_utils.py", "def f32_to_mx_e8m0_scale")
SITU = ("aiter/fused_moe.py", "situ_beta")


@pytest.mark.parametrize(
    ("scheme", "activation", "biases", "needs"),
    [
        ("bf16", "silu", False, []),
        ("bf16", "gelu", False, []),
        ("bf16", "swigluoai", False, [SWIGLU]),
        ("fp8-block", "silu", False, []),
        ("fp8-channel", "silu", False, []),
        ("mxfp4-w4a16", "swigluoai", True, []),
        ("mxfp4-w4a4", "silu", False, [MX_SCALE]),
        ("mxfp4-w4a4", "situ", False, [MX_SCALE, SITU]),
        ("int4-w4a16", "situ", False, [SITU]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_release_reference_is_right(
    scheme: str,
    activation: str,
    biases: bool,
    needs: list[tuple[str, str]],
    problem_of: Callable[..., Problem],
    release_file: Callable[[str], bytes],
    subject: Subject,
    tmp_path: Path,
) -> None:
    """AITER's own references, the oracle and the reference kernels agree, and not on another activation."""
    pytest.importorskip("torch")
    from aiter_conformance.golden import observe
    from aiter_conformance.levels.reference import provider_for

    problem = problem_of(scheme, activation, features=Features(biases=biases), experts=4, tokens=9)
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(release_file(path))
    for path, text in needs:
        if text not in (tmp_path / path).read_text(encoding="utf-8"):
            pytest.skip(f"NOT RUN: the release's {path} has no {text!r}")
    np.savez(tmp_path / "in.npz", **inputs(problem))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), scheme, activation, problem.case.cell.arch],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    output = np.load(tmp_path / "out.npy")
    # the references multiply int4 codes by their scales in float32
    pipeline = replace(nominal_pipeline(problem.case.cell), weights_bf16=False)
    verdict = judge(output, expected(problem, pipeline))
    assert verdict.passed, verdict.message
    ours = observe(problem, subject, provider_for(problem.case.cell))
    assert ours.verdict.passed, ours.verdict.message
    # each is within two bounds of the oracle
    apart = np.abs(ours.output.double().numpy() - output)
    assert (apart <= 4 * ours.expected.bound).all()
    other = problem_of(scheme, "gelu" if activation == "silu" else "silu", experts=4, tokens=9)
    assert not judge(output, expected(other, pipeline)).passed
