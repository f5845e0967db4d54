"""How the result of a call gets into the tensor that the caller provided."""

from __future__ import annotations

import torch
from torch import Tensor


def write_result(output: Tensor, result: Tensor) -> None:
    """Make `output` hold `result`: by taking over its storage where that is safe, else by copying.

    Storage is taken over when both agree in type and device, both are contiguous and `output` is no view.
    Views of `output` taken before then still show the old storage. While compiling it is always a copy:
    taking over storage would break the graph.

    Raises:
        ValueError: The shapes differ; a copy would broadcast.
    """
    if result.shape != output.shape:
        msg = f"the result must have the shape of output {tuple(output.shape)} (got {tuple(result.shape)})"
        raise ValueError(msg)
    if torch.compiler.is_compiling() or not _can_take_over(output, result):
        output.copy_(result)
    else:
        output.set_(result)  # type: ignore[call-overload]  # its annotation knows storages only


def _can_take_over(output: Tensor, result: Tensor) -> bool:
    return (
        result.dtype == output.dtype
        and result.device == output.device
        and result.is_contiguous()
        and output.is_contiguous()
        and output._base is None
    )
