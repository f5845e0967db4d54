"""The checks of the device contract that need a GPU, CUDA or ROCm: waiting, streams and captured graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch

from aiter_conformance.device.call import DeviceCall
from aiter_conformance.device.host_checks import SEEDS, allowed_tensors

# How long the device is kept busy in front of a call: far longer than the host needs to launch one.
_DELAY_MS: Final = 250.0
_JUNK_BYTES: Final = (512, 4096, 1 << 16, 1 << 20, 1 << 24)
# Most of torch.cuda has no types.
_cuda: Any = torch.cuda


@cache
def _cycles_per_ms() -> float:
    """Measure how many cycles of the delay kernel take a millisecond."""
    start, end = _cuda.Event(enable_timing=True), _cuda.Event(enable_timing=True)
    cycles = 20_000_000
    _cuda._sleep(cycles)  # once before, so that the kernel is loaded
    start.record()
    _cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(cycles / start.elapsed_time(end))


def _delay() -> None:
    """Keep the current stream busy for a while without keeping the host."""
    _cuda._sleep(int(_cycles_per_ms() * _DELAY_MS))


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    before = _cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is a prototype
        _cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        _cuda.set_sync_debug_mode(before)


def no_sync(call: DeviceCall) -> str | None:
    """With torch's sync debug mode at error, nothing raises: no operation makes the host wait."""
    call.run()
    staged = call.stage(1)
    torch.cuda.synchronize()
    with _refusing_to_wait():
        call.fill(staged)
        output = call.run()
    return call.wrong(output, 1, "with waiting made an error")


def asynchronous(call: DeviceCall) -> str | None:
    """The call returns while the device is still busy with what was launched before it."""
    _cycles_per_ms()
    call.run()
    torch.cuda.synchronize()
    _delay()
    output = call.run()
    done = _cuda.Event()
    done.record()
    if done.query():
        return f"the call must return before the {_DELAY_MS:g} ms of work in front of it end (got: it waited)"
    return call.wrong(output, 0, "behind other work")


def side_stream(call: DeviceCall) -> str | None:
    """On another stream, behind a delay and the writing of its inputs, the call sees these inputs."""
    _cycles_per_ms()
    call.run()
    staged = call.stage(1)
    output = call.new_output()
    torch.cuda.synchronize()
    side, done = _cuda.Stream(), _cuda.Event()
    with _cuda.stream(side):
        _delay()
        call.fill(staged)
        call.run(output)
        taken = output.clone()
        done.record()
    _cuda.current_stream().wait_event(done)
    found = call.wrong(taken.clone(), 1, "on a side stream, behind a delay")
    torch.cuda.synchronize()
    return found


def _captured(call: DeviceCall, output: torch.Tensor) -> Any:
    warm = _cuda.Stream()
    warm.wait_stream(_cuda.current_stream())
    with _cuda.stream(warm):
        for _ in range(3):
            call.run()
    _cuda.current_stream().wait_stream(warm)
    graph = _cuda.CUDAGraph()
    with _cuda.graph(graph):
        call.run(output)
    return graph


def _fill_other_memory() -> None:
    """Write NaN into memory that anything freed too early would be in."""
    for size in _JUNK_BYTES:
        torch.full((size // 4,), torch.nan, device="cuda")


def graph(call: DeviceCall) -> str | None:
    """Captured once and replayed with new inputs in the same buffers, the call gives their results."""
    whole = call.new_output()
    view = torch.cat([whole, whole])[: len(whole)]
    for what, output in (("a whole output", whole), ("a view as output", view)):
        call.fill(call.stage(0))
        captured = _captured(call, output)
        for seed in (*SEEDS, SEEDS[0]):
            call.fill(call.stage(seed))
            output.fill_(torch.nan)
            _fill_other_memory()
            captured.replay()
            if (found := call.wrong(output, seed, f"replayed into {what}, inputs {seed}")) is not None:
                return found
    return None


def allocations(call: DeviceCall) -> str | None:
    """The allocator gives the leaf no more blocks than its tensors need, in bytes of the routing's size."""
    call.run()
    weights, ids = call.route()
    output, result = call.new_output(), call.new_output()
    kernel: Callable[..., torch.Tensor] = call.compute
    call.compute = lambda _call: result
    try:
        call.experts(output, weights, ids)
        torch.cuda.synchronize()
        before = _allocated()
        call.experts(output, weights, ids)
        blocks, size = (now - then for now, then in zip(_allocated(), before, strict=True))
    finally:
        call.compute = kernel
    most = allowed_tensors(call)
    if blocks > most or size > most * 512 * (1 + ids.numel() * 8 // 512):
        return f"a call must take at most {most} blocks of the routing's size (got {blocks}, {size} bytes)"
    return None


def _allocated() -> tuple[int, int]:
    stats = _cuda.memory_stats()
    return stats["allocation.all.allocated"], stats["allocated_bytes.all.allocated"]
