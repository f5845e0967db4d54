"""How a command of this project ends: one exit code, and an error as one sentence on standard error."""

from __future__ import annotations

from typing import Final, Self

import click

from aiter_conformance.errors import HarnessError

# What is said of commands that do not say it themselves; what they found stands in their output.
_FOUND: Final = "something is wrong in what was looked at, as the output says"


class Findings(int):
    """Exit code 1, with the sentence that says why.

    Attributes:
        sentence: What was found, as one clause.
    """

    sentence: str

    def __new__(cls, sentence: str) -> Self:
        """Return the code 1 with a sentence."""
        code = super().__new__(cls, 1)
        code.sentence = sentence
        return code


def run_command(command: click.Command) -> int | None:
    """Run a command on the process's arguments and return its exit code; None where it returned none.

    Wrong usage is 2, and an error of the harness has its own code. Anything else is raised. A code of 1 comes
    with a sentence too.
    """
    try:
        code: int | None = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except HarnessError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    if code == 1:
        sentence = code.sentence if isinstance(code, Findings) else _FOUND
        click.echo(f"findings: {sentence}", err=True)
    return code
