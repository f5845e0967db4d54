"""Mutants of a module: every small change that mutmut's operators make, one at a time.

mutmut is the library because of its operators: it drops each argument of each call and makes each of them
None, which are the very faults that a dispatcher has; cosmic-ray's swap comparisons and arithmetic but drop
nothing. Its runner is left aside: it knows functions only, while half of the contract here is in tables of
modules and classes, and it starts Python for every change. The operators are plain functions over libcst.

Not mutated, for nothing could tell: annotations, docstrings, what only a type checker reads, and prose, which
is a text with a space in it: the words of a message are nobody's contract. Names, numbers and values that a
message must say are mutated.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import libcst
from libcst import matchers, metadata
from mutmut.mutation.mutators import mutation_operators

from aiter_conformance.faults.variant import Variant, changed_lines, source_of

_NOT_MUTATED: Final = (libcst.Annotation, libcst.Import, libcst.ImportFrom)
_FOR_TYPE_CHECKERS: Final = (
    matchers.If(test=matchers.Name("TYPE_CHECKING")),
    matchers.Assign(value=matchers.Call(func=matchers.Name("TypeVar") | matchers.Name("ParamSpec"))),
)


def mutants(module: str) -> list[Variant]:
    """Return the mutants of a module, in the order of its text.

    The id of a mutant has the function or class, and the changed lines before and after; it outlives every
    change of the source but that of these lines.
    """
    source = source_of(module).read_text(encoding="utf-8")
    seen = {source}
    counted: Counter[str] = Counter()
    result = []
    for mutated in _changed_sources(source):
        if mutated in seen:
            continue
        seen.add(mutated)
        name = f"{module}:{_name(source, mutated)}"
        counted[name] += 1
        identity = name if counted[name] == 1 else f"{name} ({counted[name]})"
        result.append(Variant(identity, module, *changed_lines(source, mutated), mutated))
    return result


def _changed_sources(source: str) -> Iterator[str]:
    wrapper = metadata.MetadataWrapper(libcst.parse_module(source), unsafe_skip_copy=True)
    spans = wrapper.resolve(metadata.ByteSpanPositionProvider)
    stored = source.encode()
    for node in _mutated_nodes(wrapper.module):
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for changed in operator(node):
                    start, end = spans[node].start, spans[node].start + spans[node].length
                    code = libcst.Module([]).code_for_node(changed).encode()
                    yield (stored[:start] + code + stored[end:]).decode()


def _mutated_nodes(node: libcst.CSTNode) -> Iterator[libcst.CSTNode]:
    left_alone = isinstance(node, _NOT_MUTATED) or _is_prose(node)
    if left_alone or any(matchers.matches(node, one) for one in _FOR_TYPE_CHECKERS):
        return
    yield node
    for child in node.children:
        yield from _mutated_nodes(child)


def _is_prose(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.SimpleString) and " " in node.value


def _name(source: str, mutated: str) -> str:
    """Return the function or class of a change, and its lines before and after."""
    first, last = changed_lines(source, mutated)
    old, new = source.splitlines(), mutated.splitlines()
    kept = len(old) - last
    texts = (old[first - 1 : last], new[first - 1 : len(new) - kept])
    before, after = (" ".join(line.strip() for line in lines) for lines in texts)
    return f"{_where(source, first)}: {before} -> {after or 'nothing'}"


def _where(source: str, line: int) -> str:
    """Return the qualified name of what a line belongs to, ``<module>`` for what is in none."""
    names: list[str] = []
    body: Sequence[ast.stmt] = ast.parse(source).body
    while True:
        inner = (s for s in body if isinstance(s, (ast.FunctionDef, ast.ClassDef)))
        found = next((s for s in inner if s.lineno <= line <= (s.end_lineno or 0)), None)
        if found is None:
            return ".".join(names) or "<module>"
        names.append(found.name)
        body = found.body
