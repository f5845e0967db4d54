"""What every published page is made with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import jinja2
from tabulate import tabulate


@cache
def template(name: str) -> jinja2.Template:
    """Return one of the page templates that lie beside this module."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aiter_conformance", "publish"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 -- Markdown from the project's own data
    )
    return environment.get_template(name)


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars in cells are escaped."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in body]
    aligned = tabulate(escaped, headers=list(header), tablefmt="github", disable_numparse=True)
    # Long sentences would make most of the page padding.
    return re.sub(r"-{4,}", "---", re.sub(r" {2,}", " ", aligned))
