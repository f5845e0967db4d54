"""A release's tuned tables: which kernels it picks for which shapes, and whether the rows can be right.

The tables are ``aiter/configs/tuned_fmoe.csv`` and the files of its kind under ``model_configs/``; AITER
merges them and looks a call up by board, token bucket, shape, activation and dtypes.
``tuned_grouped_fmoe.csv`` is a table of its own, for the grouped kernels of gfx1250, with the same key and a
little more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aiter_conformance.axes import load_axes
from aiter_conformance.release.anchors import lookup_knows_arch
from aiter_conformance.release.api import read_api
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.release.kernel_names import KernelClaim, read_kernel_name
from aiter_conformance.release.pysource import Sources
from aiter_conformance.release.tables import Table, TableError, read_table

TABLE_PATH = re.compile(
    r"aiter/configs/(?:model_configs/)?(?!.*untuned)[^/]*tuned_(?:grouped_)?fmoe[^/]*\.csv"
)
_INTEGERS = ("cu_num", "token", "model_dim", "inter_dim", "expert", "topk")
_TEXTS = ("act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_FLAGS = ("use_g1u1", "doweight_stage1")
_KERNELS = ("kernelName1", "kernelName2")
_GROUPED_KEY = ("max_m", "gate_mode")
_TRUE = ("1", "True")
_FALSE = ("0", "False")
_REQUIRED = (*_INTEGERS, *_TEXTS, *_FLAGS, *_KERNELS)
_NO_KERNEL = frozenset({"", "Null", "nan", "None"})
# Rows with this tag stand in where FlyDSL is not installed; they repeat the keys of others on purpose.
_FALLBACK_TAG = "flydsl_fallback"
_SHORT_DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float8_e4m3fn": "fp8",
    "torch.float8_e4m3fnuz": "fp8",
    "torch.float4_e2m1fn_x2": "fp4",
    "torch.int8": "int8",
    "torch.int4": "int4",
}


@dataclass(frozen=True, slots=True, order=True)
class TunedKey:
    """What a row is looked up by; texts are as in the table, without ``torch.`` or an enumeration's name.

    Attributes:
        gfx: The arch; where the table has no such column, the one that AITER takes the CU count to mean.
        cu_num: Compute units of the board.
        token: The token bucket: M rounded up as AITER does.
        model_dim: K, the hidden size.
        inter_dim: N, the intermediate size of one partition.
        expert: Local experts.
        topk: Routed experts per token; -1 in a grouped table for any number of them.
        act_type: Member of ``ActivationType``.
        dtype: Of the model, e.g. ``bfloat16``.
        q_dtype_a: Of the activations.
        q_dtype_w: Of the weights.
        q_type: Member of ``QuantType``.
        use_g1u1: Gate and up are fused in w1.
        doweight_stage1: The router weight is on the input.
        variant: What else a grouped row is looked up by, e.g. ``max_m=384``; empty in the other tables.
    """

    gfx: str
    cu_num: int
    token: int
    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    act_type: str
    dtype: str
    q_dtype_a: str
    q_dtype_w: str
    q_type: str
    use_g1u1: bool
    doweight_stage1: bool
    variant: str


@dataclass(frozen=True, slots=True)
class TunedRow:
    """One row.

    Attributes:
        path: The table.
        line: Its line, counted from 1.
        key: What it is looked up by.
        kernels: (stage 1 or the whole, stage 2), each a kernel's name, or empty: C++ picks.
        settings: Every other column, as written.
        fallback: True if it stands in where FlyDSL is not installed.
        sound: True when no finding is about it.
    """

    path: str
    line: int
    key: TunedKey
    kernels: tuple[str, str]
    settings: dict[str, str]
    fallback: bool
    sound: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """The token buckets that are tuned for one shape on one board.

    Attributes:
        gfx: The arch.
        cu_num: Compute units of the board.
        quant: QuantType and the dtypes of activations and weights, e.g. ``per_1x32 fp4 x fp4``.
        activation: Member of ``ActivationType``.
        router: ``in`` or ``out``: where the router weight multiplies.
        shape: (K, N, experts, topk).
        tokens: The buckets, ascending.
    """

    gfx: str
    cu_num: int
    quant: str
    activation: str
    router: str
    shape: tuple[int, int, int, int]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TunedTables:
    """Every tuned row of a release.

    Attributes:
        paths: The tables, sorted.
        rows: The well-formed rows, by table and line.
        findings: Sorted.
    """

    paths: tuple[str, ...]
    rows: tuple[TunedRow, ...]
    findings: tuple[Finding, ...]

    def matching(self, **wanted: str | int | bool) -> tuple[TunedRow, ...]:
        """Return the rows, no stand-ins, whose key has all of *wanted*, e.g. ``gfx="gfx950", topk=8``."""
        return tuple(
            row
            for row in self.rows
            if not row.fallback and all(getattr(row.key, name) == value for name, value in wanted.items())
        )

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the tuned token buckets by board, quantisation, activation, router weight and shape."""
        tokens: dict[tuple[str, int, str, str, str, tuple[int, int, int, int]], set[int]] = {}
        for row in self.matching():
            key = row.key
            a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
            shape = (key.model_dim, key.inter_dim, key.expert, key.topk)
            router = "in" if key.doweight_stage1 else "out"
            group = (key.gfx, key.cu_num, f"{key.q_type} {a} x {w}", key.act_type, router, shape)
            tokens.setdefault(group, set()).add(key.token)
        return tuple(Coverage(*group, tuple(sorted(tokens[group]))) for group in sorted(tokens))


