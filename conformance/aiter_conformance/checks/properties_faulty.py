"""A subject with one planted fault, to show that a check can fail.

Faults are planted from outside: into a public function, into a leaf's ``apply``, or into what the kernel was
told. So they do not depend on how a subject is written, and every one is a wrong answer that a subject could
give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import KernelCall, Subject

# (the subject's own function or class, its namespace) -> the faulty one.
Wrapper = Callable[[Any, Any], Any]
Arguments = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """A planted fault and the check, with one example, that has to find it.

    Attributes:
        what: What is wrong.
        check: The check over its example.
        api: Public name -> how its function or class goes wrong.
        arguments: How the recorded kernel arguments go wrong.
    """

    what: str
    check: Callable[[Subject], Report]
    api: Mapping[str, Wrapper] = field(default_factory=dict)
    arguments: Arguments | None = None

    def problems(self, subject: Subject) -> tuple[list[str], list[str]]:
        """Return what the check says of the sound subject, and what it says of the faulty one."""
        faulty: Any = Faulty(subject, self)
        return self.check(subject).problems(subject), self.check(faulty).problems(faulty)


class _FaultyApi:
    def __init__(self, api: Any, faults: Mapping[str, Wrapper]) -> None:
        self._api, self._faults = api, faults

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        return self._faults[name](real, self._api) if name in self._faults else real


class Faulty:
    """A subject (`aiter_conformance.protocols.Subject`) that is another one with a fault."""

    def __init__(self, subject: Any, fault: Fault) -> None:
        self._subject, self._fault = subject, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    @property
    def api(self) -> Any:
        """The names of the subject, one of them faulty."""
        return _FaultyApi(self._subject.api, self._fault.api)

    @contextmanager
    def recording(self, result: Any = None) -> Iterator[list[KernelCall]]:
        """Record as the subject does, and falsify what was recorded."""
        seen: list[KernelCall] = []
        falsify = self._fault.arguments or dict
        with self._subject.recording(result) as calls:
            yield seen
            seen += [KernelCall(call.entry, falsify(call.arguments)) for call in calls]


def answer(change: Callable[[Any], Any]) -> Wrapper:
    """Change what a function returns."""
    return lambda real, _api: lambda *args, **kwargs: change(real(*args, **kwargs))


def called_with(change: Callable[[list[Any]], list[Any]]) -> Wrapper:
    """Change the positional arguments that a function is given."""
    return lambda real, _api: lambda *args, **kwargs: real(*change(list(args)), **kwargs)


def apply_after(spoil: Callable[[dict[str, Any]], Any]) -> Wrapper:
    """Do something to the arguments of a leaf's ``apply`` before it runs."""

    def wrap(leaf: type, _api: Any) -> type:
        def apply(self: Any, **kwargs: Any) -> None:
            spoil(kwargs)
            leaf.apply(self, **kwargs)  # type: ignore[attr-defined]

        return type(leaf.__name__, (leaf,), {"apply": apply})

    return wrap


def leaf_with(**members: Any) -> Wrapper:
    """Replace members of a leaf."""
    return lambda leaf, _api: type(leaf.__name__, (leaf,), members)


def told(**changes: Callable[[Any], Any]) -> Arguments:
    """Change arguments of the recorded call."""
    return lambda given: {**given, **{name: change(given[name]) for name, change in changes.items()}}


def with_buffers(spoil: Callable[[torch.Tensor, torch.Tensor], Any]) -> Wrapper:
    """Do something to the shared-expert buffers after a function."""

    def wrap(real: Any, api: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            value = real(*args, **kwargs)
            spoil(*api.aiter_topK_meta_data)
            return value

        return function

    return wrap


def forgiving(real: Any, _api: Any) -> Any:
    """Answer with the first two arguments where the real function refuses."""

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return real(*args, **kwargs)
        except (ValueError, RuntimeError):
            return args[:2]

    return function


def crashing(real: Any, _api: Any) -> Any:
    """Crash where the real function refuses."""

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return real(*args, **kwargs)
        except ValueError as error:
            raise TypeError(str(error)) from error

    return function
