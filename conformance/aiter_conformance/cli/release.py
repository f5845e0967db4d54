"""``release show``: what a release is, offers and ships."""

from __future__ import annotations

from dataclasses import asdict

import click

from aiter_conformance.cli.output import json_option, print_json, print_table, progress
from aiter_conformance.factfile import flat_facts
from aiter_conformance.release.api import ApiFacts, read_api
from aiter_conformance.release.artefact import Release, open_release
from aiter_conformance.release.facts import read_facts, table_of
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.release.tuned import read_tuned


@click.group("release")
def release_group() -> None:
    """Look at an AITER release without importing it."""


@release_group.command()
@click.argument("release_text", metavar="RELEASE")
@json_option
def show(release_text: str, as_json: bool) -> int:
    """Show version, interface and kernels of a release. Exit code 1 if something is wrong in it."""
    with open_release(release_text) as opened:
        api = read_api(opened)
        with progress() as advance:
            inventory = take_inventory(opened, lambda done, total: advance("code objects", done, total))
        findings = sorted(api.findings + inventory.findings)
        if as_json:
            print_json(_document(opened, api, inventory))
        else:
            _print(opened, api, inventory)
    if not as_json:
        click.echo(f"\n{len(findings)} findings" if findings else "\nno findings")
        for finding in findings:
            click.echo(f"  {finding}")
    return 1 if findings else 0


@release_group.command()
@click.argument("release_texts", metavar="RELEASE...", nargs=-1, required=True)
@json_option
def facts(release_texts: tuple[str, ...], as_json: bool) -> None:
    """Show what the sources of a release say, or what changed between several.

    One RELEASE: its facts. Several: what appeared, disappeared or changed, in the order of their versions.
    """
    flats = {}
    with progress() as advance:
        for number, text in enumerate(release_texts):
            advance("releases", number, len(release_texts))
            with open_release(text) as opened:
                flats[opened.version] = flat_facts(read_facts(opened), read_tuned(opened))
    side_by_side = table_of(flats)
    changes = side_by_side.changes()
    if as_json:
        print_json(
            {
                "versions": side_by_side.versions,
                "facts": side_by_side.rows,
                "changes": [asdict(change) for change in changes],
            }
        )
    elif len(side_by_side.versions) == 1:
        body = [[name, str(texts[0])] for name, texts in side_by_side.rows.items()]
        print_table(["fact", "in this release"], body, wrap=[0, 1])
    else:
        body = [[c.version, c.fact, c.kind.value, c.before or "-", c.after or "-"] for c in changes]
        print_table(["since", "fact", "how", "before", "after"], body, wrap=[1, 3, 4])


def _document(opened: Release, api: ApiFacts, inventory: Inventory) -> dict[str, object]:
    return {
        "version": opened.version,
        "kind": opened.kind.value,
        "identity": opened.identity,
        "api": asdict(api),
        "inventory": {
            "manifests": len(inventory.manifests),
            "rows": inventory.row_count,
            "sound_rows": inventory.sound_count,
            "objects": {arch: asdict(count) for arch, count in inventory.objects.items()},
        },
        "findings": [asdict(finding) for finding in sorted(api.findings + inventory.findings)],
    }


def _print(opened: Release, api: ApiFacts, inventory: Inventory) -> None:
    click.echo(f"AITER {opened.version} ({opened.kind.value})\nidentity {opened.identity}\n")
    facts = []
    for signature, name in ((api.fused_moe, "fused_moe"), (api.asm_moe_tkw1, "asm_moe_tkw1")):
        if signature is None:
            facts.append([name, f"absent: {api.absent[name]}"])
        else:
            facts.append([f"{name} ({len(signature.names)} parameters)", ", ".join(signature.names)])
    for enum, name, title in (
        (api.activation_type, "activation_type", "ActivationType"),
        (api.quant_type, "quant_type", "QuantType"),
        (api.gate_mode, "gate_mode", "GateMode"),
    ):
        words = (
            f"absent: {api.absent[name]}"
            if enum is None
            else ", ".join(f"{member} = {value}" for member, value in enum.members.items())
        )
        facts.append([title, words])
    archs = f"absent: {api.absent['archs']}" if api.archs is None else ", ".join(api.archs)
    facts.append(["GPUs it knows", archs])
    facts.append(["manifests", f"{len(inventory.manifests)}, {inventory.row_count} kernels"])
    for arch, count in inventory.objects.items():
        facts.append(
            [
                f"code objects for {arch}",
                f"{count.total}, {count.moe} for MoE ({count.orphans} in no manifest)",
            ]
        )
    print_table(["fact", "in this release"], facts, wrap=[1])
