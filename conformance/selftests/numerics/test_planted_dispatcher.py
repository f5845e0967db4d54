"""Faults planted in the dispatcher and the leaves, each caught by the numbers of one input.

The faults are those of ``faults.toml``, which the suites catch by the call; here nothing looks at the call.
Each runs in a child of one process that has not imported the package under test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")

W4A16 = "gfx950/mxfp4-w4a16"
PLAIN = "@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0"
ON_INPUT = PLAIN.replace("k2", "k1")
HALVES = "@E6-k2-K256-N256-M17-tp1-ep2-hp0-ip0-s0~1"

# fault -> the input whose numbers show it
FAULTS = {
    "pads-doubled-under-tp": f"{W4A16}/swigluoai/out@E5-k2-K256-N512-M17-tp2-ep1-hp128-ip64-s0",
    "pads-rounded-up": f"{W4A16}/swigluoai/out@E5-k2-K256-N512-M17-tp2-ep1-hp40-ip24-s0",
    "pads-w4a4-silu-doubled-twice": "gfx950/mxfp4-w4a4/silu/out@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip64-s0",
    "dispatch-router-weight-output-only": f"gfx950/bf16/silu/in{ON_INPUT}",
    "dispatch-scales-swapped": f"gfx950/fp8-tensor-static/silu/out{PLAIN}",
    "dispatch-override-ignored": f"{W4A16}/swigluoai/out{PLAIN}",
    "dispatch-override-beats-situ": f"{W4A16}/situ/out{PLAIN}",
    "dispatch-hint-beats-override": f"{W4A16}/swigluoai_uninterleave/out{PLAIN}",
    "dispatch-mask-dropped": f"gfx942/fp8-block/silu/out{HALVES}",
    "dispatch-swiglu-limit-dropped": f"{W4A16}/silu/out{PLAIN}+limit",
    "dispatch-betas-swapped": f"gfx950/mxfp4-w4a4/situ/out{PLAIN}",
    "dispatch-swigluoai-as-silu": f"gfx950/bf16/swigluoai/out{PLAIN}",
    "extra-dsv4-interleaved": f"{W4A16}/silu/out{PLAIN}+dsv4",
    "experts-extra-dropped": f"{W4A16}/swigluoai/out{PLAIN}",
    "bridge-situ-layout-a4w4": f"gfx950/mxfp4-w4a4/situ/out{PLAIN}",
    # 2N = K, so that both scales have one shape
    "tkw1-scales-swapped": f"gfx942/fp8-channel/silu/in{ON_INPUT.replace('K256', 'K512')}",
    "tkw1-mask-dropped": f"gfx942/fp8-channel/silu/in{HALVES.replace('k2', 'k1')}",
}

PROGRAM = """
import json, sys
import torch
from aiter_conformance.coverage import parse_problem
from aiter_conformance.faults.patching import put_in_place
from aiter_conformance.faults.planted import load_faults, plant
from aiter_conformance.faults.pool import run_forked
from aiter_conformance.golden import observe
from aiter_conformance.levels.reference import provider_for

torch.set_num_threads(1)
wanted = json.loads(sys.argv[1])
faults = {fault.id: fault for fault in load_faults()}

def judged(text, subject):
    problem = parse_problem(text)
    try:
        verdict = observe(problem, subject, provider_for(problem.case.cell, problem.features)).verdict
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "right" if verdict.passed else f"wrong: {verdict.message}"

def work(fault):
    if fault:
        put_in_place(plant(faults[fault]))
    from aiter_conformance import subjects
    subject = subjects.load_subject("impl")
    return {text: judged(text, subject) for text in ([wanted[fault]] if fault else wanted.values())}

seen = {fault: ended.value or ended.error
        for fault, ended in run_forked(work, ["", *wanted], workers=1, limit=lambda _: 120.0)}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """Return what came of each input with its fault, and under "" what came of all inputs without any."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(FAULTS)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str, outcomes: dict[str, Any]) -> None:
    """Without the fault the input is right; with it the numbers are wrong, or no kernel takes the call."""
    case = FAULTS[fault]
    assert outcomes[""][case] == "right"
    assert outcomes[fault][case].startswith(("wrong: ", "FamilyRefusal: ")), outcomes[fault]
