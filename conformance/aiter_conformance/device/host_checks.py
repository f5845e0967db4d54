"""The checks of the device contract that need no GPU; on a GPU they look at the calls there.

A check takes an open call and returns what is wrong, one sentence, or None.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiter_conformance.checks.properties import Reads, Untouched
from aiter_conformance.checks.properties_shared_experts import POISON_ID
from aiter_conformance.checks.report import Report
from aiter_conformance.device.call import DeviceCall, cpu_output
from aiter_conformance.numerics.oracle import Expected
from aiter_conformance.numerics.verdict import judge

SEEDS: Final = (1, 2, 0)  # inputs with which buffers are filled anew; the last is what was in them at first
_GUARD_ROWS: Final = 3
_TENSOR_SLACK: Final = 8  # live tensors that Python may hold on to for a while, however many calls were made


# --------------------------------------------------------------------------- numbers


def numbers(call: DeviceCall) -> str | None:
    """The result is right by the oracle, and that of the CPU within the oracle's bound."""
    output = call.run()
    if (found := call.wrong(output, 0, f"on {call.device.type}")) is not None:
        return found
    if call.device.type == "cpu":
        return None
    host = cpu_output(call.variant, call.subject, 0)
    if (found := call.wrong(host, 0, "on cpu")) is not None:
        return found
    expect = call.values(0).expected
    there = Expected(expect.tokens, call.live(host, 0), expect.bound, expect.fragile)
    verdict = judge(call.live(output, 0), there)
    return None if verdict.passed else f"{call.device.type} against cpu: {verdict.message}"


def new_inputs(call: DeviceCall) -> str | None:
    """Other inputs in the same buffers give the results of these inputs: nothing is remembered."""
    call.run()
    for seed in SEEDS:
        call.fill(call.stage(seed))
        if (
            found := call.wrong(call.run(), seed, f"inputs {seed}, written into the same buffers")
        ) is not None:
            return found
    return None


def static_buffers(call: DeviceCall) -> str | None:
    """Routed ids and weights are always views of the one pair of shared-expert buffers, which never moves."""
    pair = call.subject.api.aiter_topK_meta_data
    places = [buffer.data_ptr() for buffer in pair]
    for seed in SEEDS:
        call.fill(call.stage(seed))
        got = [tensor.data_ptr() for tensor in call.route()]
        if got != places:
            return f"what is routed must be views of the shared buffers (got other memory, inputs {seed})"
    if call.subject.api.aiter_topK_meta_data is not pair:
        return "the pair of shared-expert buffers must stay the same (got another one)"
    return None


# --------------------------------------------------------------------------- what is written


def untouched(call: DeviceCall) -> str | None:
    """No input is written to: bytes and version counters of everything handed over stay."""
    before = Untouched({**call.constants, **call.buffers})
    call.run()
    report = Report()
    before.compare(report, "inputs")
    return str(report.mismatches[0]) if report.mismatches else None


@contextmanager
def _nan_in_new_memory() -> Iterator[None]:
    """Fill every tensor that is made without content with NaN, or the largest integer."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that something has no deterministic form is not asked here
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def poison(call: DeviceCall) -> str | None:
    """Whatever lies in output, new memory and shared columns beforehand is overwritten, nothing around it."""
    rows, columns = call.buffers["hidden_states"].shape
    around = torch.full(
        (rows + 2 * _GUARD_ROWS, columns), torch.nan, dtype=torch.bfloat16, device=call.device
    )
    inside = around[_GUARD_ROWS : _GUARD_ROWS + rows]
    for what, output in (("an output of NaN", call.new_output()), ("a view full of NaN", inside)):
        if call.variant.routed:
            _poison_routed_columns(call)
        with _nan_in_new_memory():
            call.run(output)
        if (found := call.wrong(output, 0, f"into {what}, in memory full of NaN")) is not None:
            return found
    guards = torch.cat([around[:_GUARD_ROWS], around[_GUARD_ROWS + rows :]])
    if not bool(guards.isnan().all()):
        return "rows before and after the output's own must stay as they were (got other values)"
    return None


def _poison_routed_columns(call: DeviceCall) -> None:
    """Poison what routing and injection have to fill: routed ids, and the weights except the sentinel's."""
    weights, ids = call.subject.api.aiter_topK_meta_data
    topk = call.variant.problem.case.topk
    weights[:, : topk + call.variant.problem.features.shared_experts] = torch.nan
    ids[:, :topk] = POISON_ID


# --------------------------------------------------------------------------- what the leaf does besides


