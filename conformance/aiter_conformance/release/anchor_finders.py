"""How each anchor is found: structures in AITER's sources, never a line number or a spelling.

A finder yields every place where its structure stands, and says of each whether it is what the contract
expects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aiter_conformance.release.api import ENUM_PATH, FUSED_MOE_PATH, GATE_MODE_PATH
from aiter_conformance.release.cpp_enums import parse_enums
from aiter_conformance.release.pysource import (
    Sources,
    find_assignment,
    find_class,
    find_function,
    signature_of,
)

DTYPES_PATH = "aiter/utility/dtypes.py"
FLYDSL_FOLDER = "aiter/ops/flydsl/"
_GATE_VALUES = {"SEPARATED": "separated", "INTERLEAVE": "interleave"}
_FNUZ_ARCHS = "gfx94"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an anchor was found.

    Attributes:
        path: Release-relative path.
        line: Counted from 1.
        source: What stands there, on one line.
        agrees: True if it is what the contract expects.
    """

    path: str
    line: int
    source: str
    agrees: bool


Find = Callable[[Sources], Iterator[Place]]


def _place(path: str, node: ast.expr | ast.stmt | ast.arg, agrees: bool) -> Place:
    return Place(path, node.lineno, " ".join(ast.unparse(node).split()), agrees)


def _given(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield every value that is assigned to the variable *name* or passed as the argument *name*."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                yield node.value
        elif isinstance(node, ast.keyword) and node.arg == name:
            yield node.value


def _names(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def _is(node: ast.AST, source: str) -> bool:
    """Say whether *node* is the expression *source*, whatever its spelling."""
    return ast.dump(node) == ast.dump(ast.parse(source, mode="eval").body)


def pad_of(name: str, of: str, expected: str) -> Find:
    """Find the values of the pad *name* that are made of *of*, in the dispatcher."""

    def find(sources: Sources) -> Iterator[Place]:
        tree = sources.tree(FUSED_MOE_PATH)
        for value in _given(tree, name) if tree else ():
            if of in _names(value):
                yield _place(FUSED_MOE_PATH, value, _is(value, expected))

    return find


def _flydsl_trees(sources: Sources, *words: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the FlyDSL sources that hold all of *words*; they are large, so no others are parsed."""
    for path in sources.paths_holding(FLYDSL_FOLDER, *words):
        if (tree := sources.tree(path)) is not None:
            yield path, tree


def flydsl_stage1_pad(sources: Sources) -> Iterator[Place]:
    """Find what FlyDSL stage 1 makes of the intermediate pad."""
    for path, tree in _flydsl_trees(sources, "inter_dim_pad_total"):
        for value in _given(tree, "inter_dim_pad_total"):
            doubled = any(_is(node, "2 * inter_dim_pad") for node in ast.walk(value))
            yield _place(path, value, doubled)


def flydsl_stage2_tail(sources: Sources) -> Iterator[Place]:
    """Find where FlyDSL stage 2 stops reading along K."""
    for path, tree in _flydsl_trees(sources, "inter_dim_pad", "base_k"):
        for node in ast.walk(tree):
            sides = _less_than(node)
            if sides is not None and _is(sides[0], "base_k") and "inter_dim_pad" in _names(sides[1]):
                assert isinstance(node, ast.expr)  # noqa: S101 -- a comparison or a call
                yield _place(path, node, _is(sides[1], "inter_dim - inter_dim_pad"))


def _less_than(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return (a, b) of ``a < b``, also when written as a call of the arith dialect with the predicate ult."""
    match node:
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
            return left, right
        case ast.Call(args=[ast.Attribute(attr="ult"), left, right]):
            return left, right
        case ast.Call(args=[left, right, ast.Constant(value="ult")]):
            return left, right
    return None


def gate_mode_values(sources: Sources) -> Iterator[Place]:
    """Find the values of ``GateMode`` that the bridge sends; one that is missing does not agree."""
    tree = sources.tree(GATE_MODE_PATH)
    found = find_class(tree, "GateMode") if tree else None
    if found is None:
        return
    missing = dict(_GATE_VALUES)
    for node in found.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in missing:
                yield _place(GATE_MODE_PATH, node, _is(node.value, repr(missing.pop(name))))
    for name in missing:
        yield Place(GATE_MODE_PATH, found.lineno, f"class GateMode: no {name}", agrees=False)


def enum_values(name: str, expected: dict[str, int]) -> Find:
    """Find an enumeration, which must have the members of *expected* with these values."""

    def find(sources: Sources) -> Iterator[Place]:
        text = sources.text(ENUM_PATH)
        enum = parse_enums(text)[0].get(name) if text is not None else None
        if enum is not None:
            shown = ", ".join(f"{member} = {value}" for member, value in enum.members.items())
            agrees = all(enum.members.get(member) == value for member, value in expected.items())
            yield Place(ENUM_PATH, enum.line, f"enum {name} {{ {shown} }}", agrees)

    return find


def default_of(parameter: str, *neutral: str) -> Find:
    """Find the default of a parameter of ``fused_moe``: what AITER does when the bridge does not send it."""

    def find(sources: Sources) -> Iterator[Place]:
        tree = sources.tree(FUSED_MOE_PATH)
        function = find_function(tree, "fused_moe") if tree else None
        for found in signature_of(function, FUSED_MOE_PATH).parameters if function else ():
            if found.name == parameter:
                source = f"{parameter}={found.default}"
                assert function is not None  # noqa: S101 -- or there would be no parameters
                yield Place(FUSED_MOE_PATH, function.lineno, source, found.default in neutral)

    return find


def fp4x2(sources: Sources) -> Iterator[Place]:
    """Find the torch dtype of packed fp4."""
    tree = sources.tree(DTYPES_PATH)
    value = find_assignment(tree, "fp4x2") if tree else None
    if value is not None:
        yield _place(DTYPES_PATH, value, "float4_e2m1fn_x2" in ast.unparse(value))


def fp8_table(sources: Sources) -> Iterator[Place]:
    """Find the fp8 flavour of every arch."""
    tree = sources.tree(DTYPES_PATH)
    table = find_assignment(tree, "defaultDtypes") if tree else None
    if not isinstance(table, ast.Dict):
        return
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            flavour = "float8_e4m3fnuz" if key.value.startswith(_FNUZ_ARCHS) else "float8_e4m3fn"
            source = f"{key.value}: {ast.unparse(value)}"
            yield Place(DTYPES_PATH, key.lineno, source, _is(value, f"{{'fp8': torch.{flavour}}}"))


def fp8_arch(sources: Sources) -> Iterator[Place]:
    """Find which arch the fp8 flavour is looked up by."""
    tree = sources.tree(DTYPES_PATH)
    function = find_function(tree, "get_dtype_fp8") if tree else None
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Call(func=ast.Name(id=name)) if name.startswith("get_gfx"):
                yield _place(DTYPES_PATH, node, name == "get_gfx_runtime")


def function_with(path: str, name: str, **defaults: str | None) -> Find:
    """Find a function, which must take the named parameters with these defaults (None: it must be given)."""

    def find(sources: Sources) -> Iterator[Place]:
        tree = sources.tree(path)
        function = find_function(tree, name) if tree else None
        if function is not None:
            has = {p.name: p.default for p in signature_of(function, path).parameters}
            agrees = all(
                parameter in has and has[parameter] == value for parameter, value in defaults.items()
            )
            source = " ".join(f"def {name}({ast.unparse(function.args)})".split())
            yield Place(path, function.lineno, source, agrees)

    return find


def shuffle_tag(sources: Sources) -> Iterator[Place]:
    """Find where the layout of weights is read from their attribute."""
    tree = sources.tree(FUSED_MOE_PATH)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value="is_shuffled"), *default]):
                yield _place(FUSED_MOE_PATH, node, len(default) == 1 and _is(default[0], "False"))


