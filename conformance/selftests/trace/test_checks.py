"""Each check fires on a release with one planted fault, and stays silent on its sound twin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import FAILING, Cause, Code, Finding, group
from aiter_conformance.trace.run import Run
from aiter_conformance.trace.samples import TUNED_CK, plant, sound_release

Tracing = Callable[..., tuple[Run, tuple[Finding, ...]]]

GFX942 = Board("gfx942", 304)
GFX950 = Board("gfx950", 256)
MOE = "aiter/fused_moe.py"
SIZES: Final = {"experts": 8, "local_experts": 8, "topk": 2, "hidden": 1024, "intermediate": 256}


def call(scheme: str, activation: str = "silu", tokens: int = 64, **more: object) -> Call:
    """Return a call of the size that the tuned rows of the sample are for."""
    return Call(scheme=scheme, activation=activation, tokens=tokens, **{**SIZES, **more})  # type: ignore[arg-type]


SOUND: Final = (
    *(call("bf16", activation, m) for activation in ("silu", "gelu", "swigluoai") for m in (1, 64, 128)),
    *(call("fp8-channel", "silu", m) for m in (1, 64, 128)),
    call("fp8-channel", "gelu", 64),
    call("fp8-channel", "silu", 64, router="in", topk=1),
    call("fp8-tensor-dynamic", "silu", 1),
    call("fp8-block", "silu", 16),
    call("fp8-block", "silu", 128, local_experts=4, mask=True),
    call("bf16", "silu", 64, router="in", topk=1),
)
# The leaf takes MXFP4 on gfx950 only.
SOUND_GFX950: Final = (
    *SOUND,
    call("mxfp4-w4a16", "silu", 64, bias=True, hidden_pad=128, intermediate_pad=64, tp=2),
    *(
        call("mxfp4-w4a16", "swigluoai", m, bias=True, hidden_pad=128, intermediate_pad=128, tp=2)
        for m in (1, 64, 512)
    ),
)


class TestSoundRelease:
    """The twin of every planted fault."""

    @pytest.mark.parametrize(("board", "calls"), [(GFX942, SOUND), (GFX950, SOUND_GFX950)], ids=str)
    def test_nothing_is_found(self, tracing: Tracing, board: Board, calls: tuple[Call, ...]) -> None:
        """No check says anything about the sound release, and every call launches something."""
        run, findings = tracing(sound_release(), board, calls)
        assert findings == ()
        assert [trace.status for trace in run.traces] == ["launched"] * len(calls)
        assert all(trace.products for trace in run.traces)


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault.

    Attributes:
        code: The code that must be found.
        path: The file that is changed.
        old: What is replaced there.
        new: What comes there.
        calls: The calls that show it.
        board: Where.
    """

    code: Code
    path: str
    old: str
    new: str
    calls: tuple[Call, ...]
    board: Board = GFX950

    def __str__(self) -> str:
        return self.code.value


BF16, CHANNEL, BLOCK = call("bf16"), call("fp8-channel"), call("fp8-block", "silu", 16)
GPT_OSS = call("mxfp4-w4a16", "swigluoai", 64, bias=True, hidden_pad=128, intermediate_pad=128, tp=2)
MXFP4 = call("mxfp4-w4a16")
MASKED = call("fp8-block", "silu", 128, local_experts=4, mask=True)

