"""The command ``aiter-conformance``: noun, verb, release.

Exit codes: 0 good, 1 findings, 2 wrong usage, 3 infrastructure (nothing could be tested).
"""

from __future__ import annotations

import sys
import traceback

import click

from aiter_conformance import __version__
from aiter_conformance.cli.bundle import bundle_group
from aiter_conformance.cli.case import case_group
from aiter_conformance.cli.doctor import doctor_command
from aiter_conformance.cli.evidence import evidence_group
from aiter_conformance.cli.gate import gate_group
from aiter_conformance.cli.gpu import gpu_group
from aiter_conformance.cli.isa import isa_group
from aiter_conformance.cli.ledger import ledger_group
from aiter_conformance.cli.matrix import matrix_group
from aiter_conformance.cli.matrix_look import explain_command, query, show
from aiter_conformance.cli.release import release_group
from aiter_conformance.cli.trace import trace_group
from aiter_conformance.commands import run_command
from aiter_conformance.errors import InfrastructureError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="aiter-conformance")
def cli() -> None:
    """Conformance of AITER's fused MoE kernels, as vLLM uses them on AMD Instinct GPUs.

    RELEASE is a wheel file of amd-aiter, an unpacked tree, git:DIR@TAG, or installed. Exit codes:
    0 good, 1 findings, 2 wrong usage, 3 infrastructure: nothing could be tested.
    """


cli.add_command(bundle_group)
cli.add_command(case_group)
cli.add_command(doctor_command)
cli.add_command(evidence_group)
cli.add_command(gate_group)
cli.add_command(gpu_group)
cli.add_command(isa_group)
cli.add_command(ledger_group)
for command in (show, explain_command, query):
    matrix_group.add_command(command)
cli.add_command(matrix_group)
cli.add_command(release_group)
cli.add_command(trace_group)


def main() -> None:
    """Run the command and exit with its code; an error is one sentence on standard error."""
    try:
        code = run_command(cli)
    except click.exceptions.Abort:
        click.echo("interrupted: nothing more was written", err=True)
        code = 130
    except Exception:  # a fault of the harness must not read as a finding
        traceback.print_exc()
        click.echo("error: this is a fault of aiter-conformance, not a result; please report it", err=True)
        code = InfrastructureError.exit_code
    sys.exit(code)
