"""What the property checks share: comparisons that can fail, and listed differences that must still show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiter_conformance.checks import properties_dispatch as dispatch
from aiter_conformance.checks import properties_pads as pads
from aiter_conformance.checks import properties_shared_experts as shared_experts
from aiter_conformance.checks import properties_shared_refusals as refusals
from aiter_conformance.checks.properties import (
    Untouched,
    compare_refusal,
    compare_tensors,
    content,
    share_memory,
)
from aiter_conformance.checks.properties_faulty import Fault, Faulty
from aiter_conformance.checks.properties_leaf import LeafCase
from aiter_conformance.checks.properties_pads import Pads
from aiter_conformance.checks.properties_shared_experts import Buffers, Injection
from aiter_conformance.checks.properties_shared_refusals import BadShapes
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Difference, MoEConfigSpec, Subject
from aiter_conformance.subjects import load_subject

# Of a subject, only what errors stand for and what is listed is asked here.
ANY: Any = SimpleNamespace(
    name="any",
    version="1",
    differences={},
    refusal=lambda error: ValueError if isinstance(error, AssertionError | ValueError) else None,
)


class TestCompareTensors:
    """`compare_tensors`."""

    def test_equal(self) -> None:
        """Equal bytes are equal, NaNs included."""
        report = Report()
        assert compare_tensors(report, "x", torch.tensor([float("nan")]), torch.tensor([float("nan")]))
        assert report.problems(ANY) == []

    @pytest.mark.parametrize(
        "got",
        [
            torch.tensor([1.0, 3.0]),
            torch.tensor([[1.0, 2.0]]),
            torch.tensor([1.0, 2.0], dtype=torch.float64),
            None,
            [1.0, 2.0],
        ],
        ids=["value", "shape", "dtype", "None", "list"],
    )
    def test_different(self, got: Any) -> None:
        """Another value, shape, dtype or thing is a mismatch."""
        report = Report()
        assert not compare_tensors(report, "x", torch.tensor([1.0, 2.0]), got)
        assert report.problems(ANY) != []

    def test_sign_of_zero(self) -> None:
        """What prints alike but differs in a bit is shown by its bytes."""
        report = Report()
        compare_tensors(report, "x", torch.tensor([[float("nan")]]), -torch.tensor([[float("nan")]]))
        (problem,) = report.problems(ANY)
        assert "0000c0ff" in problem


class TestContent:
    """`content` and `share_memory`."""

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fnuz, torch.int32, torch.uint8])
    def test_bytes_in_order(self, dtype: torch.dtype) -> None:
        """A transposed view has its elements in its own order."""
        plain = torch.tensor([[0, 1], [2, 3]]).to(dtype)
        assert content(plain.t()) == content(plain.t().contiguous()) != content(plain)

    def test_share_memory(self) -> None:
        """A view from the first element shares memory, a later one and a copy do not."""
        base = torch.zeros(4)
        assert [share_memory(base, other) for other in (base[:2], base[1:], base.clone())] == [
            True,
            False,
            False,
        ]


def fails_with(error: Exception) -> Callable[[], Any]:
    """Return a function that raises the error."""

    def call() -> Any:
        raise error

    return call


class TestCompareRefusal:
    """`compare_refusal`."""

    def problems(self, call: Callable[[], Any], **kwargs: Any) -> list[str]:
        """Return what is wrong with a call that must be refused with a ValueError."""
        report = Report()
        compare_refusal(report, ANY, "f", ValueError, call, **kwargs)
        return report.problems(ANY)

    def test_refused(self) -> None:
        """The subject's own form of the error counts, with every text in its message."""
        assert self.problems(fails_with(AssertionError("8 of 9")), says=("8", "9"), advises=("of",)) == []

    @pytest.mark.parametrize(
        ("call", "kwargs"),
        [
            (lambda: 1, {}),
            (fails_with(TypeError("8")), {}),
            (fails_with(ValueError("8")), {"says": ("9",)}),
            (fails_with(ValueError("8")), {"says": ("8",), "advises": ("do",)}),
        ],
        ids=["answer", "crash", "says too little", "no advice"],
    )
    def test_not_refused(self, call: Callable[[], Any], kwargs: dict[str, Any]) -> None:
        """An answer, another error and a message without a text are mismatches."""
        assert self.problems(call, **kwargs) != []

    def test_each_part_has_its_own_difference(self) -> None:
        """A missing piece of advice is not explained by the difference of the refusal."""
        report = Report()
        compare_refusal(
            report,
            ANY,
            "f",
            ValueError,
            fails_with(ValueError("8")),
            advises=("do",),
            difference="a",
            advice_difference="b",
        )
        assert [mismatch.difference for mismatch in report.mismatches] == ["b"]


class TestUntouched:
    """`Untouched`."""

    @pytest.mark.parametrize(
        ("spoil", "written"),
        [
            (lambda _: None, []),
            (lambda t: t + 1, []),
            (lambda t: t.add_(1), ["x"]),
            (lambda t: t.mul_(1), ["x"]),
            (lambda t: t.detach()[0].fill_(5), ["x"]),
        ],
        ids=["nothing", "copy", "added", "same value", "through a view"],
    )
    def test_writes_are_seen(self, spoil: Callable[[torch.Tensor], Any], written: list[str]) -> None:
        """Every write is seen, that of the same value too; None stands for no tensor."""
        report, tensor = Report(), torch.ones(2)
        before = Untouched({"x": tensor, "y": None})
        spoil(tensor)
        before.compare(report, "f")
        assert [mismatch.got for mismatch in report.mismatches] == ([written] if written else [])

    def test_without_values(self) -> None:
        """A tensor without values is seen by its version."""
        report, tensor = Report(), torch.ones(2, device="meta")
        before = Untouched({"x": tensor})
        tensor.add_(1)
        before.compare(report, "f")
        assert report.problems(ANY) != []


LAYER = MoEConfigSpec(num_experts=4, hidden_dim=64, intermediate_size=32)
ROWS = LeafCase("bf16", LAYER, ((-1, 2), (0, 3)))
SMALL = Injection(Buffers(max_num_tokens=3), tokens=2)

# Each id that a property tags, with a check and an example in which a subject that lists it must differ.
SHOWN_BY: dict[str, Callable[[Subject], Report]] = {
    pads.NEGATIVE: lambda s: pads.check_bad_pads_refused(s, Pads(-1, 0)),
    dispatch.NEGATIVE_IDS: lambda s: dispatch.check_routing(s, ROWS),
    dispatch.VECTOR: lambda s: dispatch.check_local_tokens(s, replace(ROWS, local_tokens=(0, 1, 1, 0))),
    shared_experts.CALL_STYLE: lambda s: shared_experts.check_init_again_by_keyword(s, SMALL.buffers),
    refusals.UNCHECKED: lambda s: refusals.check_bad_shapes_refused(
        s, replace(BadShapes.good(SMALL), columns=5, id_columns=5)
    ),
    refusals.ADVICE: lambda s: refusals.check_too_many_tokens(s, SMALL),
}


class TestStaleDifferences:
    """Differences that a subject lists."""

    @pytest.mark.parametrize("identity", SHOWN_BY)
    def test_a_listed_difference_that_does_not_show_is_a_problem(self, identity: str) -> None:
        """A subject that does what SPEC says may not list that it does not."""
        sound: Any = Faulty(load_subject("impl"), Fault("none", SHOWN_BY[identity]))
        sound.differences = {identity: Difference(identity, "nothing")}
        problems = SHOWN_BY[identity](sound).problems(sound)
        assert [identity in problem and "no longer shows" in problem for problem in problems] == [True]
