"""The quick answers about tensors without values are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch

from aiter_conformance.trace.worker.fake_torch import like, on_meta, twin


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor without values."""
    return torch.empty(shape, dtype=dtype, device="meta")


IDS: Final = meta(3, 2, dtype=torch.int32)
OPERANDS: Final = (
    (meta(3, 2), meta(3, 2)),
    (meta(3, 2), meta(3, 2, dtype=torch.bfloat16)),
    (meta(3, 2), meta(1, 2)),
    (meta(3, 2), meta(2)),
    (meta(3, 2), meta()),
    (IDS, IDS),
    (IDS, meta(3, 2)),
    (IDS, 2),
    (IDS, 2.5),
    (meta(3, 2, dtype=torch.bfloat16), 2.5),
    (meta(3, 2, dtype=torch.bool), 2),
    (torch.ones(2), 3.0),
)


class TestLike:
    """``like``: an elementwise operation that answers itself where it can."""

    @pytest.mark.parametrize(
        ("function", "dtype"), [(torch.Tensor.mul, None), (torch.Tensor.lt, torch.bool)], ids=["mul", "lt"]
    )
    @pytest.mark.parametrize("operands", OPERANDS, ids=str)
    def test_shape_and_dtype_are_those_of_torch(
        self, function: Callable[..., Any], dtype: torch.dtype | None, operands: tuple[Any, ...]
    ) -> None:
        """Whatever the operands, the result is as torch has it, device included."""
        expected, actual = function(*operands), like(function, dtype)(*operands)
        described = (actual.shape, actual.dtype, actual.device)
        assert described == (expected.shape, expected.dtype, expected.device)

    def test_it_answers_itself(self) -> None:
        """Where all have the same shape torch is not asked; elsewhere it is, and so for an unknown option."""
        asked: list[int] = []

        def torchs(*operands: Any, **_: Any) -> int:
            asked.append(len(operands))
            return 0

        quick = like(torchs)
        assert quick(IDS, IDS).shape == (3, 2)
        assert quick(meta(3, 2), approximate="tanh").dtype == torch.float32
        assert asked == []
        assert [quick(IDS, meta(2)), quick(IDS, inplace=True), quick(torch.ones(1))] == [0, 0, 0]
        assert asked == [2, 1, 1]


class TestTwin:
    """``twin``: a function like `torch.empty_like`."""

    @pytest.mark.parametrize("tensor", [meta(3, 2), meta(3, 2).T, IDS, torch.ones(2), meta()], ids=str)
    @pytest.mark.parametrize(
        "options",
        [{}, {"dtype": torch.bfloat16}, {"device": "meta"}, {"device": "cuda"}, {"requires_grad": False}],
        ids=str,
    )
    def test_as_torch(self, tensor: torch.Tensor, options: dict[str, Any]) -> None:
        """Shape, dtype, strides and device are those of torch's own; the GPU is the meta device."""
        actual = twin(torch.zeros_like)(tensor, **options)
        known = {**options, "device": "meta"} if options.get("device") == "cuda" else options
        expected = torch.zeros_like(tensor, **known)
        described = (actual.shape, actual.dtype, actual.device, actual.stride())
        assert described == (expected.shape, expected.dtype, expected.device, expected.stride())


class TestOnMeta:
    """``on_meta``: a function that makes tensors, with the GPU taken for the meta device."""

    @pytest.mark.parametrize("device", ["cuda", "cuda:0", "hip", torch.device("cuda", 1), "meta"])
    def test_the_gpu_is_meta(self, device: Any) -> None:
        """A tensor asked for on the GPU, however that is spelt, has no storage."""
        assert on_meta(torch.empty)((2,), device=device).is_meta

    @pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
    def test_other_devices_stay(self, device: Any) -> None:
        """What is asked for elsewhere is made there."""
        assert on_meta(torch.empty)((2,), device=device).device.type == "cpu"