def short_dtype(dtype: str) -> str:
    """Return ``fp8`` for either flavour of float8, and the usual short names of the others."""
    return _SHORT_DTYPES.get(f"torch.{dtype}", dtype)


def read_tuned(release: Release, inventory: Inventory | None = None) -> TunedTables:
    """Read and check every tuned table of *release*.

    Args:
        release: An open release.
        inventory: Its inventory, if it was taken already: asm kernels must be in it.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    paths = tuple(path for path in release.files.paths if TABLE_PATH.fullmatch(path))
    checks = _Checks(release, inventory or take_inventory(release))
    rows: list[TunedRow] = []
    findings: list[Finding] = []
    for path, content in release.files.read_many(paths):
        found, about_table = parse_tuned(path, content)
        findings += about_table + checks.of_table(path, found)
        for row in found:
            faults = checks.of_row(row)
            findings += faults
            rows.append(replace(row, sound=not faults))
    return TunedTables(paths, tuple(rows), tuple(sorted(findings)))


def parse_tuned(path: str, content: bytes) -> tuple[list[TunedRow], list[Finding]]:
    """Read one tuned table by itself. An empty file, or one with a header alone, has no rows and no finding.

    Args:
        path: Release-relative path, as `TABLE_PATH` has it.
        content: The whole file.
    """
    try:
        table = read_table(content)
    except TableError as error:
        return [], [Finding(path, 0, FindingCode.TABLE_UNREADABLE, f"a tuned table {error}")]
    if not table.header:
        return [], []
    missing = [column for column in _REQUIRED if column not in table.header]
    if missing or len(set(table.header)) != len(table.header):
        message = f"a tuned table must have each column once (missing: {', '.join(missing) or 'none'})"
        return [], [Finding(path, table.header_line, FindingCode.TABLE_UNREADABLE, message)]
    rows: list[TunedRow] = []
    findings: list[Finding] = []
    for line, cells in table.rows:
        found = _row(path, line, table, cells)
        if isinstance(found, TunedRow):
            rows.append(found)
        else:
            findings.append(found)
    return rows, findings


def _row(path: str, line: int, table: Table, cells: Sequence[str]) -> TunedRow | Finding:
    if len(cells) > len(table.header):
        message = f"a row must have {len(table.header)} cells, as the header has (got {len(cells)})"
        return Finding(path, line, FindingCode.MALFORMED_ROW, message)
    # AITER reads a short row as if empty cells followed, and so do we: what it must have is checked below.
    values = dict.fromkeys(table.header, "") | dict(zip(table.header, cells, strict=False))
    for column in _INTEGERS:
        any_topk = column == "topk" and values[column] == "-1" and "grouped" in path
        if not any_topk and not re.fullmatch(r"[0-9]{1,9}", values[column]):
            message = f"{column} must be a number (got {values[column]!r})"
            return Finding(path, line, FindingCode.MALFORMED_ROW, message)
    for column in _FLAGS:
        if values[column] not in (*_TRUE, *_FALSE):
            message = f"{column} must be 0 or 1 (got {values[column]!r})"
            return Finding(path, line, FindingCode.MALFORMED_ROW, message)
    for column, prefix in zip(
        _TEXTS, ("ActivationType.", "torch.", "torch.", "torch.", "QuantType."), strict=True
    ):
        if not re.fullmatch(rf"{re.escape(prefix)}\w+", values[column]):
            message = f"{column} must be {prefix}... (got {values[column]!r})"
            return Finding(path, line, FindingCode.MALFORMED_ROW, message)
    number = {column: int(values[column]) for column in _INTEGERS}
    text = {column: values[column].partition(".")[2] for column in _TEXTS}
    key = TunedKey(
        gfx=values.get("gfx") or arch_of_board(number["cu_num"]) or "",
        cu_num=number["cu_num"],
        token=number["token"],
        model_dim=number["model_dim"],
        inter_dim=number["inter_dim"],
        expert=number["expert"],
        topk=number["topk"],
        act_type=text["act_type"],
        dtype=text["dtype"],
        q_dtype_a=text["q_dtype_a"],
        q_dtype_w=text["q_dtype_w"],
        q_type=text["q_type"],
        use_g1u1=values["use_g1u1"] in _TRUE,
        doweight_stage1=values["doweight_stage1"] in _TRUE,
        variant=" ".join(f"{column}={values[column]}" for column in _GROUPED_KEY if values.get(column)),
    )
    kernels = tuple("" if values[column] in _NO_KERNEL else values[column] for column in _KERNELS)
    settings = {name: value for name, value in values.items() if name not in _REQUIRED and name != "gfx"}
    fallback = values.get("_tag") == _FALLBACK_TAG
    return TunedRow(path, line, key, (kernels[0], kernels[1]), settings, fallback, sound=True)


def arch_of_board(cu_num: int) -> str | None:
    """Return the arch that a CU count means where no arch is given: the first that has such a board."""
    return next((arch.name for arch in load_axes().archs.values() if cu_num in arch.cu_counts), None)


class _Checks:
    """What the rows of one release are held against."""

    def __init__(self, release: Release, inventory: Inventory) -> None:
        sources = Sources(release.files)
        known = read_api(release, sources).archs or ()
        self._archs = {arch.name: arch for arch in load_axes().archs.values()}
        self._boards: dict[int, list[str]] = {}
        for arch in self._archs.values():
            for cu_num in arch.cu_counts if arch.name in known else ():
                self._boards.setdefault(cu_num, []).append(arch.name)
        self._lookup_knows_arch = lookup_knows_arch(sources)
        self._asm = {arch: set[str]() for arch in self._archs}
        for manifest in inventory.manifests:
            self._asm.setdefault(manifest.arch, set()).update(
                row.kernel for row in manifest.rows if row.sound
            )
        self._first: dict[tuple[TunedKey, bool], tuple[str, int]] = {}

    def of_table(self, path: str, rows: Sequence[TunedRow]) -> list[Finding]:
        """Find the CU counts of a table that the release's lookup takes for more than one arch."""
        if self._lookup_knows_arch:
            return []
        shared = sorted({row.key.cu_num for row in rows if len(self._boards.get(row.key.cu_num, ())) > 1})
        return [
            Finding(
                path,
                0,
                FindingCode.TUNED_AMBIGUOUS_ARCH,
                f"rows must be of one arch (those for {cu_num} CUs apply to "
                f"{' and '.join(self._boards[cu_num])}: the lookup does not ask for the arch)",
            )
            for cu_num in shared
        ]

    def of_row(self, row: TunedRow) -> list[Finding]:
        """Return everything that is wrong with *row*."""
        return [Finding(row.path, row.line, code, message) for code, message in self._faults(row)]

    def _faults(self, row: TunedRow) -> Iterator[tuple[FindingCode, str]]:
        key = row.key
        place = self._first.setdefault((key, row.fallback), (row.path, row.line))
        if place != (row.path, row.line):
            yield (
                FindingCode.TUNED_DUPLICATE_KEY,
                f"a key must have one row (it has {place[0]}:{place[1]} already)",
            )
        arch = self._archs.get(key.gfx)
        if arch is None:
            yield (
                FindingCode.TUNED_UNKNOWN_BOARD,
                f"the board must be known (got {key.cu_num} CUs, {key.gfx or 'no arch'})",
            )
            return
        for column, dtype in (("q_dtype_a", key.q_dtype_a), ("q_dtype_w", key.q_dtype_w)):
            if short_dtype(dtype) == "fp8" and dtype != f"float8_{arch.fp8}":
                message = (
                    f"fp8 on {arch.name} must be float8_{arch.fp8} ({column} is {dtype}: no call has this "
                    "key)"
                )
                yield FindingCode.TUNED_WRONG_FP8, message
        one_stage = row.settings.get("run_1stage") in _TRUE
        for stage, kernel in enumerate(row.kernels, start=1):
            if kernel:
                yield from self._kernel_faults(row, kernel, 0 if one_stage and stage == 1 else stage)

    def _kernel_faults(self, row: TunedRow, kernel: str, stage: int) -> Iterator[tuple[FindingCode, str]]:
        claim = read_kernel_name(kernel)
        if claim is None:
            yield FindingCode.TUNED_KERNEL_UNKNOWN, f"a kernel must be of a known family (got {kernel})"
            return
        if claim.family.startswith("asm") and kernel not in self._asm[row.key.gfx]:
            message = f"an asm kernel must be in a manifest of {row.key.gfx} with a sound row (got {kernel})"
            yield FindingCode.TUNED_KERNEL_MISSING, message
        differences = list(_differences(row.key, claim, stage))
        if differences:
            yield (
                FindingCode.TUNED_KERNEL_DIFFERS,
                f"{kernel} must do what its row asks for ({'; '.join(differences)})",
            )


