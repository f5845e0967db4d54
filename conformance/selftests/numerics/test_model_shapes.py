"""Shapes of the models that public reports are about, with few experts: sizes are theirs, experts are not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from aiter_conformance.coverage import parse_problem
from aiter_conformance.golden import observe
from aiter_conformance.levels.reference import provider_for
from aiter_conformance.numerics.verdict import Rule
from aiter_conformance.protocols import Subject

GPT_OSS = "gfx950/mxfp4-w4a16/swigluoai/out"

RIGHT = {
    # K = N = 2880, padded to 3072 and in partitions to 1536, 768 and 512 (vllm#44679, #46201)
    "gpt-oss tp2": f"{GPT_OSS}@E2-k1-K3072-N3072-M3-tp2-ep1-hp192-ip96-s0",
    "gpt-oss tp4": f"{GPT_OSS}@E2-k1-K3072-N3072-M3-tp4-ep1-hp192-ip48-s0",
    "gpt-oss tp8": f"{GPT_OSS}@E2-k1-K3072-N4096-M3-tp8-ep1-hp192-ip152-s0~7",
    "gpt-oss biases": f"{GPT_OSS}@E2-k1-K3072-N3072-M3-tp4-ep1-hp192-ip48-s0+biases",
    # unquantised: 2880 is a multiple of 64 and not of 128
    "bf16 2880": "gfx942/bf16/swigluoai/out@E2-k1-K2880-N2944-M3-tp1-ep1-hp0-ip64-s0",
    # the widths of ROCm/aiter#2191 and #3997
    "H3072 I384": "gfx950/mxfp4-w4a4/silu/out@E4-k4-K3072-N384-M5-tp1-ep1-hp0-ip0-s0",
    "K4096 I128": "gfx942/fp8-block/silu/out@E10-k10-K4096-N128-M1-tp1-ep1-hp0-ip0-s0",
    "K4096 I128 gfx950": "gfx950/fp8-block/silu/out@E10-k10-K4096-N128-M1-tp1-ep1-hp0-ip0-s0",
}


class TestModelShapes:
    """One input of each."""

    @pytest.mark.parametrize("name", RIGHT)
    def test_is_right(self, name: str, subject: Subject) -> None:
        """The numbers are right."""
        problem = parse_problem(RIGHT[name])
        verdict = observe(problem, subject, provider_for(problem.case.cell, problem.features)).verdict
        assert verdict.passed, verdict.message

    def test_undivided_is_wrong(self, subject: Subject) -> None:
        """gpt-oss in one partition: 384 columns are masked of which 192 are dead (vllm#46201, ledger)."""
        problem = parse_problem(f"{GPT_OSS}@E2-k1-K3072-N3072-M3-tp1-ep1-hp192-ip192-s0")
        seen = observe(problem, subject, provider_for(problem.case.cell))
        assert seen.calls[0].arguments["intermediate_pad"] == 384
        assert seen.verdict.broken is Rule.ELEMENT
        assert 0.02 < seen.verdict.relative_error < 0.6
