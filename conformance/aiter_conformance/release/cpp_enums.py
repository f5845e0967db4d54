"""The enumerations of a C++ header, with their values, read without a compiler."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_ENUM = re.compile(
    r"\benum\s+(?:class\s+|struct\s+)?(?P<name>[A-Za-z_]\w*)?\s*(?::\s*[\w:\s]+?)?\s*"
    r"\{(?P<body>[^{}]*)\}\s*(?P<alias>[A-Za-z_]\w*)?\s*;"
)
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlL]+\b")
_OPERATORS: dict[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.Invert: operator.invert,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_MAX_SHIFT = 63


@dataclass(frozen=True, slots=True)
class CppEnum:
    """One enumeration.

    Attributes:
        name: Its name, or for an unnamed ``typedef enum {...} X;`` the alias.
        line: Line of its first word, counted from 1.
        members: Value by name, in the order of the source.
    """

    name: str
    line: int
    members: dict[str, int]


class CppEnumError(ValueError):
    """A body is not a plain list of members; the message names the enumeration and the member."""


def parse_enums(text: str) -> tuple[dict[str, CppEnum], list[tuple[int, str]]]:
    """Return the enumerations that *text* defines, by name, and (line, sentence) of each unreadable one.

    Understood are scoped, unscoped, typed and ``typedef`` enumerations, implicit values, and values made of
    integer literals, earlier members and the operators ``+ - * | & ^ ~ <<``. Preprocessor conditions are not
    evaluated.
    """
    plain = _COMMENT_OR_STRING.sub(_blanked, text)
    enums: dict[str, CppEnum] = {}
    faults: list[tuple[int, str]] = []
    for matched in _ENUM.finditer(plain):
        name = matched["name"] or matched["alias"]
        if name is None:
            continue
        line = plain.count("\n", 0, matched.start()) + 1
        try:
            if name in enums:
                msg = f"{name} must be defined once (it is in line {enums[name].line} already)"
                raise CppEnumError(msg)
            enums[name] = CppEnum(name, line, _members(name, matched["body"]))
        except CppEnumError as error:
            faults.append((line, str(error)))
    return enums, faults


def _blanked(matched: re.Match[str]) -> str:
    """Replace a comment or a literal by blanks, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", matched[0])


def _members(name: str, body: str) -> dict[str, int]:
    members: dict[str, int] = {}
    following = 0
    for item in body.split(","):
        member, equals, expression = (part.strip() for part in item.partition("="))
        if not member and not equals:
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", member) or member in members:
            msg = f"members of {name} must be distinct identifiers (got {item.strip()!r})"
            raise CppEnumError(msg)
        members[member] = _value(name, expression, members) if equals else following
        following = members[member] + 1
    return members


def _value(name: str, expression: str, earlier: dict[str, int]) -> int:
    try:
        tree = ast.parse(_SUFFIX.sub(r"\1", expression), mode="eval")
        return _evaluate(tree.body, earlier)
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError) as error:
        msg = (
            f"values of {name} must be constant expressions of integers and earlier members (got "
            f"{expression!r})"
        )
        raise CppEnumError(msg) from error


def _evaluate(node: ast.expr, earlier: dict[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=member):
            return earlier[member]
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, earlier))
        case ast.BinOp(left=left, op=ast.LShift(), right=right):
            places = _evaluate(right, earlier)
            if not 0 <= places <= _MAX_SHIFT:
                raise ValueError(places)
            return _evaluate(left, earlier) << places
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, earlier), _evaluate(right, earlier))
    raise ValueError(node)
