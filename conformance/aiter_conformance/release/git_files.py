"""The files of one commit of an AITER git repository, read without a checkout."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from packaging.version import InvalidVersion, Version

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.release.files import MAX_FILE_BYTES, canonical_path

_LINK_MODE = "120000"
# Requests are written this many at a time, so that git works while we do; small enough for any pipe.
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a repository.

    Attributes:
        sha: Its full object name.
        date: Committer's date in UTC, ``YYYYMMDD``.
        tags: The tags that point at it, sorted.
    """

    sha: str
    date: str
    tags: tuple[str, ...]


def find_commit(repository: Path, revision: str) -> Commit:
    """Return the commit that *revision* names in *repository* (a work tree or a bare repository).

    Raises:
        UsageError: There is no such repository or revision.
    """
    try:
        tags = _git(repository, "tag", "--list").split()
    except InfrastructureError as error:
        msg = f"git:DIR@REVISION must have a git repository as DIR (got {str(repository)!r}: {error})"
        raise UsageError(msg) from error
    try:
        resolved = _git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
    except InfrastructureError as error:
        near = ", ".join(get_close_matches(revision, tags, n=4)) or "none"
        msg = (
            f"git:DIR@REVISION must name a commit of the git repository DIR (got the revision {revision!r}; "
            f"tags near it: {near}); `git fetch --tags` in DIR brings tags that are newer than the clone"
        )
        raise UsageError(msg) from error
    sha = resolved.strip()
    date = _git(repository, "log", "-1", "--format=%cd", "--date=format-local:%Y%m%d", sha).strip()
    own = _git(repository, "tag", "--points-at", sha).split()
    return Commit(sha, date, tuple(sorted(own)))


def commit_version(commit: Commit) -> str:
    """Return a commit's version: that of its newest version tag, else ``main-<date>-<sha8>``."""
    versions = [version for tag in commit.tags if (version := tag_version(tag)) is not None]
    return str(max(versions)) if versions else f"main-{commit.date}-{commit.sha[:8]}"


def tag_version(tag: str) -> Version | None:
    """Return the version that a tag names, or None if it names none.

    ``v0.1.14-rc0`` is 0.1.14rc0; a suffix that PEP 440 does not know is a local version, so that
    ``v0.1.17-longctx`` is 0.1.17+longctx. A tag of another form, one without the ``v`` included, names none.
    """
    matched = re.fullmatch(r"v(\d[^/-]*)(?:-([a-z0-9.]+))?", tag)
    if matched is None:
        return None
    base, suffix = matched.groups()
    for text in (base,) if suffix is None else (f"{base}-{suffix}", f"{base}+{suffix}"):
        try:
            return Version(text)
        except InvalidVersion:
            continue
    return None


class GitFiles:
    """The files of one commit; the objects come from one ``git cat-file`` process, which `close` ends."""

    def __init__(self, repository: Path, commit: Commit) -> None:
        """List the commit's tree.

        Raises:
            InfrastructureError: git fails, or a file of the release is a symbolic link.
        """
        self._repository = repository
        self._objects: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        listing = _git(repository, "ls-tree", "-r", "-z", "--full-tree", commit.sha)
        for entry in filter(None, listing.split("\0")):
            attributes, _, path = entry.partition("\t")
            mode, kind, name = attributes.split()
            canonical = None if path.startswith("aiter_meta/") else canonical_path(path)
            if canonical is None or kind != "blob":
                continue
            if mode == _LINK_MODE:
                msg = (
                    f"a release must hold plain files only (got the symbolic link {path!r} in "
                    f"{commit.sha[:8]})"
                )
                raise InfrastructureError(msg)
            self._objects[canonical] = name
        self.paths = tuple(sorted(self._objects))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        ((_, content),) = self.read_many([path])
        return content

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """See `Files.read_many`."""
        wanted = [(path, self._objects[path]) for path in paths]
        for start in range(0, len(wanted), _BATCH):
            # A batch is read whole before any of it is given out: the caller may read other files in between.
            yield from self._read_batch(wanted[start : start + _BATCH])

    def _read_batch(self, batch: list[tuple[str, str]]) -> list[tuple[str, bytes]]:
        process = self._started()
        assert process.stdin is not None  # noqa: S101 -- both are pipes
        assert process.stdout is not None  # noqa: S101
        contents: list[tuple[str, bytes]] = []
        try:
            process.stdin.write("".join(f"{name}\n" for _, name in batch).encode())
            process.stdin.flush()
            for path, name in batch:
                answer = process.stdout.readline().split()
                if len(answer) != 3 or answer[1] != b"blob" or int(answer[2]) > MAX_FILE_BYTES:
                    said = b" ".join(answer).decode(errors="replace") or "nothing"
                    raise self._broken(path, name, said)
                size = int(answer[2])
                content = process.stdout.read(size + 1)
                if len(content) != size + 1:
                    raise self._broken(path, name, f"{len(content)} of {size} bytes")
                contents.append((path, content[:-1]))
        except OSError as error:
            raise self._broken(batch[0][0], batch[0][1], error.strerror or "an error") from error
        return contents

    def _broken(self, path: str, name: str, said: str) -> InfrastructureError:
        self.close()
        msg = f"git must give the object {name} of {path} (it said {said}); fetch the repository again"
        return InfrastructureError(msg)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                ["git", "-C", str(self._repository), "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        return self._process

    def close(self) -> None:
        """See `Files.close`."""
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._process = None


def _git(repository: Path, *arguments: str) -> str:
    """Run one git command in *repository* and return what it prints.

    Raises:
        InfrastructureError: There is no git, or it fails; the message is git's own, without the repository's
            path.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, check=False, env=_environment()
        )
    except OSError as error:
        msg = f"git must be installed to read git:DIR@REVISION (got {error.strerror})"
        raise InfrastructureError(msg) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        text = said[0].replace(str(repository), "DIR") if said else f"exit code {done.returncode}"
        raise InfrastructureError(f"git {arguments[0]}: {text}")
    return done.stdout.decode(errors="surrogateescape")


def _environment() -> Mapping[str, str]:
    """Return an environment in which git reads DIR, asks and fetches nothing, and speaks English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "TZ": "UTC"}
