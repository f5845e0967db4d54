"""The verdict on an output: NUMERICS 3, rules 0 to 3; everything else is reported and never a gate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.oracle import Expected

BOUNDS: Final = 2.0  # an element may be off by this many B
ROW_ERROR: Final = 8e-3  # largest relative error of a row of a bfloat16 output

# AITER's own gates (its calc_diff and checkAllclose), reported for comparison only.
AITER_TOLERANCE: Final = 1e-2

# Upper ends of the buckets in which margins are shown: numbers differ a little between machines.
MARGIN_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)


class Rule(StrEnum):
    """The rule that an output breaks."""

    NOT_ZERO = "zero-row"  # 0: a row that must be exactly zero is not
    NOT_FINITE = "not-finite"  # 1: NaN or Inf that the oracle does not have
    ELEMENT = "element"  # 2: an element is off by more than twice its bound
    ROW = "row"  # 3: a row without fragile elements is off by more than 8e-3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of an output.

    Attributes:
        broken: First rule that does not hold, or None: the output is right.
        message: One sentence that says where and by how much; empty where nothing is broken.
        token: Token of the first difference, or None.
        column: Column of the first difference, or None.
        bound_ratio: Largest |out - ref| / B.
        row_error: Largest relative error of a row that rule 3 judges; 0 where it judges none.
        rows_judged: Rows that rule 3 judged.
        rows_fragile: Rows left to rule 2 alone.
        relative_error: ||out - ref|| / ||ref||.
        logits_diff: AITER's 1 - 2 <out, ref> / (|out|^2 + |ref|^2).
        mismatch: Fraction of elements outside AITER's tolerance 1e-2 + 1e-2 |ref|.
    """

    broken: Rule | None
    message: str
    token: int | None
    column: int | None
    bound_ratio: float
    row_error: float
    rows_judged: int
    rows_fragile: int
    relative_error: float
    logits_diff: float
    mismatch: float

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return self.broken is None

    def details(self) -> dict[str, Any]:
        """Return what evidence records of it: margins in buckets, nothing machine-dependent."""
        return {
            "rule": None if self.broken is None else self.broken.value,
            "bound_ratio": bucket(self.bound_ratio),
            "row_error": bucket(self.row_error / ROW_ERROR),
            "rows_judged": self.rows_judged,
            "rows_fragile": self.rows_fragile,
        }


def bucket(ratio: float) -> str:
    """Return the bucket of a margin: ``<= 0.5`` and the like, ``> 100`` or ``not finite``."""
    if not np.isfinite(ratio):
        return "not finite"
    return next((f"<= {end:g}" for end in MARGIN_BUCKETS if ratio <= end), f"> {MARGIN_BUCKETS[-1]:g}")


def judge(output: ArrayLike, expected: Expected, *, output_dtype: str = "bfloat16") -> Verdict:
    """Judge the rows of an output that the oracle was asked for.

    Args:
        output: The tokens that ``expected`` holds, [T, K], as float.
        expected: What the oracle says.
        output_dtype: Name of the output's dtype; rule 3 is for bfloat16 only.

    Raises:
        UsageError: The shapes differ.
    """
    out, ref, bound = np.asarray(output, np.float64), expected.values, expected.bound
    if out.shape != ref.shape:
        msg = f"the output must have the shape {ref.shape} of the reference (got {out.shape})"
        raise UsageError(msg)
    finite = np.isfinite(out)
    safe = np.where(finite, out, 0.0)
    error = np.abs(safe - ref)
    zero_rows = np.logical_not(ref.any(axis=1, keepdims=True))[:, 0]

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error > 0, error / bound, 0.0)
    row_norm = np.linalg.norm(ref, axis=1)
    row_errors = np.divide(
        np.linalg.norm(safe - ref, axis=1), row_norm, out=np.zeros(len(ref)), where=row_norm > 0
    )
    judged = ~zero_rows & ~expected.fragile & finite.all(axis=1)

    broken: Rule | None = None
    message, at = "", None
    if (bad := zero_rows[:, None] & (out != 0)).any():
        broken, at = Rule.NOT_ZERO, _first(bad)
        message = f"must be exactly 0, as the whole row is (got {out[at]:g})"
    elif (bad := ~finite & np.isfinite(ref)).any():
        broken, at = Rule.NOT_FINITE, _first(bad)
        message = f"must be finite, {ref[at]:.6g} (got {out[at]:g})"
    elif (bad := ratio > BOUNDS).any():
        broken, at = Rule.ELEMENT, _first(bad)
        message = (
            f"must be {ref[at]:.6g} within {BOUNDS * bound[at]:.3g} (got {out[at]:.6g}, "
            f"{ratio[at]:.3g} times the bound; {bad.sum()} of {bad.size} elements are off)"
        )
    elif output_dtype == "bfloat16" and (bad := judged & (row_errors > ROW_ERROR)).any():
        row = int(np.flatnonzero(bad)[0])
        broken, at = Rule.ROW, (row, int(error[row].argmax()))
        message = (
            f"the row must be right within {ROW_ERROR:g} (got a relative error of {row_errors[row]:.3g}; "
            f"{bad.sum()} of {judged.sum()} rows are off)"
        )
    token, column = (None, None) if at is None else (int(expected.tokens[at[0]]), at[1])
    return Verdict(
        broken=broken,
        message=message if at is None else f"token {token}, column {column}: {message}",
        token=token,
        column=column,
        bound_ratio=float(ratio.max(initial=0.0)) if finite.all() else float("inf"),
        row_error=float(row_errors[judged].max(initial=0.0)),
        rows_judged=int(judged.sum()),
        rows_fragile=int((expected.fragile & ~zero_rows).sum()),
        relative_error=_ratio(np.linalg.norm(safe - ref), np.linalg.norm(ref)),
        logits_diff=1 - _ratio(2 * (safe * ref).sum(), (safe**2).sum() + (ref**2).sum(), empty=1.0),
        mismatch=float((error > AITER_TOLERANCE * (1 + np.abs(ref))).mean()) if error.size else 0.0,
    )


def _first(bad: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, int]:
    row, column = np.argwhere(bad)[0]
    return int(row), int(column)


def _ratio(above: Any, below: Any, empty: float = 0.0) -> float:
    return float(above / below) if below else empty
