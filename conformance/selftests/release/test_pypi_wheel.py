"""The one release on PyPI, read whole. NOT RUN unless ``nox -s matrix`` (or a person) has downloaded it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiter_conformance.release import ObjectCount, Release, open_release, read_api, take_inventory

WHEEL = "amd_aiter-0.1.7.post2.dev18-py3-none-any.whl"

# Counted with `unzip -Z1 | grep -c`, `grep -c '\.co'` over the unpacked manifests, `find` and `comm`.
OBJECTS = {
    "gfx942": ObjectCount(total=1281, moe=1039, orphans=412),
    "gfx950": ObjectCount(total=1220, moe=1018, orphans=360),
}
MANIFESTS = {"gfx942": 32, "gfx950": 36}
ROWS = {"gfx942": 627, "gfx950": 658}


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest) -> Iterator[Release]:
    """The opened wheel."""
    path = request.config.rootpath / "build" / "downloads" / WHEEL
    if not path.is_file():
        pytest.skip(f"NOT RUN: there is no build/downloads/{WHEEL}; `nox -s matrix` downloads it")
    with open_release(str(path)) as release:
        yield release


def test_counts(wheel: Release) -> None:
    """Code objects, manifests, rows and orphans are as many as the shell counts, and every row is sound."""
    inventory = take_inventory(wheel)
    assert inventory.objects == OBJECTS
    assert {arch: sum(m.arch == arch for m in inventory.manifests) for arch in MANIFESTS} == MANIFESTS
    assert {arch: sum(len(m.rows) for m in inventory.manifests if m.arch == arch) for arch in ROWS} == ROWS
    assert inventory.sound_count == inventory.row_count
    assert inventory.findings == ()


def test_interface(wheel: Release) -> None:
    """This release has 21 parameters, no gate mode, no Situv2 and no gfx1250."""
    api = read_api(wheel)
    assert wheel.version == "0.1.7.post2.dev18"
    assert api.fused_moe is not None
    assert len(api.fused_moe.names) == 21
    assert not api.fused_moe.takes("gate_mode")
    assert api.asm_moe_tkw1 is not None
    assert len(api.asm_moe_tkw1.names) == 13
    assert api.activation_type is not None
    assert api.activation_type.members == {"No": -1, "Silu": 0, "Gelu": 1, "Swiglu": 2}
    assert api.quant_type is not None
    assert list(api.quant_type.members) == [
        "No", "per_Tensor", "per_Token", "per_1x32", "per_1x128", "per_128x128"
    ]  # fmt: skip
    assert api.gate_mode is None
    assert api.archs is not None
    assert "gfx1250" not in api.archs
    assert api.findings == ()
