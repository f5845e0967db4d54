"""Releases from git and from this Python's own packages, and the order of versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.release import ReleaseKind, open_release, take_inventory, version_key
from aiter_conformance.release.git_files import tag_version
from aiter_conformance.release.samples import VERSION, sample_files, wheel_path, write_tree

WHEN = "2026-08-22T23:30:00+08:00"  # the 22nd in UTC as well


def _git(folder: Path, *arguments: str) -> str:
    """Run git in *folder*, with no configuration but this."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_COMMITTER_DATE": WHEN,
        "GIT_AUTHOR_DATE": WHEN,
    }
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository: the good sample tagged v0.1.20, v0.1.20.post1 and keep/this, and a commit more."""
    files = sample_files()
    del files["PKG-INFO"]  # not under version control
    tree = write_tree(tmp_path / "repository", files)
    _git(tree, "init", "--quiet")
    _git(tree, "add", ".")
    _git(tree, "commit", "--quiet", "-m", "first")
    for tag in ("v0.1.20", "v0.1.20.post1", "keep/this"):
        _git(tree, "tag", tag)
    write_tree(tree, {"aiter/new.py": b"# new\n"})
    _git(tree, "add", ".")
    _git(tree, "commit", "--quiet", "-m", "second")
    return tree


class TestGit:
    """``git:DIR@REVISION``."""

    def test_a_tag(self, repository: Path) -> None:
        """A commit has the newest of its version tags; its content is that of a tree with the same files."""
        with open_release(f"git:{repository}@v0.1.20") as release:
            assert (release.version, release.kind, release.label) == (
                "0.1.20.post1",
                ReleaseKind.GIT,
                "git@v0.1.20",
            )
            found = (release.identity, take_inventory(release))
            assert (
                release.files.read("csrc/include/aiter_enum.h") == sample_files()["csrc/include/aiter_enum.h"]
            )
        with open_release(str(write_tree(repository.parent / "plain", sample_files()))) as release:
            assert (release.identity, take_inventory(release)) == found

    def test_main(self, repository: Path) -> None:
        """A commit without a version tag is main at its date, and the work tree does not matter."""
        sha = _git(repository, "rev-parse", "HEAD")
        write_tree(repository, {"aiter/untracked.py": b"", "aiter/new.py": b"# changed\n"})
        with open_release(f"git:{repository}@HEAD") as release:
            assert release.version == f"main-20260822-{sha[:8]}"
            assert release.files.read("aiter/new.py") == b"# new\n"
            assert "aiter/untracked.py" not in release.files.paths

    def test_a_checkout_as_a_tree(self, repository: Path) -> None:
        """The folder of an unchanged checkout has the version of its commit; a changed one has none."""
        _git(repository, "checkout", "--quiet", "v0.1.20")
        with open_release(str(repository)) as release:
            assert (release.version, release.kind) == ("0.1.20.post1", ReleaseKind.TREE)
        write_tree(repository, {"aiter/fused_moe.py": b"# changed\n"})
        with open_release(str(repository)) as release:
            assert release.version.startswith("0+unknown.")

    def test_a_bare_repository(self, repository: Path) -> None:
        """A bare clone is read as a work tree is."""
        bare = repository.parent / "bare.git"
        _git(repository.parent, "clone", "--quiet", "--bare", str(repository), str(bare))
        with (
            open_release(f"git:{bare}@v0.1.20") as release,
            open_release(f"git:{repository}@v0.1.20") as other,
        ):
            assert release.identity == other.identity

    def test_reads_may_overlap(self, repository: Path) -> None:
        """A file read while a stream of files is open does not disturb the stream."""
        with open_release(f"git:{repository}@HEAD") as release:
            paths = list(release.files.paths)
            seen = {}
            for path, content in release.files.read_many(paths):
                assert release.files.read("aiter/new.py") == b"# new\n"
                seen[path] = content
            assert seen == {path: release.files.read(path) for path in paths}

    @pytest.mark.parametrize("revision", ["v9.9.9", "--help", "HEAD:aiter", "a b"])
    def test_an_unknown_revision(self, repository: Path, revision: str) -> None:
        """A revision that is no commit is a mistake in the command, and is never taken for an option."""
        with pytest.raises(UsageError, match="must name a commit") as caught:
            open_release(f"git:{repository}@{revision}")
        assert str(repository) not in str(caught.value)

    def test_a_tag_that_was_not_fetched(self, repository: Path) -> None:
        """The tags near it are named, and how a clone gets newer ones."""
        with pytest.raises(UsageError, match=r"v0\.1\.20\.post9.*tags near it: .*v0\.1\.20") as caught:
            open_release(f"git:{repository}@v0.1.20.post9")
        assert "`git fetch --tags`" in str(caught.value)

    def test_a_repository_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The folder is named as it was given, so that a slip can be seen."""
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError, match=r"must have a git repository as DIR \(got 'nowhere': "):
            open_release("git:nowhere@v1")

    @pytest.mark.parametrize("text", ["git:", "git:folder", "git:@v0.1.14", "git:folder@"])
    def test_an_incomplete_name(self, text: str) -> None:
        """Both the repository and the revision must be named."""
        with pytest.raises(UsageError, match=r"must be git:DIR@REVISION"):
            open_release(text)

    def test_not_a_repository(self, tmp_path: Path) -> None:
        """A folder that is no repository is a mistake in the command."""
        with pytest.raises(UsageError, match="git repository"):
            open_release(f"git:{tmp_path}@HEAD")

    def test_not_aiter(self, repository: Path) -> None:
        """A commit of something else is refused as a tree of it would be."""
        _git(repository, "rm", "-r", "--quiet", "aiter")
        _git(repository, "commit", "--quiet", "-m", "third")
        with pytest.raises(UsageError, match="git@HEAD must be AITER"):
            open_release(f"git:{repository}@HEAD")

    def test_a_missing_object(self, repository: Path) -> None:
        """An object that the repository lacks is an error with the file's name, not an empty file."""
        name = _git(repository, "rev-parse", "HEAD:aiter/new.py")
        (repository / ".git" / "objects" / name[:2] / name[2:]).unlink()
        with (
            open_release(f"git:{repository}@HEAD") as release,
            pytest.raises(InfrastructureError, match=r"aiter/new\.py .*missing"),
        ):
            release.files.read("aiter/new.py")

    def test_a_link(self, repository: Path) -> None:
        """A symbolic link in the commit is refused: what it leads to is not in the commit."""
        (repository / "aiter" / "link.py").symlink_to("/etc/passwd")
        _git(repository, "add", ".")
        _git(repository, "commit", "--quiet", "-m", "third")
        with pytest.raises(InfrastructureError, match=r"symbolic link 'aiter/link\.py'"):
            open_release(f"git:{repository}@HEAD")


