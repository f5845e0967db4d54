"""Reads the C++ that a release generates to pick a CK kernel without a name, and says which one it picks.

Understood is what the generators write: ``if``/``else`` over comparisons of the call's parameters, blocks,
``return kernel<...>;`` and ``TORCH_CHECK(false, ...);``. Anything else is a `HeuristicsError`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Bytes of an element, by CK's name for the type; packed fp4 counts bytes.
_SIZES: Final = {"F8": 1, "I8": 1, "I4": 1, "FP4X2": 1, "F16": 2, "B16": 2, "F32": 4, "I32": 4}
_TORCH: Final = {
    "F8": ("float8_e4m3fn", "float8_e4m3fnuz"),
    "I8": ("int8", "uint8"),
    "I4": ("int32", "uint32", "int4"),
    "FP4X2": ("float4_e2m1fn_x2", "uint8"),
    "F16": ("float16",),
    "B16": ("bfloat16",),
    "F32": ("float32",),
}
# Parameters that the generated module was made for: it is asked for with just these values.
_GIVEN: Final = ("act_op", "quant", "mul_routed_weight_stage", "is_shuffled")
_TOKEN: Final = re.compile(r"\s*(?:(if|else|return|TORCH_CHECK)\b|([{}();])|([^{}();\s][^{}();]*))")
_PARENTHESIS: Final = re.compile(r"[()]")
_RETURNED: Final = re.compile(r"(?P<function>\w+)\s*<(?P<arguments>.*)>\s*", re.DOTALL)


class HeuristicsError(ValueError):
    """The generated code is not of the understood form."""


class NoKernelError(ValueError):
    """The generated code picks nothing for these parameters: the call would raise."""


@dataclass(frozen=True, slots=True)
class Picked:
    """A kernel instance.

    Attributes:
        tile: Rows, columns and depth of the tile that a work-group computes.
        pipeline: Number of CK's pipeline version.
        threads: Threads of a work-group.
    """

    tile: tuple[int, int, int]
    pipeline: int
    threads: int


def pick(source: str, parameters: Mapping[str, int | str]) -> Picked:
    """Return the kernel that the function in *source* returns.

    Args:
        source: Text of one generated header with one function.
        parameters: ``block_m``, ``inter_dim`` as integers; ``x_dtype``, ``w_dtype``, ``y_dtype`` as torch's
            names.

    Raises:
        HeuristicsError: The text is not of the understood form.
        NoKernelError: The function raises for these parameters.
    """
    start = source.find("{", source.find("_heuristic_dispatch("))
    if start < 0:
        msg = "there must be a function whose name ends in _heuristic_dispatch"
        raise HeuristicsError(msg)
    plain = re.sub(r"^\s*#.*$|//[^\n]*", "", source[start:], flags=re.MULTILINE)
    returned = _Reader(plain, parameters).statement(live=True)
    if returned is None:
        msg = "no kernel is generated for this combination of types, activation and routing"
        raise NoKernelError(msg)
    return returned


class _Reader:
    """Walks the statements; one that is not `live` is read over."""

    def __init__(self, text: str, parameters: Mapping[str, int | str]) -> None:
        self._text = text
        self._at = 0
        self._parameters = parameters

    def statement(self, *, live: bool) -> Picked | None:
        """Read one statement and return what it returns, if it does."""
        word = self._next()
        if word == "{":
            result = None
            while self._peek() != "}":
                found = self.statement(live=live and result is None)
                result = result or found
            self._next()
            return result
        if word == "if":
            condition = self._parenthesis()
            holds = live and self._holds(condition)
            result = self.statement(live=holds)
            if self._peek() == "else":
                self._next()
                otherwise = self.statement(live=live and not holds)
                result = result or otherwise
            return result
        if word == "return":
            expression = self._until(";")
            return self._instance(expression) if live else None
        if word == "TORCH_CHECK":
            arguments = self._parenthesis()
            self._until(";")
            if live:
                sentence = " ".join(re.findall(r'"([^"]*)"', arguments))
                raise NoKernelError(f"{sentence.strip()} {self._parameters.get('block_m', '')}".strip())
            return None
        msg = f"a statement must start with if, return, TORCH_CHECK or a brace (got {word[:40]!r})"
        raise HeuristicsError(msg)

    def _next(self) -> str:
        matched = _TOKEN.match(self._text, self._at)
        if matched is None:
            msg = "the function must end with a closing brace (the text ended before)"
            raise HeuristicsError(msg)
        self._at = matched.end()
        return matched[1] or matched[2] or matched[3]

    def _peek(self) -> str:
        before = self._at
        word = self._next()
        self._at = before
        return word

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            msg = f"a statement must end in {end!r}"
            raise HeuristicsError(msg)
        text = self._text[self._at : stop]
        self._at = stop + 1
        return text

    def _parenthesis(self) -> str:
        """Return what stands between the next pair of parentheses."""
        opening = self._text.find("(", self._at)
        depth = 0
        for found in _PARENTHESIS.finditer(self._text, opening):
            depth += 1 if found[0] == "(" else -1
            if depth == 0:
                self._at = found.end()
                return self._text[opening + 1 : found.start()]
        msg = "parentheses must be closed"
        raise HeuristicsError(msg)

    def _holds(self, condition: str) -> bool:
        return all(self._term_holds(term.strip()) for term in condition.split("&&"))

    def _term_holds(self, term: str) -> bool:
        checker = re.fullmatch(r"dtype_checker<(\w+)>\{\}\((\w+)\)", term)
        if checker is not None and checker[1] in _TORCH:
            return self._parameter(checker[2]) in _TORCH[checker[1]]
        given = re.fullmatch(rf"\w+ == (?:{'|'.join(_GIVEN)})", term)
        if given is not None:
            return True
        compared = re.fullmatch(r"(\w+)(?: % (\d+))? (==|<=|<|>=|>) (\d+)", term)
        if compared is None:
            msg = f"a condition must compare parameters of the call (got {term!r})"
            raise HeuristicsError(msg)
        value = int(self._parameter(compared[1]))
        if compared[2]:
            value %= int(compared[2])
        other = int(compared[4])
        return {
            "==": value == other,
            "<=": value <= other,
            "<": value < other,
            ">=": value >= other,
            ">": value > other,
        }[compared[3]]

    def _parameter(self, name: str) -> int | str:
        if name not in self._parameters:
            msg = f"a condition may ask for {', '.join(self._parameters)} (got {name})"
            raise HeuristicsError(msg)
        return self._parameters[name]

    def _instance(self, expression: str) -> Picked:
        matched = _RETURNED.fullmatch(expression.strip())
        arguments = [] if matched is None else [part.strip() for part in matched["arguments"].split(",")]
        version = next((i for i, part in enumerate(arguments) if re.fullmatch(r"V\d+", part)), None)
        if version is None or len(arguments) < version + 5:
            msg = f"a kernel must name pipeline version, threads and tile (got {expression.strip()[:80]!r})"
            raise HeuristicsError(msg)
        threads, rows, columns, depth = (_integer(part) for part in arguments[version + 1 : version + 5])
        return Picked((rows, columns, depth), int(arguments[version][1:]), threads)


def _integer(expression: str) -> int:
    matched = re.fullmatch(r"(\d+)(?:\s*/\s*sizeof\((\w+)\))?", expression)
    if matched is None or (matched[2] and matched[2] not in _SIZES):
        msg = f"a tile size must be a number, or one divided by the size of a type (got {expression!r})"
        raise HeuristicsError(msg)
    return int(matched[1]) // _SIZES.get(matched[2], 1)
