"""Everything that is read from a release's sources, and how it differs from one release to the next."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from enum import StrEnum

from packaging.requirements import InvalidRequirement, Requirement

from aiter_conformance.axes import load_axes
from aiter_conformance.release.anchor_finders import Place
from aiter_conformance.release.anchors import Anchor, read_anchors
from aiter_conformance.release.api import ApiFacts, EnumFact, read_api
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.files import METADATA_PATH
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.imports import ENTRY_MODULES, ImportFact, read_imports
from aiter_conformance.release.pysource import Signature, Sources, find_assignment
from aiter_conformance.release.version import version_key

_PREBUILT = re.compile(r"aiter/jit/(module_moe\w*)\.so")
# Entry names of the bundle that the compiler embeds in an extension module, one for each arch it was built
# for.
_BUNDLE_ENTRY = re.compile(rb"amdgcn-amd-amdhsa-[^-]*-(gfx[0-9a-z]+)")


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """What a release's sources say.

    Attributes:
        version: The release's version.
        api: Signatures, enumerations, archs.
        modules: Whether each module that the bridge imports is there.
        anchors: The named checks, in their own order.
        imports: Every import of AITER's own modules that a call can reach.
        flydsl: The FlyDSL versions that it asks for, e.g. ``==0.2.4``; None if it asks for none.
        build_archs: The archs that its prebuilt MoE modules were compiled for; None if it has no such module,
            or none that says so: AITER then compiles for the GPU that it finds.
        findings: Unreadable sources, anchors that changed and imports that do not resolve, sorted.
    """

    version: str
    api: ApiFacts
    modules: dict[str, bool]
    anchors: tuple[Anchor, ...]
    imports: tuple[ImportFact, ...]
    flydsl: str | None
    build_archs: tuple[str, ...] | None
    findings: tuple[Finding, ...]

    def flat(self) -> dict[str, str]:
        """Return the facts as text by name, for comparing releases; what is absent has no entry."""
        return dict(self._flat())

    def _flat(self) -> Iterator[tuple[str, str]]:
        for signature in (self.api.fused_moe, self.api.asm_moe_tkw1):
            if signature is not None:
                yield from _flat_signature(signature)
        for enum in (self.api.activation_type, self.api.quant_type, self.api.gate_mode):
            if enum is not None:
                yield from _flat_enum(enum)
        for arch in self.api.archs or ():
            yield f"arch {arch}", "known"
        for module, there in self.modules.items():
            if there:
                yield f"module {module}", "present"
        for anchor in self.anchors:
            yield f"anchor {anchor.name}", anchor.status.value
        for fact in self.imports:
            if fact.fails:
                archs = ", ".join(fact.archs)
                yield f"import of {fact.module}:{fact.name} in {fact.path}", f"fails on {archs}"
        if self.flydsl is not None:
            yield "flydsl", self.flydsl
        if self.build_archs is not None:
            yield "built for", ", ".join(self.build_archs)


def read_facts(
    release: Release, archs: Sequence[str] | None = None, *, sources: Sources | None = None
) -> ReleaseFacts:
    """Read every fact of *release*.

    Args:
        release: An open release.
        archs: The archs that branches are decided for; by default those of the matrix.
        sources: Its sources, if some were parsed already.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    sources = sources or Sources(release.files)
    api = read_api(release, sources)
    anchors = read_anchors(sources)
    imports = read_imports(sources, tuple(load_axes().archs) if archs is None else archs)
    paths = set(release.files.paths)
    bases = {module: module.replace(".", "/") for module in ENTRY_MODULES}
    findings = set(sources.findings) | {_unresolved(fact) for fact in imports if fact.fails}
    findings |= {_changed(anchor, place) for anchor in anchors for place in anchor.places if not place.agrees}
    return ReleaseFacts(
        version=release.version,
        api=api,
        modules={m: f"{base}.py" in paths or f"{base}/__init__.py" in paths for m, base in bases.items()},
        anchors=anchors,
        imports=imports,
        flydsl=_flydsl_requirement(sources),
        build_archs=_build_archs(release),
        findings=tuple(sorted(findings)),
    )


