"""What real releases do, known from AITER's sources and public reports, comes out of the trace.

Needs a git repository of AITER: set AITER_GIT_DIR. The expectations are data; the tracer knows none of them.
Every release is traced once on every board, with all calls that any test asks about.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase as fnmatch
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from aiter_conformance import contract
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.levels.trace import calls_of
from aiter_conformance.models import load_models, model_calls
from aiter_conformance.outcome import Kind
from aiter_conformance.release import Inventory, Release, open_release, take_inventory
from aiter_conformance.release.tuned import TunedTables, read_tuned
from aiter_conformance.trace.agreement import compare_families
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Code, Finding
from aiter_conformance.trace.record import Launch, Trace
from aiter_conformance.trace.run import Run, run_calls
from aiter_conformance.trace.run_checks import check_run

REPOSITORY = os.environ.get("AITER_GIT_DIR", "")
pytest.importorskip("pandas", reason="AITER's own needs are not installed (extra trace)")
pytestmark = pytest.mark.skipif(not REPOSITORY, reason="AITER_GIT_DIR names no repository of AITER")

MAIN: Final = "HEAD"
GFX942, MI308, GFX950, GFX1250 = (
    Board("gfx942", 304),
    Board("gfx942", 80),
    Board("gfx950", 256),
    Board("gfx1250", 256),
)
# DeepSeek's shape under tensor parallelism 8, and gpt-oss' with its pads.
DEEPSEEK = Call(entry="fused_moe", experts=256, local_experts=256, topk=8, hidden=7168, intermediate=256)
GPT_OSS = Call(
    entry="fused_moe",
    scheme="mxfp4-w4a16",
    activation="swigluoai",
    gate_mode="interleave",
    bias=True,
    experts=128,
    local_experts=128,
    topk=4,
    hidden=3072,
    intermediate=3072,
    hidden_pad=192,
    intermediate_pad=192,
    sent_pads=(192, 192),
)


def deepseek(scheme: str, tokens: int, **more: object) -> Call:
    """Return DeepSeek's call in a scheme."""
    return replace(DEEPSEEK, scheme=scheme, tokens=tokens, **more)  # type: ignore[arg-type]


@cache
def opened(revision: str) -> tuple[Release, Inventory, TunedTables]:
    """Open a release once for all tests."""
    release = open_release(f"git:{REPOSITORY}@{revision}")
    inventory = take_inventory(release)
    return release, inventory, read_tuned(release, inventory)


@cache
def traced(revision: str, board: Board, code: Path) -> tuple[Run, tuple[Finding, ...]]:
    """Trace all calls of this file, of the level and of the catalogue, once for all tests."""
    release, inventory, tuned = opened(revision)
    cells = [cell for cell in load_axes().cells() if cell.arch == board.arch]
    level = (call for inputs in calls_of(cells).values() for _, call in inputs)
    models = (
        call
        for model in load_models().models.values()
        for scheme in model.schemes
        if contract.declaration(Cell(board.arch, scheme, model.activation, model.router)).kind is Kind.PASS
        for _, call in model_calls(model, scheme)
    )
    # With another list of builds the one question is which fp8 flavour it takes.
    calls = (GELU,) if board.build_archs is not None else dict.fromkeys((*special_calls(), *level, *models))
    run = run_calls(release, board, calls, inventory=inventory, cache=code)
    return run, check_run(run, tuned)


@cache
def traces_of(revision: str, board: Board, code: Path) -> tuple[Trace, ...]:
    """Return the traces of a release on a board; none where it cannot be imported there."""
    try:
        return traced(revision, board, code)[0].traces
    except InfrastructureError:
        return ()


def special_calls() -> Iterator[Call]:
    """Yield every call that a test of this file asks about."""
    yield from (picks.call for picks in PICKS)
    yield from DEFECT_CALLS
    yield from gpt_oss_layers()
    yield from (BF16_LEAF, *GFX1250_CALLS, *SHARED_CALLS)


