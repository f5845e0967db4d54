"""``families.toml`` against runs, on traces made by hand."""

from __future__ import annotations

from dataclasses import replace

from aiter_conformance.trace.agreement import compare_families
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Code, Finding
from aiter_conformance.trace.record import Launch, Role, Status, Trace
from aiter_conformance.trace.run import Run
from aiter_conformance.trace.tracer import RuntimeFacts

BOARD = Board("gfx950", 256)
FACTS = RuntimeFacts("float8_e4m3fn", "int4", True, (), (), 1.0)
BF16 = Call(scheme="bf16")
EVERYTHING_UNSEEN = compare_families([]).unseen


def run(call: Call, *families: str, role: Role = Role.STAGE1) -> Run:
    """Return a run of one call that launched a product of each family."""
    launches = tuple(Launch(role=role, family=family, operator="made") for family in families)
    return Run(BOARD, FACTS, (Trace(board=str(BOARD), call=call, status=Status.LAUNCHED, launches=launches),))


class TestCompareFamilies:
    """``compare_families``."""

    def test_a_listed_family_is_seen(self) -> None:
        """CK is listed for bf16: once it is launched, that cell is seen, and no other."""
        found = compare_families([(run(BF16, "ck"), ())])
        assert found.unlisted == frozenset()
        assert EVERYTHING_UNSEEN - found.unseen == {"ck-2stage gfx950/bf16/silu/out"}

    def test_an_unlisted_family_is_found(self) -> None:
        """FlyDSL is not listed for bf16."""
        found = compare_families([(run(BF16, "flydsl"), ())])
        assert found.unlisted == {"flydsl gfx950/bf16/silu/out"}
        assert found.unseen == EVERYTHING_UNSEEN

    def test_what_is_wrong_need_not_be_listed(self) -> None:
        """A call that fails, or that another activation's row answered, says nothing of what to list."""
        for code in (Code.NO_KERNEL, Code.TUNED_FOR_OTHER):
            finding = Finding(code, str(BOARD), "made", "made", BF16)
            assert compare_families([(run(BF16, "flydsl"), (finding,))]).unlisted == frozenset()
            about_another = replace(finding, call=replace(BF16, tokens=1))
            assert compare_families([(run(BF16, "flydsl"), (about_another,))]).unlisted != frozenset()

    def test_stage_2_and_calls_that_no_leaf_makes_play_no_part(self) -> None:
        """A family is one of its stage 1; calls past the leaf, or that it refuses, are of no cell."""
        direct, refused = replace(BF16, entry="fused_moe"), replace(BF16, activation="relu2")
        for made in (run(BF16, "flydsl", role=Role.STAGE2), run(direct, "flydsl"), run(refused, "flydsl")):
            found = compare_families([(made, ())])
            assert (found.unlisted, found.unseen) == (frozenset(), EVERYTHING_UNSEEN)
