"""Takes apart what was read of a release into items, each with what it rests on."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from aiter_conformance.evidence import Finding
from aiter_conformance.families import load_families
from aiter_conformance.gate.calls import shape_token
from aiter_conformance.gate.classes import Standing
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.levels.inventory import Contents
from aiter_conformance.release.api import ENUM_PATH, GATE_MODE_PATH, EnumFact
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding as Fault
from aiter_conformance.release.findings import FindingCode
from aiter_conformance.release.imports import ImportFact
from aiter_conformance.release.pysource import Signature
from aiter_conformance.release.tuned_rows import TunedKey, TunedRow, short_dtype

# Anchors that say again what an item of the interface says: with it, they are one cause.
_ANCHOR_RESTS_ON: Final = {
    "gate-mode-default": ("parameter fused_moe(gate_mode)",),
    "swiglu-limit-default": ("parameter fused_moe(swiglu_limit)",),
    "gate-mode-values": ("members of GateMode",),
    "activation-type-values": ("members of ActivationType",),
    "quant-type-values": ("members of QuantType",),
}
# Columns of tuned tables that were measured, or are remarks: they steer nothing.
_MEASURED: Final = frozenset({"us", "us1", "us2", "err1", "err2", "tflops", "bw", "_tag"})
_LINE: Final = re.compile(r"(?<=:)\d+\b|\bline \d+\b")
# Findings that say that a file, or a row of it, cannot be used.
_SPOILS_FILE: Final = frozenset(
    {
        FindingCode.SOURCE_UNREADABLE,
        FindingCode.MANIFEST_UNREADABLE,
        FindingCode.TABLE_UNREADABLE,
        FindingCode.MALFORMED_ROW,
        FindingCode.UNREADABLE_OBJECT,
        FindingCode.WRONG_ARCH,
    }
)
_NOT_SET: Final = frozenset({"", "0", "0.0", "False", "nan"})


def items_of(release: Release, contents: Contents) -> tuple[Item, ...]:
    """Return the items of a release, all but its cells.

    Raises:
        InfrastructureError: A file of the artefact cannot be read.
    """
    attributed: set[Fault] = set()
    items = [
        *_modules(contents),
        *_interface(contents),
        *_kernels(release, contents, attributed),
        *_imports(contents, attributed),
        *_anchors(contents, attributed),
        *_tuned(contents, attributed),
    ]
    items += _loose_findings(fault for fault in contents.findings if fault not in attributed)
    return tuple(items)


def finding_of(fault: Fault) -> Finding:
    """Return a reader's finding as records have it."""
    return Finding(
        fault.code.value, f"{fault.path}:{fault.line}" if fault.line else fault.path, fault.message
    )


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


