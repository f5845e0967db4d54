"""Properties of what happens to weights at load (SPEC 12): sizes, padding, layout, fp8 flavour, reload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from aiter_conformance.checks.properties import (
    Untouched,
    compare_refusal,
    compare_tensors,
    content,
    share_memory,
)
from aiter_conformance.checks.properties_checkpoint import (
    E8M0_NAN,
    FNUZ_ARCH,
    FP8_SCHEMES,
    Layer,
    Stored,
    checkpoint,
    expected_bytes,
    expected_sizes,
    pad_halves,
)
from aiter_conformance.checks.properties_leaf import found_aiter
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

TENSORS: Final = ("w1", "w2", "w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")


def check_sizes(subject: Subject, scheme: str, activation: str, hidden: int, intermediate: int) -> Report:
    """Sizes are those of SPEC 12, as ints, never smaller than the raw ones, and stay when padded again."""
    report = Report()
    with subject.environment("gfx950"):
        api = subject.api
        kind = api.MoEActivation(activation)
        sizes = tuple(api.padded_sizes(scheme, kind, hidden, intermediate))
        again = tuple(api.padded_sizes(scheme, kind, *sizes))
    where = f"padded_sizes of {scheme} {activation}, hidden {hidden}, intermediate {intermediate}"
    report.compare(where, expected_sizes(scheme, activation, hidden, intermediate), sizes)
    report.compare(f"{where}, padded again", sizes, again)
    return report


def _weights(subject: Subject, tensors: Mapping[str, torch.Tensor]) -> Any:
    return subject.api.ExpertWeights(**tensors)


def _prepare(subject: Subject, layer: Layer, weights: Any, into: Any = None) -> Any:
    api = subject.api
    return api.prepare_weights(
        layer.scheme,
        api.MoEActivation(layer.activation),
        weights,
        use_mxfp4_w4a4_dsv4=layer.dsv4,
        into=into,
    )


def _tensors(weights: Any) -> dict[str, torch.Tensor]:
    present = ((name, getattr(weights, name)) for name in TENSORS)
    return {name: tensor for name, tensor in present if tensor is not None}


def _tags(weights: Any) -> list[object]:
    return [getattr(weight, "is_shuffled", None) for weight in (weights.w1, weights.w2)]


def check_prepared(subject: Subject, layer: Layer) -> Report:
    """Prepared weights hold the bytes where kernels read them, pads are 0, both are tagged."""
    report = Report()
    where = f"prepare_weights of {layer}"
    raw = checkpoint(layer)
    with subject.environment(layer.arch, layer.environment, found_aiter()):
        before = Untouched(raw)
        prepared = _prepare(subject, layer, _weights(subject, raw))
        before.compare(report, where)
    report.compare(f"{where}: is_shuffled of w1 and w2", [True, True], _tags(prepared))
    got = _tensors(prepared)
    if not report.compare(f"{where}: tensors", sorted(raw), sorted(got)):
        return report
    for name, stored in expected_bytes(layer, raw).items():
        _compare_stored(report, f"{where}: {name}", stored, got[name])
    _compare_scales_and_biases(report, where, layer, raw, got)
    return report


def _compare_stored(report: Report, where: str, stored: Stored, got: torch.Tensor) -> None:
    data = np.frombuffer(content(got), np.uint8)
    if not report.compare(f"{where}: bytes stored", stored.data.size, data.size):
        return
    wrong = np.flatnonzero((data != stored.data) & stored.live)
    first = f", the first at {wrong[0]}" if wrong.size else ""
    report.compare(f"{where}: bytes out of place{first}", 0, int(wrong.size))
    # The weights under these scales are 0, but 0 times NaN is not.
    nan = int((data[~stored.live] == E8M0_NAN).sum())
    report.compare(f"{where}: NaNs among the padding of scales", 0, nan)


def _compare_scales_and_biases(
    report: Report,
    where: str,
    layer: Layer,
    raw: Mapping[str, torch.Tensor],
    got: Mapping[str, torch.Tensor],
) -> None:
    """Compare what is not shuffled: fp8 scales, doubled where codes are re-read, and padded biases."""
    if layer.scheme in FP8_SCHEMES:
        factor = 2.0 if layer.reread else 1.0
        for name in (name for name in raw if name.endswith("_scale")):
            compare_tensors(report, f"{where}: {name}", raw[name] * factor, got[name])
        flavour = torch.float8_e4m3fnuz if layer.arch == FNUZ_ARCH else torch.float8_e4m3fn
        report.compare(f"{where}: dtypes", [flavour, flavour], [got["w1"].dtype, got["w2"].dtype])
    hidden, intermediate = expected_sizes(layer.scheme, layer.activation, layer.hidden, layer.intermediate)
    for name, width, halves in (("w1_bias", 2 * intermediate, True), ("w2_bias", hidden, False)):
        if name in raw:
            column = raw[name].numpy()[:, :, None]
            wanted = torch.from_numpy(pad_halves(column, width, 1, halves=halves)[:, :, 0])
            compare_tensors(report, f"{where}: {name}", wanted, got[name])


def check_prepared_again(subject: Subject, layer: Layer) -> Report:
    """Preparing what is prepared gives the same bytes in the same memory, tagged."""
    report = Report()
    where = f"prepare_weights twice of {layer}"
    with subject.environment(layer.arch, layer.environment, found_aiter()):
        once = _prepare(subject, layer, _weights(subject, checkpoint(layer)))
        first = _tensors(once)
        before = {name: content(tensor) for name, tensor in first.items()}
        twice = _prepare(subject, layer, once)
        second = _tensors(twice)
    report.compare(f"{where}: is_shuffled of w1 and w2", [True, True], _tags(twice))
    _compare_kept(report, where, first, before, second)
    return report


def check_reload(subject: Subject, layer: Layer) -> Report:
    """A reload puts other weights into the same memory: what a captured graph reads is then the new ones."""
    report = Report()
    where = f"prepare_weights into what is there, of {layer}"
    other = replace(layer, seed=layer.seed + 1)
    with subject.environment(layer.arch, layer.environment, found_aiter()):
        home = _prepare(subject, layer, _weights(subject, checkpoint(layer)))
        places = _tensors(home)
        fresh = _tensors(_prepare(subject, other, _weights(subject, checkpoint(other))))
        wanted = {name: content(tensor) for name, tensor in fresh.items()}
        reloaded = _prepare(subject, other, _weights(subject, checkpoint(other)), into=home)
        _compare_kept(report, where, places, wanted, _tensors(reloaded))
        report.compare(f"{where}: is_shuffled of w1 and w2", [True, True], _tags(reloaded))
        same = _prepare(subject, other, reloaded, into=home)
        _compare_kept(report, f"{where}, twice", places, wanted, _tensors(same))
    return report


def _compare_kept(
    report: Report,
    where: str,
    places: Mapping[str, torch.Tensor],
    wanted: Mapping[str, bytes],
    got: Mapping[str, torch.Tensor],
) -> None:
    if not report.compare(f"{where}: tensors", sorted(places), sorted(got)):
        return
    for name, place in places.items():
        report.compare(f"{where}: {name} is where it was", True, share_memory(place, got[name]))
        report.compare(f"{where}: {name} has the bytes", True, content(got[name]) == wanted[name])


def check_reload_refused(subject: Subject, layer: Layer) -> Report:
    """A reload of weights of another shape is refused, and the memory that is in use keeps its bytes."""
    report = Report()
    where = f"prepare_weights of one more expert into {layer}"
    more = replace(layer, experts=layer.experts + 1)
    with subject.environment(layer.arch, layer.environment, found_aiter()):
        home = _prepare(subject, layer, _weights(subject, checkpoint(layer)))
        before = {name: content(tensor) for name, tensor in _tensors(home).items()}
        bigger = _weights(subject, checkpoint(more))
        compare_refusal(
            report, subject, where, ValueError, lambda: _prepare(subject, more, bigger, into=home)
        )
        after = {name: content(tensor) for name, tensor in _tensors(home).items()}
    report.compare(f"{where}: bytes unchanged", True, before == after)
    return report
