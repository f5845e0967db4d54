"""What a release ships for fused MoE: the rows of its kernel manifests, each checked against its code object.

A manifest is a CSV file under ``hsa/<arch>/fmoe/`` (one-stage kernels) or ``hsa/<arch>/fmoe_2stages/`` (first
stages); each row names a kernel symbol, the code object beside the manifest that holds it, and the tile it
computes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from aiter_conformance.release.artefact import Release
from aiter_conformance.release.codeobject import CodeObject, CodeObjectError, parse_code_object
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.tables import TableError, read_table

MANIFEST_PATH = re.compile(r"hsa/(?P<arch>gfx[0-9a-z]+)/fmoe(?:_2stages)?/(?:.+/)?[^/]+\.csv")
_OBJECT_PATH = re.compile(r"hsa/(?P<arch>gfx[0-9a-z]+)/.*\.co")
_KERNEL_COLUMN = "knl_name"
_OBJECT_COLUMNS = ("co_name", "knl_file")  # the second is the older spelling
_INTEGER = re.compile(r"[+-]?\d+")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One kernel that a manifest offers.

    Attributes:
        kernel: Symbol of the kernel, mangled as in the code object.
        object_path: Release-relative path of the code object that should hold it.
        tile: The remaining columns (tile sizes, counts, flags), integers as written.
        line: Line in the manifest, counted from 1.
        sound: True when no finding is about this row.
    """

    kernel: str
    object_path: str
    tile: dict[str, str]
    line: int
    sound: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest.

    Attributes:
        path: Release-relative path.
        arch: The arch of the folder it lies in.
        rows: Its well-formed rows, in file order; a malformed one is a finding and is not here.
    """

    path: str
    arch: str
    rows: tuple[ManifestRow, ...]


@dataclass(frozen=True, slots=True)
class ObjectCount:
    """The code objects of one arch folder.

    Attributes:
        total: All of them, for whatever kind of kernel.
        moe: Those with ``moe`` in their path.
        orphans: MoE objects that no manifest row names. That is no fault: nothing loads them.
    """

    total: int
    moe: int
    orphans: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a release ships, and everything that is wrong with it.

    Attributes:
        manifests: Sorted by path.
        objects: By arch folder, sorted by name.
        findings: Sorted by path and line.
    """

    manifests: tuple[Manifest, ...]
    objects: dict[str, ObjectCount]
    findings: tuple[Finding, ...]

    @property
    def row_count(self) -> int:
        """The number of well-formed manifest rows."""
        return sum(len(manifest.rows) for manifest in self.manifests)

    @property
    def sound_count(self) -> int:
        """The number of rows whose kernel is where the row says, for the arch that it says."""
        return sum(row.sound for manifest in self.manifests for row in manifest.rows)


