"""The differential notices what two subjects do differently, and a list of differences that is not the truth.

Both subjects here are our own leaves, one of them with a planted fault, so no vLLM is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings

from aiter_conformance import differential_strategies as inputs
from aiter_conformance import subjects
from aiter_conformance.differential import (
    Input,
    ListedDifference,
    Mismatch,
    Refused,
    brief,
    mismatches,
    stale,
    unlisted,
)
from aiter_conformance.differential_leaf import LeafUse, reason_of
from aiter_conformance.differential_parts import (
    ConfigUse,
    InitStep,
    InjectStep,
    PadsUse,
    RoutingUse,
    SettingsUse,
    SharedExpertsUse,
)
from aiter_conformance.outcome import Reason
from aiter_conformance.protocols import ENABLED, KernelCall, MoEConfigSpec, ParallelSpec, QuantSpec, Subject
from aiter_conformance.subjects.vllm_differences import DIFFERENCES

EXAMPLES: tuple[Input, ...] = (
    LeafUse(),
    LeafUse(through=True, config=MoEConfigSpec(swiglu_limit=7.0)),
    LeafUse(leaf="AiterFp8BlockExperts", on_input=True, topk=1),
    PadsUse(hidden_pad=130, intermediate_pad=65),
    SettingsUse(arch="gfx90a"),
    ConfigUse(config=MoEConfigSpec(parallel=ParallelSpec(tp=2))),
    SharedExpertsUse((InitStep(), InjectStep(gates=(2, 1)))),
    RoutingUse(fusion=True, shared=1),
)


class Altered:
    """A subject that is another one but for the attributes that are given."""

    def __init__(self, subject: Subject, **altered: Any) -> None:
        self._subject = subject
        vars(self).update(altered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def altering(subject: Subject, alter: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Altered:
    """Return the subject with every recorded call's arguments altered."""

    @contextmanager
    def recording(result: Any = None) -> Iterator[list[KernelCall]]:
        seen: list[KernelCall] = []
        with subject.recording(result) as calls:
            yield seen
        seen += [replace(call, arguments=alter(dict(call.arguments))) for call in calls]

    return Altered(subject, recording=recording)