STAGE1 = "quant_type.value,\n                      activation.value, split)"
SILU_ROW = (
    "256,64,1024,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,0,"
)
TABLES = '        return os.path.join(ROOT, "aiter/configs'
FAULTS: Final = (
    Fault(Code.RAISED, MOE, "token = bucket(M)\n", "token = {}[M]\n", (BF16,)),
    Fault(Code.DIED, MOE, "token = bucket(M)\n", "token = __import__('os').abort()\n", (BF16,)),
    Fault(
        Code.NOTHING_LAUNCHED,
        MOE,
        "    on_output = None if",
        "    if not packed:\n        return out\n    on_output = None if",
        (BF16,),
    ),
    Fault(
        Code.NO_KERNEL,
        "hsa/gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv",
        ",32,256\n",
        ",32,384\n",
        (CHANNEL,),
    ),
    Fault(
        Code.NOT_FOR_ARCH,
        MOE,
        'get_gfx() == "gfx950" and',
        "True and",
        (call("mxfp4-w4a4", entry="fused_moe"),),
        GFX942,
    ),
    Fault(
        Code.WRONG_ACTIVATION,
        MOE,
        STAGE1,
        STAGE1.replace("activation.value", "ActivationType.Gelu.value"),
        (call("bf16", tokens=1),),
    ),
    Fault(  # an activation that is left to torch
        Code.WRONG_ACTIVATION,
        MOE,
        "    inner = out.new_empty((M, topk, inter_dim), dtype=states.dtype)\n",
        "    inner = torch.nn.functional.gelu(inner)\n",
        (call("bf16", tokens=1),),
    ),
    Fault(Code.WRONG_DTYPE, MOE, "    if quant_type != QuantType.No:\n", "    if False:\n", (CHANNEL,)),
    Fault(Code.WRONG_QUANT, MOE, STAGE1, STAGE1.replace("quant_type.value", "1"), (BLOCK,)),
    Fault(Code.WRONG_LAYOUT, MOE, '"silu", gate_mode,', '"silu", "separated",', (MXFP4,)),
    Fault(
        Code.WRONG_ROUTER,
        MOE,
        "on_input = topk_weight if doweight_stage1 else None\n",
        "on_input = topk_weight\n",
        (call("bf16", tokens=1),),
    ),
    Fault(  # CK-Tile, whose stage 1 cannot
        Code.WRONG_ROUTER,
        MOE,
        'get_gfx() == "gfx950" and',
        "False and",
        (call("mxfp4-w4a4", entry="fused_moe", router="in", topk=1),),
    ),
    Fault(Code.BIAS_DROPPED, MOE, "on_input, bias1,", "on_input, None,", (GPT_OSS,)),
    Fault(Code.MASK_DROPPED, MOE, "chosen.block_m, expert_mask)", "chosen.block_m, None)", (MASKED,)),
    Fault(
        Code.PADS_TOO_LARGE, MOE, "intermediate_pad // 64 * 128,", "intermediate_pad // 64 * 256,", (GPT_OSS,)
    ),
    Fault(Code.SPLIT_TOO_FINE, MOE, "return 2 if token", "return 4 if token", (BLOCK,)),
    Fault(
        Code.OFFSET_OVERFLOW,
        MOE,
        "ck_moe_stage2(inner, w1, w2, out, name2",
        "ck_moe_stage2(inner, w1, w2, out.new_empty((M, topk, model_dim)), name2",
        (call("bf16", tokens=3 << 19),),
    ),
    Fault(
        Code.WRONG_FP8,
        "aiter/utility/dtypes.py",
        'get_gfx() == "gfx942"',
        'get_gfx() == "gfx950"',
        (CHANNEL,),
    ),
    Fault(
        Code.QUANTISED_SILENTLY,
        MOE,
        "    states = hidden_states\n",
        "    states = hidden_states.to(dtypes.fp8) if packed else hidden_states\n",
        (GPT_OSS,),
    ),
    Fault(Code.TUNED_NEVER, MOE, "topk, str(activation), str(q", "topk, activation, str(q", (BF16,)),
    Fault(Code.TUNED_KEY_DIFFERS, MOE, "expert, topk, str(act", "expert, topk + 7, str(act", (BF16,)),
    Fault(
        Code.TUNED_NOT_MADE,
        "aiter/configs/tuned_fmoe.csv",
        f"{SILU_ROW}moe_ck2stages_gemm1_256x32",
        f"{SILU_ROW}moe_ck2stages_gemm1_256x16",
        (BF16,),
    ),
    Fault(Code.TUNED_FOR_OTHER, MOE, 'if r["blind"] == "1"', "if True", (call("bf16", "gelu"),)),
    Fault(
        Code.TUNED_CONFLICT,
        "aiter/jit/core.py",
        TABLES,
        f"        if not vars(self):\n            self.a = 1\n            raise OSError('two')\n{TABLES}",
        (BF16,),
    ),
    Fault(
        Code.BUCKET_DIFFERS,
        MOE,
        "and token > 16 and",
        "and token not in (16, 64) and",
        tuple(call("fp8-channel", "silu", m) for m in (32, 64, 128)),
    ),
    Fault(
        Code.FAMILY_UNKNOWN,
        MOE,
        "    if chosen.run_1stage:\n",
        "    if states is hidden_states:\n"
        "        moe_gemm.compile_moe_gemm1(32, 128, 256, 'bf16', 'bf16', 'silu', gate_mode, 0, 0, False,\n"
        "                                   model_dim)(states, w1, out)\n"
        "    if chosen.run_1stage:\n",
        (BF16,),
    ),
    Fault(
        Code.NOT_WATCHED,
        "aiter/jit/utils/torch_guard.py",
        "def torch_compile_guard(",
        "torch_compile_guard = None\n\ndef guard(",
        (BF16,),
    ),
)


