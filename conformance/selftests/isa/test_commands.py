"""``isa run`` and ``isa disasm``: what they print, what they refuse, and their exit codes."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance.cli.isa_run import choose_cases, describe_variant
from aiter_conformance.errors import UsageError
from aiter_conformance.isa import judge, launch, toy
from aiter_conformance.isa.machine import ENDLESS, FaultKind, KernelFaultError
from aiter_conformance.isa.toy import Shape
from aiter_conformance.isa.variant import read_variant

STAGE1 = "fmoe_stage1_bf16_pertokenFp8_g1u1_16x64_6tg_pf2.co"
SMALLEST = f"gfx942/fmoe_2stages/{STAGE1}"
BOTH_STAGES = "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x512.co"
# Hidden sizes that are an odd multiple of 256 are beyond it: all columns from 256 on are wrong.
ODD = "fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256.co"
ODD_PATH = f"hsa/gfx942/fmoe/silu/{ODD}"

# What `invoke` of the folder above gives has code, out and err.
Invoke = Callable[..., Any]


class TestChooseCases:
    """choose_cases."""

    @pytest.mark.parametrize("file", [STAGE1, BOTH_STAGES])
    def test_all(self, file: str) -> None:
        """Without a text it is every case of the sweep."""
        kind = read_variant("gfx942", file)
        assert choose_cases(kind, None, False) == judge.cases(kind)

    def test_by_name(self) -> None:
        """A name is one case, with the activation that it has in the sweep."""
        kind = read_variant("gfx942", STAGE1)
        for case in judge.cases(kind):
            assert choose_cases(kind, case.name, False) == (case,)

    def test_sizes(self) -> None:
        """Sizes are one case; what is left out has its default, the intermediate one slice of the kernel."""
        kind = read_variant("gfx942", STAGE1)
        given = "tokens=5,hidden=1024,ksplit=1,seed=3"
        shape = Shape(tokens=5, experts=4, topk=2, hidden=1024, intermediate=64, seed=3, groups=3, ksplit=1)
        assert choose_cases(kind, given, False) == (judge.Case("as given", shape, gelu=False),)
        [gelu] = choose_cases(kind, "intermediate=192", True)
        assert (gelu.gelu, gelu.shape) == (True, Shape(intermediate=192))

    @pytest.mark.parametrize("text", ["experts=4096,tokens=4096,topk=4096", "hidden=4096,ksplit=4", "topk=4"])
    def test_the_largest(self, text: str) -> None:
        """The limits themselves are allowed."""
        assert len(choose_cases(read_variant("gfx942", STAGE1), text, False)) == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "least",
                "--shape must be one of 'few', 'full, gelu', 'more', 'deep', 'K split in 2', "
                "'K split in 4, gelu', 'odd', or sizes such as tokens=12 (got 'least')",
            ),
            *(
                (
                    text,
                    "--shape must be NAME=NUMBER of tokens, experts, topk, hidden, intermediate, seed, "
                    f"groups, ksplit (got {part!r})",
                )
                for text, part in [
                    ("tokens=3,rows=2", "rows=2"),
                    ("tokens=3,", ""),
                    ("tokens=-3", "tokens=-3"),
                    ("tokens=\N{SUPERSCRIPT TWO}", "tokens=\N{SUPERSCRIPT TWO}"),
                    ("tokens=", "tokens="),
                ]
            ),
            ("hidden=192", "hidden must be a positive multiple of 128 (got 192)"),
            ("hidden=0", "hidden must be a positive multiple of 128 (got 0)"),
            ("intermediate=96", "intermediate must be a positive multiple of 64 (got 96)"),
            ("tokens=0", "tokens must be a positive multiple of 1 (got 0)"),
            ("topk=0", "topk must be a positive multiple of 1 (got 0)"),
            (
                "hidden=512,ksplit=2",
                "hidden must be a multiple of 1024 with ksplit=2, "
                "as AITER divides K in parts of 256 alone (got 512)",
            ),
            ("groups=0", "groups must be a positive multiple of 1 (got 0)"),
            *(
                (text, f"topk must be at most experts, experts and tokens 4096, ksplit 4 (got {text})")
                for text in ("topk=5", "experts=4097", "tokens=4097", "ksplit=5")
            ),
        ],
    )
    def test_refused(self, text: str, message: str) -> None:
        """What there is not, or does not fit, is refused with what was expected and what came."""
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            choose_cases(read_variant("gfx942", STAGE1), text, False)

    @pytest.mark.parametrize(
        ("file", "text", "gelu", "message"),
        [
            (STAGE1, "few", True, "--gelu must come with sizes: a case has its own activation (got 'few')"),
            (STAGE1, None, True, "--gelu must come with sizes: a case has its own activation (got none)"),
            (
                BOTH_STAGES,
                "tokens=3",
                True,
                "--gelu must be asked of a stage-1 object (got one of both stages)",
            ),
            (
                BOTH_STAGES,
                "ksplit=1",
                False,
                "ksplit must be asked of a stage-1 object (got one of both stages)",
            ),
        ],
    )
    def test_asked_of_who_cannot(self, file: str, text: str | None, gelu: bool, message: str) -> None:
        """What a kernel or a case cannot choose is refused: judged by it, a right kernel would be wrong."""
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            choose_cases(read_variant("gfx942", file), text, gelu)


class TestDescribeVariant:
    """describe_variant."""

    @pytest.mark.parametrize(
        ("arch", "file", "words"),
        [
            ("gfx942", STAGE1, "gfx942, stage 1, fp8 gate and up, tile 16 x 64, bfloat16"),
            (
                "gfx950",
                "fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128.co",
                "gfx950, both stages, mxfp4 gate and up, tile 16 x 128, tokens not sorted by the host, "
                "bfloat16",
            ),
            (
                "gfx942",
                "fmoe_fp16_pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x128.co",
                "gfx942, both stages, fp8 gate and up, tile 32 x 128, router weight before the activation, "
                "persistent, float16",
            ),
            (
                "gfx942",
                "fmoe_bf16_pertokenInt8_g1u0_vs_silu_1tg_32x256.co",
                "gfx942, both stages, int8 without gate, tile 32 x 256, bfloat16",
            ),
        ],
    )
    def test_words(self, arch: str, file: str, words: str) -> None:
        """What a name says, and nothing of what it does not."""
        assert describe_variant(read_variant(arch, file)) == words


def _off(line: str) -> tuple[str, ...]:
    """The numbers of the sentence that says where an output is wrong."""
    number = r"(-?[\d.e+-]+)"
    found = re.fullmatch(
        rf"  {number} of {number} elements (?:is|are) off by more than 0\.2 of the row's root mean square, "
        rf"in rows? {number}(?: to {number})? of {number} "
        rf"and columns? {number}(?: to {number})? of {number}; "
        rf"(?:the first|it) is \[{number}, {number}\], which must be {number} \(got {number}\)",
        line,
    )
    assert found is not None, line
    return found.groups()


@pytest.mark.usefixtures("disassembler", "fast_core")
class TestRun:
    """``isa run``."""

    @pytest.fixture
    def run(self, invoke: Invoke, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
        """Run ``isa run`` in this checkout, so that compiled code is found, on a terminal of 140 columns."""
        monkeypatch.setenv("COLUMNS", "140")
        return partial(invoke, "isa", "run", "--root", cache_dir.parents[1])

    @pytest.fixture
    def spoil(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], None]], None]:
        """Let every launch end with an output that a function has changed."""
        real = launch.run

        def spoil(change: Callable[[Any], None]) -> None:
            def run(*given: Any, **more: Any) -> launch.Result:
                ran = real(*given, **more)
                change(ran.outputs["O"])
                return ran

            monkeypatch.setattr(launch, "run", run)

        return spoil

    def _again(self, out: str) -> list[str]:
        """The words after ``isa run`` in the line that repeats a wrong case."""
        [line] = [line for line in out.splitlines() if line.startswith("  again: ")]
        words = shlex.split(line.removeprefix("  again: "))
        assert words[:3] == ["aiter-conformance", "isa", "run"]
        return words[3:]

    def _said(self, out: str, case: str) -> tuple[str, str]:
        """The two lines of a wrong case: which limit it passed, and where it is off."""
        lines = out.splitlines()
        [first] = [i for i, line in enumerate(lines) if line.startswith(f"{case}: ")]
        return lines[first], lines[first + 1]

    def test_right(self, run: Invoke, wheel: Path) -> None:
        """A right case: code 0, the object, what it computes, and its row; no case that was not asked for."""
        code, out, err = run(wheel, SMALLEST, "--shape", "few")
        path, kind, blank, header, _, first, second = out.splitlines()
        assert (code, err, path, blank) == (0, "", f"hsa/{SMALLEST}", "")
        assert kind == "gfx942, stage 1, fp8 gate and up, tile 16 x 64, bfloat16"
        assert re.split("  +", header)[:3] == ["case", "shape", "result"]
        assert re.split("  +", first)[:3] == ["few", "tokens=3 experts=7 topk=2 hidden=512", "right"]
        assert second.split() == ["intermediate=64", "groups=1"]

    def test_every_case(self, run: Invoke, wheel: Path) -> None:
        """Without --shape each case of the sweep has a row."""
        code, out, _ = run(wheel, SMALLEST)
        names = [case.name for case in judge.cases(read_variant("gfx942", STAGE1))]
        rows = [re.split("  +", line) for line in out.splitlines()]
        assert code == 0
        assert [row[0] for row in rows if row[2:3] == ["right"]] == names

    def test_wrong(self, run: Invoke, wheel: Path) -> None:
        """A wrong one: code 1, how many elements are off and where, and what the first must be."""
        code, out, _ = run(wheel, ODD_PATH, "--shape", "odd")
        [row] = [line for line in out.splitlines() if line.startswith("odd  ")]
        assert (code, re.split("  +", row)[2]) == (1, "WRONG")
        over, line = self._said(out, "odd")
        assert re.fullmatch(
            r"odd: error of the whole [\d.]+ \(limit 0\.008\), of the worst row [\d.]+ \(limit 0\.05\), "
            r"of the worst column [\d.]+ \(limit 0\.15\)",
            over,
        )
        count, total, *where, must, got = _off(line)
        assert 3 * 512 / 2 < int(count) <= 3 * 512
        assert (int(total), where) == (3 * 768, ["0", "2", "3", "256", "767", "768", "0", "256"])
        kind = read_variant("gfx942", ODD)
        shape = Shape(tokens=3, experts=2, topk=1, hidden=768, intermediate=256, groups=1)
        expected = toy.problem(kind, shape).expected[0, 256]
        assert (must, abs(float(got) - expected) > 0.2) == (f"{expected:.5g}", True)

    def test_wrong_again(self, run: Invoke, wheel: Path, tmp_path: Path) -> None:
        """The line under a wrong case gives the same, from a folder with a space and with a seed."""
        release = tmp_path / "two words" / wheel.name
        release.parent.mkdir()
        release.symlink_to(wheel)
        shape = "tokens=2,experts=2,topk=1,hidden=768,seed=5"
        code, out, _ = run(release, ODD_PATH, "--shape", shape)
        again = self._again(out)
        assert (code, again[:2]) == (1, [str(release), ODD_PATH])
        assert run(*again)[:2] == (code, out)

    def test_named_case_again(self, run: Invoke, wheel: Path) -> None:
        """A case that was named is repeated by its sizes, with the same elements off."""
        _, out, _ = run(wheel, ODD_PATH, "--shape", "odd")
        code, again, _ = run(*self._again(out))
        there, here = (next(x for x in t.splitlines() if "elements are off" in x) for t in (out, again))
        assert (code, _off(here)) == (1, _off(there))

    def test_gelu_again(self, run: Invoke, wheel: Path, spoil: Callable[..., None]) -> None:
        """GELU, where it was asked for, decides what an element must be, and is in the line too."""
        spoil(lambda output: output.reshape(-1).__setitem__(0, 1000))
        asked = (wheel, SMALLEST, "--shape", "tokens=2")
        _, silu, _ = run(*asked)
        code, gelu, _ = run(*asked, "--gelu")
        assert (code, self._again(gelu)) == (1, [*self._again(silu), "--gelu"])
        assert run(*self._again(gelu)).out == gelu
        _, line = self._said(gelu, "as given")
        kind = replace(read_variant("gfx942", STAGE1), gelu=True)
        must = toy.problem(kind, Shape(tokens=2, intermediate=64)).expected[0, 0, 0]
        assert _off(line)[0] == "1"
        assert _off(line)[-2:] == (f"{must:.5g}", "1000")

    def test_exactly_what_is_off(self, run: Invoke, wheel: Path, spoil: Callable[..., None]) -> None:
        """Two elements of a right output are changed, and these two are told; rows are (token, expert)."""

        def change(output: Any) -> None:
            rows = output.reshape(-1, 64)
            rows[1, 5] = rows[4, 3] = 1000

        spoil(change)
        code, out, _ = run(wheel, SMALLEST, "--shape", "few")
        _, line = self._said(out, "few")
        shape = Shape(tokens=3, experts=7, topk=2, hidden=512, intermediate=64, groups=1)
        expected = toy.problem(read_variant("gfx942", STAGE1), shape).expected[0, 1, 5]
        place = ("1", "4", "6", "3", "5", "64", "1", "5")
        assert (code, _off(line)) == (1, ("2", "384", *place, f"{expected:.5g}", "1000"))

    def test_nan_is_off(self, run: Invoke, wheel: Path, spoil: Callable[..., None]) -> None:
        """An element that is no number is off, and a row without an error says so with a dash."""
        spoil(lambda output: output.reshape(-1).__setitem__(7, np.nan))
        code, out, _ = run(wheel, SMALLEST, "--shape", "few")
        assert code == 1
        assert re.search(r"WRONG +- +- +- ", out)
        over, where = self._said(out, "few")
        assert over == "few: the output has a NaN"
        assert where.startswith("  1 of 384 elements is off by more than 0.2 of the row's root mean square, ")
        assert ", in row 0 of 6 and column 7 of 64; it is [0, 7], which must be " in where
        assert where.endswith(" (got nan)")

    def test_many_that_are_little_off(self, run: Invoke, wheel: Path, spoil: Callable[..., None]) -> None:
        """Where no element stands out, that is said: each is off by a tenth of its row's root mean square."""

        def change(output: Any) -> None:
            rows = output.reshape(-1, 64)
            size = np.sqrt((rows.astype(np.float64) ** 2).mean(1, keepdims=True))
            rows[:] = (rows + size / 10).astype(output.dtype)

        spoil(change)
        code, out, _ = run(wheel, SMALLEST, "--shape", "few")
        over, where = self._said(out, "few")
        assert code == 1
        assert re.fullmatch(
            r"few: error of the whole 0\.1 \(limit 0\.008\), of the worst row 0\.1 \(limit 0\.05\)", over
        )
        assert re.fullmatch(
            r"  no element alone is off by more than 0\.2 of its row's root mean square; "
            r"the worst row is [0-5] of 6, the worst column \d+ of 64",
            where,
        )

    def test_one_column_that_is_little_off(
        self, run: Invoke, wheel: Path, spoil: Callable[..., None]
    ) -> None:
        """Where the worst column alone is over its limit, that limit alone is named, and the column."""

        def change(output: Any) -> None:
            rows = output.reshape(-1, 64)
            size = np.sqrt((rows.astype(np.float64) ** 2).mean(1))
            rows[:, 9] = (rows[:, 9] + 0.18 * size).astype(output.dtype)

        spoil(change)
        code, out, _ = run(wheel, SMALLEST, "--shape", "tokens=3,topk=1,seed=1")
        assert code == 1
        over, where = self._said(out, "as given")
        assert re.fullmatch(
            r"as given: error of the whole 0\.0\d+ \(limit 0\.008\), "
            r"of the worst column 0\.1\d \(limit 0\.15\)",
            over,
        )
        assert where.endswith("the worst column 9 of 64")

    def test_limits_of_split_k(self, run: Invoke, wheel: Path, spoil: Callable[..., None]) -> None:
        """Partial sums in float32 are held to their own limit."""
        spoil(lambda output: output.reshape(-1).__imul__(1.001))
        code, out, _ = run(wheel, SMALLEST, "--shape", "K split in 2")
        assert (code, self._said(out, "K split in 2")[0].count("(limit 1e-05)")) == (1, 3)

    def test_does_not_end(self, run: Invoke, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel that ends in no case: so in each row of the table, said once below, and no address."""
        monkeypatch.setattr(judge, "BUDGET", 64)
        code, out, _ = run(wheel, ODD_PATH)
        assert (code, out.count("DOES NOT END")) == (1, 5)
        assert ("WRONG" in out, "0x0 " in out, out.count("again: ")) == (False, False, 1)
        [line] = [line for line in out.splitlines() if line.startswith(ENDLESS)]
        assert re.search(r"\(got 64 instructions of a wave, at pc 0x[1-9a-f]\w* '.+', work-group", line)

    def test_fault(self, run: Invoke, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel that does what it must not is wrong, and what it did stands in the place of elements."""
        place: dict[str, Any] = {
            "text": "s_nop 0",
            "group": (0, 0, 0),
            "wave": 1,
            "lane": -1,
            "near": "nothing is near",
        }
        fault = KernelFaultError(FaultKind.DESCRIPTOR, pc=8, address=0, **place)

        def run_into_it(*_: Any, **__: Any) -> None:
            raise fault

        monkeypatch.setattr(launch, "run", run_into_it)
        code, out, _ = run(wheel, SMALLEST, "--shape", "few")
        assert (code, f"few: {fault}" in out.splitlines()) == (1, True)
        assert self._again(out)[1] == f"hsa/{SMALLEST}"

    def test_scaled_to_another_code(self, run: Invoke, wheel: Path) -> None:
        """An object that is right for another scale is right, and that is said."""
        code, out, _ = run(wheel, f"gfx950/fmoe/silu/{ODD}", "--shape", "few")
        said = "few: right for an intermediate scaled to 240, not to the largest"
        assert (code, out.splitlines()[-1]) == (0, said)

    @pytest.mark.parametrize(
        ("arch", "asked", "code"),
        [
            ("gfx942", (SMALLEST, "--shape", "few"), 0),
            ("gfx942", (ODD_PATH, "--shape", "odd"), 1),
        ],
    )
    def test_json(self, run: Invoke, wheel: Path, arch: str, asked: tuple[str, ...], code: int) -> None:
        """The document alone, with the same code: path, arch, and what each case gave."""
        ended = run(wheel, *asked, "--json")
        found = json.loads(ended.out)
        assert (ended.code, found["arch"]) == (code, arch)
        assert found["path"] == f"hsa/{asked[0].removeprefix('hsa/')}"
        [seen] = found["observations"]
        assert (seen["case"], seen["right"], seen["fault"]) == (asked[2], code == 0, None)
        assert (seen["error"] < judge.LIMIT) is (code == 0)

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            (
                ["nothing.co"],
                "error: 'nothing.co' must be part of a code object's path in {name} (none has it)",
            ),
            (
                [STAGE1],
                f"error: '{STAGE1}' must be one object of {{name}} (got 2: hsa/gfx942/fmoe_2stages/{STAGE1}, "
                f"hsa/gfx950/fmoe_2stages/{STAGE1})",
            ),
            ([SMALLEST, "--shape", "hidden=1"], "error: hidden must be a positive multiple of 128 (got 1)"),
        ],
        ids=["none", "several", "sizes"],
    )
    def test_wrong_usage(self, run: Invoke, wheel: Path, asked: list[str], said: str) -> None:
        """No such object, several, or no such sizes: code 2, one sentence, and nothing else."""
        assert run(wheel, *asked) == (2, "", said.format(name=wheel.name) + "\n")

    def test_no_such_release(self, run: Invoke, tmp_path: Path) -> None:
        """A release that is not there: code 2, and what one must be."""
        code, out, err = run(tmp_path / "nothing.whl", SMALLEST)
        assert (code, out, err.startswith("error: a release must be ")) == (2, "", True)


