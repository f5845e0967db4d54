"""The committed pages about real releases: what each must name, and that the command makes them again.

What a page must name was found without the gate: public reports, and the releases' own sources.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiter_conformance.cli import cli
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.gate.page import LINES
from aiter_conformance.gate.pages import BEGIN, END, PAIRS, with_index
from aiter_conformance.runner import runnable

FOLDER = Path(__file__).parents[3] / "reports" / "gate"
MAIN = "main-20260822-e4048607"
# The exit code, and texts of which each must stand on the page, with blanks and line breaks taken as one.
PAGES: dict[str, tuple[int, list[str]]] = {
    "0.1.13..0.1.14": (
        1,
        [
            "new module:aiter/ops/flydsl/moe_common.py",
            "1 enum new: GateMode",
            "new parameter:fused_moe: gate_mode, swiglu_limit",
            "2 cells fixed: gfx942/int4-w4a16/silu/out, gfx950/mxfp4-w4a4/swigluoai_uninterleave/out",
            "regressed anchor:tuned-key-activation",
            "3 cells regressed: gfx942/{fp8-block,fp8-channel}/gelu/out",  # they get kernels for silu
            "tuned-lookup-never-matches on gfx942:304",
            "regressed dispatch:pads-mask-live-rows",  # vllm-project/vllm#44679
            "gfx950:256 gpt-oss-undivided",
        ],
    ),
    "0.1.14..0.1.15.post3": (
        1,
        [
            "lost tuned rows for gfx942 80 CUs: 5 rows of 5 shapes",
            "lost tuned rows for gfx950 256 CUs: 17 rows of 2 shapes",
            "==0.1.7 -> ==0.1.9.dev599",
            "gfx950/mxfp4-w4a4/gelu/out gfx950:256 masked-experts M=1024",  # a tuned row for silu
        ],
    ),
    "0.1.15.post3..0.1.16.post3": (
        1,
        [
            "per_1x32 fp4xfp4 Silu H3072 I384 E256 k8: 16 token buckets",  # ROCm/aiter#2191
            "new tuned rows for gfx942 304 CUs: 32 rows of 2 shapes",
            "fixed finding:tuned-ambiguous-arch",
            "==0.1.9.dev599 -> ==0.2.0",
        ],
    ),
    "0.1.16.post5..0.1.18": (
        1,
        [
            "fixed anchor:block-fp8-split-k-guard",  # ROCm/aiter#3997
            "fixed anchor:fp8-by-runtime-arch",  # ROCm/aiter#3807
            "fixed anchor:tuned-key-activation",
            "tuned-lookup-never-matches on gfx942:304",
            "new tuned rows for gfx1250 256 CUs: 84 rows",
            "default 0.0 (between splitk and gate_mode)",
            "lost tuned rows for gfx950 256 CUs where FlyDSL is not installed: 333 rows of 25 shapes",
        ],
    ),
    "0.1.18..0.1.19": (
        1,
        [
            "new parameter:fused_moe: beta, linear_beta",
            "new member:ActivationType: Situv2",
            "2 cells fixed: gfx950/{mxfp4-w4a16,mxfp4-w4a4}/situ/out",
            "4 cells: gfx1250/bf16/{silu,gelu}/{out,in}",  # the dispatch knows gfx1250 from here on
            "regressed dispatch:wrong-activation",  # SiTU on gfx942's int4 kernels is SiLU
            "kimi-k3 int4-w4a16 on gfx942:304",
        ],
    ),
    "0.1.19..0.1.19.post2": (
        1,
        [
            "regressed anchor:block-fp8-split-k-guard",  # ROCm/aiter#3997
            "explained by: ledger: block-fp8-split-k-single-tile (ROCm/aiter#3997)",
            "17 calls of models regressed: minimax-m2.5 fp8-block on gfx942:304",
            "regressed anchor:tuned-key-activation",
            "tuned-lookup-never-matches on gfx942:304",
            "new parameter:fused_moe: shared_expert_id, shared_w1, shared_w1_scale, shared_w2, "
            "shared_w2_scale",
            "34 cells fixed",  # CK has swiglu for all fp8 and bf16 schemes from here on
            "2 cells regressed: gfx950/{mxfp4-w4a16,mxfp4-w4a4}/situ/out",  # a tuned stage 2 cannot be made
            "==0.2.4 -> ==0.3.0",
        ],
    ),
    "0.1.19.post2..0.1.20.post1": (
        1,
        [
            "regressed dispatch:kernel-not-for-arch",  # gfx942 has no atomic addition of bf16 pairs
            "kimi-k3 int4-w4a16 on gfx942:304, gfx942:80",
            "==0.3.0 -> ==0.3.1",
            "new tuned rows for gfx950 256 CUs: 89 rows of 11 shapes",
        ],
    ),
    f"0.1.20.post1..{MAIN}": (
        0,
        [
            "new parameter:fused_moe: stage2_scatter",
            "fixed import:aiter.ops.triton.quant",
            "new tuned rows for gfx1250 256 CUs: 40 rows",
            "cells: 576 same",
        ],
    ),
}


def page(name: str) -> str:
    """Return a committed page."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_page_is_looked_at() -> None:
    """There is a page for each pair that pages are made of, and no other."""
    names = sorted(file.stem for file in FOLDER.glob("*.txt"))
    assert names == sorted(PAGES)
    assert sorted(f"{old}..{new}".replace("v", "") for old, new in PAIRS[:-1]) == names[:-1]