# --------------------------------------------------------------------------- what main picks


@dataclass(frozen=True, slots=True)
class Picks:
    """The products that main of 2026-08-22 launches for a call; a field that is None may be anything.

    Attributes:
        call: The call.
        boards: On which boards.
        products: (family, rows, columns and depth of the tile, name's ending) of each product.
        splits: Splits of the depth.
        pads: (n_pad, k_pad) of each product.
        a: Dtype of the activations that stage 1 reads.
    """

    call: Call
    boards: tuple[Board, ...]
    products: tuple[tuple[str, tuple[int, int, int] | None, str], ...]
    splits: tuple[int, ...] | None = None
    pads: tuple[tuple[int | None, int | None], ...] | None = None
    a: str | None = None


BOTH = (GFX942, GFX950)
PORT = ("flydsl", (32, 128, 256), "_a16w4_port")
CK_TILE = (("ck-tile", None, "gemm1"), ("ck-tile", None, "gemm2"))
PICKS: Final = (
    *(
        Picks(deepseek("bf16", m), (GFX942,), (("ck", (32, 64, 64), ""), ("ck", (32, 64, 64), "")))
        for m in (1, 64)
    ),
    *(
        Picks(deepseek("bf16", m), (GFX950,), (("ck", (32, 64, 64), ""), ("ck", (32, 128, 128), "")))
        for m in (1, 64)
    ),
    *(
        Picks(
            deepseek("fp8-channel", m),
            BOTH,
            (("asm-1stage", (32, 256, 0), "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256E"),),
        )
        for m in (64, 1024)
    ),
    Picks(
        deepseek("fp8-channel", 64, router="in"),
        (GFX942,),
        (("ck", (32, 64, 128), ""), ("ck", (32, 64, 128), "")),
    ),
    *(  # C++ takes the tile that leaves the fewest compute units idle: the wide one from enough tokens on
        Picks(
            deepseek("fp8-channel", m, router="in"),
            (GFX950,),
            (("asm-1stage", (32, n, 0), f"pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x{n}E"),),
        )
        for m, n in ((64, 128), (1024, 256))
    ),
    Picks(
        deepseek("fp8-block", 1),
        BOTH,
        (("ck", (16, 128, 256), ""), ("ck", (16, 128, 256), "")),
        splits=(14, 1),
    ),
    Picks(
        deepseek("fp8-block", 64),
        BOTH,
        (("asm-1stage", (32, 256, 0), "fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E"),),
    ),
    Picks(
        deepseek("mxfp4-w4a4", 1),
        (GFX942,),
        (("flydsl", (32, 128, 256), "gemm1"), ("flydsl", (32, 128, 256), "gemm2")),
        a="fp4",
    ),
    Picks(
        deepseek("mxfp4-w4a4", 1),
        (GFX950,),
        (("flydsl", (32, 32, 256), "gemm1"), ("ck", (32, 32, 128), "FP4X2_FP4X2_B16")),
        a="fp4",
    ),
    *(
        Picks(
            replace(GPT_OSS, tokens=m), BOTH, CK_TILE, pads=((384, 128), (192, 128)), a="bf16"
        )
        for m in (1, 64)
    ),
    Picks(
        replace(GPT_OSS, tokens=1024), (GFX942,), CK_TILE, pads=((384, 128), (192, 128)), a="bf16"
    ),
    Picks(
        replace(GPT_OSS, tokens=1024),
        (GFX950,),
        (("flydsl", (64, 256, 256), "gemm1"), ("flydsl", (64, 256, 256), "gemm2")),
        pads=((0, 0), (0, 0)),
        a="fp8",
    ),
    Picks(
        deepseek("mxfp4-w4a16", 64, activation="situ", situ="a16w4"),
        BOTH,
        (PORT, PORT),
        pads=((None, None), (None, None)),
        a="bf16",
    ),
    Picks(
        deepseek("int4-w4a16", 1),
        BOTH,
        (("flydsl", (16, 128, 128), "_a16w4_port"), ("flydsl", (16, 128, 128), "_a16w4_port")),
        a="bf16",
    ),
)  # fmt: skip