def tuned_key(sources: Sources) -> Iterator[Place]:
    """Find how the activation stands in the key of the tuned lookup."""
    tree = sources.tree(FUSED_MOE_PATH)
    function = find_function(tree, "get_2stage_cfgs") if tree else None
    for value in _given(function, "keys") if function else ():
        for element in value.elts if isinstance(value, ast.Tuple) else ():
            if _names(element) - {"str"} == {"activation"}:
                yield _place(FUSED_MOE_PATH, element, _is(element, "str(activation)"))


def lookup_knows_arch(sources: Sources) -> bool:
    """Say whether the tuned lookup of a release asks for the arch, and not for the number of CUs alone."""
    tree = sources.tree(FUSED_MOE_PATH)
    function = find_function(tree, "get_2stage_cfgs") if tree else None
    values = [value for value in _given(function, "keys") if isinstance(value, ast.Tuple)] if function else []
    return bool(values) and all("gfx" in _names(value) for value in values)


def split_k_guard(sources: Sources) -> Iterator[Place]:
    """Find the condition under which block-fp8 stage 1 splits K."""
    tree = sources.tree(FUSED_MOE_PATH)
    for value in _given(tree, "is_splitk") if tree else ():
        guarded = any(_is(node, "k_batch >= 2") for node in ast.walk(value))
        yield _place(FUSED_MOE_PATH, value, guarded)
