"""Leaves with a fault, planted into an open call, each with the checks that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from aiter_conformance.device.call import DeviceCall


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: What is wrong.
        plant: Puts it into a call.
        caught_by: Checks that must fail.
        variant: Name of the variant into which it is planted.
        gpu: Whether it shows on a GPU only, whatever the checks need.
    """

    name: str
    plant: Callable[[DeviceCall], None]
    caught_by: tuple[str, ...]
    variant: str = "bf16"
    gpu: bool = False


def _around(before: Callable[[DeviceCall, dict[str, Any]], None]) -> Callable[[DeviceCall], None]:
    """Return a fault that does something with the arguments before each call of the leaf."""

    def plant(call: DeviceCall) -> None:
        sound = call.apply

        def apply(**arguments: Any) -> None:
            before(call, arguments)
            sound(**arguments)

        call.apply = apply

    return plant


@_around
def _reads_a_value(_call: DeviceCall, arguments: dict[str, Any]) -> None:
    if arguments["topk_ids"].max().item() < 0:
        msg = "no token is routed"
        raise ValueError(msg)


@_around
def _waits(_call: DeviceCall, _arguments: dict[str, Any]) -> None:
    torch.cuda.synchronize()


@_around
def _copies_weights(_call: DeviceCall, arguments: dict[str, Any]) -> None:
    marked = arguments["w1"].clone()
    vars(marked)["is_shuffled"] = True
    arguments["w1"] = marked


@_around
def _writes_an_input(_call: DeviceCall, arguments: dict[str, Any]) -> None:
    arguments["topk_ids"].clamp_(min=0)  # what is in them stays: a version counter alone shows it


@_around
def _breaks_the_graph(_call: DeviceCall, _arguments: dict[str, Any]) -> None:
    torch._dynamo.graph_break()


def _keeps_memory(call: DeviceCall) -> None:
    kept: list[torch.Tensor] = []

    @_around
    def keep(_call: DeviceCall, arguments: dict[str, Any]) -> None:
        kept.append(arguments["topk_weights"] * 2)

    keep(call)


def _keeps_bytes(call: DeviceCall) -> None:
    kept: list[torch.UntypedStorage] = []

    @_around
    def keep(_call: DeviceCall, arguments: dict[str, Any]) -> None:
        kept.append((arguments["topk_weights"] * 2).untyped_storage())  # no tensor that Python could count

    keep(call)


def _remembers_inputs(call: DeviceCall) -> None:
    first: dict[str, torch.Tensor] = {}

    @_around
    def remember(_call: DeviceCall, arguments: dict[str, Any]) -> None:
        arguments["hidden_states"] = first.setdefault("hidden", arguments["hidden_states"].clone())

    remember(call)


def _leaves_the_last_row(call: DeviceCall) -> None:
    sound = call.apply

    def apply(**arguments: Any) -> None:
        output = arguments.pop("output")
        result = torch.empty_like(output)
        sound(output=result, **arguments)
        output[:-1] = result[:-1]

    call.apply = apply


def _writes_around_the_output(call: DeviceCall) -> None:
    sound = call.apply

    def apply(**arguments: Any) -> None:
        sound(**arguments)
        output = arguments["output"]
        start = max(output.storage_offset() - output.shape[1], 0)
        output.as_strided((1, output.shape[1]), output.stride(), start).nan_to_num_()

    call.apply = apply


def _own_stream(call: DeviceCall) -> None:
    cuda: Any = torch.cuda  # which has no types here
    sound, stream = call.apply, cuda.Stream()

    def apply(**arguments: Any) -> None:
        with cuda.stream(stream):
            sound(**arguments)

    call.apply = apply


def _other_numbers(call: DeviceCall) -> None:
    sound = call.compute
    call.compute = lambda made: sound(made) * 1.05


def _moves_the_buffers(call: DeviceCall) -> None:
    sound = call.route

    def route() -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = sound()
        return weights.clone(), ids.clone()

    call.route = route


def _keeps_old_gates(call: DeviceCall) -> None:
    first = call.buffers["gates"].clone()
    sound = call.route

    def route() -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = sound()
        topk = call.variant.problem.case.topk
        weights[:, topk : topk + first.shape[1]] = first
        return weights, ids

    call.route = route


_SHARED: Final = "bf16-shared-experts"

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("reads a value", _reads_a_value, ("reads", "no-sync", "asynchronous", "graph")),
        Fault("waits for the device", _waits, ("asynchronous", "graph")),
        Fault("copies weights", _copies_weights, ("copies", "allocations")),
        Fault("writes an input", _writes_an_input, ("untouched",)),
        Fault("breaks the graph", _breaks_the_graph, ("compile",)),
        Fault("keeps memory", _keeps_memory, ("memory", "copies")),
        Fault("keeps memory that is no tensor", _keeps_bytes, ("memory",), gpu=True),
        Fault("remembers inputs", _remembers_inputs, ("new-inputs", "graph", "stream")),
        Fault("leaves the last row", _leaves_the_last_row, ("numbers", "poison")),
        Fault("writes around the output", _writes_around_the_output, ("poison",)),
        Fault("runs on a stream of its own", _own_stream, ("stream", "graph")),
        Fault("computes other numbers", _other_numbers, ("numbers", "operator", "compile")),
        Fault("moves the shared buffers", _moves_the_buffers, ("static-buffers",), _SHARED),
        Fault("keeps old gates", _keeps_old_gates, ("new-inputs", "graph"), _SHARED),
    )
}
