"""Named checks of what the contract rests on in AITER's sources, each with the file and line it was found at.

A check looks for a structure (an assignment to a name, an argument of a call, a function's parameters), never
for a line number or a spelling, so that it survives moves and reformatting. What it finds either is what the
contract expects, or has changed; a check that finds nothing says absent. The expectations come from the
specification of the
leaves: sections 1 (enumerations), 5 (pads), 7 (bridge) and 12 (layouts).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

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
SHUFFLE_PATH = "aiter/ops/shuffle.py"
FP4_PATH = "aiter/utility/fp4_utils.py"
FLYDSL_FOLDER = "aiter/ops/flydsl/"

_ACTIVATION_VALUES = {"No": -1, "Silu": 0, "Gelu": 1}
_QUANT_VALUES = {"No": 0, "per_Tensor": 1, "per_Token": 2, "per_1x32": 3, "per_1x128": 4, "per_128x128": 5}
_GATE_VALUES = {"SEPARATED": "separated", "INTERLEAVE": "interleave"}
_FNUZ_ARCHS = "gfx94"


class AnchorStatus(StrEnum):
    """What became of an anchor."""

    HOLDS = "holds"
    CHANGED = "changed"
    ABSENT = "absent"


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


@dataclass(frozen=True, slots=True)
class Anchor:
    """One anchor of one release.

    Attributes:
        name: Its name, the same in every release.
        expected: What the contract expects, one sentence.
        status: `AnchorStatus.HOLDS` if it was found and every place agrees.
        places: Where it was found, by path and line.
    """

    name: str
    expected: str
    status: AnchorStatus
    places: tuple[Place, ...]


def read_anchors(sources: Sources) -> tuple[Anchor, ...]:
    """Check every anchor, in the order of the table; what cannot be parsed is a finding of *sources*."""
    anchors = []
    for name, expected, find in _CHECKS:
        places = tuple(sorted(find(sources), key=lambda place: (place.path, place.line)))
        if not places:
            status = AnchorStatus.ABSENT
        elif all(place.agrees for place in places):
            status = AnchorStatus.HOLDS
        else:
            status = AnchorStatus.CHANGED
        anchors.append(Anchor(name, expected, status, places))
    return tuple(anchors)


_Find = Callable[[Sources], Iterator[Place]]


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


def _pad(name: str, of: str, expected: str) -> _Find:
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


def _flydsl_stage1_pad(sources: Sources) -> Iterator[Place]:
    for path, tree in _flydsl_trees(sources, "inter_dim_pad_total"):
        for value in _given(tree, "inter_dim_pad_total"):
            doubled = any(_is(node, "2 * inter_dim_pad") for node in ast.walk(value))
            yield _place(path, value, doubled)


def _flydsl_stage2_tail(sources: Sources) -> Iterator[Place]:
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


def _gate_mode_values(sources: Sources) -> Iterator[Place]:
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


def _enum_values(name: str, expected: dict[str, int]) -> _Find:
    def find(sources: Sources) -> Iterator[Place]:
        text = sources.text(ENUM_PATH)
        enum = parse_enums(text)[0].get(name) if text is not None else None
        if enum is not None:
            shown = ", ".join(f"{member} = {value}" for member, value in enum.members.items())
            agrees = all(enum.members.get(member) == value for member, value in expected.items())
            yield Place(ENUM_PATH, enum.line, f"enum {name} {{ {shown} }}", agrees)

    return find


def _default(parameter: str, *neutral: str) -> _Find:
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


def _fp4x2(sources: Sources) -> Iterator[Place]:
    tree = sources.tree(DTYPES_PATH)
    value = find_assignment(tree, "fp4x2") if tree else None
    if value is not None:
        yield _place(DTYPES_PATH, value, "float4_e2m1fn_x2" in ast.unparse(value))


def _fp8_table(sources: Sources) -> Iterator[Place]:
    tree = sources.tree(DTYPES_PATH)
    table = find_assignment(tree, "defaultDtypes") if tree else None
    if not isinstance(table, ast.Dict):
        return
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            flavour = "float8_e4m3fnuz" if key.value.startswith(_FNUZ_ARCHS) else "float8_e4m3fn"
            source = f"{key.value}: {ast.unparse(value)}"
            yield Place(DTYPES_PATH, key.lineno, source, _is(value, f"{{'fp8': torch.{flavour}}}"))


def _fp8_arch(sources: Sources) -> Iterator[Place]:
    tree = sources.tree(DTYPES_PATH)
    function = find_function(tree, "get_dtype_fp8") if tree else None
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Call(func=ast.Name(id=name)) if name.startswith("get_gfx"):
                yield _place(DTYPES_PATH, node, name == "get_gfx_runtime")


def _function(path: str, name: str, **defaults: str | None) -> _Find:
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


def _shuffle_tag(sources: Sources) -> Iterator[Place]:
    tree = sources.tree(FUSED_MOE_PATH)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value="is_shuffled"), *default]):
                yield _place(FUSED_MOE_PATH, node, len(default) == 1 and _is(default[0], "False"))


def _tuned_key(sources: Sources) -> Iterator[Place]:
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


def _split_k_guard(sources: Sources) -> Iterator[Place]:
    tree = sources.tree(FUSED_MOE_PATH)
    for value in _given(tree, "is_splitk") if tree else ():
        guarded = any(_is(node, "k_batch >= 2") for node in ast.walk(value))
        yield _place(FUSED_MOE_PATH, value, guarded)


_CHECKS: tuple[tuple[str, str, _Find], ...] = (
    (
        "ck-tile-stage1-intermediate-pad",
        "CK-Tile stage 1 floors the intermediate pad to 64 and doubles it for fused gate and up",
        _pad("n_pad_zeros", "intermediate_pad", "intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1)"),
    ),
    (
        "ck-tile-stage1-hidden-pad",
        "CK-Tile stage 1 floors the hidden pad to 128",
        _pad("k_pad_zeros", "hidden_pad", "hidden_pad // 128 * 128"),
    ),
    (
        "ck-tile-stage2-hidden-pad",
        "CK-Tile stage 2 floors the hidden pad to 64",
        _pad("n_pad_zeros", "hidden_pad", "hidden_pad // 64 * 64"),
    ),
    (
        "ck-tile-stage2-intermediate-pad",
        "CK-Tile stage 2 floors the intermediate pad to 128 and does not double it",
        _pad("k_pad_zeros", "intermediate_pad", "intermediate_pad // 128 * 128"),
    ),
    (
        "flydsl-stage1-pad-doubled",
        "FlyDSL stage 1 doubles the intermediate pad inside the kernel",
        _flydsl_stage1_pad,
    ),
    (
        "flydsl-stage2-pad-undoubled",
        "FlyDSL stage 2 masks the K tail with the pad as it is",
        _flydsl_stage2_tail,
    ),
    (
        "activation-type-values",
        "ActivationType has No -1, Silu 0, Gelu 1",
        _enum_values("ActivationType", _ACTIVATION_VALUES),
    ),
    (
        "quant-type-values",
        "QuantType has No 0, per_Tensor 1, per_Token 2, per_1x32 3, per_1x128 4, per_128x128 5",
        _enum_values("QuantType", _QUANT_VALUES),
    ),
    (
        "gate-mode-values",
        "GateMode has the values separated and interleave",
        _gate_mode_values,
    ),
    (
        "gate-mode-default",
        "fused_moe takes gate and up as separated when no gate_mode is given",
        _default("gate_mode", "GateMode.SEPARATED.value", "'separated'"),
    ),
    (
        "swiglu-limit-default",
        "fused_moe clamps nothing when no swiglu_limit is given",
        _default("swiglu_limit", "0.0", "0", "None"),
    ),
    (
        "fp4x2-dtype",
        "dtypes.fp4x2 is torch.float4_e2m1fn_x2",
        _fp4x2,
    ),
    (
        "fp8-dtype-of-arch",
        "fp8 is e4m3fnuz on gfx94x and e4m3fn elsewhere",
        _fp8_table,
    ),
    (
        "fp8-by-runtime-arch",
        "the fp8 dtype follows the arch of the GPU that is there, not the list of archs to build for",
        _fp8_arch,
    ),
    (
        "shuffle-weight",
        "shuffle_weight takes (x, layout=(16, 16))",
        _function(SHUFFLE_PATH, "shuffle_weight", x=None, layout="(16, 16)"),
    ),
    (
        "shuffle-weight-interleave",
        "shuffle_weight can interleave gate and up (is_guinterleave, off by default)",
        _function(SHUFFLE_PATH, "shuffle_weight", is_guinterleave="False"),
    ),
    (
        "shuffle-scale-interleave",
        "shuffle_scale can interleave gate and up (is_guinterleave, off by default)",
        _function(SHUFFLE_PATH, "shuffle_scale", src=None, is_guinterleave="False"),
    ),
    (
        "shuffle-weight-a16w4",
        "shuffle_weight_a16w4 takes (src, NLane, gate_up)",
        _function(SHUFFLE_PATH, "shuffle_weight_a16w4", src=None, NLane=None, gate_up=None),
    ),
    (
        "shuffle-scale-a16w4",
        "shuffle_scale_a16w4 takes (src, experts_cnt, gate_up)",
        _function(SHUFFLE_PATH, "shuffle_scale_a16w4", src=None, experts_cnt=None, gate_up=None),
    ),
    (
        "shuffle-scale-int4",
        "shuffle_scale_for_int4 takes (scale, group_size=32)",
        _function(SHUFFLE_PATH, "shuffle_scale_for_int4", scale=None, group_size="32"),
    ),
    (
        "e8m0-shuffle",
        "fp4_utils.e8m0_shuffle takes (scale)",
        _function(FP4_PATH, "e8m0_shuffle", scale=None),
    ),
    (
        "is-shuffled-tag",
        "fused_moe reads the layout of the weights from their attribute is_shuffled, False if it is missing",
        _shuffle_tag,
    ),
    (
        "tuned-key-activation",
        "the tuned lookup compares the activation as text, as the tables hold it",
        _tuned_key,
    ),
    (
        "block-fp8-split-k-guard",
        "block-fp8 stage 1 splits K only when at least two K tiles are left",
        _split_k_guard,
    ),
)

ANCHOR_NAMES: tuple[str, ...] = tuple(name for name, _, _ in _CHECKS)
