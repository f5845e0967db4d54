"""Python sources of a release, parsed and never executed."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from aiter_conformance.release.files import Files
from aiter_conformance.release.findings import Finding, FindingCode


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function.

    Attributes:
        name: Its name.
        kind: ``positional-only``, ``positional-or-keyword``, ``var-positional``, ``keyword-only`` or
            ``var-keyword``.
        default: Source text of its default, normalised; None if the caller must give it (or for ``*``,
            ``**``).
    """

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function, and where it is defined.

    Attributes:
        function: Its name.
        path: Release-relative path.
        line: Line of its ``def``, counted from 1.
        parameters: In order.
    """

    function: str
    path: str
    line: int
    parameters: tuple[Parameter, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    def takes(self, keyword: str) -> bool:
        """Say whether the function can be called with the argument *keyword*, given by name."""
        return any(
            parameter.kind == "var-keyword"
            or (parameter.name == keyword and parameter.kind in ("positional-or-keyword", "keyword-only"))
            for parameter in self.parameters
        )


class Sources:
    """The Python files of one artefact, each parsed at most once.

    Attributes:
        findings: What could not be parsed, in the order in which it was asked for.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.findings: list[Finding] = []
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        """Return the syntax tree of *path*; None if there is none, or, with a finding, if it is no Python."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def text(self, path: str) -> str | None:
        """Return the text of *path*, undecodable bytes replaced; None if there is no such file."""
        try:
            return self.files.read(path).decode("utf-8", errors="replace")
        except KeyError:
            return None

    def paths_holding(self, folder: str, *words: str) -> list[str]:
        """Return the Python files below *folder* whose text holds all of *words*, sorted."""
        paths = [path for path in self.files.paths if path.startswith(folder) and path.endswith(".py")]
        wanted = [word.encode() for word in words]
        return [p for p, content in self.files.read_many(paths) if all(word in content for word in wanted)]

    def _parse(self, path: str) -> ast.Module | None:
        try:
            content = self.files.read(path)
        except KeyError:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as invalid escapes: AITER's own business
                return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
            message = (
                f"the file must be Python source ({getattr(error, 'msg', None) or type(error).__name__})"
            )
            self.findings.append(Finding(path, line, FindingCode.SOURCE_UNREADABLE, message))
            return None


def module_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run at import, those under ``if``, ``try`` and ``with`` included."""
    pending: list[ast.stmt] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        yield node
        nested: list[ast.stmt] = []
        for field in ("body", "handlers", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                for child in getattr(node, field, []):
                    nested += child.body if isinstance(child, ast.ExceptHandler) else [child]
        pending.extend(reversed(nested))


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the module's function *name*: the last definition, as at run time, or None."""
    found = [
        node for node in module_statements(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found[-1] if found else None


def find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """Return the module's class *name*: the last definition, as at run time, or None."""
    found = [node for node in module_statements(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def find_assignment(tree: ast.Module, name: str) -> ast.expr | None:
    """Return the value last assigned to the module's name *name*, or None."""
    value = None
    for node in module_statements(tree):
        if isinstance(node, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
                value = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            value = node.value
    return value


def signature_of(function: ast.FunctionDef, path: str) -> Signature:
    """Return the signature of a definition found in *path*."""
    arguments = function.args
    parameters: list[Parameter] = []
    positional = [(a, "positional-only") for a in arguments.posonlyargs]
    positional += [(a, "positional-or-keyword") for a in arguments.args]
    required = len(positional) - len(arguments.defaults)
    for index, (argument, kind) in enumerate(positional):
        default = None if index < required else ast.unparse(arguments.defaults[index - required])
        parameters.append(Parameter(argument.arg, kind, default))
    if arguments.vararg:
        parameters.append(Parameter(arguments.vararg.arg, "var-positional", None))
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parameters.append(
            Parameter(argument.arg, "keyword-only", None if value is None else ast.unparse(value))
        )
    if arguments.kwarg:
        parameters.append(Parameter(arguments.kwarg.arg, "var-keyword", None))
    return Signature(function.name, path, function.lineno, tuple(parameters))
