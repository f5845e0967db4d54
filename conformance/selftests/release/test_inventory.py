"""The inventory: each kind of fault in a manifest or a code object is a finding; a good release has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiter_conformance.release import (
    Finding,
    FindingCode,
    Inventory,
    ObjectCount,
    open_release,
    take_inventory,
)
from aiter_conformance.release.inventory import parse_manifest
from aiter_conformance.release.samples import code_object, sample_files, write_tree

MANIFEST = "hsa/gfx942/fmoe/silu/fmoe_silu.csv"
STAGE1 = "hsa/gfx942/fmoe_2stages/stage1.csv"
OBJECT = "hsa/gfx942/fmoe/silu/one.co"
KERNEL = "_ZN5aiter9fmoe_siluE"
HEADER = b"knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n\n"
ROW = b"_ZN5aiter9fmoe_siluE,one.co,0,1,0,1,0,32,128\n"

Take = Callable[[dict[str, bytes]], Inventory]


@pytest.fixture
def take(tmp_path: Path) -> Take:
    """Return a function that takes the inventory of the good sample with some files replaced."""

    def taken(changes: dict[str, bytes]) -> Inventory:
        with open_release(str(write_tree(tmp_path / "tree", sample_files() | changes))) as release:
            return take_inventory(release)

    return taken


def _row(inventory: Inventory) -> bool:
    """Return whether the one row of `MANIFEST` is sound."""
    manifest = next(manifest for manifest in inventory.manifests if manifest.path == MANIFEST)
    (row,) = manifest.rows
    return row.sound


class TestTakeInventory:
    """`take_inventory`."""

    def test_a_good_release_has_no_finding(self, take: Take) -> None:
        """Each of the sample's four kernels is where its manifest says."""
        inventory = take({})
        assert inventory.findings == ()
        assert [(m.path, m.arch, len(m.rows)) for m in inventory.manifests] == [
            ("hsa/gfx942/fmoe/silu/fmoe_silu.csv", "gfx942", 1),
            ("hsa/gfx942/fmoe_2stages/stage1.csv", "gfx942", 1),
            ("hsa/gfx950/fmoe/silu/fmoe_silu.csv", "gfx950", 1),
            ("hsa/gfx950/fmoe_2stages/stage1.csv", "gfx950", 1),
        ]
        assert (inventory.row_count, inventory.sound_count) == (4, 4)
        assert inventory.objects == {"gfx942": ObjectCount(2, 2, 0), "gfx950": ObjectCount(2, 2, 0)}

    def test_a_row_carries_what_the_manifest_says(self, take: Take) -> None:
        """Kernel, object, tile and line are those of the file."""
        row = take({}).manifests[1].rows[0]
        assert (row.kernel, row.object_path) == (
            "_ZN5aiter11fmoe_stage1E",
            "hsa/gfx942/fmoe_2stages/stage1.co",
        )
        assert (row.tile, row.line, row.sound) == ({"tile_m": "16", "tile_n": "128"}, 2, True)

    def test_a_missing_object(self, take: Take) -> None:
        """A row whose file is not there is a finding at the row, and the row is not sound."""
        inventory = take({MANIFEST: HEADER + ROW.replace(b"one.co", b"two.co")})
        (finding,) = inventory.findings
        assert (finding.path, finding.line, finding.code) == (MANIFEST, 2, FindingCode.MISSING_OBJECT)
        assert KERNEL in finding.message
        assert "hsa/gfx942/fmoe/silu/two.co" in finding.message
        assert not _row(inventory)
        assert inventory.sound_count == 3

    def test_an_object_of_another_arch(self, take: Take) -> None:
        """A gfx950 object in gfx942's folder is a finding for the object and for the row that names it."""
        inventory = take({OBJECT: code_object("gfx950", [KERNEL])})
        assert [(f.path, f.line, f.code) for f in inventory.findings] == [
            (MANIFEST, 2, FindingCode.WRONG_ARCH),
            (OBJECT, 0, FindingCode.WRONG_ARCH),
        ]
        assert all("gfx950" in finding.message for finding in inventory.findings)
        assert not _row(inventory)

    def test_a_missing_symbol(self, take: Take) -> None:
        """An object without the kernel is a finding that says which kernels it does hold."""
        inventory = take({OBJECT: code_object("gfx942", ["another"])})
        (finding,) = inventory.findings
        assert (finding.path, finding.line, finding.code) == (MANIFEST, 2, FindingCode.SYMBOL_MISSING)
        assert "another" in finding.message
        assert not _row(inventory)

    @pytest.mark.parametrize("content", [b"", b"not an object", code_object("gfx942", [KERNEL])[:-8]])
    def test_an_unreadable_object(self, take: Take, content: bytes) -> None:
        """A damaged object is a finding for itself and for its row; the rest of the release is still read."""
        inventory = take({OBJECT: content})
        assert [(f.path, f.line, f.code) for f in inventory.findings] == [
            (MANIFEST, 2, FindingCode.UNREADABLE_OBJECT),
            (OBJECT, 0, FindingCode.UNREADABLE_OBJECT),
        ]
        assert not _row(inventory)
        assert inventory.sound_count == 3

    def test_an_orphan_is_counted_and_is_no_fault(self, take: Take) -> None:
        """An MoE object that no row names is counted; one of another kind of kernel is not an orphan."""
        other = code_object("gfx942", ["k"])
        inventory = take({"hsa/gfx942/fmoe/silu/spare.co": other, "hsa/gfx942/gemm/g.co": other})
        assert inventory.findings == ()
        assert inventory.objects["gfx942"] == ObjectCount(total=4, moe=3, orphans=1)

    def test_findings_of_manifests_are_in_the_inventory(self, take: Take) -> None:
        """What is wrong with a manifest itself is found too, in order of path."""
        inventory = take({MANIFEST: HEADER + ROW + ROW, STAGE1: b"tile_m,tile_n\n"})
        assert [(f.path, f.line, f.code) for f in inventory.findings] == [
            (MANIFEST, 3, FindingCode.DUPLICATE_ROW),
            (STAGE1, 1, FindingCode.MANIFEST_UNREADABLE),
        ]

    def test_progress_reaches_the_end(self, tmp_path: Path) -> None:
        """Progress is told, and its last word is that all is done."""
        seen: list[tuple[int, int]] = []
        with open_release(str(write_tree(tmp_path / "tree", sample_files()))) as release:
            take_inventory(release, lambda done, total: seen.append((done, total)))
        assert seen[-1] == (4, 4)

    def test_a_release_without_kernels(self, tmp_path: Path) -> None:
        """A release that ships no code objects has an empty inventory, and nothing is wrong with it."""
        files = {path: data for path, data in sample_files().items() if not path.startswith("hsa/")}
        with open_release(str(write_tree(tmp_path / "tree", files))) as release:
            assert take_inventory(release) == Inventory((), {}, ())