def matches(launch: Launch, family: str, tile: tuple[int, int, int] | None, ending: str) -> bool:
    """Say whether a product is of the family, has the tile, and a name that ends so."""
    right_tile = tile is None or launch.tile == tile
    return launch.family == family and right_tile and launch.kernel.endswith(ending)


class TestMain:
    """What main of 2026-08-22 picks (AITER's own heuristics and tables)."""

    @pytest.mark.parametrize("board", BOTH, ids=str)
    def test_products(self, board: Board, cache: Path) -> None:
        """Families, tiles, names, splits, pads and pipelines are those that are known."""
        expected = [picks for picks in PICKS if board in picks.boards]
        run, _ = traced(MAIN, board, cache)
        for picks in expected:
            trace = trace_of(run, picks.call)
            seen = [(launch.family, launch.tile, launch.kernel) for launch in trace.products]
            where = f"{picks.call} gets {seen}"
            assert len(trace.products) == len(picks.products), where
            for launch, product in zip(trace.products, picks.products, strict=True):
                assert matches(launch, *product), where
            if picks.splits is not None:
                assert tuple(launch.split_k for launch in trace.products) == picks.splits, where
            if picks.pads is not None:
                assert tuple((each.n_pad, each.k_pad) for each in trace.products) == picks.pads, where
            if picks.a is not None:
                assert trace.activation_dtype == picks.a, where


# --------------------------------------------------------------------------- known defects

SPLIT = Call(
    entry="fused_moe",
    scheme="fp8-block",
    experts=512,
    local_experts=512,
    topk=10,
    hidden=4096,
    intermediate=128,
    tokens=1,
)
GELU = deepseek("fp8-channel", 64, activation="gelu")
SITU = deepseek("mxfp4-w4a4", 1, activation="situ")
A16W4 = deepseek("mxfp4-w4a16", 64, activation="situ", situ="a16w4")
DEFECT_CALLS: Final = (
    SPLIT,
    GELU,
    SITU,
    A16W4,
    replace(A16W4, bias=True),
    replace(A16W4, mask=True, local_experts=32),
    replace(A16W4, router="in", topk=1),
    deepseek("mxfp4-w4a4", 1),
    deepseek("mxfp8", 1),
    deepseek("int4-w4a16", 64),
)
# ROCm/aiter#3997: the split leaves one tile of 256; two releases guard it.
SPLIT_RELEASES: Final = {
    "v0.1.14": True,
    "v0.1.16.post4": True,
    "v0.1.18": False,
    "v0.1.19": False,
    "v0.1.19.post2": True,
    "v0.1.20.post1": True,
    MAIN: True,
}
# The key of the tuned lookup holds the enumeration's member, the table its name.
NEVER_RELEASES: Final = {
    "v0.1.9": False,
    "v0.1.13": False,
    "v0.1.14": True,
    "v0.1.16.post4": True,
    "v0.1.18": False,
    "v0.1.19": False,
    "v0.1.19.post2": True,
    "v0.1.20.post1": True,
    MAIN: True,
}


def codes(findings: tuple[Finding, ...], call: Call) -> set[Code]:
    """Return the codes that are found about a call."""
    return {finding.code for finding in findings if finding.call == call}


def trace_of(run: Run, call: Call) -> Trace:
    """Return the trace of a call."""
    return next(trace for trace in run.traces if trace.call == call)


