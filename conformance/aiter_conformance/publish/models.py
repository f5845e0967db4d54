"""The page of the catalogue's models with one release, made from the records alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiter_conformance.modelfile import Line, ModelFile
from aiter_conformance.models import TOKENS, load_models, model_calls
from aiter_conformance.publish.markdown import table, template
from aiter_conformance.trace.checks import allowed_activations
from aiter_conformance.trace.findings import Code

HEADER = ("model", "scheme", "divided", "runs", "tuned", "kernels", "what is wrong")
_DTYPE: Final = re.compile(r"\((\w+)\)")  # of activations, behind the families


def render(files: Sequence[ModelFile]) -> str:
    """Return the page of one release, a section for each board, ending in a newline."""
    catalogue = load_models()
    titles = {name: model.title for name, model in catalogue.models.items()}
    boards = [
        {
            "name": file.board,
            "table": table(
                HEADER,
                [
                    [
                        titles.get(x.model, x.model),
                        x.scheme,
                        x.divided,
                        _runs(x),
                        x.tuned,
                        x.kernels,
                        _wrong(x),
                    ]
                    for x in file.lines
                ],
            ),
        }
        for file in files
    ]
    version = files[0].release.version
    return template("models.md.j2").render(
        version=version, tokens=TOKENS, boards=boards, unread=catalogue.unread
    )


def _runs(line: Line) -> str:
    return "yes, but" if line.runs == "yes" and _quantised(line) else line.runs


def _wrong(line: Line) -> str:
    """Return what is wrong, and what is to be known although nothing fails by it."""
    return "; ".join(text for text in (line.wrong, _quantised(line)) if text)


def _quantised(line: Line) -> str:
    """Return that kernels quantise activations which the scheme leaves alone, or an empty text.

    The record counts that as running, as `model_report.Row.runs` does; the kernels in it tell.
    """
    model = load_models().models.get(line.model)
    if model is None or not line.kernels:
        return ""
    allowed = allowed_activations(next(model_calls(model, line.scheme))[1])
    odd = [dtype for dtype in dict.fromkeys(_DTYPE.findall(line.kernels)) if dtype not in allowed]
    return f"{Code.QUANTISED_SILENTLY.value} ({' and '.join(odd)}, not {allowed[0]})" if odd else ""
