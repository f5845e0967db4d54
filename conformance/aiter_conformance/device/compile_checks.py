"""The checks of the device contract that compile: the leaf around the operator, and the operator alone."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiter_conformance.device.call import DeviceCall, NotRun
from aiter_conformance.device.host_checks import SEEDS


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.namespace)
        return func(*args, **(kwargs or {}))


def _need_operator(call: DeviceCall) -> None:
    """End a check of a subject whose operators the harness does not reach, for it would compile the model."""
    routed = call.route()
    with _Operators() as mode:
        call.experts(call.new_output(), *routed)
    if not mode.seen - {"aten", "prims"}:
        msg = f"NOT RUN: the kernel calls of {call.subject.name} are answered above its operators"
        raise NotRun(msg)


@contextmanager
def _compiling() -> Iterator[None]:
    """Leave out what torch says of itself while it compiles, or is loaded in order to.

    Its warnings are no fault of a leaf, and its trace of every graph, which a test's log would take, has no
    name for int4.
    """
    log = logging.getLogger("torch.__trace")
    before, log.handlers = log.handlers, []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.handlers = before


def backends(call: DeviceCall) -> tuple[str, ...]:
    """Return the backends to compile with: with a GPU and Triton inductor too, which has no name for int4."""
    int4 = call.constants["w1"].dtype == getattr(torch, "int4", None)
    triton = call.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    return ("aot_eager", "inductor") if triton and not int4 else ("aot_eager",)


@_compiling()
def compiled(call: DeviceCall) -> str | None:
    """Compiled, the leaf is one graph, is compiled once for inputs of one shape, and gives right results."""
    _need_operator(call)
    weights, ids = call.route()
    before = call.run()
    for backend in backends(call):
        torch.compiler.reset()
        graphs = torch._dynamo.utils.counters["stats"]
        graphs.clear()
        step = torch.compile(call.experts, fullgraph=True, backend=backend, dynamic=False)
        for seed in SEEDS:
            call.fill(call.stage(seed))
            if call.variant.routed:
                call.route()
            output = torch.full_like(before, torch.nan)
            step(output, weights, ids)
            if (found := call.wrong(output, seed, f"compiled with {backend}, inputs {seed}")) is not None:
                return found
        if (made := graphs["unique_graphs"]) != 1:
            return f"compiled with {backend}, three calls of one shape must be 1 graph (got {made})"
    return None


@_compiling()
def operator(call: DeviceCall) -> str | None:
    """The operator, with the arguments that the leaf sends, is what its fake says, and compiles whole."""
    _need_operator(call)
    real = call.run()
    made = call.last
    assert made is not None  # noqa: S101 -- the call above went through the kernel
    if made.entry != call.variant.entry:
        return f"the leaf must call {call.variant.entry} (got {made.entry})"
    entry, arguments = call.subject.entry(made.entry), dict(made.arguments)
    fake = entry.fake(**arguments)
    promised, came = ((tuple(t.shape), t.dtype, t.device.type) for t in (fake, real))
    if promised != came:
        return f"the fake of {made.entry} must promise {came} (got {promised})"
    torch.compiler.reset()
    whole = torch.compile(entry.wrapper, fullgraph=True, backend="aot_eager")
    return call.wrong(whole(**arguments), 0, f"{made.entry} compiled by itself")