class TestKnownDefects:
    """Defects of released dispatch code, found by the general checks."""

    @pytest.mark.parametrize("board", [GFX942, GFX950], ids=str)
    @pytest.mark.parametrize(("revision", "found"), SPLIT_RELEASES.items())
    def test_split_k(self, revision: str, found: bool, board: Board, cache: Path) -> None:
        """A split of 16 that leaves one tile is found unless the release guards it (aiter#3997)."""
        run, findings = traced(revision, board, cache)
        assert (Code.SPLIT_TOO_FINE in codes(findings, SPLIT)) is found
        stage1 = trace_of(run, SPLIT).products[0]
        assert stage1.split_k == (16 if found else 1)

    @pytest.mark.parametrize(("revision", "found"), NEVER_RELEASES.items())
    def test_lookup_that_never_matches(self, revision: str, found: bool, cache: Path) -> None:
        """A lookup by the enumeration's member, where the table has text, is found to be hopeless."""
        _, findings = traced(revision, MI308, cache)
        assert (Code.TUNED_NEVER in codes(findings, GELU)) is found

    @pytest.mark.parametrize("revision", ["v0.1.18", "v0.1.20.post1", MAIN])
    def test_gelu_gets_a_silu_kernel(self, revision: str, cache: Path) -> None:
        """With 80 CUs, gelu of 64 tokens is answered by a row for silu: the kernel is a silu kernel."""
        run, findings = traced(revision, MI308, cache)
        assert {Code.TUNED_FOR_OTHER, Code.WRONG_ACTIVATION} <= codes(findings, GELU)
        assert "_silu_" in trace_of(run, GELU).products[0].kernel

    @pytest.mark.parametrize("call", DEFECT_CALLS[-3:], ids=lambda call: call.scheme)
    def test_kernels_that_gfx942_cannot_have(self, call: Call, cache: Path) -> None:
        """Main picks FlyDSL kernels for gfx942 that need instructions of gfx950."""
        assert Code.NOT_FOR_ARCH in codes(traced(MAIN, GFX942, cache)[1], call)
        assert Code.NOT_FOR_ARCH not in codes(traced(MAIN, GFX950, cache)[1], call)
        assert Code.NOT_FOR_ARCH in codes(traced(MAIN, GFX942, cache)[1], A16W4)

    @pytest.mark.parametrize("revision", ["v0.1.20.post1", MAIN])
    def test_what_situ_refuses(self, revision: str, cache: Path) -> None:
        """SiTU with bf16 activations refuses biases, an expert mask and router weights on the input."""
        run, _ = traced(revision, GFX950, cache)
        statuses = [trace_of(run, call).status for call in DEFECT_CALLS[3:7]]
        assert statuses == ["launched", "refused", "refused", "refused"]

    @pytest.mark.parametrize("revision", ["v0.1.20.post1", MAIN])
    def test_situ_row_names_what_cannot_be_made(self, revision: str, cache: Path) -> None:
        """The row that answers SiTU with fp4 names a CK stage 2 that the generator cannot make for it."""
        run, findings = traced(revision, GFX950, cache)
        assert {Code.NO_KERNEL, Code.TUNED_FOR_OTHER} <= codes(findings, SITU)
        assert "situv2" in (trace_of(run, SITU).products[1].problem or "")

    @pytest.mark.parametrize(
        ("revision", "wrong"),
        [("v0.1.14", True), ("v0.1.16.post4", True), ("v0.1.18", False), (MAIN, False)],
    )
    def test_fp8_flavour(self, revision: str, wrong: bool, cache: Path) -> None:
        """gfx942 reads e4m3fnuz whatever is built; some releases ask the list of builds (aiter#3807)."""
        flavours = {}
        for archs in (None, "gfx942", "gfx942;gfx950"):
            board = replace(GFX942, build_archs=archs)
            run, findings = traced(revision, board, cache)
            flavours[archs] = run.facts.fp8
            found = Code.WRONG_FP8 in codes(findings, GELU)
            assert found is (wrong and archs == "gfx942;gfx950")
        expected = "float8_e4m3fn" if wrong else "float8_e4m3fnuz"
        assert list(flavours.values()) == ["float8_e4m3fnuz", "float8_e4m3fnuz", expected]


