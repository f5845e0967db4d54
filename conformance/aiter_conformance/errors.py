"""The errors that end a command, each with the exit code that it stands for."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of every error that a command reports as one sentence.

    The message says what was expected, what came and what to do.
    """

    exit_code = 3


class UsageError(HarnessError):
    """The command or an argument is wrong; nothing was tried."""

    exit_code = 2


class InfrastructureError(HarnessError):
    """Something around the tests is broken (a file, a disk, an installation): no result was obtained."""

    exit_code = 3