def without(name: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Return an alteration that drops an argument."""
    return lambda arguments: {k: v for k, v in arguments.items() if k != name}


def difference(explains: Callable[[Any, Mismatch], bool], *witnesses: Input) -> ListedDifference:
    """Return a listed difference."""
    return ListedDifference(
        "planted", "Nothing.", what="Something.", spec="-", explains=explains, witnesses=witnesses
    )


@pytest.fixture(scope="module")
def impl() -> Subject:
    """Return our own leaves."""
    return subjects.load_subject("impl")


class TestMismatches:
    """`mismatches` and `unlisted`."""

    @pytest.mark.parametrize("use", EXAMPLES, ids=brief)
    def test_none_with_itself(self, impl: Subject, use: Input) -> None:
        """A subject agrees with itself, and something was compared."""
        assert use.observe(impl) != {}
        assert unlisted(use, impl, impl, []) is None

    def test_dropped_argument(self, impl: Subject) -> None:
        """A subject that drops an argument is found out, and the argument is named."""
        wrong = altering(impl, without("gate_mode"))
        found = mismatches(LeafUse(config=MoEConfigSpec(activation="situ")), impl, wrong, [])
        assert [(m.what, m.impl, m.other) for m in found] == [("argument gate_mode", "separated", "absent")]

    def test_changed_argument(self, impl: Subject) -> None:
        """True for 1 is another answer, as they are equal but not the same."""
        wrong = altering(impl, lambda arguments: arguments | {"doweight_stage1": 0})
        assert [m.what for m in mismatches(LeafUse(), impl, wrong, [])] == ["argument doweight_stage1"]

    def test_another_tensor(self, impl: Subject) -> None:
        """Tensors are told apart by which they are, not by what they hold."""
        wrong = altering(impl, lambda a: a | {"w1_scale": a["w2_scale"], "w2_scale": a["w1_scale"]})
        use = LeafUse(tensors=frozenset({"w1_scale", "w2_scale"}))
        found = [(m.what, m.impl, m.other) for m in mismatches(use, impl, wrong, [])]
        assert found == [
            ("argument w1_scale", "w1_scale", "w2_scale"),
            ("argument w2_scale", "w2_scale", "w1_scale"),
        ]

    def test_refusal_against_call(self, impl: Subject) -> None:
        """Where only one refuses, that is the one mismatch."""

        def moe_config(_spec: MoEConfigSpec) -> Any:
            raise ValueError("no")

        found = mismatches(LeafUse(), impl, Altered(impl, moe_config=moe_config), [])
        assert [(m.what, m.impl, m.other) for m in found] == [
            ("refused", "absent", Refused("ValueError", ""))
        ]

    def test_both_break(self, impl: Subject) -> None:
        """That both break is no agreement: our leaves must never break."""

        def moe_config(_spec: MoEConfigSpec) -> Any:
            raise KeyError("broken")

        broken = Altered(impl, moe_config=moe_config)
        assert [m.what for m in mismatches(LeafUse(), broken, broken, [])] == ["refused"]

    def test_other_parts(self, impl: Subject) -> None:
        """Faults in pads, settings, configuration, shared experts and routing are found out."""
        api = impl.api

        class Api:
            def aiter_moe_pads(self, *args: Any) -> Any:
                return tuple(-pad for pad in api.aiter_moe_pads(*args))

            def inject_shared_expert_weights(self, weights: Any, ids: Any, *rest: Any) -> Any:
                return api.inject_shared_expert_weights(weights * 2, ids, *rest)

            def rocm_aiter_grouped_topk(
                self, hidden: Any, logits: Any, topk: int, renorm: bool, *rest: Any
            ) -> Any:
                return api.rocm_aiter_grouped_topk(hidden, logits, topk, not renorm, *rest)

            def __getattr__(self, name: str) -> Any:
                return getattr(api, name)

        wrong = Altered(
            impl,
            api=Api(),
            settings=lambda: replace(impl.settings(), dispatch_policy=9),
            moe_config=lambda spec: impl.moe_config(replace(spec, parallel=ParallelSpec(tp=1))),
        )
        found = [{m.what for m in mismatches(use, impl, wrong, [])} for use in EXAMPLES[3:]]
        assert found == [
            {"pads"},
            {"settings"},
            {"parallel tp_size", "config tp_size", "config intermediate_size_per_partition"}
            | {"config intermediate_size_per_partition_unpadded"},
            {"step 1 result", "step 1 buffers"},
            {"calls"},
        ]

    def test_explained(self, impl: Subject) -> None:
        """A mismatch carries the id of the difference that explains it, and is then not unlisted."""
        wrong = altering(impl, without("hidden_pad"))
        listed = [difference(lambda _use, m: m.what == "argument hidden_pad")]
        assert [m.difference for m in mismatches(LeafUse(), impl, wrong, listed)] == ["planted"]
        assert unlisted(LeafUse(), impl, wrong, listed) is None

    def test_found_and_made_small(self, impl: Subject) -> None:
        """Among generated inputs a fault that needs two things is found; the input shown has nothing else."""

        def alter(arguments: dict[str, Any]) -> Mapping[str, Any]:
            limited = arguments.get("swiglu_limit") and arguments.get("hidden_pad")
            return arguments | {"swiglu_limit": 0.0} if limited else arguments

        wrong = altering(impl, alter)
        smallest = find(
            inputs.leaf_uses(),
            lambda use: unlisted(use, impl, wrong, []) is not None,
            settings=settings(max_examples=2000, derandomize=True, database=None, phases=tuple(Phase)),
        )
        assert isinstance(smallest, LeafUse)
        assert (smallest.config.swiglu_limit, smallest.config.hidden_dim_unpadded) == (7.0, 128)
        assert (smallest.leaf, smallest.env, smallest.negative_id) == (
            "AiterUnquantizedExperts",
            tuple(ENABLED.items()),
            False,
        )


class TestStale:
    """`stale`."""

    def test_shows(self, impl: Subject) -> None:
        """A difference that shows on its witness is not stale."""
        wrong = altering(impl, without("hidden_pad"))
        assert stale(impl, wrong, [difference(lambda _use, _m: True, LeafUse())]) == []

    def test_never_occurs(self, impl: Subject) -> None:
        """A listed difference that does not show on a witness is reported with it."""
        listed = [difference(lambda _use, _m: True, LeafUse(metadata="vector"))]
        assert stale(impl, impl, listed) == ["planted no longer shows on LeafUse(metadata='vector')"]

    def test_explains_nothing(self, impl: Subject) -> None:
        """So is one whose witness shows something else."""
        wrong = altering(impl, without("hidden_pad"))
        listed = [difference(lambda _use, m: m.what == "argument gate_mode", LeafUse())]
        assert stale(impl, wrong, listed) == ["planted no longer shows on LeafUse()"]

    def test_list_of_vllm(self, impl: Subject) -> None:
        """Over a subject that does all that SPEC says, every difference listed for vLLM is stale."""
        listed = [d for d in DIFFERENCES.values() if isinstance(d, ListedDifference)]
        witnesses = [witness for d in listed for witness in d.witnesses]
        assert len(stale(impl, impl, listed)) == len(witnesses)


class TestBrief:
    """`brief`."""

    @pytest.mark.parametrize(
        "strategy",
        ["leaf_uses", "pads_uses", "settings_uses", "config_uses", "shared_experts_uses", "routing_uses"],
    )
    def test_round_trip(self, strategy: str) -> None:
        """What is shown of an input makes the same input again."""

        @given(getattr(inputs, strategy)())
        def check(use: Input) -> None:
            made = eval(brief(use), globals() | {"QuantSpec": QuantSpec})  # noqa: S307 -- it is a constructor call
            assert made == use

        check()

    def test_leaves_defaults_out(self) -> None:
        """Only what is not at its default is shown."""
        assert brief(LeafUse(topk=3, config=MoEConfigSpec(hidden_dim=512))) == (
            "LeafUse(config=MoEConfigSpec(hidden_dim=512), topk=3)"
        )


class TestReasonOf:
    """`reason_of`."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("kernel does not support current device rocm", Reason.DEVICE),
            ("kernel does not support MoEActivation.RELU2 activation", Reason.ACTIVATION),
            ("kernel does not support batched_experts activation format", Reason.ACTIVATION_FORMAT),
            ("kernel does not support quantization scheme NonexNone", Reason.SCHEME),
            ("kernel does not support LoRA", Reason.LORA),
        ],
    )
    def test_vllm_texts(self, text: str, reason: Reason) -> None:
        """Reasons in vLLM's words are recognised."""
        assert reason_of(text) is reason

    def test_unknown(self) -> None:
        """A reason that names no step is an error, not a guess."""
        with pytest.raises(ValueError, match="must name a step"):
            reason_of("because")