def gpt_oss_layers() -> Iterator[Call]:
    """Yield gpt-oss through the leaf: 2880 padded to 3072, split by 1, 2, 4 and 8."""
    for tp, pad in ((1, 192), (2, 96), (4, 48), (8, 24)):
        yield replace(
            GPT_OSS,
            entry="leaf",
            gate_mode="",
            sent_pads=(0, 0),
            tokens=64,
            tp=tp,
            intermediate=3072 // tp,
            intermediate_pad=pad,
        )


class TestPads:
    """Pads of gpt-oss, through the leaf (vllm#44679, #46201)."""

    @pytest.mark.parametrize("revision", ["v0.1.18", MAIN])
    def test_tp_1_skips_live_rows(self, revision: str, cache: Path) -> None:
        """Undivided, the pad is doubled twice and masks live rows; divided it never does."""
        calls = tuple(gpt_oss_layers())
        _, findings = traced(revision, GFX950, cache)
        found = [Code.PADS_TOO_LARGE in codes(findings, call) for call in calls]
        assert found == [True, False, False, False]


# --------------------------------------------------------------------------- every release

BF16_LEAF = deepseek("bf16", 64, entry="leaf")
REVISIONS: Final = ("v0.1.7", *NEVER_RELEASES)
GFX1250_CALLS: Final = (
    deepseek("bf16", 64),
    deepseek("mxfp4-w4a4", 64, gate_mode="interleave"),
    *(deepseek(scheme, 64) for scheme in ("fp8-block", "fp8-channel", "fp8-tensor-dynamic", "mxfp8")),
    deepseek("int8-token", 64),
)


class TestEveryRelease:
    """Releases from the first to main trace on every board that they know."""

    @pytest.mark.parametrize("board", [GFX942, MI308, GFX950], ids=str)
    @pytest.mark.parametrize("revision", REVISIONS)
    def test_bf16_is_launched(self, revision: str, board: Board, cache: Path) -> None:
        """An ordinary bf16 layer launches two products, all of them watched."""
        run, findings = traced(revision, board, cache)
        assert run.facts.watching
        trace = trace_of(run, BF16_LEAF)
        assert trace.status == "launched"
        assert len(trace.products) == 2
        assert not [finding for finding in findings if finding.fails and finding.call == BF16_LEAF]

    @pytest.mark.parametrize(("revision", "status"), [("v0.1.18", "raised"), (MAIN, "launched")])
    def test_gfx1250(self, revision: str, status: str, cache: Path) -> None:
        """Main serves bf16 on gfx1250; v0.1.18 knows the arch and raises on every call."""
        run, _ = traced(revision, GFX1250, cache)
        assert trace_of(run, GFX1250_CALLS[0]).status == status

    def test_gfx1250_serves_bf16_and_mxfp4_alone(self, cache: Path) -> None:
        """Main takes every scheme's activations for MXFP4 on gfx1250: bf16 survives, fp8 and int8 do not."""
        run, findings = traced(MAIN, GFX1250, cache)
        failing = {finding.call for finding in findings if finding.fails}
        works = [trace_of(run, call).status == "launched" and call not in failing for call in GFX1250_CALLS]
        assert works == [True, True, *[False] * 5]
        families = [{launch.family for launch in trace_of(run, call).products} for call in GFX1250_CALLS[:2]]
        assert families == [{"ck"}, {"grouped"}]

    @pytest.mark.parametrize("revision", ["v0.1.7", "v0.1.9"])
    def test_what_does_not_know_gfx1250_says_so(self, revision: str, cache: Path) -> None:
        """A release older than the arch is not traced on it, or launches nothing there."""
        statuses = {trace.status for trace in traces_of(revision, GFX1250, cache)}
        assert "launched" not in statuses


# --------------------------------------------------------------------------- shared experts

# DeepSeek V4's layer in eight partitions, its shared expert in tensors of its own, and V3's fused.
APART = Call(
    entry="fused_moe",
    scheme="mxfp4-w4a4",
    gate_mode="interleave",
    shared=1,
    shared_apart=True,
    experts=384,
    local_experts=384,
    topk=6,
    hidden=7168,
    intermediate=384,
    tokens=64,
)
FUSED = deepseek("fp8-block", 64, entry="leaf", shared=1)
SHARED_CALLS: Final = (APART, replace(APART, mask=True, local_experts=48), FUSED)


