"""Whether the imports that a fused-MoE call makes can succeed, branch by branch, decided without making them.

Much of AITER is imported inside functions, and often under a condition on the arch: a module that was moved,
or was left out of a wheel, then shows only when a certain kernel is picked on a certain GPU. Here every
import statement that can be reached from the entry points is resolved against the files of the release.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from aiter_conformance.release.pysource import Sources, module_statements

# What the bridge of the leaves imports (SPEC 7, 10 and 12).
ENTRY_MODULES = (
    "aiter.fused_moe",
    "aiter.fused_moe_bf16_asm",
    "aiter.ops.shuffle",
    "aiter.ops.topk",
    "aiter.utility.dtypes",
    "aiter.utility.fp4_utils",
)
_PACKAGE = "aiter"
_ARCH_NAME = re.compile(r"gfx\d\w*")
_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True, order=True)
class ImportFact:
    """One name that one import statement asks of one of AITER's own modules.

    Attributes:
        path: Release-relative path of the file with the statement.
        line: Its line, counted from 1.
        module: Absolute name of the module that is imported.
        name: What is taken from it; empty when the module itself is imported, ``*`` for all its names.
        lazy: True if the statement runs when a function is called, not when the file is imported.
        guarded: True if the file goes on without it: it lies in a ``try`` that catches its failure.
        archs: The archs on which the conditions around the statement can be true.
        resolved: True if the release has it, False if it has not, None if that depends on what runs.
    """

    path: str
    line: int
    module: str
    name: str
    lazy: bool
    guarded: bool
    archs: tuple[str, ...]
    resolved: bool | None

    @property
    def fails(self) -> bool:
        """True if reaching the statement is an error, on some arch."""
        return self.resolved is False and not self.guarded and bool(self.archs)


def read_imports(sources: Sources, archs: Sequence[str]) -> tuple[ImportFact, ...]:
    """Resolve every import of AITER's own modules that `ENTRY_MODULES` can reach, in order of file and line.

    Followed are the modules that define what the statements name, lazily or not. Importing those also runs
    the packages that they lie in and whatever these import: of such modules, which no call of ours enters,
    only the statements that run at import count. The package ``aiter`` itself imports all of AITER, for
    whatever purpose: names taken from it are looked up, and it is not followed.

    Args:
        sources: The sources of a release; what cannot be parsed becomes one of its findings.
        archs: The archs to decide conditions for, e.g. ``("gfx942", "gfx950")``.
    """
    resolver = _Resolver(sources)
    pending = [(module, True) for module in ENTRY_MODULES if resolver.path(module)]
    seen: set[tuple[str, bool]] = set()
    facts: set[ImportFact] = set()
    while pending:
        module, entered = pending.pop()
        path = resolver.path(module)
        if module == _PACKAGE or path is None or (module, entered) in seen or (module, True) in seen:
            continue
        seen.add((module, entered))
        pending.append((module.rpartition(".")[0], False))
        tree = sources.tree(path)
        for found in _statements(tree, tuple(archs)) if tree else ():
            if found.lazy and not entered:
                continue
            for target, name in resolver.targets(found.node, module):
                resolved = resolver.has(target, name)
                where = (path, found.node.lineno, target, name)
                facts.add(ImportFact(*where, found.lazy, found.guarded, found.archs, resolved))
                pending.append((target, False))
                pending.append((resolver.origin(target, name), entered))
    return tuple(sorted(facts, key=lambda fact: (fact.path, fact.line, fact.module, fact.name)))


@dataclass(frozen=True, slots=True)
class _Statement:
    node: ast.Import | ast.ImportFrom
    lazy: bool
    guarded: bool
    archs: tuple[str, ...]


def _statements(tree: ast.Module, archs: tuple[str, ...]) -> Iterator[_Statement]:
    """Yield every import statement of a module with what is around it."""
    pending: list[tuple[list[ast.stmt], bool, bool, tuple[str, ...]]] = [(tree.body, False, False, archs)]
    while pending:
        block, lazy, guarded, possible = pending.pop()
        for node in block:
            match node:
                case ast.Import() | ast.ImportFrom():
                    yield _Statement(node, lazy, guarded, possible)
                case ast.If(test=test, body=body, orelse=orelse):
                    verdicts = {arch: condition_on(test, arch) for arch in possible}
                    then = tuple(arch for arch in possible if verdicts[arch] is not False)
                    otherwise = tuple(arch for arch in possible if verdicts[arch] is not True)
                    pending += [(body, lazy, guarded, then), (orelse, lazy, guarded, otherwise)]
                    if isinstance(body[-1], ast.Return | ast.Raise):  # what follows is for the others
                        possible = otherwise
                case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                    caught = any(_catches_import_error(handler) for handler in handlers)
                    pending.append((body, lazy, guarded or caught, possible))
                    for part in (orelse, finalbody, *(handler.body for handler in handlers)):
                        pending.append((part, lazy, guarded, possible))
                case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                    pending.append((body, True, guarded, possible))
                case ast.Match(cases=cases):
                    pending += [(case.body, lazy, guarded, possible) for case in cases]
                case _:  # a class, a loop, a with
                    for name in ("body", "orelse"):
                        inner = getattr(node, name, None) or []
                        pending.append((inner, lazy, guarded, possible))


def condition_on(test: ast.expr, arch: str) -> bool | None:
    """Say what a condition is on *arch*: True, False, or None if it depends on more than the arch.

    Whatever is compared with a name of an arch (``get_gfx() == "gfx950"``, ``gfx in ("gfx942", ...)``,
    ``gfx.startswith("gfx12")``) is taken to be the arch.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = condition_on(operand, arch)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            parts = [condition_on(value, arch) for value in values]
            decisive = isinstance(op, ast.Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            literal = _arch_names(right) or _arch_names(left)
            return None if literal is None else (arch in literal) == isinstance(op, ast.Eq)
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
            literal = _arch_names(right)
            return None if literal is None else (arch in literal) == isinstance(op, ast.In)
        case ast.Call(func=ast.Attribute(attr="startswith"), args=[prefix]):
            literal = _arch_names(prefix)
            return None if literal is None else arch.startswith(tuple(literal))
    return None


def _arch_names(node: ast.expr) -> set[str] | None:
    """Return the names of archs that *node* lists literally, or None if it is anything else."""
    elements = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    names = {e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    whole = len(names) == len(elements) and all(_ARCH_NAME.fullmatch(name) for name in names)
    return names if names and whole else None


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _CAUGHT for kind in kinds)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a module has: names, which of them it takes from AITER's modules, where it takes all from."""

    names: set[str]
    taken: dict[str, tuple[str, str]]
    stars: list[str]
    dynamic: bool  # it may make names that its source does not show


class _Resolver:
    """Looks modules and their names up in the files of a release."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._paths = set(sources.files.paths)
        self._folders = {str(parent) for path in self._paths for parent in PurePosixPath(path).parents}
        self._read_already: dict[str, _Contents | None] = {}

    def path(self, module: str) -> str | None:
        """Return the file of *module*, or None."""
        base = module.replace(".", "/")
        return next((path for path in (f"{base}/__init__.py", f"{base}.py") if path in self._paths), None)

    def targets(self, node: ast.Import | ast.ImportFrom, module: str) -> Iterator[tuple[str, str]]:
        """Yield the (module, name) pairs that a statement in *module* asks of AITER."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == _PACKAGE:
                    yield alias.name, ""
            return
        base = node.module or ""
        if node.level:
            own = self.path(module) or ""
            parents = module.split(".") if own.endswith("/__init__.py") else module.split(".")[:-1]
            kept = parents[: len(parents) - (node.level - 1)]
            base = ".".join([*kept, base] if base else kept)
        if base.partition(".")[0] == _PACKAGE:
            for alias in node.names:
                yield base, alias.name

    def has(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> bool | None:
        """Say whether *module* exists and has *name* (if not empty); None if that is decided at run time."""
        if name not in ("", "*") and self.path(f"{module}.{name}") is not None:
            return True
        if self.path(module) is None:  # a folder without __init__.py is a package all the same
            return name == "" and module.replace(".", "/") in self._folders
        if name in ("", "*"):
            return True
        contents = self._contents(module)
        if contents is None:
            return None
        if name in contents.names:
            return True
        answers = [
            None if star.partition(".")[0] != _PACKAGE else self.has(star, name, seen | {module})
            for star in contents.stars
            if star not in seen
        ]
        if True in answers:
            return True
        return None if contents.dynamic or None in answers else False

    def origin(self, module: str, name: str) -> str:
        """Return the module that defines what *name* of *module* is, as far as it can be followed."""
        seen: set[tuple[str, str]] = set()
        while (module, name) not in seen:
            seen.add((module, name))
            if name in ("", "*"):
                break
            if self.path(f"{module}.{name}") is not None:
                return f"{module}.{name}"
            contents = self._contents(module)
            if contents is None:
                break
            if name in contents.taken:
                module, name = contents.taken[name]
            elif name not in contents.names:
                module = next((star for star in contents.stars if self.has(star, name)), module)
        return module

    def _contents(self, module: str) -> _Contents | None:
        if module not in self._read_already:
            path = self.path(module)
            tree = None if path is None else self._sources.tree(path)
            self._read_already[module] = None if tree is None else self._read(tree, module)
        return self._read_already[module]

    def _read(self, tree: ast.Module, module: str) -> _Contents:
        names: set[str] = set()
        taken: dict[str, tuple[str, str]] = {}
        stars: list[str] = []
        for node in module_statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Import):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                if any(alias.name == "*" for alias in node.names):
                    targets = [target for target, _ in self.targets(node, module)]
                    stars += targets or [node.module or ""]
                for alias, target in zip(node.names, self.targets(node, module), strict=False):
                    taken[alias.asname or alias.name] = target
                names.update(alias.asname or alias.name for alias in node.names)
            else:
                names.update(
                    found.id
                    for found in ast.walk(node)
                    if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)
                )
        text = self._sources.text(self.path(module) or "") or ""
        dynamic = "__getattr__" in names or "globals(" in text
        return _Contents(names, taken, stars, dynamic)
