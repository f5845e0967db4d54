"""Takes apart what was read of a release into items, each with what it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from aiter_conformance.families import load_families
from aiter_conformance.gate.classes import Standing
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.items_findings import by_place, finding_of, loose_findings
from aiter_conformance.gate.items_rows import kernel_items, tuned_items
from aiter_conformance.levels.inventory import Contents
from aiter_conformance.release.api import ENUM_PATH, GATE_MODE_PATH, EnumFact
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding as Fault
from aiter_conformance.release.imports import ImportFact
from aiter_conformance.release.pysource import Signature

# Anchors that say again what an item of the interface says: with it, they are one cause.
_ANCHOR_RESTS_ON: Final = {
    "gate-mode-default": ("parameter fused_moe(gate_mode)",),
    "swiglu-limit-default": ("parameter fused_moe(swiglu_limit)",),
    "gate-mode-values": ("members of GateMode",),
    "activation-type-values": ("members of ActivationType",),
    "quant-type-values": ("members of QuantType",),
}


def items_of(release: Release, contents: Contents) -> tuple[Item, ...]:
    """Return the items of a release, all but its cells.

    Raises:
        InfrastructureError: A file of the artefact cannot be read.
    """
    attributed: set[Fault] = set()
    items = [
        *_modules(contents),
        *_interface(contents),
        *kernel_items(release, contents, attributed),
        *_imports(contents, attributed),
        *_anchors(contents, attributed),
        *tuned_items(contents, attributed),
    ]
    items += loose_findings(fault for fault in contents.findings if fault not in attributed)
    return tuple(items)


def _modules(contents: Contents) -> Iterator[Item]:
    """Yield the files that leaves import or kernels are made from."""
    paths = {
        f"{base}.py" if f"{base}.py" in contents.paths else f"{base}/__init__.py": module
        for module, there in contents.facts.modules.items()
        if there
        for base in [module.replace(".", "/")]
    }
    needed = {path for family in load_families() for path in family.needs}
    paths |= {path: path for path in sorted({*needed, GATE_MODE_PATH, ENUM_PATH}) if path in contents.paths}
    for path, name in paths.items():
        yield Item(
            ItemKind.MODULE,
            name,
            Standing.GOOD,
            "present",
            path,
            provides=(f"file {path}", f"module {path.removesuffix('.py').replace('/', '.')}"),
        )
    for generator, choices in sorted(contents.generator_activations.items()):
        for choice in sorted(choices):
            token = f"choice {generator} {choice}"
            yield Item(
                ItemKind.CHOICE,
                f"{generator} --activation {choice}",
                Standing.GOOD,
                "taken",
                generator,
                group=generator,
                provides=(token,),
                rests_on=(f"file {generator}",),
            )


def _interface(contents: Contents) -> Iterator[Item]:
    api = contents.facts.api
    for signature in (api.fused_moe, api.asm_moe_tkw1):
        if signature is not None:
            yield from _signature(signature)
    for enum in (api.activation_type, api.quant_type, api.gate_mode):
        if enum is not None:
            yield from _enum(enum)
    for arch in api.archs or ():
        yield Item(ItemKind.ARCH, arch, Standing.GOOD, "known", provides=(f"arch {arch}",))
    if contents.facts.flydsl is not None:
        yield Item(ItemKind.REQUIREMENT, "flydsl", Standing.GOOD, contents.facts.flydsl)
    if contents.facts.build_archs is not None:
        yield Item(ItemKind.REQUIREMENT, "built for", Standing.GOOD, ", ".join(contents.facts.build_archs))


def _signature(signature: Signature) -> Iterator[Item]:
    function, where = signature.function, f"{signature.path}:{signature.line}"
    yield Item(
        ItemKind.FUNCTION,
        function,
        Standing.GOOD,
        ", ".join(signature.names),
        where,
        provides=(f"function {function}",),
        rests_on=(f"file {signature.path}",),
    )
    names = ["the start", *signature.names, "the end"]
    for before, parameter, after in zip(names, signature.parameters, names[2:], strict=False):
        yield Item(
            ItemKind.PARAMETER,
            f"{function}({parameter.name})",
            Standing.GOOD,
            f"{'required' if parameter.default is None else f'default {parameter.default}'}"
            f"{'' if parameter.kind == 'positional-or-keyword' else f', {parameter.kind}'}",
            where,
            group=function,
            note=f"between {before} and {after}",
            provides=(f"parameter {function}({parameter.name})",),
            rests_on=(f"function {function}", f"file {signature.path}"),
        )


def _enum(enum: EnumFact) -> Iterator[Item]:
    where = f"{enum.path}:{enum.line}"
    yield Item(
        ItemKind.ENUM,
        enum.name,
        Standing.GOOD,
        "present",
        where,
        provides=(f"enum {enum.name}",),
        rests_on=(f"file {enum.path}",),
    )
    for member, value in enum.members.items():
        yield Item(
            ItemKind.MEMBER,
            f"{enum.name}.{member}",
            Standing.GOOD,
            str(value),
            where,
            group=enum.name,
            provides=(f"member {enum.name}.{member}", f"members of {enum.name}"),
            rests_on=(f"enum {enum.name}", f"file {enum.path}"),
        )


def _imports(contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    """Yield the modules of which something is imported that is not there; one item a module."""
    failing: dict[str, list[ImportFact]] = defaultdict(list)
    for fact in contents.facts.imports:
        if fact.fails:
            failing[fact.module].append(fact)
    places = by_place(contents.facts.findings)
    for module, facts in sorted(failing.items()):
        faults = [fault for fact in facts for fault in places.get((fact.path, fact.line), [])]
        attributed.update(faults)
        shown = sorted({f"{fact.name or 'the module'} on {', '.join(fact.archs)}" for fact in facts})
        yield Item(
            ItemKind.IMPORT,
            module,
            Standing.BAD,
            f"not in the release: {'; '.join(shown)}",
            f"{facts[0].path}:{facts[0].line}",
            rests_on=(f"module {module}", *(f"file {fact.path}" for fact in facts)),
            findings=tuple(dict.fromkeys(finding_of(fault) for fault in faults)),
        )


def _anchors(contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    places = by_place(contents.facts.findings)
    standing = {"holds": Standing.GOOD, "changed": Standing.BAD, "absent": Standing.UNKNOWN}
    for anchor in contents.facts.anchors:
        faults = [
            fault
            for place in anchor.places
            for fault in places.get((place.path, place.line), [])
            if not place.agrees and fault.message.startswith(f"{anchor.name}:")
        ]
        attributed.update(faults)
        odd = [place for place in anchor.places if not place.agrees] or list(anchor.places)
        files = sorted({f"file {place.path}" for place in anchor.places})
        yield Item(
            ItemKind.ANCHOR,
            anchor.name,
            standing[anchor.status.value],
            anchor.status.value,
            f"{odd[0].path}:{odd[0].line}" if odd else "",
            note=anchor.expected,
            provides=(f"anchor {anchor.name}",),
            rests_on=(*_ANCHOR_RESTS_ON.get(anchor.name, ()), *files),
            findings=tuple(finding_of(fault) for fault in faults),
        )