class TestInstalled:
    """``installed``."""

    @pytest.fixture(autouse=True)
    def without_aiter(self) -> None:
        """Guard the meaning of these tests: aiter is not imported, before or by them."""
        assert "aiter" not in sys.modules

    def _install(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.syspath_prepend(str(folder))

    def test_it_is_found_and_not_imported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package on the path is read; importing it would have failed."""
        files = sample_files() | {"aiter/__init__.py": b"raise SystemExit('imported')\n"}
        self._install(
            monkeypatch, write_tree(tmp_path / "site", {wheel_path(p): data for p, data in files.items()})
        )
        with open_release("installed") as release:
            assert (release.version, release.kind, release.label) == (
                VERSION,
                ReleaseKind.INSTALLED,
                "installed",
            )
            assert take_inventory(release).sound_count == 4
        assert "aiter" not in sys.modules

    def test_nothing_is_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without the package the message says what to do."""
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(UsageError, match="no aiter is installed"):
            open_release("installed")

    def test_the_other_aiter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyPI's aiter in this Python is recognised."""
        self._install(
            monkeypatch, write_tree(tmp_path / "site", {"aiter/__init__.py": b"", "aiter/gather.py": b""})
        )
        with pytest.raises(UsageError, match="PyPI's 'aiter'"):
            open_release("installed")


class TestVersions:
    """`version_key` and `tag_version`."""

    def test_order(self) -> None:
        """Candidates, posts, local versions and main come in the order in which they follow each other."""
        expected = [
            "0+unknown.12345678",
            "0.1.7.post2.dev18",
            "0.1.7.post2",
            "0.1.9",
            "0.1.10rc1",
            "0.1.10",
            "0.1.10.post1",
            "0.1.17",
            "0.1.17+longctx",
            "0.1.19.post1",
            "0.1.19.post2",
            "0.1.20+rocm7.2",
            "main-20260801-ffffffff",
            "main-20260822-00000000",
        ]
        assert sorted(expected[1::2] + expected[::2], key=version_key) == expected

    def test_no_version(self) -> None:
        """Anything else is refused."""
        with pytest.raises(UsageError, match="PEP 440"):
            version_key("latest")

    @pytest.mark.parametrize(
        ("tag", "version"),
        [
            ("v0.1.14", "0.1.14"),
            ("v0.1.14-rc0", "0.1.14rc0"),
            ("v0.1.13.dev0", "0.1.13.dev0"),
            ("v0.1.17-longctx", "0.1.17+longctx"),
            ("v0.1.20.post1", "0.1.20.post1"),
            ("archive/2.4", None),
            ("vision", None),
            ("0.1.14", None),
            ("FAv3-0.0.0.1", None),
        ],
    )
    def test_tags(self, tag: str, version: str | None) -> None:
        """A version tag gives a PEP 440 version; other tags give none."""
        found = tag_version(tag)
        assert (None if found is None else str(found)) == version
