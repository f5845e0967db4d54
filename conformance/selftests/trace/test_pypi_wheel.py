"""The one AITER release on PyPI traces: its dispatch runs for real, out of the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiter_conformance.release import open_release
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Code
from aiter_conformance.trace.run import run_calls
from aiter_conformance.trace.run_checks import check_run

WHEEL = Path(__file__).parents[3] / "build/downloads/amd_aiter-0.1.7.post2.dev18-py3-none-any.whl"
pytest.importorskip("pandas", reason="NOT RUN: AITER's own needs are not installed (extra trace)")
pytestmark = pytest.mark.skipif(
    not WHEEL.exists(), reason=f"NOT RUN: put {WHEEL.name} into build/downloads (nox -s matrix does)"
)
DEEPSEEK = {"experts": 256, "local_experts": 256, "topk": 8, "hidden": 7168, "intermediate": 256}


def test_dispatch_of_the_wheel(cache: Path) -> None:
    """Its tuned rows answer, its kernels exist, and what it has no interface for is refused by the bridge."""
    calls = [
        Call(scheme=scheme, tokens=tokens, **DEEPSEEK)  # type: ignore[arg-type]
        for scheme, tokens in (("bf16", 64), ("fp8-block", 1), ("fp8-channel", 64), ("mxfp4-w4a16", 64))
    ]
    with open_release(str(WHEEL)) as release:
        run = run_calls(release, Board("gfx950", 256), calls, cache=cache)
    bf16, block, channel, w4a16 = run.traces
    assert (bf16.dispatch, [launch.family for launch in bf16.products]) == ("tuned", ["ck", "ck"])
    assert [launch.kernel for launch in block.products] == [
        "_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E"
    ]
    assert [launch.family for launch in channel.products] == ["asm-stage1", "ck"]
    assert w4a16.status == "refused"
    assert "no gate_mode" in str(w4a16.raised)
    assert [finding.code for finding in check_run(run) if finding.fails] == []


def test_fp8_flavour_follows_the_list_of_builds(cache: Path) -> None:
    """With two archs built for, it takes gfx942's fp8 for the other's (ROCm/aiter#3807)."""
    calls = [Call(scheme="fp8-channel", tokens=64, **DEEPSEEK)]  # type: ignore[arg-type]
    with open_release(str(WHEEL)) as release:
        run = run_calls(release, Board("gfx942", 304, "gfx942;gfx950"), calls, cache=cache)
    assert Code.WRONG_FP8 in {finding.code for finding in check_run(run)}
