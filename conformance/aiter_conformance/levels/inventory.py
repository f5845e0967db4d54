"""Level inventory: whether a release can take the call of each cell, and ships sound machine code for it.

What is compiled on first use on the user's machine cannot be shown here, nor which calls a family serves
that serves some alone: such a cell is not run, and the levels trace and compile decide.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from aiter_conformance.axes import Cell, spec_dir
from aiter_conformance.contract import ApiNeed, NeedKind, api_needs
from aiter_conformance.families import Family, load_families
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release.api import ApiFacts
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.facts import ReleaseFacts, read_facts
from aiter_conformance.release.findings import Finding
from aiter_conformance.release.inventory import Inventory, Manifest, Progress, take_inventory
from aiter_conformance.release.pysource import Sources
from aiter_conformance.release.tuned import TunedTables, read_tuned


@dataclass(frozen=True)
class Contents:
    """What was read of one release, and is asked for every cell.

    Attributes:
        facts: What its sources say.
        inventory: What it ships.
        tuned: Its tuned tables.
        paths: All its files.
        generator_activations: The activations that each generator of ``families.toml`` takes.
        handing_on: The functions of ``families.toml`` (``file:function``) that hand their call on to
            ``fused_moe``.
    """

    facts: ReleaseFacts
    inventory: Inventory
    tuned: TunedTables
    paths: frozenset[str]
    generator_activations: dict[str, frozenset[str]]
    handing_on: frozenset[str]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that is wrong in the release, sorted."""
        return tuple(sorted({*self.facts.findings, *self.inventory.findings, *self.tuned.findings}))


def read_contents(release: Release, progress: Progress | None = None) -> Contents:
    """Read everything that this level asks of a release.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    sources = Sources(release.files)
    generators = {family.generator for family in load_families() if family.generator}
    activations = {
        generator: _option_choices(tree, "--activation")
        for generator in sorted(generators)
        if (tree := sources.tree(generator)) is not None
    }
    through = {family.through for family in load_families() if family.through}
    inventory = take_inventory(release, progress)
    return Contents(
        facts=read_facts(release, sources=sources),
        inventory=inventory,
        tuned=read_tuned(release, inventory, sources=sources),
        paths=frozenset(release.files.paths),
        generator_activations=activations,
        handing_on=frozenset(each for each in through if _hands_on(sources, each)),
    )


def _hands_on(sources: Sources, through: str) -> bool:
    """Return whether a function, ``file:function``, calls ``fused_moe``."""
    path, _, name = through.partition(":")
    tree = sources.tree(path)
    body = [] if tree is None else [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == name]
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fused_moe"
        for function in body
        for node in ast.walk(function)
    )


def _option_choices(tree: ast.Module, option: str) -> frozenset[str]:
    """Return the choices of an argparse option: the constants in its ``choices=[...]``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keywords) if any(
                isinstance(name, ast.Constant) and name.value == option for name in names
            ):
                for keyword in keywords:
                    if keyword.arg == "choices" and isinstance(keyword.value, ast.List | ast.Tuple):
                        values = keyword.value.elts
                        return frozenset(str(v.value) for v in values if isinstance(v, ast.Constant))
    return frozenset()


def observe(contents: Contents, cells: Iterable[Cell]) -> dict[Cell, Outcome]:
    """Return for each cell whether the release can take its call and ships machine code for it."""
    manifests = {manifest.path: manifest for manifest in contents.inventory.manifests}
    return {cell: _observe_cell(contents, manifests, cell) for cell in cells}


def _observe_cell(contents: Contents, manifests: dict[str, Manifest], cell: Cell) -> Outcome:
    archs = contents.facts.api.archs
    if archs is not None and cell.arch not in archs:
        message = (
            f"This release does not know {cell.arch}: the GPUs it names are {', '.join(archs)}, and it ships "
            "no kernel for any other. A newer AITER is needed."
        )
        return Outcome(Kind.FAIL, Reason.ARCH_UNKNOWN, message)
    missing = [need for need in api_needs(cell) if not _has(contents.facts.api, need)]
    if missing:
        return Outcome(Kind.REFUSED, missing[0].reason, _missing_sentence(missing))
    return _observe_kernels(contents, manifests, cell)


