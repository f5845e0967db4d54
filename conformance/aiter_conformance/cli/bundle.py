"""``bundle make|verify``: what a decision about a bump rests on, in one archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aiter_conformance.cli.gate import comparison_options, observe_and_compare
from aiter_conformance.cli.output import json_option, print_json
from aiter_conformance.documents import write_bytes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.gate import archive, bundle, page


@click.group("bundle")
def bundle_group() -> None:
    """Keep what a decision about a bump rests on, and hold it against its statement."""


@bundle_group.command("make")
@comparison_options
@click.option(
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The bundle, an uncompressed tar file.",
)
@json_option
def make_command(output: Path, as_json: bool, **question: Any) -> int:
    """Compare two releases as `gate run` does, and keep all that the decision rests on.

    Exit codes are those of `gate run`. The hash that is printed identifies the bundle; keep it elsewhere.
    """
    old, new, report = observe_and_compare(**question)
    made = bundle.make(old, new, report)
    write_bytes(output, made)
    digest = bundle.digest(made)
    if as_json:
        print_json({"bundle": output.name, "digest": digest, "exit_code": report.exit_code})
    else:
        click.echo(f"{page.decision(report)}\n{output.name}: {digest}, {len(made)} bytes")
    return report.exit_code


@bundle_group.command("verify")
@click.argument("path", metavar="BUNDLE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--digest", metavar="SHA256", help="What the bundle's hash must be; `bundle make` printed it.")
@click.option("--require-pass", is_flag=True, help="Exit with 1 too if the decision is not to go on.")
@json_option
def verify_command(path: Path, digest: str | None, require_pass: bool, as_json: bool) -> int:
    """Make the decision of BUNDLE again, and refuse one with an altered, missing or extra file.

    Exit code 0 for a sound bundle whatever its decision, 1 for one that is refused.
    """
    try:
        raw = archive.read(path)
    except OSError as error:
        msg = f"{path.name} must be readable ({error.strerror})"
        raise InfrastructureError(msg) from error
    try:
        if digest is not None and bundle.digest(raw) != digest:
            msg = f"its hash must be {digest} (got {bundle.digest(raw)})"
            raise archive.RefusedError(msg)
        verified = bundle.verify(raw)
    except archive.RefusedError as refused:
        if as_json:
            print_json({"sound": False, "refused": str(refused)})
        else:
            click.echo(f"REFUSED: {refused}")
        return 1
    if as_json:
        print_json({"sound": True, "digest": verified.digest, "statement": verified.statement})
    else:
        _show(verified.statement, verified)
    return int(require_pass and verified.report.exit_code != 0)


def _show(statement: Mapping[str, Any], verified: bundle.Verified) -> None:
    harness = statement["harness"]
    click.echo(f"SOUND: {verified.digest}")
    click.echo(f"decision, made again: {page.decision(verified.report)}")
    for release in statement["releases"]:
        click.echo(f"release {release['version']} ({release['kind']}), {release['identity']}")
    made_by = "this very harness" if verified.same_harness else "another harness than this"
    click.echo(f"made by {harness['version']}, commit {harness['commit'] or 'unknown'}: {made_by}")
    click.echo(f"{len(statement['files'])} files, each as the statement lists it")
