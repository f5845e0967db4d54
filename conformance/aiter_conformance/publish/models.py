"""The page of the catalogue's models with one release, made from the records alone."""

from __future__ import annotations

from collections.abc import Sequence

from aiter_conformance.modelfile import ModelFile
from aiter_conformance.models import TOKENS, load_models
from aiter_conformance.publish.markdown import table, template

HEADER = ("model", "scheme", "divided", "runs", "tuned", "kernels", "what is wrong")


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
                    [titles.get(x.model, x.model), x.scheme, x.divided, x.runs, x.tuned, x.kernels, x.wrong]
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
