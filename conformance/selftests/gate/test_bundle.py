"""Bundles: the same bytes for the same sides, and nothing altered, missing or extra is taken for one."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from aiter_conformance import documents
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.gate import archive, bundle
from aiter_conformance.gate.archive import RefusedError, pack, unpack
from aiter_conformance.gate.classes import FAILING
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.gate.side import Side
from aiter_conformance.release.samples import write_tree, write_wheel

Files = dict[str, bytes]
MOE = "aiter/fused_moe.py"
NAMES = sorted([*("ledger.toml", "report.json", "page.txt", "statement.json", "statement.sha256")])


@pytest.fixture(scope="module")
def sides(
    good_side: Side, side: Callable[[Mapping[str, bytes], str], Side], release_files: Files
) -> tuple[Side, Side]:
    """The good release, and one without the split-k guard."""
    unguarded = release_files | {MOE: release_files[MOE].replace(b" and k_batch >= 2", b"")}
    return good_side, side(unguarded, "0.1.18.post1")


@pytest.fixture(scope="module")
def report(sides: tuple[Side, Side]) -> Report:
    """The comparison of the two."""
    return compare(*sides, labels=("old", "new"), subject="impl@0.1.0", ledger=(), fail_on=FAILING)


@pytest.fixture(scope="module")
def made(sides: tuple[Side, Side], report: Report) -> bytes:
    """Their bundle, with an empty ledger."""
    return bundle.make(*sides, report, ledger="")


def resealed(files: Files, **statement: object) -> bytes:
    """Return a bundle of files whose statement was made anew to fit them, with some of its keys replaced."""
    data = json.loads(files["statement.json"])
    data["files"] = [
        {"path": path, "size": len(content), "digest": bundle.digest(content)}
        for path, content in sorted(files.items())
        if not path.startswith("statement.")
    ]
    text = documents.render(data | statement).encode()
    own = {"statement.json": text, "statement.sha256": f"{bundle.digest(text)}\n".encode()}
    return pack(files | own)


class TestMake:
    """`bundle.make`."""

    def test_the_same_bytes(self, sides: tuple[Side, Side], report: Report, made: bytes) -> None:
        """A second time the same bytes come out."""
        assert bundle.make(*sides, report, ledger="") == made

    def test_what_is_in_it(self, sides: tuple[Side, Side], made: bytes) -> None:
        """Ledger, report, page, statement, and of each side its items and every record."""
        files = unpack(made)
        assert sorted(name for name in files if "/" not in name) == NAMES
        for name, side in zip(("old", "new"), sides, strict=True):
            assert sum(path.startswith(f"{name}/") for path in files) == 1 + len(side.records)

    def test_the_statement(self, sides: tuple[Side, Side], made: bytes) -> None:
        """It names harness, releases by hash, environment, question and decision."""
        statement = documents.parse(unpack(made)["statement.json"].decode(), schema="bundle", source="x")
        releases = [{k: v for k, v in r.items() if k != "label"} for r in statement["releases"]]
        assert [ReleaseId(**release) for release in releases] == [side.release for side in sides]
        assert statement["environment"] == [side.environment for side in sides]
        assert statement["decision"] == {
            "exit_code": 1,
            "failing": ["regressed anchor:block-fp8-split-k-guard"],
            "not_run": [],
        }


class TestVerify:
    """`bundle.verify`."""

    def test_a_sound_bundle(self, made: bytes, report: Report) -> None:
        """The decision is made again, and it is the same report."""
        verified = bundle.verify(made)
        assert (verified.report, verified.same_harness) == (report, True)

    def test_one_byte_anywhere(self, made: bytes) -> None:
        """Whatever byte is another, of a file, of the statement or of the archive's own, it is refused."""
        chosen = random.Random(0)  # noqa: S311 -- which bytes are tried, the same in every run
        places = {*range(512), len(made) - 1, *(chosen.randrange(len(made)) for _ in range(150))}
        places |= {made.index(text) + 3 for text in (b"statement.json", b"statement.sha256", b'"decision"')}
        taken = []
        for place in sorted(places):
            altered = bytearray(made)
            altered[place] ^= 1 << (place % 8)
            try:
                bundle.verify(bytes(altered))
            except RefusedError:
                continue
            taken.append(place)
        assert taken == []

    @pytest.mark.parametrize("length", [0, 1, 511, 512, 10240, -1, -512])
    def test_cut_short_or_longer(self, made: bytes, length: int) -> None:
        """A part of a bundle is none, and neither is a bundle with something behind it."""
        with pytest.raises(RefusedError):
            bundle.verify(made[:length])
        with pytest.raises(RefusedError, match="byte for byte"):
            bundle.verify(made + b"\0" * 512)

    @pytest.mark.parametrize("name", ["ledger.toml", "report.json", "page.txt", "old/items.json"])
    def test_a_file_that_is_altered_or_missing(self, made: bytes, name: str) -> None:
        """The message names it."""
        files = unpack(made)
        with pytest.raises(RefusedError, match=f"{name} must be the file that the statement lists"):
            bundle.verify(pack(files | {name: files[name] + b" "}))
        with pytest.raises(RefusedError, match=f"missing: {name}"):
            bundle.verify(pack({path: content for path, content in files.items() if path != name}))

    @pytest.mark.parametrize("name", ["statement.json", "statement.sha256"])
    def test_no_statement(self, made: bytes, name: str) -> None:
        """Without its statement it is none."""
        files = {path: content for path, content in unpack(made).items() if path != name}
        with pytest.raises(RefusedError, match=f"must hold {name}"):
            bundle.verify(pack(files))

    def test_a_file_more(self, made: bytes) -> None:
        """The message names it."""
        with pytest.raises(RefusedError, match=r"not in the statement: old/more\.json"):
            bundle.verify(pack(unpack(made) | {"old/more.json": b"{}"}))

    def test_a_decision_that_does_not_follow(self, made: bytes) -> None:
        """A bundle that is sealed anew around another decision is refused: it does not follow."""
        decision = {"exit_code": 0, "failing": [], "not_run": []}
        with pytest.raises(RefusedError, match="the decision must follow"):
            bundle.verify(resealed(unpack(made), decision=decision))

    def test_sides_that_lead_elsewhere(self, made: bytes) -> None:
        """A side that is replaced by the other one, sealed anew, does not give that decision."""
        files = unpack(made)
        with pytest.raises(RefusedError, match="the decision must follow"):
            bundle.verify(resealed(files | {"new/items.json": files["old/items.json"]}))

    def test_another_report(self, made: bytes) -> None:
        """The report must be what the sides give, word for word, where this very harness made it."""
        files = unpack(made)
        other = files["report.json"].replace(b"k_batch", b"k-batch").replace(b"splitk", b"split_k")
        assert other != files["report.json"]
        with pytest.raises(RefusedError, match=r"report\.json must be what this harness makes"):
            bundle.verify(resealed(files | {"report.json": other}))

    def test_another_harness(self, made: bytes) -> None:
        """A bundle of another harness is sound as long as the decision is the same, and it is said."""
        harness = {"version": "0.0.9", "commit": None, "digest": "sha256:" + "0" * 64}
        assert bundle.verify(resealed(unpack(made), harness=harness)).same_harness is False

    @pytest.mark.parametrize(
        "content", [b"{", b"[]", b"{}", b'{"label": "x", "items": [{"kind": "x"}]}', b"\xff"]
    )
    def test_what_cannot_be_read(self, made: bytes, content: bytes) -> None:
        """Whatever stands in a file that the statement lists, it is refused and nothing is raised besides."""
        for name in ("old/items.json", "ledger.toml"):
            with pytest.raises(RefusedError):
                bundle.verify(resealed(unpack(made) | {name: content + b" = 1"}))


