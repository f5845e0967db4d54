"""``isa probe``: what a shipped object does with orders of waves, ends of its inputs, and LDS."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiter_conformance.cli.isa_run import choose_cases, describe_variant
from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json

if TYPE_CHECKING:
    from aiter_conformance.isa_probe import OrderResult, Report

LISTED = 6


@click.command("probe")
@click.argument("release_text", metavar="RELEASE")
@click.argument("object_text", metavar="OBJECT")
@click.option(
    "--shape",
    "shape_text",
    metavar="NAME|SIZES",
    default="few",
    show_default=True,
    help="A case of the sweep by name, or sizes, as for `isa run`.",
)
@click.option("--gelu", is_flag=True, help="With sizes: ask a stage-1 object for GELU instead of SiLU.")
@click.option(
    "--turn",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Orders have turns of 1 to this many instructions.",
)
@root_option
@json_option
def probe_command(
    release_text: str,
    object_text: str,
    shape_text: str,
    gelu: bool,
    turn: int,
    root: Path,
    as_json: bool,
) -> int:
    """Inform about a shipped OBJECT of RELEASE; judge nothing.

    Tries orders of waves and says whether the bits of the output differ; names reads past the end of an input
    and the LDS accesses of two waves that no barrier orders. Exit code 0 whatever is found.
    """
    from aiter_conformance import isa_probe
    from aiter_conformance.isa import fast, objects
    from aiter_conformance.isa_probe.order import orders

    folder = root / "build" / "isa"
    opened = objects.open_object(release_text, object_text, folder)
    [case] = choose_cases(opened.kind, shape_text, gelu)
    report = isa_probe.probe(opened, case, fast.load(folder), orders(turn))
    if as_json:
        print_json({"path": opened.path, "arch": opened.kind.arch, **asdict(report)})
        return 0
    click.echo(f"{opened.path}\n{describe_variant(opened.kind)}\n{report.case}: {report.shape}")
    _print_orders(report)
    _print_past_end(report)
    _print_conflicts(report)
    return 0


def _print_orders(report: Report) -> None:
    usual, *others = report.orders
    click.echo(f"\nOrders of waves, against {usual.name} ({_error(usual)}):")
    same = sum(order.differing == 0 for order in others)
    click.echo(f"  {same} of {len(others)} orders give the same bits")
    for order in others:
        if order.fault is not None or order.differing is None:
            click.echo(f"  {order.name}: {_error(order)}")
        elif order.differing:
            click.echo(
                f"  {order.name}: {order.differing} of {report.elements} elements differ, {_error(order)}"
            )
    if report.adds and same < len(others):
        click.echo("  the object has atomic sums, whose rounding may differ with the order: see the errors")


def _error(order: OrderResult) -> str:
    if order.fault is not None:
        return order.fault
    return "the output has NaN" if order.error is None else f"relative error {order.error:.2g}"


def _print_past_end(report: Report) -> None:
    click.echo(f"\nReads past the end of an allocation: {len(report.past_end)} instructions")
    for read in report.past_end[:LISTED]:
        click.echo(
            f"  pc {read.pc:#x} '{read.text}': {read.count} lane accesses, "
            f"at most {read.furthest} bytes past\n"
            f"    first: work-group {read.group}, wave {read.wave}, lane {read.lane}, address "
            f"{read.address:#x}; {read.nearest}"
        )
    _more(len(report.past_end))
    if report.fault is not None:
        click.echo(f"  the run ended: {report.fault}")


def _print_conflicts(report: Report) -> None:
    click.echo(
        f"\nLDS accesses of two waves without a barrier between: "
        f"{len(report.conflicts)} pairs of instructions"
    )
    for pair in report.conflicts[:LISTED]:
        click.echo(
            f"  {pair.kind} on {pair.count} bytes; first: work-group {pair.group}, LDS byte {pair.byte}"
        )
        for pc, text, wave in zip(pair.pcs, pair.texts, pair.waves, strict=True):
            click.echo(f"    wave {wave}, pc {pc:#x} '{text}'")
    _more(len(report.conflicts))


def _more(count: int) -> None:
    if count > LISTED:
        click.echo(f"  and {count - LISTED} more: --json has all")
