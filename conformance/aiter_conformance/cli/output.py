"""What every command prints with: JSON, tables that fit the terminal, progress that stays calm."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from tabulate import tabulate

Advance = Callable[[str, int, int], None]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], body: Sequence[Sequence[str]], *, wrap: Sequence[int]) -> None:
    """Print a table that fits the terminal.

    Args:
        header: The columns.
        body: The rows.
        wrap: Columns that may be wrapped; what the others leave of the width is shared among them.
    """
    width = shutil.get_terminal_size(fallback=(140, 24)).columns
    longest = [max(len(str(cell)) for cell in column) for column in zip(header, *body, strict=True)]
    fixed = sum(longest[i] for i in range(len(header)) if i not in wrap) + 3 * len(header)
    share = max(24, (width - fixed) // max(1, len(wrap)))
    widths = [share if i in wrap else None for i in range(len(header))]
    click.echo(
        tabulate(body, headers=list(header), tablefmt="simple", maxcolwidths=widths, disable_numparse=True)
    )


@contextmanager
def progress() -> Iterator[Advance]:
    """Show how far long work is, on standard error: a bar on a terminal, one line a task elsewhere."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield _announce()
        return
    columns = (TextColumn("reading {task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield advance


def _announce() -> Advance:
    announced: set[str] = set()

    def advance(what: str, _done: int, total: int) -> None:
        if what not in announced:
            announced.add(what)
            click.echo(f"reading {total} {what}", err=True)

    return advance