def findings_of(files: Mapping[str, bytes], tracing: Tracing, fault: Fault) -> tuple[Finding, ...]:
    """Return what is found about the fault's calls."""
    return tracing(files, fault.board, fault.calls)[1]


class TestCheckRun:
    """What `check_run` finds."""

    @pytest.mark.parametrize("board", [GFX942, GFX950], ids=str)
    def test_the_same_calls_are_sound_without_the_fault(self, tracing: Tracing, board: Board) -> None:
        """Nothing is found about any call that shows a fault, on the release without it."""
        calls = dict.fromkeys(call for fault in FAULTS if fault.board == board for call in fault.calls)
        run, findings = tracing(sound_release(), board, calls)
        assert findings == ()
        assert {trace.status for trace in run.traces} == {"launched"}

    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    def test_a_planted_fault_is_found(self, tracing: Tracing, fault: Fault) -> None:
        """The fault's code is found, and where it fails a call nothing else fails on its own account."""
        findings = findings_of(plant(sound_release(), fault.path, fault.old, fault.new), tracing, fault)
        assert fault.code in {finding.code for finding in findings}
        roots = {cause.code for cause in group(findings) if cause.code in FAILING}
        assert roots <= {fault.code} | _COMES_WITH.get(fault.code, set())

    def test_every_code_has_a_planted_fault(self) -> None:
        """No code is without a fault that shows it can be found."""
        assert {fault.code for fault in FAULTS} == set(Code)

    def test_every_code_is_explained(self) -> None:
        """The page about traces says of each code what it means, and knows no other."""
        page = (Path(__file__).parents[2] / "docs/trace.md").read_text(encoding="utf-8")
        section = page.partition("## What it finds")[2].partition("## ")[0]
        cells = (line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
        assert {code for cell in cells for code in re.findall(r"`([a-z0-9-]+)`", cell)} == set(Code)

    def test_the_sound_rows_are_what_is_tuned(self, tracing: Tracing) -> None:
        """The sample's tuned row answers the call that it is for: the faults in the table are about it."""
        run, _ = tracing(sound_release(), GFX950, (BF16,))
        (trace,) = run.traces
        assert trace.dispatch == "tuned"
        assert tuple(launch.name for launch in trace.products) == TUNED_CK


# What is found beside a code, being the same thing seen from another side.
_COMES_WITH: Final = {
    Code.WRONG_DTYPE: {Code.NO_KERNEL},  # no manifest is for bf16 activations
    Code.WRONG_FP8: {Code.NO_KERNEL},
    Code.TUNED_FOR_OTHER: {Code.WRONG_ACTIVATION},
}


class TestGroup:
    """How `group` orders and nests."""

    def finding(self, code: Code, cause: str, tokens: int) -> Finding:
        """Return a finding about a call with so many tokens."""
        return Finding(code, "gfx950:256", cause, f"{cause} at {tokens}", call("bf16", tokens=tokens))

    def test_one_cause_holds_all_its_calls(self) -> None:
        """Findings with the same words are one cause, whose example is the first call."""
        (cause,) = group([self.finding(Code.RAISED, "it raises", tokens) for tokens in (1, 2)])
        assert (cause.code, cause.calls, cause.example) == (Code.RAISED, 2, call("bf16", tokens=1))

    def test_a_consequence_is_below_its_cause(self) -> None:
        """A kernel of the wrong activation is below another's row, and that below the lookup."""
        causes = group(
            [
                self.finding(Code.WRONG_ACTIVATION, "wrong kernel", 1),
                self.finding(Code.TUNED_FOR_OTHER, "another's row", 1),
                self.finding(Code.TUNED_NEVER, "never", 1),
            ]
        )

        def nest(cause: Cause) -> list[object]:
            return [cause.code, *map(nest, cause.consequences)]

        assert [nest(cause) for cause in causes] == [
            [Code.TUNED_NEVER, [Code.TUNED_FOR_OTHER, [Code.WRONG_ACTIVATION]]]
        ]

    def test_what_fails_comes_first(self) -> None:
        """Failures come before what is to be known, and of those the one with more calls comes first."""
        causes = group(
            [
                self.finding(Code.TUNED_NEVER, "never", 1),
                self.finding(Code.RAISED, "it raises", 2),
                *(self.finding(Code.NO_KERNEL, "none", tokens) for tokens in (3, 4)),
            ]
        )
        assert [cause.code for cause in causes] == [Code.NO_KERNEL, Code.RAISED, Code.TUNED_NEVER]