class TestIndex:
    """The table in the README."""

    def test_it_has_each_page_with_its_verdict(self) -> None:
        """A row for each page, linked, with the verdict and the regressions of its own second line."""
        rows = re.findall(
            r"^\| (\S+) -> (\S+) \| (PASS|FAIL) \| (\d+)(?: \((\d+) explained\))? \| \[(.+)\]\((.+)\) \|$",
            (FOLDER / "README.md").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        assert sorted(f"{old}..{new}" for old, new, *_ in rows) == sorted(PAGES)
        for old, new, verdict, number, explained, shown, link in rows:
            assert shown == link == f"{old}..{new}.txt"
            line = page(f"{old}..{new}").splitlines()[1]
            assert line.startswith(f"{verdict} ")
            failing = re.search(r"(\d+) regressions?\b", line)
            assert int(number) - int(explained or 0) == (int(failing[1]) if failing else 0)

    def test_no_place_for_it(self) -> None:
        """A README without the two lines is left alone; with them all else of it stays."""
        with pytest.raises(UsageError, match="must hold the lines"):
            with_index("# Pages\n", [])
        made = with_index(f"# Pages\n{BEGIN}old\n{END}more\n", [("a -> b", "PASS", "0", "[x](x)")])
        assert (made.startswith("# Pages\n"), made.endswith(f"{END}more\n"), "old" in made) == (
            True,
            True,
            False,
        )
        assert "| a -> b | PASS | 0 | [x](x) |" in made


@pytest.mark.parametrize("name", PAGES)
class TestPage:
    """One committed page."""

    def test_what_is_known_is_named(self, name: str) -> None:
        """The decision and every known change stand on it."""
        code, texts = PAGES[name]
        plain = " ".join(page(name).split())
        assert f"(exit {code})" in page(name).splitlines()[1]
        assert [text for text in texts if text not in plain] == []

    def test_it_is_short_and_names_no_machine(self, name: str) -> None:
        """At most 150 lines, no absolute path, and the command that makes it in the last line."""
        lines = page(name).splitlines()
        assert len(lines) <= LINES
        assert [line for line in lines if re.search(r"(?:^|[\s'\"(=:])/\w", line)] == []
        assert re.fullmatch(
            r"One cause in full: aiter-conformance gate run git:DIR@\S+ git:DIR@\S+ --only ID", lines[-1]
        )

    def test_the_command_makes_it_again(
        self,
        name: str,
        aiter_clone: str,
        tmp_path_factory: pytest.TempPathFactory,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """With a clone of AITER at hand, the command in the page's last line prints the page."""
        _, missing = runnable((Level.TRACE,))
        if missing:
            pytest.skip(missing[0])
        kept = tmp_path_factory.getbasetemp() / "gate-pages"  # what one page observed serves the next
        kept.mkdir(exist_ok=True)
        monkeypatch.delenv("AITER_GIT_DIR")
        old, new = re.findall(r"git:DIR@(\S+)", page(name).splitlines()[-1])
        words = ["gate", "run", f"git:{aiter_clone}@{old}", f"git:{aiter_clone}@{new}", "--root", str(kept)]
        result = CliRunner().invoke(cli, words, standalone_mode=False)
        made = result.stdout.replace(f"git:{aiter_clone}@", "git:DIR@")  # a page is for others
        assert (result.return_value, made) == (PAGES[name][0], page(name))