def _has(api: ApiFacts, need: ApiNeed) -> bool:
    function = api.asm_moe_tkw1 if need.function == "asm_moe_tkw1" else api.fused_moe
    if need.kind is NeedKind.FUNCTION:
        return function is not None
    if need.kind is NeedKind.ARGUMENT:
        return function is not None and function.takes(need.name)
    enum = api.activation_type if need.kind is NeedKind.ACTIVATION else api.quant_type
    return enum is not None and enum.members.get(need.name) == need.value


def _missing_sentence(missing: list[ApiNeed]) -> str:
    lacks = []
    for need in missing:
        what = {
            NeedKind.FUNCTION: f"the function {need.module}.{need.name}",
            NeedKind.ARGUMENT: f"the argument {need.name} of {need.function}",
            NeedKind.ACTIVATION: f"the activation {need.name} = {need.value}",
            NeedKind.QUANT_TYPE: f"the quantisation {need.name} = {need.value}",
        }[need.kind]
        since = _first_release(need)
        lacks.append(f"{what} (in AITER from {since})" if since else what)
    return (
        f"The call needs what this release does not have: {', '.join(lacks)}. "
        f"Needed because {missing[0].why}. Kernels were not looked for."
    )


def _first_release(need: ApiNeed) -> str:
    table = {NeedKind.ARGUMENT: "arguments", NeedKind.ACTIVATION: "activations"}.get(need.kind, "")
    return _first_releases().get(table, {}).get(need.name, "")


@cache
def _first_releases() -> dict[str, dict[str, str]]:
    return tomllib.loads((spec_dir() / "api.toml").read_text(encoding="utf-8"))


def _observe_kernels(contents: Contents, manifests: dict[str, Manifest], cell: Cell) -> Outcome:
    kernels: dict[str, int] = {}
    broken: list[str] = []
    sometimes: list[str] = []
    shipped = False
    for family in load_families():
        if not family.may_launch(cell) or not contents.paths.issuperset(family.needs):
            continue
        if family.through is not None and family.through not in contents.handing_on:
            continue
        if not family.serves(cell):
            if family.needs:  # one that names no file would be in every release
                sometimes.append(family.name)
            continue
        if family.kind == "source":
            if _generator_takes(contents, family, cell):
                kernels[family.name] = 0
            continue
        manifest = manifests.get(family.manifest_of(cell))
        rows = () if manifest is None else manifest.rows
        sound = sum(row.sound for row in rows)
        if sound:
            kernels[family.name] = sound
            shipped |= family.complete
        faulty = [row.kernel for row in rows if not row.sound]
        if faulty:
            broken.append(f"{len(faulty)} of {len(rows)} of {family.name}, such as {faulty[0]}")
    details = {"kernels": kernels} if kernels else {}
    if broken:
        message = (
            f"The release lists kernels for this cell that are broken ({'; '.join(broken)}). AITER picks by "
            "its lists alone, so that a call that gets one cannot load it."
        )
        return Outcome(Kind.FAIL, Reason.KERNEL_BROKEN, message, details)
    if shipped:
        return Outcome(Kind.PASS, details=details)
    if any(kernels.values()):
        message = "Only a part is shipped in machine code; the rest is built on first use, out of sight here."
        return Outcome(Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE, message, details)
    if kernels:
        message = "Nothing is shipped in machine code; it is built on first use, out of sight here."
        return Outcome(Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE, message, details)
    if sometimes:
        message = (
            f"Only kernels that serve some calls of this cell are there ({', '.join(sometimes)}): which "
            "calls, a trace says."
        )
        return Outcome(Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE, message)
    message = (
        f"No kernel family in this release is known to do {cell.activation} with {cell.scheme} "
        f"on {cell.arch} with the router weight in this place. A newer AITER may have one."
    )
    return Outcome(Kind.FAIL, Reason.NO_KERNEL, message)


def _generator_takes(contents: Contents, family: Family, cell: Cell) -> bool:
    if family.generator is None:
        return True
    return family.activations[cell.activation] in contents.generator_activations.get(family.generator, ())