def _differences(key: TunedKey, claim: KernelClaim, stage: int) -> Iterator[str]:
    """Yield where a kernel's claim contradicts the key; *stage* is 1, 2, or 0 for the whole."""
    if claim.stage is not None and claim.stage != stage:
        yield f"it is for {_stage(claim.stage)}, not {_stage(stage)}"
    if claim.activation is not None and claim.activation != key.act_type:
        yield f"it does {claim.activation}, not {key.act_type}"
    if claim.quant and key.q_type not in claim.quant:
        yield f"it quantises {' or '.join(claim.quant)}, not {key.q_type}"
    a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
    if claim.w is not None and claim.w != w:
        yield f"its weights are {claim.w}, not {w}"
    # The input of stage 2 is what stage 1 wrote, in whatever dtype the two agreed on.
    if claim.a is not None and claim.a != a and stage != 2:
        yield f"its activations are {claim.a}, not {a}"
    if claim.multiplies_router_weight is not None:
        wanted = key.doweight_stage1 if stage == 1 else not key.doweight_stage1
        if claim.multiplies_router_weight != wanted:
            does = "multiplies" if claim.multiplies_router_weight else "does not multiply"
            yield f"it {does} by the router weight in stage {stage}"


def _stage(stage: int) -> str:
    return f"stage {stage}" if stage else "both stages"