class ChangeKind(StrEnum):
    """How a fact differs between a release and the one before."""

    APPEARED = "appeared"
    DISAPPEARED = "disappeared"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        version: The first release that is different.
        fact: The fact's name.
        kind: How it differs from the release before in the table.
        before: Its text before; None if it was not there.
        after: Its text since; None if it is gone.
    """

    version: str
    fact: str
    kind: ChangeKind
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FactsTable:
    """The facts of several releases side by side.

    Attributes:
        versions: The releases, oldest first.
        rows: For each fact, its text in each release; None where it is not there. The facts are in the order
            in which they first appear.
    """

    versions: tuple[str, ...]
    rows: dict[str, tuple[str | None, ...]]

    def changes(self) -> tuple[Change, ...]:
        """Return what appeared, disappeared or changed, release by release."""
        found = []
        for index, version in enumerate(self.versions[1:], start=1):
            for fact, texts in self.rows.items():
                before, after = texts[index - 1], texts[index]
                if before == after:
                    continue
                if before is None:
                    kind = ChangeKind.APPEARED
                else:
                    kind = ChangeKind.DISAPPEARED if after is None else ChangeKind.CHANGED
                found.append(Change(version, fact, kind, before, after))
        return tuple(found)


def facts_table(facts: Sequence[ReleaseFacts]) -> FactsTable:
    """Put the facts of *facts* side by side, oldest release first."""
    return table_of({one.version: one.flat() for one in facts})


def table_of(flats: Mapping[str, Mapping[str, str]]) -> FactsTable:
    """Put facts side by side that are text by name, given by version; oldest release first."""
    versions = sorted(flats, key=version_key)
    names = dict.fromkeys(name for version in versions for name in flats[version])
    rows = {name: tuple(flats[version].get(name) for version in versions) for name in names}
    return FactsTable(tuple(versions), rows)


def _flat_signature(signature: Signature) -> Iterator[tuple[str, str]]:
    """Yield the number of parameters, and for each its default and its neighbour, which tells insertions."""
    yield signature.function, f"{len(signature.parameters)} parameters"
    previous = "first"
    for parameter in signature.parameters:
        default = "required" if parameter.default is None else f"default {parameter.default}"
        yield f"{signature.function}({parameter.name})", f"{default}, {previous}"
        previous = f"after {parameter.name}"


def _flat_enum(enum: EnumFact) -> Iterator[tuple[str, str]]:
    for member, value in enum.members.items():
        yield f"{enum.name}.{member}", str(value)


def _changed(anchor: Anchor, place: Place) -> Finding:
    message = f"{anchor.name}: {anchor.expected} (got {place.source!r})"
    return Finding(place.path, place.line, FindingCode.ANCHOR_CHANGED, message)


def _unresolved(fact: ImportFact) -> Finding:
    name = f"{fact.module}:{fact.name}" if fact.name else fact.module
    when = "when it is called" if fact.lazy else "when it is imported"
    message = f"every import must resolve ({name} is not in the release; {when}, on {', '.join(fact.archs)})"
    return Finding(fact.path, fact.line, FindingCode.IMPORT_UNRESOLVED, message)


def _flydsl_requirement(sources: Sources) -> str | None:
    """Return the specifier of the requirement on flydsl, from the metadata or else the build's own files."""
    lines: list[str] = []
    if (metadata := sources.text(METADATA_PATH)) is not None:
        lines += [str(line) for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist", [])]
    lines += (sources.text("requirements.txt") or "").splitlines()
    setup = sources.tree("setup.py")
    pin = find_assignment(setup, "FLYDSL_VERSION") if setup else None
    if isinstance(pin, ast.Constant):
        lines.append(str(pin.value))
    for line in lines:
        try:
            requirement = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:
            continue
        if requirement.name == "flydsl":
            return str(requirement.specifier)
    return None


def _build_archs(release: Release) -> tuple[str, ...] | None:
    modules = [path for path in release.files.paths if _PREBUILT.fullmatch(path)]
    archs: set[str] = set()
    for _, content in release.files.read_many(modules):
        archs.update(name.decode() for name in _BUNDLE_ENTRY.findall(content))
    return tuple(sorted(archs)) or None
