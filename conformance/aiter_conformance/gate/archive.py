"""Archives whose bytes follow from what is in them, and a reader that takes nothing else for one.

An archive is an uncompressed tar file: no larger when read than on the disk. It is read in memory and nothing
is unpacked; what `pack` would not write byte for byte is refused, so that no byte can be another unseen.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# The most that is read: a comparison of two releases takes a tenth of it.
LIMIT: Final = 128 * 2**20
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.+@-]*(?:/[A-Za-z0-9][\w.+@-]*)*")


class RefusedError(Exception):
    """An archive is not what it should be; the message says in what."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of files, the same for the same files whenever and wherever it is made.

    Args:
        files: Content by name; names are relative, with slashes.

    Raises:
        ValueError: A name could leave the folder that somebody unpacks the archive in, or is too long.
    """
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            if not _NAME.fullmatch(name):
                msg = f"a name in an archive must be plain and relative (got {name!r})"
                raise ValueError(msg)
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    return target.getvalue()


def unpack(raw: bytes) -> dict[str, bytes]:
    """Return the files of an archive.

    Raises:
        RefusedError: It is none that `pack` writes.
    """
    if len(raw) > LIMIT:
        msg = f"a bundle must be at most {LIMIT} bytes (got {len(raw)})"
        raise RefusedError(msg)
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            for member in archive:
                if member.type != tarfile.REGTYPE or not _NAME.fullmatch(member.name):
                    msg = f"a bundle must hold plain files with plain names (got {member.name[:80]!r})"
                    raise RefusedError(msg)
                if member.name in files:
                    msg = f"a bundle must hold each file once (got {member.name!r} twice)"
                    raise RefusedError(msg)
                content = archive.extractfile(member)
                files[member.name] = b"" if content is None else content.read()
        packed = pack(files)
    except (tarfile.TarError, ValueError, OSError, OverflowError) as error:
        msg = f"a bundle must be an archive that `bundle make` wrote ({error})"
        raise RefusedError(msg) from error
    if packed != raw:
        msg = "a bundle must be byte for byte what `bundle make` writes (it is altered between its files)"
        raise RefusedError(msg)
    return files


def read(path: Path) -> bytes:
    """Return the content of a file, but no more than one byte beyond `LIMIT`.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(LIMIT + 1)
