"""How a command of this project ends: one exit code, and an error as one sentence on standard error."""

from __future__ import annotations

import click

from aiter_conformance.errors import HarnessError


def run_command(command: click.Command) -> int | None:
    """Run a command on the process's arguments and return its exit code; None where it returned none.

    Wrong usage is 2, and an error of the harness has its own code. Anything else is raised.
    """
    try:
        code: int | None = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except HarnessError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return code
