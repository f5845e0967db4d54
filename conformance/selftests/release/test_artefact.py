"""Opening releases: good ones have a version and an identity, all else is refused in clear words."""

from __future__ import annotations

import hashlib
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from aiter_conformance.errors import HarnessError, InfrastructureError, UsageError
from aiter_conformance.release import ReleaseKind, files, open_release, take_inventory
from aiter_conformance.release.artefact import identity_of
from aiter_conformance.release.samples import VERSION, sample_files, wheel_path, write_tree, write_wheel


def _add_member(wheel: Path, name: str, content: bytes = b"", mode: int = 0) -> Path:
    """Add a member with exactly *name* to *wheel*, whatever a well-behaved writer would make of it."""
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    info.external_attr = mode << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(info, content)
    return wheel


def _listing(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


class TestOpenRelease:
    """`open_release` on good artefacts."""

    def test_a_wheel(self, tmp_path: Path) -> None:
        """A wheel has the version of its metadata, and canonical paths without ``aiter_meta``."""
        with open_release(str(write_wheel(tmp_path, sample_files()))) as release:
            assert (release.version, release.kind) == (VERSION, ReleaseKind.WHEEL)
            assert release.label == f"amd_aiter-{VERSION}-py3-none-any.whl"
            assert "hsa/gfx942/fmoe/silu/fmoe_silu.csv" in release.files.paths
            assert release.files.read("aiter/__init__.py") == b""

    def test_three_layouts_are_one_release(self, tmp_path: Path) -> None:
        """A wheel, the tree it unpacks to and the checkout it came from have one identity and inventory."""
        wheel = write_wheel(tmp_path, sample_files())
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "unpacked")
        checkout = write_tree(tmp_path / "checkout", sample_files())
        found = []
        for path in (wheel, tmp_path / "unpacked", checkout):
            with open_release(str(path)) as release:
                found.append((release.version, release.identity, take_inventory(release)))
        assert found[1] == found[0]
        assert found[2] == found[0]

    def test_a_tree_that_does_not_say_its_version(self, tmp_path: Path) -> None:
        """A checkout that was never built is called by its identity, and sorts before every release."""
        files = sample_files()
        del files["PKG-INFO"]
        with open_release(str(write_tree(tmp_path / "tree", files))) as release:
            assert release.version == f"0+unknown.{release.identity[7:15]}"

    def test_a_tree_with_a_generated_version(self, tmp_path: Path) -> None:
        """The file that setuptools-scm writes is believed, in normal form."""
        files = sample_files() | {"aiter/_version.py": b"__version__ = version = '0.1.14-rc0'\n"}
        del files["PKG-INFO"]
        with open_release(str(write_tree(tmp_path / "tree", files))) as release:
            assert release.version == "0.1.14rc0"

    def test_a_site_packages_folder(self, tmp_path: Path) -> None:
        """Other packages beside AITER are not looked at."""
        folder = write_tree(tmp_path / "site", {wheel_path(p): data for p, data in sample_files().items()})
        write_tree(folder, {"numpy/hsa/x.py": b"", "numpy-2.0.dist-info/METADATA": b"Name: numpy\n"})
        with open_release(str(folder)) as release:
            assert release.version == VERSION
            assert not [path for path in release.files.paths if "numpy" in path]

    def test_a_checkout_with_a_left_over_copy(self, tmp_path: Path) -> None:
        """``aiter_meta`` in a checkout is what building a wheel leaves behind; the sources count."""
        tree = write_tree(tmp_path / "tree", sample_files() | {"aiter_meta/hsa/gfx942/fmoe/x.co": b"stale"})
        with open_release(str(tree)) as release:
            assert "hsa/gfx942/fmoe/x.co" not in release.files.paths

    def test_nothing_is_written(self, tmp_path: Path) -> None:
        """Reading leaves the folder of a wheel and a tree as they were."""
        wheel = write_wheel(tmp_path, sample_files())
        tree = write_tree(tmp_path / "tree", sample_files())
        before = _listing(tmp_path)
        for path in (wheel, tree):
            with open_release(str(path)) as release:
                take_inventory(release)
                assert release.identity.startswith("sha256:")
        assert _listing(tmp_path) == before


