"""One tuned table by itself: its columns, old and new, its rows and what each is looked up by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aiter_conformance.axes import load_axes
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.tables import Table, TableError, read_table

_INTEGERS = ("cu_num", "token", "model_dim", "inter_dim", "expert", "topk")
_TEXTS = ("act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_FLAGS = ("use_g1u1", "doweight_stage1")
_KERNELS = ("kernelName1", "kernelName2")
_GROUPED_KEY = ("max_m", "gate_mode")
TRUE = ("1", "True")
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


def short_dtype(dtype: str) -> str:
    """Return ``fp8`` for either flavour of float8, and the usual short names of the others."""
    return _SHORT_DTYPES.get(f"torch.{dtype}", dtype)


def parse_tuned(path: str, content: bytes) -> tuple[list[TunedRow], list[Finding]]:
    """Read one tuned table by itself. An empty file, or one with a header alone, has no rows and no finding.

    Args:
        path: Release-relative path, as `tuned.TABLE_PATH` has it.
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
        if values[column] not in (*TRUE, *_FALSE):
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
        use_g1u1=values["use_g1u1"] in TRUE,
        doweight_stage1=values["doweight_stage1"] in TRUE,
        variant=" ".join(f"{column}={values[column]}" for column in _GROUPED_KEY if values.get(column)),
    )
    kernels = tuple("" if values[column] in _NO_KERNEL else values[column] for column in _KERNELS)
    settings = {name: value for name, value in values.items() if name not in _REQUIRED and name != "gfx"}
    fallback = values.get("_tag") == _FALLBACK_TAG
    return TunedRow(path, line, key, (kernels[0], kernels[1]), settings, fallback, sound=True)


def arch_of_board(cu_num: int) -> str | None:
    """Return the arch that a CU count means where no arch is given: the first that has such a board."""
    return next((arch.name for arch in load_axes().archs.values() if cu_num in arch.cu_counts), None)
