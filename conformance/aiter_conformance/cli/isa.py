"""``isa disasm|run|probe|sweep``: a release's machine code, read and executed without the hardware.

What needs numba is imported when a command runs, so that the rest of the command works without it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiter_conformance.axes import load_axes
from aiter_conformance.cli.isa_probe import probe_command
from aiter_conformance.cli.isa_run import run_command
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table, progress
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.isa_changes import Change, compare, counts, differing
from aiter_conformance.publish import sweep as sweep_page
from aiter_conformance.publish.sweep import LOW_SHARE, RESULTS
from aiter_conformance.release.artefact import Release, open_release

if TYPE_CHECKING:
    from aiter_conformance.isa.sweep import Result

LISTED = 40


@click.group("isa")
def isa_group() -> None:
    """Disassemble, run and judge AITER's code objects in an emulator of CDNA3 and CDNA4."""


@isa_group.command()
@click.argument("object_file", metavar="OBJECT", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def disasm(object_file: Path, as_json: bool) -> int:
    """Print kernels and instructions of OBJECT, a .co file.

    Exit code 1 if an instruction is not modelled by the emulator; such lines are marked.
    """
    from aiter_conformance.isa import codeobject
    from aiter_conformance.isa.assembly import UnknownInstructionError, parse
    from aiter_conformance.isa.disasm import Job, disassemble

    code = codeobject.load(object_file.read_bytes())
    start, size = code.text
    [lines] = disassemble([Job(code.arch, start, code.image[start : start + size])])
    unknown: dict[int, str] = {}
    for address, _, text in lines:
        if not text:
            unknown[address] = f"the word is no instruction of {code.arch}"
            continue
        try:
            parse(text, code.arch)
        except UnknownInstructionError as error:
            unknown[address] = str(error)
    if as_json:
        print_json(
            {
                "arch": code.arch,
                "kernels": [asdict(kernel) for kernel in code.kernels.values()],
                "instructions": [{"pc": a, "text": t, "unknown": unknown.get(a)} for a, _, t in lines],
            }
        )
        return int(bool(unknown))
    click.echo(f"{object_file.name}: {code.arch}, {len(lines)} instructions")
    for kernel in code.kernels.values():
        click.echo(
            f"kernel {kernel.name}: starts at pc {kernel.start:#x}, LDS {kernel.lds_bytes} bytes, "
            f"scratch {kernel.scratch_bytes} bytes a lane, kernarg segment {kernel.kernarg_bytes} bytes"
        )
        for argument in kernel.arguments:
            click.echo(f"    {argument.offset:#05x}  {argument.size:2}  {argument.kind:14} {argument.name}")
    for address, length, text in lines:
        words = code.image[address : address + length]
        encoded = " ".join(f"{int.from_bytes(words[i : i + 4], 'little'):08x}" for i in range(0, length, 4))
        mark = f"    ; NOT MODELLED: {unknown[address]}" if address in unknown else ""
        click.echo(f"{address:#8x}  {encoded:<26}  {text}{mark}")
    if unknown:
        click.echo(f"{len(unknown)} instructions are not modelled by the emulator", err=True)
    return int(bool(unknown))


isa_group.add_command(run_command)
isa_group.add_command(probe_command)


@isa_group.command("sweep")
@click.argument("release_text", metavar="RELEASE")
@click.option(
    "--arch", "archs", multiple=True, type=click.Choice(list(load_axes().archs)), help="Only this arch."
)
@click.option("--family", default="", metavar="TEXT", help="Only objects with this in their path.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many objects.")
@click.option(
    "--against", metavar="OTHER", help="Only objects whose bytes another release does not have: what changed."
)
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes.")
@click.option("--publish", is_flag=True, help="Write what was found of all objects into reports/isa.")
@root_option
@json_option
def sweep_command(
    release_text: str,
    archs: tuple[str, ...],
    family: str,
    limit: int | None,
    against: str | None,
    workers: int,
    publish: bool,
    root: Path,
    as_json: bool,
) -> int:
    """Judge every MoE object that a manifest of RELEASE names, at shapes that reach its paths.

    Results are kept under build/isa: after an interrupt, the same command goes on where it stopped. Exit code
    1 if an object is wrong, 3 if none could be executed. With --against, 1 if an object is worse than that of
    OTHER at its path, or a new one is wrong.
    """
    from aiter_conformance.isa import objects

    if publish and (archs or family or limit or against):
        raise UsageError(
            "--publish must be given without --arch, --family, --limit and --against: all objects are"
        )
    with open_release(release_text) as opened:
        paths = objects.named_objects(opened, archs, family)
        title, version = _title(opened), opened.version
        if against is not None:
            with open_release(against) as other:
                chosen = differing(opened, other, paths)[:limit]
                before = _sweep(other, [path for path in chosen if path in other.files.paths], root, workers)
                after = _sweep(opened, chosen, root, workers)
                return _show_changes(title, _title(other), before, after, as_json=as_json)
        results = _sweep(opened, paths[:limit], root, workers)
    if publish:
        for file in sweep_page.publish(root / "reports" / "isa", version, results):
            click.echo(f"wrote {file.relative_to(root)}", err=True)
    statuses = Counter(result.judgement.status.value for result in results)
    if as_json:
        from aiter_conformance.isa import sweep

        print_json({"release": title, "counts": dict(statuses), "objects": sweep.document(results)})
    else:
        click.echo(f"{title}, {len(results)} objects that a MoE manifest names\n")
        _print_sweep(results)
    if not _executed(results):
        raise InfrastructureError("an object must be executable (none was): NOT RUN")
    return int(bool(statuses["wrong"]))


def _title(release: Release) -> str:
    return f"AITER {release.version} ({release.kind.value})"


def _sweep(release: Release, paths: Sequence[str], root: Path, workers: int) -> list[Result]:
    from aiter_conformance.isa import sweep

    with progress() as advance:
        return sweep.sweep(
            release,
            paths,
            root / "build" / "isa",
            workers=workers,
            progress=lambda done, total: advance("code objects, each executed", done, total),
        )


def _executed(results: Sequence[Result]) -> bool:
    return any(result.judgement.status.value in ("right", "wrong") for result in results)


def _show_changes(
    title: str, other: str, before: Sequence[Result], after: Sequence[Result], *, as_json: bool
) -> int:
    """Print what changed and return the exit code; what is worse comes before that nothing was executed."""
    changes = compare(before, after)
    worse = sum(change.worse for change in changes)
    if as_json:
        numbers = [{"before": was, "after": now, "objects": number} for was, now, number in counts(changes)]
        listed = [{**asdict(change), "worse": change.worse} for change in changes]
        print_json({"release": title, "against": other, "counts": numbers, "worse": worse, "objects": listed})
    else:
        click.echo(f"{title} against {other}\n")
        _print_changes(changes, worse)
    if changes and not worse and not _executed(after):
        raise InfrastructureError("an object must be executable (none was): NOT RUN")
    return int(bool(worse))


def _print_changes(changes: Sequence[Change], worse: int) -> None:
    if not changes:
        click.echo("no object has other machine code")
        return
    body = [[c.object, c.before, f"{c.after}{' (WORSE)' if c.worse else ''}", c.why] for c in changes]
    print_table(["object", "before", "after", "reason"], body, wrap=[1, 2, 3])
    click.echo(f"\nobjects with other machine code: {len(changes)}, worse: {worse}\n")
    print_table(["before", "after", "objects"], [[*key, str(n)] for *key, n in counts(changes)], wrap=[])


def _print_sweep(results: Sequence[Result]) -> None:
    lines = [sweep_page.line(result) for result in results]
    numbers = Counter((line.arch, line.result) for line in lines)
    seen = [result for result in RESULTS if any(line.result == result for line in lines)]
    body = [[arch, *(str(numbers[arch, one]) for one in seen)] for arch in sorted({x.arch for x in lines})]
    print_table(["objects", *seen], body, wrap=[])
    shares = [result.judgement.share for result in results if result.judgement.share is not None]
    low = [r for r in results if r.judgement.share is not None and r.judgement.share < LOW_SHARE]
    if shares:
        click.echo(f"\nmedian share of an object's instructions that ran: {statistics.median(shares):.1%}")
    _list(f"\n{len(low)} objects of which less than {LOW_SHARE:.0%} ran:", [_low(r) for r in low])
    for one in seen:
        if one != "right":
            chosen = [r for r, line in zip(results, lines, strict=True) if line.result == one]
            _list(f"\n{one}:", [f"{r.path}: {r.judgement.reason}" for r in chosen])


def _low(result: Result) -> str:
    return f"{result.judgement.share:.0%} of {result.path}"


def _list(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    click.echo(title)
    for line in lines[:LISTED]:
        click.echo(f"  {line}")
    if len(lines) > LISTED:
        click.echo(f"  and {len(lines) - LISTED} more: --json has all")
