"""The interface that a release offers to the fused-MoE leaves, read from its sources and never imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from aiter_conformance.release.artefact import Release
from aiter_conformance.release.cpp_enums import parse_enums
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.pysource import (
    Signature,
    Sources,
    find_assignment,
    find_class,
    find_function,
    signature_of,
)

FUSED_MOE_PATH = "aiter/fused_moe.py"
TKW1_PATH = "aiter/fused_moe_bf16_asm.py"
ENUM_PATH = "csrc/include/aiter_enum.h"
GATE_MODE_PATH = "aiter/ops/flydsl/moe_common.py"
# The table of archs has moved once; both files are its whole world.
ARCH_TABLE_PATHS = ("aiter/jit/utils/build_targets.py", "aiter/jit/utils/chip_info.py")
_ARCH_TABLE = "GFX_MAP"


@dataclass(frozen=True, slots=True)
class EnumFact:
    """An enumeration of the release.

    Attributes:
        name: Its name.
        path: Release-relative path.
        line: Line of its definition, counted from 1.
        members: Value by member name, in the order of the source.
    """

    name: str
    path: str
    line: int
    members: dict[str, int | str]


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """What the release's interface is. A fact that is None has its reason in `absent`.

    Attributes:
        fused_moe: Signature of ``aiter.fused_moe.fused_moe``.
        asm_moe_tkw1: Signature of ``aiter.fused_moe_bf16_asm.asm_moe_tkw1``.
        activation_type: The enumeration ``ActivationType``.
        quant_type: The enumeration ``QuantType``.
        gate_mode: The enumeration ``aiter.ops.flydsl.moe_common.GateMode``.
        archs: The archs that the release's own table knows, sorted; detection of any other fails.
        absent: Why a fact is None, by the fact's name.
        findings: Sources that could not be understood, sorted.
    """

    fused_moe: Signature | None
    asm_moe_tkw1: Signature | None
    activation_type: EnumFact | None
    quant_type: EnumFact | None
    gate_mode: EnumFact | None
    archs: tuple[str, ...] | None
    absent: dict[str, str]
    findings: tuple[Finding, ...]


def read_api(release: Release, sources: Sources | None = None) -> ApiFacts:
    """Read the interface of *release*.

    Args:
        release: An open release.
        sources: Its sources, if some of them are parsed already.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    reader = _Reader(sources or Sources(release.files))
    enums = reader.cpp_enums("ActivationType", "QuantType")
    fused_moe = reader.signature("fused_moe", FUSED_MOE_PATH)
    asm_moe_tkw1 = reader.signature("asm_moe_tkw1", TKW1_PATH)
    gate_mode = reader.string_enum("gate_mode", "GateMode", GATE_MODE_PATH)
    archs = reader.archs()
    return ApiFacts(
        fused_moe=fused_moe,
        asm_moe_tkw1=asm_moe_tkw1,
        activation_type=enums["ActivationType"],
        quant_type=enums["QuantType"],
        gate_mode=gate_mode,
        archs=archs,
        absent=reader.absent,
        findings=tuple(sorted(reader.sources.findings)),
    )


class _Reader:
    """Reads one fact a method, and keeps why a fact is absent."""

    _FACT_OF_ENUM = {"ActivationType": "activation_type", "QuantType": "quant_type"}  # noqa: RUF012

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.absent: dict[str, str] = {}

    def signature(self, name: str, path: str) -> Signature | None:
        tree = self._tree(name, path)
        if tree is None:
            return None
        function = find_function(tree, name)
        if function is None:
            self.absent[name] = f"{path} defines no function {name}"
            return None
        return signature_of(function, path)

    def string_enum(self, fact: str, name: str, path: str) -> EnumFact | None:
        tree = self._tree(fact, path)
        if tree is None:
            return None
        found = find_class(tree, name)
        if found is None:
            self.absent[fact] = f"{path} defines no class {name}"
            return None
        members: dict[str, int | str] = {}
        for node in found.body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=member)], value=ast.Constant(value=int() | str() as value)
                ):
                    members[member] = value
                case ast.Assign():
                    message = f"members of {name} must be constants (got {ast.unparse(node)!r})"
                    self._found(path, node.lineno, message)
        return EnumFact(name, path, found.lineno, members)

    def cpp_enums(self, *names: str) -> dict[str, EnumFact | None]:
        facts: dict[str, EnumFact | None] = dict.fromkeys(names)
        try:
            text = self.sources.files.read(ENUM_PATH).decode("utf-8", errors="replace")
        except KeyError:
            self.absent.update({self._FACT_OF_ENUM[name]: f"there is no {ENUM_PATH}" for name in names})
            return facts
        enums, faults = parse_enums(text)
        for line, message in faults:
            self._found(ENUM_PATH, line, message)
        for name in names:
            if name in enums:
                facts[name] = EnumFact(name, ENUM_PATH, enums[name].line, dict(enums[name].members))
            else:
                self.absent[self._FACT_OF_ENUM[name]] = f"{ENUM_PATH} defines no readable enum {name}"
        return facts

    def archs(self) -> tuple[str, ...] | None:
        for path in ARCH_TABLE_PATHS:
            tree = self.sources.tree(path)
            table = None if tree is None else find_assignment(tree, _ARCH_TABLE)
            if isinstance(table, ast.Dict):
                values = [value.value for value in table.values if isinstance(value, ast.Constant)]
                return tuple(sorted(str(value) for value in values if str(value).startswith("gfx")))
        self.absent["archs"] = f"no table {_ARCH_TABLE} in {' or '.join(ARCH_TABLE_PATHS)}"
        return None

    def _tree(self, fact: str, path: str) -> ast.Module | None:
        tree = self.sources.tree(path)
        if tree is None:
            there = path in self.sources.files.paths
            self.absent[fact] = f"{path} cannot be parsed" if there else f"there is no {path}"
        return tree

    def _found(self, path: str, line: int, message: str) -> None:
        self.sources.findings.append(Finding(path, line, FindingCode.SOURCE_UNREADABLE, message))