class TestParseManifest:
    """`parse_manifest`."""

    @pytest.mark.parametrize(
        ("content", "lines"),
        [
            (HEADER + ROW, [2]),
            (HEADER.replace(b"co_name", b"knl_file") + ROW, [2]),
            (b"// SPDX-License-Identifier: MIT\n" + HEADER + ROW, [3]),
            (b"# a comment\n\n" + HEADER + b"\n  \n# another\n" + ROW, [7]),
            (b"\xef\xbb\xbf" + HEADER + ROW, [2]),
            ((HEADER + ROW).replace(b"\n", b"\r\n"), [2]),
            (HEADER + ROW.rstrip(b"\n") + b" // a remark\n", [2]),
            (HEADER + ROW.rstrip(b"\n"), [2]),
            (HEADER.replace(b",", b", ") + ROW.replace(b",", b" ,"), [2]),
        ],
    )
    def test_spellings_of_one_manifest(self, content: bytes, lines: list[int]) -> None:
        """Both headers, comments, blank lines, a byte-order mark and CRLF give the same row."""
        manifest, findings = parse_manifest(MANIFEST, content)
        assert findings == []
        assert [row.line for row in manifest.rows] == lines
        (row,) = manifest.rows
        assert (row.kernel, row.object_path, row.tile["subGU_n"], row.sound) == (KERNEL, OBJECT, "128", True)

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            (b"_ZN5aiter9fmoe_siluE,one.co,0,1,0,1,0,32\n", "must have 9 cells"),
            (b"_ZN5aiter9fmoe_siluE,one.co,0,1,0,1,0,32,128,7\n", "must have 9 cells"),
            (b",one.co,0,1,0,1,0,32,128\n", "knl_name"),
            (b"two words,one.co,0,1,0,1,0,32,128\n", "knl_name"),
            (b"k,,0,1,0,1,0,32,128\n", "co_name"),
            (b"k,../one.co,0,1,0,1,0,32,128\n", "co_name"),
            (b"k,/one.co,0,1,0,1,0,32,128\n", "co_name"),
            (b"k,a\\one.co,0,1,0,1,0,32,128\n", "co_name"),
            (b"k,one.so,0,1,0,1,0,32,128\n", "co_name"),
            (b"k,one.co,0,1,0,1,0,32,wide\n", "subGU_n must be an integer"),
            (b"k,one.co,0,1,0,1,0,,128\n", "subGU_m must be an integer"),
        ],
    )
    def test_a_malformed_row(self, row: bytes, said: str) -> None:
        """A row that is not what the header says is a finding with its line, and the rows around it stay."""
        manifest, (finding,) = parse_manifest(MANIFEST, HEADER + row + ROW)
        assert (finding.path, finding.line, finding.code) == (MANIFEST, 2, FindingCode.MALFORMED_ROW)
        assert said in finding.message
        assert [found.line for found in manifest.rows] == [3]

    def test_a_duplicate_row(self) -> None:
        """The second row of a kernel is a finding that names the first; only the first is sound."""
        manifest, (finding,) = parse_manifest(MANIFEST, HEADER + ROW + ROW.replace(b"one.co", b"two.co"))
        assert (finding.line, finding.code) == (3, FindingCode.DUPLICATE_ROW)
        assert "line 2" in finding.message
        assert [(row.line, row.sound) for row in manifest.rows] == [(2, True), (3, False)]

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"// nothing else\n",
            b"\xff\xfe\x00k",
            HEADER.replace(b"knl_name", b"name") + ROW,
            HEADER.replace(b"co_name", b"object") + ROW,
            HEADER.replace(b"vskip", b"atm") + ROW,
            HEADER + b'"' + ROW,
            ROW,
        ],
    )
    def test_an_unreadable_manifest(self, content: bytes) -> None:
        """A file that is no manifest is one finding and no rows."""
        manifest, (finding,) = parse_manifest(MANIFEST, content)
        assert manifest.rows == ()
        assert (finding.path, finding.code) == (MANIFEST, FindingCode.MANIFEST_UNREADABLE)

    def test_another_path_is_an_error(self) -> None:
        """Only paths of MoE manifests are accepted: the arch comes from them."""
        with pytest.raises(ValueError, match="path must be"):
            parse_manifest("hsa/gfx942/gemm/gemm.csv", HEADER)


class TestFinding:
    """`Finding`."""

    def test_text_names_file_line_and_code(self) -> None:
        """A finding prints as one line that can be clicked; a whole file has no line."""
        assert str(Finding("a.csv", 3, FindingCode.MALFORMED_ROW, "wrong")) == "a.csv:3: malformed-row: wrong"
        assert str(Finding("a.co", 0, FindingCode.WRONG_ARCH, "wrong")) == "a.co: wrong-arch: wrong"