def tar(members: list[tuple[tarfile.TarInfo, bytes]], kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return an archive of members as they are given."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=kind) as made:
        for member, content in members:
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return target.getvalue()


class TestUnpack:
    """`archive.unpack` and `archive.pack`."""

    @pytest.mark.parametrize(
        "name", ["/etc/x", "../x", "a/../../x", "a//b", "./a", "a/", ".hidden", "a\\b", "a b"]
    )
    def test_names_that_lead_elsewhere(self, name: str) -> None:
        """No name that could leave the folder of whoever unpacks it is read or written."""
        with pytest.raises(RefusedError, match="plain names"):
            unpack(tar([(tarfile.TarInfo(name), b"x")]))
        with pytest.raises(ValueError, match="plain and relative"):
            pack({name: b"x"})

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
    def test_what_is_no_file(self, kind: bytes) -> None:
        """Links, folders and devices are refused."""
        member = tarfile.TarInfo("a")
        member.type, member.linkname = kind, "ledger.toml"
        with pytest.raises(RefusedError, match="plain files"):
            unpack(tar([(member, b"")]))

    def test_twice_the_same_name(self) -> None:
        """Which of the two is meant would depend on the reader."""
        with pytest.raises(RefusedError, match="once"):
            unpack(tar([(tarfile.TarInfo("a"), b"x"), (tarfile.TarInfo("a"), b"y")]))

    def test_other_bytes_for_the_same_files(self) -> None:
        """Times, owners, other orders and other kinds of tar are refused."""
        old = tarfile.TarInfo("a")
        old.mtime = 7
        for raw in (
            tar([(old, b"x")]),
            tar([(tarfile.TarInfo("b"), b"x"), (tarfile.TarInfo("a"), b"y")]),
            tar([(tarfile.TarInfo("a"), b"x")], tarfile.GNU_FORMAT),
        ):
            with pytest.raises(RefusedError, match="byte for byte"):
                unpack(raw)

    def test_what_is_too_large(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """More than the limit is neither read from the disk nor taken apart."""
        monkeypatch.setattr(archive, "LIMIT", 1000)
        (tmp_path / "big").write_bytes(bytes(5000))
        raw = archive.read(tmp_path / "big")
        assert len(raw) == 1001
        with pytest.raises(RefusedError, match="at most 1000 bytes"):
            unpack(raw)

    def test_a_member_that_claims_to_be_larger(self) -> None:
        """A header that promises gigabytes gets none."""
        raw = bytearray(pack({"a": b"x"}))
        raw[124:136] = b"77777777777\0"
        raw[148:156] = b"        "
        raw[148:156] = f"{sum(raw[:512]):06o}\0 ".encode()
        with pytest.raises(RefusedError):
            unpack(bytes(raw))


class TestCommand:
    """``bundle make`` and ``bundle verify``."""

    @pytest.fixture
    def run(
        self, invoke: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., tuple[int, str, str]]:
        """Run ``bundle`` in an empty folder."""
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        return partial(invoke, "bundle")

    def test_there_and_back(
        self, run: Callable[..., tuple[int, str, str]], tmp_path: Path, release_files: Files
    ) -> None:
        """What make keeps, verify takes: with the hash that make printed, and not with another."""
        old = write_wheel(tmp_path, release_files, "0.1.18")
        files = release_files | {MOE: release_files[MOE].replace(b" and k_batch >= 2", b"")}
        new = write_tree(tmp_path / "new", files)
        levels = ("--level", "declared", "--level", "inventory")
        code, out, _ = run("make", old, new, *levels, "--board", "gfx942", "--output", "b.tar", "--json")
        told = json.loads(out)
        assert (code, told["exit_code"]) == (1, 1)
        content = Path("b.tar").read_bytes()
        assert str(tmp_path).encode() not in content
        assert run("verify", "b.tar", "--digest", told["digest"])[:1] == (0,)
        assert run("verify", "b.tar", "--require-pass")[0] == 1
        code, out, _ = run("verify", "b.tar", "--digest", "sha256:" + "0" * 64)
        assert (code, out.startswith("REFUSED: its hash must be")) == (1, True)
        Path("b.tar").write_bytes(content[:-1] + b"x")
        code, out, _ = run("verify", "b.tar")
        assert (code, out.startswith("REFUSED: a bundle must be byte for byte")) == (1, True)
        assert json.loads(run("verify", "b.tar", "--json")[1])["sound"] is False

    def test_wrong_usage(self, run: Callable[..., tuple[int, str, str]]) -> None:
        """No such file, no output: code 2."""
        assert run("verify", "nowhere.tar")[0] == 2
        assert run("make", "a", "b")[0] == 2
