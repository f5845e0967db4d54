"""SPEC 10: where the shared experts' buffers are, of which type, and what they are before anybody asks.

These are tests of the package ``aiter_moe`` itself: upstream's buffers are always on "cuda".
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aiter_conformance.protocols import Subject
from aiter_conformance.simulated_aiter import FUTURE

INIT = {"n_routed_experts": 8, "n_shared_experts": 1, "top_k": 2, "tp_rank": 0, "tp_size": 2}


@pytest.fixture
def api(subject: Subject) -> Iterator[Any]:
    """Yield the package ``aiter_moe`` without buffers."""
    if subject.name != "impl":
        pytest.skip("about the package aiter_moe")
    with subject.environment("gfx950"):
        yield subject.api


@pytest.fixture
def default_bfloat16() -> Iterator[None]:
    """Have torch make tensors of another type unless told, as vLLM does while it loads a model."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(before)


class TestInitAiterTopKMetaData:
    """``init_aiter_topK_meta_data``."""

    @pytest.mark.usefixtures("api")
    def test_nothing_at_first(self) -> None:
        """A fresh module has no buffers."""
        spec = importlib.util.find_spec("aiter_moe.shared_experts")
        assert spec is not None
        assert spec.loader is not None
        fresh = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fresh)
        assert fresh.aiter_topK_meta_data is None

    def test_defaults(self, api: Any) -> None:
        """Without more arguments there are 32768 rows, a score of 1 and no sentinel's column."""
        api.init_aiter_topK_meta_data(**INIT)
        weights, ids = api.aiter_topK_meta_data
        assert (weights.shape, ids.shape) == ((32768, 3), (32768, 3))
        assert (set(weights[:, 2].tolist()), set(ids[:, 2].tolist())) == ({1.0}, {8})

    @pytest.mark.parametrize("is_ep", [False, True])
    def test_accelerator(self, api: Any, is_ep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The buffers are on the accelerator, provided that one can be used."""

        def current_accelerator(check_available: bool = False) -> torch.device:
            assert check_available
            return torch.device("meta")

        monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
        api.init_aiter_topK_meta_data(**INIT, is_EP=is_ep)
        assert [tensor.device.type for tensor in api.aiter_topK_meta_data] == ["meta", "meta"]

    def test_no_accelerator(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without one they are on the CPU, whatever torch's default device is at the time."""
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
        with torch.device("meta"):
            api.init_aiter_topK_meta_data(**INIT, is_EP=True)
        assert [tensor.device.type for tensor in api.aiter_topK_meta_data] == ["cpu", "cpu"]

    @pytest.mark.usefixtures("default_bfloat16")
    def test_types(self, api: Any) -> None:
        """Weights are float32 and ids int32, whatever torch's default type is at the time."""
        api.init_aiter_topK_meta_data(**INIT)
        assert [tensor.dtype for tensor in api.aiter_topK_meta_data] == [torch.float32, torch.int32]


class TestRocmAiterGroupedTopk:
    """``rocm_aiter_grouped_topk``."""

    @pytest.mark.usefixtures("default_bfloat16")
    def test_fresh_tensors(self, api: Any) -> None:
        """Without fusion results are float32 and int32, on the device of the logits."""
        routed: list[tuple[torch.Tensor, ...]] = []
        library = api.Aiter.simulated(FUTURE, grouped_topk=lambda *arguments: routed.append(arguments[1:3]))
        with api.use_bridge(api.AiterBridge(library)):
            results = [
                api.rocm_aiter_grouped_topk(torch.zeros(3, 8), torch.zeros(3, 4, device=device), 2, True)
                for device in ("meta", "cpu")
            ]
        faces = [[(t.dtype, t.device.type, tuple(t.shape)) for t in pair] for pair in results]
        assert faces == [
            [(torch.float32, device, (3, 2)), (torch.int32, device, (3, 2))] for device in ("meta", "cpu")
        ]
        assert [[t.data_ptr() for t in pair] for pair in routed] == [
            [t.data_ptr() for t in pair] for pair in results
        ]
