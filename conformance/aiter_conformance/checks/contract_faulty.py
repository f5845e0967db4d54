"""Faults planted around a subject, to show that the contract checks can fail.

Every fault is data: what is bent, the check that must see it, and what the check must say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from aiter_conformance.checks.report import Report
from aiter_conformance.contract import LEAVES
from aiter_conformance.protocols import (
    Entry,
    KernelCall,
    KernelEntry,
    MoEConfigSpec,
    QuantSpec,
    Settings,
    Subject,
)

Arguments = dict[str, Any]


@dataclass
class Bent:
    """A subject with something bent; everything else is the real one's.

    Attributes:
        real: The sound subject.
        leaf: Members to override in each leaf, worked out from the sound class.
        names: Public name -> how its value is bent.
        call: How recorded kernel arguments are bent.
        faces: How the faces of a kernel entry are bent.
        answers: How settings are bent.
        config: How the description of a layer is bent before its config is built.
        quant: The same for a quantisation config.
    """

    real: Any
    leaf: Callable[[type], Mapping[str, Any]] = lambda _: {}
    names: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    call: Callable[[Entry, Arguments], Arguments] = lambda _, arguments: arguments
    faces: Callable[[Entry, KernelEntry], KernelEntry] = lambda _, faces: faces
    answers: Callable[[Settings], Settings] = lambda settings: settings
    config: Callable[[MoEConfigSpec], MoEConfigSpec] = lambda spec: spec
    quant: Callable[[QuantSpec], QuantSpec] = lambda spec: spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @property
    def api(self) -> Any:
        """The real names, leaves replaced by bent subclasses."""
        return _BentApi(self)

    @contextmanager
    def recording(self, result: Callable[[KernelCall], torch.Tensor] | None = None) -> Iterator[Any]:
        """Show the recorded calls with bent arguments."""
        with self.real.recording(result) as calls:
            yield _BentCalls(calls, self.call)

    def entry(self, name: Entry) -> KernelEntry:
        """Return the bent faces."""
        return self.faces(name, self.real.entry(name))

    def settings(self) -> Settings:
        """Return bent settings."""
        return self.answers(self.real.settings())

    def moe_config(self, spec: MoEConfigSpec) -> Any:
        """Build the config of a bent description."""
        return self.real.moe_config(self.config(spec))

    def quant_config(self, spec: QuantSpec, tensors: Mapping[str, torch.Tensor]) -> Any:
        """Build the quantisation config of a bent description."""
        return self.real.quant_config(self.quant(spec), tensors)


@dataclass
class _BentCalls(Sequence[KernelCall]):
    calls: Sequence[KernelCall]
    bend: Callable[[Entry, Arguments], Arguments]

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, index: Any) -> Any:
        call = self.calls[index]
        return KernelCall(call.entry, self.bend(call.entry, dict(call.arguments)))


class _BentApi:
    def __init__(self, bent: Bent) -> None:
        self._bent = bent

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bent.real.api, name)
        if name in LEAVES:
            return type(name, (value,), dict(self._bent.leaf(value)))
        return self._bent.names[name](value) if name in self._bent.names else value


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        name: What is wrong.
        bends: Fields of `Bent`.
        check: The check that must see it.
        says: What the check must say, so that it does not see something else.
    """

    name: str
    bends: Mapping[str, Any]
    check: Callable[[Subject], Report]
    says: str

    def verdict(self, subject: Subject) -> str:
        """Return what the check says of the subject with the fault, as far as it is about the fault."""
        bent: Any = Bent(subject, **self.bends)
        found = [str(mismatch) for mismatch in self.check(bent).mismatches]
        about_it = [text for text in found if self.says in text]
        return next(iter(about_it or found), "nothing")


# --------------------------------------------------------------------------- tools to bend with


def static(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Bend one static method of the leaves."""
    return {"leaf": lambda cls: {name: staticmethod(partial(function, cls))}}


def apply(function: Callable[..., None]) -> dict[str, Any]:
    """Bend ``apply``: the function gets the leaf's own ``apply`` and its keyword arguments."""

    def bent(cls: Any) -> dict[str, Any]:
        def new_apply(self: Any, **arguments: Any) -> None:
            function(partial(cls.apply, self), arguments)

        return {"apply": new_apply}

    return {"leaf": bent}


def put(**values: Any) -> dict[str, Any]:
    """Bend recorded arguments to fixed values, where the entry has them."""
    return {"call": lambda _, a: {k: values.get(k, v) for k, v in a.items()}}


def swap(first: str, second: str) -> dict[str, Any]:
    """Exchange two recorded arguments."""
    return {
        "call": lambda _, a: {**a, first: a[second], second: a[first]} if {first, second} <= set(a) else a
    }


def wrapper(bend: Callable[[Callable[..., Any], Arguments], Any]) -> dict[str, Any]:
    """Bend what the dispatcher calls: the function gets the real wrapper and its keyword arguments."""

    def faces(_: Entry, real: KernelEntry) -> KernelEntry:
        return replace(real, wrapper=lambda **arguments: bend(real.wrapper, arguments))

    return {"faces": faces}


def fake(bend: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Bend the result of the fake."""

    def faces(_: Entry, real: KernelEntry) -> KernelEntry:
        return replace(real, fake=lambda **arguments: bend(real.fake(**arguments)))

    return {"faces": faces}