class TestIdentity:
    """`Release.identity`."""

    def test_it_is_the_hash_that_is_documented(self, tmp_path: Path) -> None:
        """The identity can be computed with sha256sum alone, as the docstring says."""
        sample = sample_files()
        lines = b"".join(
            f"{path}\0{hashlib.sha256(sample[path]).hexdigest()}\n".encode()
            for path in sorted(sample)
            if path != "PKG-INFO"
        )
        with open_release(str(write_tree(tmp_path / "tree", sample))) as release:
            assert release.identity == "sha256:" + hashlib.sha256(lines).hexdigest()

    @pytest.mark.parametrize(
        "path",
        ["aiter/__init__.py", "csrc/include/aiter_enum.h", "hsa/gfx950/fmoe/silu/one.co", "aiter/new.py"],
    )
    def test_it_changes_with_content(self, tmp_path: Path, path: str) -> None:
        """Any other byte in the package, the sources or the code objects is another release."""
        with open_release(str(write_tree(tmp_path / "a", sample_files()))) as release:
            before = release.identity
        with open_release(str(write_tree(tmp_path / "b", sample_files() | {path: b"# other\n"}))) as release:
            assert release.identity != before

    @pytest.mark.parametrize(
        "path",
        [
            "aiter/__pycache__/mla.cpython-311.pyc",
            "aiter/jit/module_moe_asm.so",
            "aiter/jit/build/module_moe_asm/x.cu",
            "3rdparty/composable_kernel/README.md",
            "README.md",
        ],
    )
    def test_use_and_packaging_do_not_change_it(self, tmp_path: Path, path: str) -> None:
        """What running AITER adds to its folder, and what is not AITER's own, leaves the identity alone."""
        tree = write_tree(tmp_path / "tree", sample_files())
        with open_release(str(tree)) as release:
            before = release.identity
        write_tree(tree, {path: b"something"})
        with open_release(str(tree)) as release:
            assert identity_of(release.files) == before