@pytest.mark.usefixtures("disassembler")
class TestDisasm:
    """``isa disasm``."""

    KERNEL = "_ZN5aiter47fmoe_stage1_bf16_pertokenFp8_g1u1_16x64_6tg_pf2E"
    CODE = 0x1A00  # where .text lies in the file; it is loaded at 0x2a00

    @pytest.fixture
    def object_file(self, wheel: Path, tmp_path: Path) -> Path:
        """A shipped object, as a file of its own."""
        path = tmp_path / STAGE1
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(f"aiter_meta/hsa/{SMALLEST}"))
        return path

    def _overwrite(self, file: Path, offset: int, word: int) -> None:
        content = bytearray(file.read_bytes())
        content[self.CODE + offset : self.CODE + offset + 4] = word.to_bytes(4, "little")
        file.write_bytes(bytes(content))

    def test_all_modelled(self, invoke: Invoke, object_file: Path) -> None:
        """A shipped object: code 0, its kernel and arguments as the metadata has them, every instruction."""
        code, out, err = invoke("isa", "disasm", object_file)
        lines = out.splitlines()
        assert (code, err, "NOT MODELLED" in out) == (0, "", False)
        assert lines[0] == f"{STAGE1}: gfx942, 1138 instructions"
        assert lines[1] == (
            f"kernel {self.KERNEL}: starts at pc 0x2a00, LDS 4352 bytes, scratch 0 bytes a lane, "
            "kernarg segment 368 bytes"
        )
        arguments = [line.split() for line in lines[2:76]]
        assert arguments[0] == ["0x000", "8", "global_buffer", "O"]
        assert ["0x090", "4", "by_value", "dim"] in arguments
        assert arguments[-1] == ["0x16c", "4", "by_value", "pad"]
        assert len(lines[76:]) == 1138
        assert lines[-1].split() == ["0x4308", "bf810000", "s_endpgm"]
        first = int.from_bytes(object_file.read_bytes()[self.CODE :][:4], "little")
        assert lines[76].split()[:2] == ["0x2a00", f"{first:08x}"]
        assert "  0x42f4  dd348008 00082b06           global_atomic_add_f32 v6, v43, s[8:9] offset:8" in lines

    @pytest.mark.parametrize(
        ("word", "text", "why"),
        [
            (0xFFFFFFFF, "", "the word is no instruction of gfx942"),
            (
                0x7E005300,
                "v_sin_f32_e32 v0, v0",
                "cannot emulate 'v_sin_f32_e32 v0, v0' on gfx942: no such instruction is modelled",
            ),
        ],
        ids=["no instruction", "unmodelled"],
    )
    def test_not_modelled(self, invoke: Invoke, object_file: Path, word: int, text: str, why: str) -> None:
        """Another word before the last: code 1, and its line alone is marked, with the reason."""
        self._overwrite(object_file, 0x4304 - 0x2A00, word)
        code, out, err = invoke("isa", "disasm", object_file)
        assert (code, err.splitlines()[0]) == (1, "1 instructions are not modelled by the emulator")
        marked = [line for line in out.splitlines() if "NOT MODELLED" in line]
        assert marked == [f"  0x4304  {word:08x}{' ' * 20}{text}    ; NOT MODELLED: {why}"]
        code, out, _ = invoke("isa", "disasm", object_file, "--json")
        unknown = [line for line in json.loads(out)["instructions"] if line["unknown"] is not None]
        assert (code, unknown) == (1, [{"pc": 0x4304, "text": text, "unknown": why}])

    def test_json(self, invoke: Invoke, object_file: Path) -> None:
        """The document has the kernel with its arguments, and every instruction; none is unknown."""
        code, out, _ = invoke("isa", "disasm", object_file, "--json")
        found = json.loads(out)
        assert (code, found["arch"], len(found["instructions"])) == (0, "gfx942", 1138)
        [kernel] = found["kernels"]
        assert (kernel["name"], kernel["entry"], len(kernel["arguments"])) == (self.KERNEL, 0x2A00, 74)
        assert kernel["arguments"][0] == {"name": "O", "offset": 0, "size": 8, "kind": "global_buffer"}
        assert found["instructions"][-1] == {"pc": 0x4308, "text": "s_endpgm", "unknown": None}
        assert {line["unknown"] for line in found["instructions"]} == {None}

    def test_no_object(self, invoke: Invoke, tmp_path: Path) -> None:
        """A file that is no code object is code 3, one that is not there 2."""
        path = tmp_path / "text.co"
        path.write_text("no object", encoding="utf-8")
        code, out, err = invoke("isa", "disasm", path)
        assert (code, out, err.startswith("error: code object must be a readable ELF file")) == (3, "", True)
        code, out, err = invoke("isa", "disasm", tmp_path / "nothing.co")
        assert (code, out, "does not exist" in err) == (2, "", True)