class TestSharedExperts:
    """Shared experts: fused behind the routed ones, or in tensors of their own (aiter/fhmoe.py)."""

    @pytest.mark.parametrize(
        ("revision", "launched"), [("v0.1.19.post2", True), ("v0.1.20.post1", False), (MAIN, True)]
    )
    def test_apart(self, revision: str, launched: bool, cache: Path) -> None:
        """gfx950 launches kernels for two kinds of weights, v0.1.20.post1 for other sizes than this only.

        Each refuses an expert mask, and each all of it on gfx942.
        """
        run, findings = traced(revision, GFX950, cache)
        trace = trace_of(run, APART)
        kernels = ["fhmoe.compile_mixed_fhmoe_gemm1", "fhmoe.compile_mixed_fhmoe_gemm2"]
        assert [launch.operator for launch in trace.products] == (kernels if launched else [])
        assert launched or "require the two-stage FlyDSL path" in str(trace.raised)
        assert not [finding for finding in findings if finding.fails and finding.call == APART]
        assert "do not yet support expert masks" in str(trace_of(run, SHARED_CALLS[1]).raised)
        assert trace_of(traced(revision, GFX942, cache)[0], APART).status == "refused"

    def test_apart_before_it_was_there(self, cache: Path) -> None:
        """A release whose call has no place for them is said to lack it."""
        raised = trace_of(traced("v0.1.18", GFX950, cache)[0], APART).raised
        assert raised is not None
        assert "takes no shared_expert_id" in raised.message

    @pytest.mark.parametrize("revision", REVISIONS)
    def test_fused(self, revision: str, cache: Path) -> None:
        """A fused shared expert is looked up as one expert and one choice more, in every release."""
        run, findings = traced(revision, GFX950, cache)
        trace = trace_of(run, FUSED)
        assert trace.asked is not None
        assert (trace.asked["expert"], trace.asked["topk"]) == (257, 9)
        assert not [finding for finding in findings if finding.fails and finding.call == FUSED]


# --------------------------------------------------------------------------- families.toml

# The releases that families.toml was read at: the oldest, and the newest two.
FAMILY_REVISIONS: Final = ("v0.1.7", "v0.1.20.post1", MAIN)
# What families.toml lists and none of these launches: pattern of family and cell -> why it is listed.
NEVER_LAUNCHED: Final = {
    "asm-1stage-blockscale gfx942/fp8-block/gelu/out": "it is shipped, and no dispatch asks for it",
    "asm-1stage-mxfp4 gfx950/mxfp4-w4a4/gelu/out": "it is shipped, and no dispatch asks for it",
    "ck-2stage gfx950/mxfp4-w4a4/swigluoai*/in": "the generator makes it, and CK-Tile is picked",
    "ck-2stage gfx1250/fp8-tensor-*": "the generator makes it, and quantising raises before",
    "flydsl gfx950/mxfp4-w4a16/swigluoai_uninterleave/out": "the kernels do, and CK-Tile is picked",
}


def test_families(cache: Path) -> None:
    """``families.toml`` and what releases launch agree, both ways, but for what is listed above."""
    runs = [
        traced(revision, board, cache)
        for revision in FAMILY_REVISIONS
        for board in (GFX942, MI308, GFX950, GFX1250)
        if traces_of(revision, board, cache)
    ]
    found = compare_families(runs)
    assert found.unlisted == frozenset()
    unexplained = {each for each in found.unseen if not any(fnmatch(each, p) for p in NEVER_LAUNCHED)}
    assert unexplained == set()
    assert all(fnmatch_any(found.unseen, pattern) for pattern in NEVER_LAUNCHED)


def fnmatch_any(names: frozenset[str], pattern: str) -> bool:
    """Say whether a pattern fits any name."""
    return any(fnmatch(name, pattern) for name in names)