class TestRefusals:
    """`open_release` on everything else: which error, and what it says."""

    def test_a_path_that_is_not_there(self, tmp_path: Path) -> None:
        """A missing path is a mistake in the command."""
        with pytest.raises(UsageError, match="no such file or folder"):
            open_release(str(tmp_path / "nothing.whl"))

    def test_not_a_zip(self, tmp_path: Path) -> None:
        """A text file with a wheel's name is damaged."""
        wheel = tmp_path / f"amd_aiter-{VERSION}-py3-none-any.whl"
        wheel.write_text("<html>404</html>")
        with pytest.raises(InfrastructureError, match="must be a wheel"):
            open_release(str(wheel))

    @pytest.mark.parametrize("kept", [0, 1, 100, 0.5, -1])
    def test_a_truncated_wheel(self, tmp_path: Path, kept: float) -> None:
        """A download that was cut short, anywhere, is refused, and the advice is to download again."""
        wheel = write_wheel(tmp_path, sample_files())
        data = wheel.read_bytes()
        wheel.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
        with pytest.raises(InfrastructureError, match="download it again"):
            open_release(str(wheel))

    def test_a_corrupt_member(self, tmp_path: Path) -> None:
        """A byte changed in a member's content is found by its checksum, and the member is named."""
        path = tmp_path / f"amd_aiter-{VERSION}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sample_files().items():
                archive.writestr(wheel_path(name), content)
        data = path.read_bytes()
        assert data.count(b"SEPARATED = ") == 1
        path.write_bytes(data.replace(b"SEPARATED = ", b"SEPARATED =_"))
        with (
            open_release(str(path)) as release,
            pytest.raises(InfrastructureError, match=r"aiter/ops/flydsl/moe_common.py"),
        ):
            _ = release.identity

    @pytest.mark.parametrize(
        "name",
        [
            "../outside.py",
            "aiter/../../outside.py",
            "/etc/cron.d/x",
            "aiter\\..\\..\\outside.py",
            "C:/outside.py",
            "aiter/..",
        ],
    )
    def test_a_member_outside_the_archive(self, tmp_path: Path, name: str) -> None:
        """A path that would lead outside is refused, even though nothing is ever extracted."""
        wheel = _add_member(write_wheel(tmp_path, sample_files()), name)
        before = _listing(tmp_path)
        with pytest.raises(InfrastructureError, match="relative paths inside"):
            open_release(str(wheel))
        assert _listing(tmp_path) == before

    def test_a_symbolic_link_in_a_wheel(self, tmp_path: Path) -> None:
        """A wheel has no links."""
        wheel = _add_member(
            write_wheel(tmp_path, sample_files()), "aiter/link", b"/etc", stat.S_IFLNK | 0o777
        )
        with pytest.raises(InfrastructureError, match="symbolic links"):
            open_release(str(wheel))

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_a_member_twice(self, tmp_path: Path) -> None:
        """Two members of one name are two truths."""
        wheel = _add_member(write_wheel(tmp_path, sample_files()), "aiter/__init__.py", b"other")
        with pytest.raises(InfrastructureError, match="twice"):
            open_release(str(wheel))

    def test_two_members_for_one_file(self, tmp_path: Path) -> None:
        """The same file in both layouts is two truths as well."""
        wheel = _add_member(write_wheel(tmp_path, sample_files()), "csrc/include/aiter_enum.h", b"other")
        with pytest.raises(InfrastructureError, match="once"):
            open_release(str(wheel))

    @pytest.mark.parametrize(
        ("limit", "value", "said"),
        [
            ("MAX_MEMBERS", 3, "at most 3 members"),
            ("MAX_TOTAL_BYTES", 1000, "unpack to at most 1000 bytes"),
            ("MAX_FILE_BYTES", 100, "at most 100 bytes"),
        ],
    )
    def test_absurd_sizes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, said: str
    ) -> None:
        """Numbers and sizes beyond the limits are refused before anything is unpacked."""
        wheel = write_wheel(tmp_path, sample_files())
        monkeypatch.setattr(files, limit, value)
        with pytest.raises(InfrastructureError, match=said):
            _ = open_release(str(wheel)).identity

    def test_pypis_aiter(self, tmp_path: Path) -> None:
        """The other package of that name gets a sentence of its own, from a wheel and from a tree."""
        other = {"aiter/__init__.py": b"", "aiter/gather.py": b"", "aiter/map_aiter.py": b""}
        wheel = tmp_path / "aiter-0.13.20191203-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in other:
                archive.writestr(name, b"")
        for path in (wheel, write_tree(tmp_path / "tree", other)):
            with pytest.raises(UsageError, match=r"is PyPI's 'aiter', .* AMD's is 'amd-aiter'"):
                open_release(str(path))

    def test_a_tree_without_aiter(self, tmp_path: Path) -> None:
        """A folder of something else is refused, and the message says what is missing."""
        with pytest.raises(UsageError, match=r"must be AITER.*aiter/__init__\.py"):
            open_release(str(write_tree(tmp_path / "tree", {"README.md": b"", "src/x.py": b""})))

    def test_a_package_without_kernels(self, tmp_path: Path) -> None:
        """The package alone, without sources and code objects, is not a release."""
        files = {p: data for p, data in sample_files().items() if p.startswith("aiter/")}
        with pytest.raises(UsageError, match="csrc/ and hsa/"):
            open_release(str(write_tree(tmp_path / "tree", files)))

    def test_a_wheel_of_another_project(self, tmp_path: Path) -> None:
        """A wheel with AITER's layout under another name is refused by name."""
        wheel = write_wheel(tmp_path, sample_files())
        other = wheel.rename(tmp_path / f"other-{VERSION}-py3-none-any.whl")
        with pytest.raises(UsageError, match="must be of amd-aiter"):
            open_release(str(other))

    def test_a_renamed_wheel(self, tmp_path: Path) -> None:
        """Without its own name the version cannot be checked; another version in it is a contradiction."""
        wheel = write_wheel(tmp_path, sample_files())
        with pytest.raises(UsageError, match="give it its own name back"):
            open_release(str(shutil.copy(wheel, tmp_path / "download.whl")))
        with pytest.raises(InfrastructureError, match=r"must agree \(got 0\.2 and 0\.1\.99"):
            open_release(str(shutil.copy(wheel, tmp_path / "amd_aiter-0.2-py3-none-any.whl")))

    def test_a_wheel_without_metadata(self, tmp_path: Path) -> None:
        """A file name alone is not believed."""
        files = sample_files()
        del files["PKG-INFO"]
        with pytest.raises(InfrastructureError, match="METADATA"):
            open_release(str(write_wheel(tmp_path, files)))

    @pytest.mark.parametrize(
        ("metadata", "said"),
        [
            (b"Name: numpy\nVersion: 1\n", "must be that of amd-aiter"),
            (b"Name: amd-aiter\nVersion: latest\n", "PEP 440"),
            (b"", "must be that of amd-aiter"),
        ],
    )
    def test_metadata_of_something_else(self, tmp_path: Path, metadata: bytes, said: str) -> None:
        """A tree's metadata must be AITER's and give a version."""
        with pytest.raises(InfrastructureError, match=said):
            open_release(str(write_tree(tmp_path / "tree", sample_files() | {"PKG-INFO": metadata})))

    def test_links_in_a_tree(self, tmp_path: Path) -> None:
        """A link to a file inside the tree is that file; one that leads out, or to a folder, is refused."""
        tree = write_tree(tmp_path / "tree", sample_files())
        (tree / "aiter" / "alias.py").symlink_to("fused_moe.py")
        with open_release(str(tree)) as release:
            assert release.files.read("aiter/alias.py") == sample_files()["aiter/fused_moe.py"]
        (tree / "aiter" / "alias.py").unlink()
        (tmp_path / "secret").write_text("secret")
        for name, target in (("out.py", tmp_path / "secret"), ("folder", tree / "csrc")):
            link = tree / "aiter" / name
            link.symlink_to(target)
            with pytest.raises(InfrastructureError, match="may link only to files inside"):
                open_release(str(tree))
            link.unlink()

    def test_errors_carry_no_machine_path(self, tmp_path: Path) -> None:
        """What an error says about an artefact names the artefact, not the folder it lies in."""
        wheel = tmp_path / f"amd_aiter-{VERSION}-py3-none-any.whl"
        wheel.write_bytes(b"PK\x03\x04")
        with pytest.raises(HarnessError) as caught:
            open_release(str(wheel))
        assert str(tmp_path) not in str(caught.value)