def _kernels(release: Release, contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    """Yield each manifest and each of its rows, the row's text with a hash of its machine code."""
    by_place = _by_place(contents.inventory.findings)
    objects = {row.object_path for manifest in contents.inventory.manifests for row in manifest.rows}
    present = sorted(objects & contents.paths)
    digests = {p: hashlib.sha256(c).hexdigest()[:12] for p, c in release.files.read_many(present)}
    for manifest in contents.inventory.manifests:
        yield Item(
            ItemKind.MANIFEST,
            manifest.path,
            Standing.GOOD,
            "present",
            manifest.path,
            provides=(f"manifest {manifest.path}",),
            rests_on=(f"file {manifest.path}",),
        )
        seen: set[str] = set()
        for row in manifest.rows:
            faults = by_place.get((manifest.path, row.line), [])
            attributed.update(faults)
            if row.kernel in seen:  # a repeated row is a fault of the first one
                continue
            seen.add(row.kernel)
            tile = " ".join(f"{name}={value}" for name, value in row.tile.items())
            yield Item(
                ItemKind.KERNEL,
                f"{manifest.path} {row.kernel}",
                Standing.GOOD if row.sound else Standing.BAD,
                f"{tile}, code {digests.get(row.object_path, 'missing')}",
                f"{manifest.path}:{row.line}",
                group=manifest.path,
                note=tile,
                provides=(f"rows of {manifest.path}", f"kernel {manifest.arch} {row.kernel}"),
                rests_on=(
                    f"manifest {manifest.path}",
                    f"file {manifest.path}",
                    f"file {row.object_path}",
                    f"arch {manifest.arch}",
                ),
                findings=tuple(finding_of(fault) for fault in faults),
            )


def _imports(contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    """Yield the modules of which something is imported that is not there; one item a module."""
    failing: dict[str, list[ImportFact]] = defaultdict(list)
    for fact in contents.facts.imports:
        if fact.fails:
            failing[fact.module].append(fact)
    by_place = _by_place(contents.facts.findings)
    for module, facts in sorted(failing.items()):
        faults = [fault for fact in facts for fault in by_place.get((fact.path, fact.line), [])]
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
    by_place = _by_place(contents.facts.findings)
    standing = {"holds": Standing.GOOD, "changed": Standing.BAD, "absent": Standing.UNKNOWN}
    for anchor in contents.facts.anchors:
        faults = [
            fault
            for place in anchor.places
            for fault in by_place.get((place.path, place.line), [])
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


def _tuned(contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    by_place = _by_place(contents.tuned.findings)
    seen: set[str] = set()
    for row in sorted(contents.tuned.rows, key=lambda row: not row.sound):
        faults = by_place.get((row.path, row.line), [])
        attributed.update(faults)
        group = tuned_group(row.key, fallback=row.fallback)
        key = f"{group} M={row.key.token}"
        if key in seen:  # the first good row counts; what is wrong with another is a finding of its own
            if faults:
                yield from _loose_findings(faults)
            continue
        seen.add(key)
        yield Item(
            ItemKind.TUNED,
            key,
            Standing.GOOD if row.sound else Standing.BAD,
            _tuned_text(row),
            f"{row.path}:{row.line}",
            group=group,
            note=f"M={row.key.token}",
            provides=(_shape_token(row.key),),
            rests_on=(
                f"file {row.path}",
                f"arch {row.key.gfx}",
                *(f"kernel {row.key.gfx} {kernel}" for kernel in row.kernels if kernel),
            ),
            findings=tuple(finding_of(fault) for fault in faults),
        )


def _shape_token(key: TunedKey) -> str:
    return shape_token(f"{key.gfx}:{key.cu_num}", key.model_dim, key.inter_dim, key.expert, key.topk)


def tuned_group(key: TunedKey, *, fallback: bool) -> str:
    """Return all of a tuned key but its token bucket, for people: the board, a comma and the rest.

    A *fallback* row stands in where FlyDSL is not installed.
    """
    board = f"{key.gfx or 'no arch'} {key.cu_num} CUs"
    board += " where FlyDSL is not installed," if fallback else ","
    a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
    parts = [
        f"{board} {key.q_type} {a}x{w} {key.act_type}",
        f"H{key.model_dim} I{key.inter_dim} E{key.expert} k{key.topk}",
    ]
    parts += [] if key.use_g1u1 else ["g1u0"]
    parts += ["router weight in"] if key.doweight_stage1 else []
    parts += [] if key.dtype == "bfloat16" else [key.dtype]
    parts += [key.variant] if key.variant else []
    return " ".join(parts)


def _tuned_text(row: TunedRow) -> str:
    settings = {n: v for n, v in row.settings.items() if n not in _MEASURED and v not in _NOT_SET}
    kernels = " + ".join(kernel or "C++ picks" for kernel in row.kernels)
    return ", ".join([kernels, *(f"{name} {value}" for name, value in sorted(settings.items()))])


def _loose_findings(faults: Iterable[Fault]) -> Iterator[Item]:
    """Yield findings that belong to no other item, recognised by what they say and not by their line."""
    for fault in faults:
        yield Item(
            ItemKind.FINDING,
            f"{fault.code.value} {fault.path}: {_LINE.sub('', fault.message)}",
            Standing.BAD,
            fault.message,
            finding_of(fault).path,
            group=fault.code.value,
            provides=(f"file {fault.path}",) if fault.code in _SPOILS_FILE else (),
            findings=(finding_of(fault),),
        )


def _by_place(faults: Iterable[Fault]) -> dict[tuple[str, int], list[Fault]]:
    found: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for fault in faults:
        found[fault.path, fault.line].append(fault)
    return found