class LeafReads(Reads):  # type: ignore[no-untyped-call]
    """Notes what brings a value to the host, or a tensor to another device, outside of the kernel."""

    def __init__(self, call: DeviceCall) -> None:
        super().__init__()
        self._call = call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at one operation."""
        if self._call.in_kernel:
            return func(*args, **(kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        kinds = {t.device.type for t in (*args, result) if isinstance(t, torch.Tensor) and t.dim()}
        if len(kinds) > 1:
            self.seen.append(f"{func.overloadpacket.__name__} between {' and '.join(sorted(kinds))}")
        return result


def reads(call: DeviceCall) -> str | None:
    """The leaf brings no value to the host and lets no shape depend on one."""
    with LeafReads(call) as mode:
        call.experts(call.new_output(), *call.route())
    return f"the leaf must not read tensors (got {', '.join(mode.seen)})" if mode.seen else None


@dataclass
class Traffic:
    """What a leaf did besides the kernel call.

    Attributes:
        made: (operation, bytes) of each tensor with memory of its own.
        copied: (operation, bytes) of each copy into memory that was there.
    """

    made: list[tuple[str, int]] = field(default_factory=list)
    copied: list[tuple[str, int]] = field(default_factory=list)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, call: DeviceCall) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._call = call
        self.traffic = Traffic()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        calls_before = self._call.last
        result = func(*args, **(kwargs or {}))
        # An operator that called the kernel made the result, which is the kernel's.
        if self._call.in_kernel or self._call.last is not calls_before:
            return result
        if name == "copy_":
            self.traffic.copied.append((name, _size(args[0])))
        elif isinstance(result, torch.Tensor):
            given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
            if result.numel() and result.untyped_storage().data_ptr() not in given:
                self.traffic.made.append((name, _size(result)))
        return result


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def leaf_traffic(call: DeviceCall, output: torch.Tensor) -> Traffic:
    """Return what the leaf makes and copies for one call, the kernel's own work left out."""
    routed = call.route()
    mode = _Counting(call)
    with mode:
        call.experts(output, *routed)
    return mode.traffic


def allowed_tensors(call: DeviceCall) -> int:
    """Return how many tensors a leaf may make: the cleaned ids and what they take.

    Which ids are negative, the ids with these replaced, and without an expert mask the weights, where these
    rows count nothing; one more for ids of another type. Each has the size of the routing.
    """
    masked = "expert_mask" in call.constants
    return (2 if masked else 3) + call.variant.wide_ids


def copies(call: DeviceCall) -> str | None:
    """The leaf makes tensors of the routing's size only, and copies nothing but a result into a view."""
    call.run()  # whatever is done once is done
    weights, ids = call.route()
    largest = ids.numel() * max(ids.element_size(), weights.element_size())
    whole = call.new_output()
    view = torch.cat([whole, whole])[: len(whole)]
    for what, output, expected in (
        ("a whole output", whole, []),
        ("a view as output", view, [("copy_", _size(view))]),
    ):
        seen = leaf_traffic(call, output)
        if len(seen.made) > allowed_tensors(call):
            return f"{what}: the leaf must make at most {allowed_tensors(call)} tensors (got {seen.made})"
        if any(size > largest for _, size in seen.made):
            return f"{what}: the leaf must make no tensor of more than {largest} bytes (got {seen.made})"
        if seen.copied != expected:
            return f"{what}: copies must be {expected} (got {seen.copied})"
    return None


def live_tensors() -> int:
    """Return how many tensors Python knows of."""
    gc.collect()
    return sum(type(thing) is torch.Tensor for thing in gc.get_objects())


def memory(call: DeviceCall, calls: int) -> str | None:
    """Many calls leave no more memory behind than one: live tensors, and on a GPU the allocator's bytes."""
    gpu = call.device.type == "cuda"

    def in_use() -> tuple[int, int]:
        if gpu:
            torch.cuda.synchronize(call.device)
        return live_tensors(), torch.cuda.memory_allocated(call.device) if gpu else 0

    output = call.new_output()
    for _ in range(3):
        call.run(output)
    tensors, allocated = in_use()
    reserved = torch.cuda.memory_reserved(call.device) if gpu else 0
    for _ in range(calls):
        call.run(output)
    tensors_after, allocated_after = in_use()
    reserved_after = torch.cuda.memory_reserved(call.device) if gpu else 0
    if tensors_after > tensors + _TENSOR_SLACK:
        return f"{calls} calls must leave no tensor behind (got {tensors_after - tensors} more)"
    if allocated_after != allocated:
        return f"{calls} calls must leave no memory behind (got {allocated_after - allocated} bytes more)"
    if reserved_after > reserved:
        return (
            f"{calls} calls must not need ever more memory (got {reserved_after - reserved} bytes reserved)"
        )
    return None
