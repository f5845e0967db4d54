"""One planted change a release: each is one root cause and exit code 1, and harmless ones are exit code 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from aiter_conformance.gate import stubs
from aiter_conformance.gate.report import Report
from aiter_conformance.gate.side import Side
from aiter_conformance.ledger import Entry
from aiter_conformance.release.samples import code_object

Files = dict[str, bytes]
Gate = Callable[..., Report]
Edit = Callable[[Files], None]

MOE, TKW1, ENUMS = "aiter/fused_moe.py", "aiter/fused_moe_bf16_asm.py", "csrc/include/aiter_enum.h"
TUNED, DTYPES, SHUFFLE = "aiter/configs/tuned_fmoe.csv", "aiter/utility/dtypes.py", "aiter/ops/shuffle.py"
CHIPS, GATE_MODE = "aiter/jit/utils/chip_info.py", "aiter/ops/flydsl/moe_common.py"
GENERATOR = "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py"
GELU = "hsa/gfx950/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_gelu.csv"
SILU = "hsa/gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv"
SILU_950 = "hsa/gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv"
SMALL = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x128E"
LARGE = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256E"
GELU_LARGE = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_ps_32x256E"
ROW_942 = "tuned:gfx942 304 CUs, per_Token fp8xfp8 Silu H4096 I512 E64 k8"


def put(path: str, find: str, instead: str, count: int = -1) -> Edit:
    """Replace a text in a file, which must hold it."""

    def edit(files: Files) -> None:
        text = files[path].decode()
        assert find in text
        files[path] = text.replace(find, instead, count).encode()

    return edit


def drop(*paths: str) -> Edit:
    """Remove files."""

    def edit(files: Files) -> None:
        for path in paths:
            del files[path]

    return edit


def write(path: str, content: str | bytes) -> Edit:
    """Write a file."""

    def edit(files: Files) -> None:
        files[path] = content.encode() if isinstance(content, str) else content

    return edit


def move(path: str, to: str) -> Edit:
    """Move a file."""

    def edit(files: Files) -> None:
        files[to] = files.pop(path)

    return edit


def drop_lines(path: str, word: str) -> Edit:
    """Remove the lines of a file that hold a word."""

    def edit(files: Files) -> None:
        kept = [line for line in files[path].decode().splitlines(keepends=True) if word not in line]
        assert len(kept) < len(files[path].splitlines())
        files[path] = "".join(kept).encode()

    return edit


def tuned_cell(arch: str, token: int, old: str, new: str) -> Edit:
    """Replace a text in one tuned row."""

    def edit(files: Files) -> None:
        lines = files[TUNED].decode().splitlines(keepends=True)
        (place,) = [i for i, line in enumerate(lines) if line.startswith(arch) and f",{token},4096" in line]
        assert old in lines[place]
        lines[place] = lines[place].replace(old, new)
        files[TUNED] = "".join(lines).encode()

    return edit


class Planted(NamedTuple):
    """One planted change, the id of its one root cause, the class, and some of what follows from it."""

    edit: Edit
    cause: str
    change: str
    consequences: frozenset[str] = frozenset()


PLANTED = {
    "a manifest row removed": Planted(drop_lines(GELU, "32x128"), f"kernel:{GELU}", "lost"),
    "a manifest row removed that is tuned": Planted(
        drop_lines(SILU, "32x128"), f"kernel:{SILU}", "lost", frozenset({f"{ROW_942} M=16"})
    ),
    "a manifest removed": Planted(
        drop(GELU), f"manifest:{GELU}", "lost", frozenset({"cell:gfx950/fp8-channel/gelu/out"})
    ),
    "a manifest without its header": Planted(
        drop_lines(GELU, "knl_name"),
        "finding:manifest-unreadable",
        "regressed",
        frozenset({"cell:gfx950/fp8-channel/gelu/out"}),
    ),
    "an object of another arch": Planted(
        write("hsa/gfx950/fmoe/gelu/gelu256.co", code_object("gfx942", [GELU_LARGE])),
        "finding:wrong-arch",
        "regressed",
        frozenset({f"kernel:{GELU} {GELU_LARGE}"}),
    ),
    "an object that is damaged": Planted(
        write("hsa/gfx950/fmoe/gelu/gelu256.co", b"\x7fELF no more"),
        "finding:unreadable-object",
        "regressed",
        frozenset({f"kernel:{GELU} {GELU_LARGE}"}),
    ),
    "an object that is missing": Planted(
        drop("hsa/gfx950/fmoe/gelu/gelu256.co"), f"kernel:{GELU}", "regressed"
    ),
    "an object without its kernel": Planted(
        write("hsa/gfx950/fmoe/gelu/gelu256.co", code_object("gfx950", ["another"])),
        f"kernel:{GELU}",
        "regressed",
    ),
    "a value of an enumeration": Planted(
        put(ENUMS, "per_1x32,", "per_1x32 = 7,"),
        "member:QuantType",
        "api-changed",
        frozenset({"anchor:quant-type-values", "cell:gfx950/mxfp4-w4a4/silu/out"}),
    ),
    "a member of an enumeration removed": Planted(
        put(ENUMS, ", Swiglu", ""),
        "member:ActivationType",
        "api-changed",
        frozenset({"cell:gfx942/bf16/swigluoai/out"}),
    ),
    "an enumeration removed": Planted(
        drop_lines(ENUMS, "enum class QuantType"),
        "enum:QuantType",
        "api-changed",
        frozenset({"anchor:quant-type-values", "cell:gfx942/bf16/silu/out"}),
    ),
    "a parameter renamed": Planted(
        put(MOE, "gate_mode=GateMode", "gate_layout=GateMode"),
        "parameter:fused_moe",
        "api-changed",
        frozenset({"anchor:gate-mode-default", "cell:gfx950/mxfp4-w4a16/swigluoai/out"}),
    ),
    "a default changed": Planted(
        put(MOE, "GateMode.SEPARATED.value", "GateMode.INTERLEAVE.value"),
        "parameter:fused_moe",
        "api-changed",
        frozenset({"anchor:gate-mode-default"}),
    ),
    "a default changed that no anchor is about": Planted(
        put(MOE, "hidden_pad=0", "hidden_pad=64"), "parameter:fused_moe", "api-changed"
    ),
    "a parameter removed": Planted(
        put(MOE, "w2_scale=None, ", ""),
        "parameter:fused_moe",
        "api-changed",
        frozenset({"cell:gfx942/fp8-block/silu/out"}),
    ),
    "a parameter that must be given": Planted(
        put(MOE, "topk_ids,", "topk_ids, workspace,"), "parameter:fused_moe", "api-changed"
    ),
    "parameters in another order": Planted(
        put(MOE, "w1, w2,", "w2, w1,"), "function:fused_moe", "api-changed"
    ),
    "a function renamed": Planted(
        put(TKW1, "def asm_moe_tkw1", "def asm_moe_tkw2"),
        "function:asm_moe_tkw1",
        "api-changed",
        frozenset({"cell:gfx942/fp8-channel/silu/in"}),
    ),
    "a tuned row that points nowhere": Planted(
        tuned_cell("gfx942", 64, "32x128", "32x512"), ROW_942, "regressed"
    ),
    "a kernel of another activation for one token bucket": Planted(
        tuned_cell("gfx942", 1024, SMALL, SMALL.replace("silu", "gelu")), ROW_942, "regressed"
    ),
    "a tuned row removed": Planted(drop_lines(TUNED, "gfx942,304,16,"), ROW_942, "lost"),
    "a tuned row of the other fp8": Planted(
        tuned_cell("gfx942", 64, "float8_e4m3fnuz", "float8_e4m3fn"), ROW_942, "regressed"
    ),
    "a tuned row that cannot be read": Planted(
        tuned_cell("gfx942", 64, "QuantType.", ""),
        "finding:malformed-row",
        "regressed",
        frozenset({f"{ROW_942} M=64"}),
    ),
    "a tuned table without a column": Planted(
        put(TUNED, ",kernelName2", ""),
        "finding:table-unreadable",
        "regressed",
        frozenset({f"{ROW_942} M=64"}),
    ),
    "a pad line": Planted(
        put(MOE, "(2 if use_g1u1 else 1)", "(4 if use_g1u1 else 1)"),
        "anchor:ck-tile-stage1-intermediate-pad",
        "regressed",
    ),
    "a pad line in a kernel": Planted(
        put("aiter/ops/flydsl/kernels/stages.py", "2 * inter_dim_pad", "inter_dim_pad"),
        "anchor:flydsl-stage1-pad-doubled",
        "regressed",
    ),
    "a guard deleted": Planted(
        put(MOE, " and k_batch >= 2", ""), "anchor:block-fp8-split-k-guard", "regressed"
    ),
    "a guarded line deleted": Planted(drop_lines(MOE, "is_splitk"), "anchor:block-fp8-split-k-guard", "lost"),
    "the tuned lookup by enumeration": Planted(
        put(MOE, "str(activation)", "activation"), "anchor:tuned-key-activation", "regressed"
    ),
    "the fp8 of an arch": Planted(put(DTYPES, "e4m3fnuz", "e4m3fn"), "anchor:fp8-dtype-of-arch", "regressed"),
    "a value of the gate modes": Planted(
        put(GATE_MODE, '"interleave"', '"interleaved"'),
        "member:GateMode",
        "api-changed",
        frozenset({"anchor:gate-mode-values"}),
    ),
    "a module moved": Planted(
        move(SHUFFLE, "aiter/ops/shuffling.py"),
        "module:aiter.ops.shuffle",
        "lost",
        frozenset({"anchor:shuffle-weight", "anchor:shuffle-scale-int4"}),
    ),
    "an import of what is not there": Planted(
        put(MOE, "def stage1(", "from aiter.ops.gone import kernel\ndef stage1("),
        "import:aiter.ops.gone",
        "regressed",
    ),
    "an arch removed": Planted(
        put(CHIPS, "gfx950", "gfx951"),
        "arch:gfx950",
        "lost",
        frozenset({"cell:gfx950/bf16/silu/out"}),
    ),
    "a source that cannot be parsed": Planted(
        put(MOE, "def fused_moe(", "def fused_moe(:"),
        "finding:source-unreadable",
        "regressed",
        frozenset({"function:fused_moe", "anchor:is-shuffled-tag", "cell:gfx942/bf16/silu/out"}),
    ),
    "an activation that a generator does not take": Planted(
        put(GENERATOR, ', "swiglu"', ""),
        f"choice:{GENERATOR}",
        "lost",
        frozenset({"cell:gfx942/bf16/swigluoai/out"}),
    ),
    "a generator removed": Planted(
        drop(GENERATOR),
        f"module:{GENERATOR}",
        "lost",
        frozenset({"cell:gfx942/bf16/silu/out", f"choice:{GENERATOR} --activation silu"}),
    ),
}


def reverse(path: str) -> Edit:
    """Reverse the rows of a table."""

    def edit(files: Files) -> None:
        header, *rows = files[path].decode().splitlines()
        files[path] = "\n".join([header, *reversed(rows), ""]).encode()

    return edit


def all_of(*edits: Edit) -> Edit:
    """Make several edits."""

    def edit(files: Files) -> None:
        for one in edits:
            one(files)

    return edit


UNRELATED = "hsa/gfx950/fmoe/silu/fmoe_bf16_other_silu.csv"
HARMLESS = {
    "comments": all_of(
        put(MOE, "def stage1(", "# A remark.\n\n\ndef stage1("),
        put(ENUMS, "enum class QuantType", "// A remark.\nenum class QuantType"),
        put(SILU, "\n", "\n// A remark.\n", 1),
    ),
    "reordered rows": all_of(reverse(TUNED), reverse(SILU), reverse(GELU)),
    "new unrelated kernels": all_of(
        write(UNRELATED, f"knl_name,co_name,subGU_n\n{SMALL[:-1]}xE,other.co,64\n"),
        write("hsa/gfx950/fmoe/silu/other.co", code_object("gfx950", [f"{SMALL[:-1]}xE"])),
        write("hsa/gfx950/gemm/gemm.co", code_object("gfx950", ["gemm"])),
    ),
    "a new optional parameter": put(MOE, "swiglu_limit=0.0", "swiglu_limit=0.0, beta=None"),
    "a faster tile": tuned_cell("gfx942", 1024, "32x128", "32x256"),
    "a faster tile of its own": all_of(
        put(SILU, f"{SMALL},", f"{SMALL.replace('32x128', '32x512')},silu512.co,0,1,0,1,1,32,512\n{SMALL},"),
        write(
            "hsa/gfx942/fmoe/silu/silu512.co", code_object("gfx942", [SMALL.replace("32x128", "32x512")])
        ),
        tuned_cell("gfx942", 1024, "32x128", "32x512"),
    ),
    "a kernel compiled again": write(
        "hsa/gfx942/fmoe/silu/silu128.co", code_object("gfx942", [SMALL, "helper"])
    ),
    "measured times": put(TUNED, ".5\n", ".25\n"),
    "another tuned bucket": put(TUNED, "gfx942,304,16,", "gfx942,304,32,4096,512,64,8,ActivationType.Silu,"
        "torch.bfloat16,torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,QuantType.per_Token,1,0,32,"
        f"{SMALL},Null,1,1.5\ngfx942,304,16,"),
    "a default that the contract allows": put(MOE, "swiglu_limit=0.0", "swiglu_limit=None"),
    "another arch": put(CHIPS, "}", ', 3: "gfx1250"}'),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_change_is_one_root_cause(release_files: Files, gate: Gate, planted: Planted) -> None:
    """The gate fails with exactly one cause, and everything else that is worse follows from it."""
    files = dict(release_files)
    planted.edit(files)
    report = gate(files)
    assert [(cause.id, cause.change.value) for cause in report.failing] == [(planted.cause, planted.change)]
    assert [cause.id for cause in report.causes if cause.change.direction < 0] == [planted.cause]
    assert planted.consequences - {change.id for change in report.failing[0].consequences} == frozenset()
    assert report.exit_code == 1


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_completed_entry_explains_a_planted_change(
    release_files: Files, gate: Gate, planted: Planted, completed: Callable[[str], tuple[Entry, ...]]
) -> None:
    """The stubs that are proposed for a change, once a person completed them, explain all of it."""
    files = dict(release_files)
    planted.edit(files)
    report = gate(files, ledger=completed(stubs.propose_ledger(gate(files))))
    assert [(cause.id, cause.covered is None) for cause in report.causes if cause.change.direction < 0] == [
        (planted.cause, False)
    ]
    assert report.exit_code == 0


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_harmless_change_does_not_fail(release_files: Files, gate: Gate, edit: Edit) -> None:
    """Nothing fails, and the files did change."""
    files = dict(release_files)
    edit(files)
    assert files != release_files
    report = gate(files)
    assert [cause.id for cause in report.failing] == []
    assert report.exit_code == 0


def test_the_release_itself_is_good(good_side: Side) -> None:
    """Nothing is wrong in the release that changes are planted in, and every anchor of it is found."""
    bad = [item.id for item in good_side.items if item.standing.value != "good"]
    assert bad == []


def test_a_release_against_itself(release_files: Files, gate: Gate) -> None:
    """All is the same."""
    report = gate(release_files)
    assert (report.causes, report.exit_code) == ((), 0)
    assert {found.value for counted in report.counts.values() for found in counted} == {"same"}