def take_inventory(release: Release, progress: Progress | None = None) -> Inventory:
    """Read every MoE manifest and every code object of *release*, and check each row.

    Args:
        release: An open release.
        progress: Called with (code objects read, code objects in all) now and then.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    objects, findings = _read_objects(release, progress)
    manifests: list[Manifest] = []
    manifest_paths = [path for path in release.files.paths if MANIFEST_PATH.fullmatch(path)]
    for path, content in release.files.read_many(manifest_paths):
        manifest, about_rows = parse_manifest(path, content)
        checked = []
        for row in manifest.rows:
            faults = list(_row_faults(manifest, row, objects))
            about_rows += faults
            checked.append(replace(row, sound=row.sound and not faults))
        manifests.append(replace(manifest, rows=tuple(checked)))
        findings += about_rows
    return Inventory(tuple(manifests), _count_objects(objects, manifests), tuple(sorted(findings)))


def parse_manifest(path: str, content: bytes) -> tuple[Manifest, list[Finding]]:
    """Read one manifest, without looking at the code objects.

    A row is malformed unless it has a cell for each column, names a kernel and an object in the manifest's
    own folder or below, and has an integer in every other cell. A row that repeats the kernel of an earlier
    one is kept, and is not sound: AITER keeps the rows in a map by kernel name, and which of the two stays is
    an accident.

    Args:
        path: Release-relative path, as `MANIFEST_PATH` has it.
        content: The whole file.
    """
    matched = MANIFEST_PATH.fullmatch(path)
    if matched is None:
        msg = f"path must be that of a fused-MoE manifest (got {path!r})"
        raise ValueError(msg)
    nothing = Manifest(path, matched["arch"], ())
    try:
        table = read_table(content)
    except TableError as error:
        return nothing, [Finding(path, 0, FindingCode.MANIFEST_UNREADABLE, f"a manifest {error}")]
    header = table.header
    object_column = next((name for name in _OBJECT_COLUMNS if name in header), None)
    if object_column is None or _KERNEL_COLUMN not in header or len(set(header)) != len(header):
        expected = f"{_KERNEL_COLUMN} and {' or '.join(_OBJECT_COLUMNS)}, each column once"
        message = f"a manifest must begin with a header that has {expected} (got {','.join(header)!r})"
        return nothing, [Finding(path, table.header_line, FindingCode.MANIFEST_UNREADABLE, message)]

    findings: list[Finding] = []
    rows: list[ManifestRow] = []
    first_line: dict[str, int] = {}
    for line, cells in table.rows:
        fault = _malformed(header, cells, object_column)
        if fault is not None:
            findings.append(Finding(path, line, FindingCode.MALFORMED_ROW, fault))
            continue
        tile = dict(zip(header, cells, strict=True))
        kernel, object_name = tile.pop(_KERNEL_COLUMN), tile.pop(object_column)
        known = first_line.setdefault(kernel, line)
        if known != line:
            message = f"each kernel must have one row ({kernel} is in line {known} already)"
            findings.append(Finding(path, line, FindingCode.DUPLICATE_ROW, message))
        object_path = str(PurePosixPath(path).parent / object_name)
        rows.append(ManifestRow(kernel, object_path, tile, line, sound=known == line))
    return replace(nothing, rows=tuple(rows)), findings


def _malformed(header: Sequence[str], cells: Sequence[str], object_column: str) -> str | None:
    """Return what is wrong with the cells of a row, or None."""
    if len(cells) != len(header):
        return f"a row must have {len(header)} cells, as the header has (got {len(cells)})"
    for column, cell in zip(header, cells, strict=True):
        if column == _KERNEL_COLUMN:
            if not cell or not cell.isprintable() or " " in cell:
                return f"{column} must be the symbol of a kernel (got {cell!r})"
        elif column == object_column:
            if not cell.endswith(".co") or cell.startswith("/") or "\\" in cell or ".." in cell.split("/"):
                return f"{column} must be the path of a .co file below the manifest's folder (got {cell!r})"
        elif not _INTEGER.fullmatch(cell):
            return f"{column} must be an integer (got {cell!r})"
    return None


def _read_objects(
    release: Release, progress: Progress | None
) -> tuple[dict[str, CodeObject | str], list[Finding]]:
    """Return each code object by path (a damaged one as the sentence that says so) and the findings."""
    paths = [path for path in release.files.paths if _OBJECT_PATH.fullmatch(path)]
    objects: dict[str, CodeObject | str] = {}
    findings: list[Finding] = []
    for done, (path, content) in enumerate(release.files.read_many(paths), start=1):
        try:
            found = parse_code_object(content)
        except CodeObjectError as error:
            objects[path] = f"a code object {error}"
            findings.append(Finding(path, 0, FindingCode.UNREADABLE_OBJECT, f"a code object {error}"))
        else:
            objects[path] = found
            if found.arch != (arch := _arch_of_object(path)):
                message = (
                    f"a code object in the folder of {arch} must be for that arch (it is for {found.arch})"
                )
                findings.append(Finding(path, 0, FindingCode.WRONG_ARCH, message))
        if progress is not None and (done % 64 == 0 or done == len(paths)):
            progress(done, len(paths))
    return objects, findings


def _row_faults(
    manifest: Manifest, row: ManifestRow, objects: dict[str, CodeObject | str]
) -> Iterator[Finding]:
    """Yield what is wrong between a row and the object that it names."""
    found = objects.get(row.object_path)
    if found is None:
        code = FindingCode.MISSING_OBJECT
        message = f"the object of {row.kernel} must be there (there is no {row.object_path})"
    elif isinstance(found, str):
        code = FindingCode.UNREADABLE_OBJECT
        message = f"the object of {row.kernel} must be readable ({row.object_path}: {found})"
    elif found.arch != manifest.arch:
        code = FindingCode.WRONG_ARCH
        message = f"{row.kernel} must be for {manifest.arch} ({row.object_path} is for {found.arch})"
    elif not found.has_kernel(row.kernel):
        code = FindingCode.SYMBOL_MISSING
        held = ", ".join(sorted(name.removesuffix(".kd") for name in found.symbols if name.endswith(".kd")))
        message = f"{row.object_path} must hold the kernel {row.kernel} (it holds {held or 'none'})"
    else:
        return
    yield Finding(manifest.path, row.line, code, message)


def _count_objects(objects: dict[str, CodeObject | str], manifests: list[Manifest]) -> dict[str, ObjectCount]:
    named = {row.object_path for manifest in manifests for row in manifest.rows}
    total: Counter[str] = Counter()
    moe: Counter[str] = Counter()
    orphans: Counter[str] = Counter()
    for path in objects:
        arch = _arch_of_object(path)
        total[arch] += 1
        if "moe" in path:
            moe[arch] += 1
            orphans[arch] += path not in named
    return {arch: ObjectCount(total[arch], moe[arch], orphans[arch]) for arch in sorted(total)}


def _arch_of_object(path: str) -> str:
    return path.split("/", 2)[1]
