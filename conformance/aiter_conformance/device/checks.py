"""The checks of the device contract, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiter_conformance.device import compile_checks, gpu_checks, host_checks
from aiter_conformance.device.call import DeviceCall
from aiter_conformance.device.variants import Variant

CALLS: Final = 1000


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: Short name.
        says: What holds of a call that passes, one clause.
        run: Returns what is wrong, or None; it may change the call.
        gpu: Whether it needs a GPU.
        routed: Whether it is about routed variants only.
    """

    name: str
    says: str
    run: Callable[[DeviceCall], str | None]
    gpu: bool = False
    routed: bool = False

    def concerns(self, variant: Variant) -> bool:
        """Return whether there is anything to look at in a variant."""
        return variant.routed or not self.routed


def make_checks(calls: int = CALLS) -> dict[str, Check]:
    """Return the checks by name.

    Args:
        calls: How many calls must leave no memory behind.
    """
    checks = (
        Check("numbers", "right by the oracle; device and CPU agree within its bound", host_checks.numbers),
        Check("new-inputs", "other values in the same buffers give their results", host_checks.new_inputs),
        Check("untouched", "no input is written to", host_checks.untouched),
        Check(
            "poison",
            "NaN in output, new memory and shared columns does not show, and nothing else is written",
            host_checks.poison,
        ),
        Check(
            "static-buffers", "the shared-expert buffers never move", host_checks.static_buffers, routed=True
        ),
        Check("reads", "the leaf reads no value and moves nothing between devices", host_checks.reads),
        Check(
            "copies",
            "the leaf makes at most three tensors, four for int64 ids, of the routing's size, and copies "
            "nothing but a result into a view",
            host_checks.copies,
        ),
        Check("memory", f"{calls} calls leave nothing behind", partial(host_checks.memory, calls=calls)),
        Check("compile", "one graph under torch.compile, compiled once", compile_checks.compiled),
        Check(
            "operator",
            "the operator's result is what its fake promises, and it compiles whole by itself",
            compile_checks.operator,
        ),
        Check(
            "no-sync", "nothing raises with torch's sync debug mode at error", gpu_checks.no_sync, gpu=True
        ),
        Check(
            "asynchronous",
            "the call returns while the device is still busy with earlier work",
            gpu_checks.asynchronous,
            gpu=True,
        ),
        Check(
            "stream",
            "right on a side stream, behind a delay and the writing of its inputs",
            gpu_checks.side_stream,
            gpu=True,
        ),
        Check(
            "graph",
            "captured once and replayed with new inputs in the same buffers",
            gpu_checks.graph,
            gpu=True,
        ),
        Check(
            "allocations", "the allocator gives no more than `copies` says", gpu_checks.allocations, gpu=True
        ),
    )
    return {check.name: check for check in checks}
