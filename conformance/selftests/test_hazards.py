"""The contract's hazards: each is seen in what a subject does, and no longer once the subject is repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aiter_moe
import aiter_moe.dispatch
from aiter_conformance import matrix, runner
from aiter_conformance.checks.hazards import HAZARDS, observe_hazards
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId
from aiter_conformance.ledger import HAZARD, Observation, explains, judge
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.subjects import load_subject

IDS = {hazard.id for hazard in HAZARDS}


class TestObserveHazards:
    """`observe_hazards`."""

    def test_impl_has_them_all(self) -> None:
        """This project keeps the contract, and with it every hazard of the contract."""
        assert list(observe_hazards(load_subject("impl"))) == [hazard.id for hazard in HAZARDS]

    def test_the_ledger_explains_each(self) -> None:
        """Each has its entry in the ledger, and no entry is about a hazard that there is not."""
        entries = [entry for entry in load_ledger() if entry.reason == HAZARD]
        seen = [
            Observation("0.1.20", path=name, reason=HAZARD, message=sentence)
            for name, sentence in observe_hazards(load_subject("impl")).items()
        ]
        assert [one.path for one in seen if explains(entries, one) is None] == []
        assert judge(entries, seen, full=True) == []

    def test_what_a_subject_has_not_got_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hazard of a function that the subject lacks is not observed, and nothing breaks."""
        subject = load_subject("impl")
        monkeypatch.setattr(subject, "missing", frozenset({"derive_aiter_quant_method"}))
        assert "derivation-disagrees" not in observe_hazards(subject)

    @pytest.mark.parametrize(
        ("argument", "repaired", "gone"),
        [
            ("intermediate_pad", 192, {"pads-doubled", "pads-doubled-dsv4"}),
            ("swiglu_limit", 0.0, {"situ-limit"}),
            ("gate_mode", "separated", {"int4-gate-layout"}),
        ],
    )
    def test_a_repaired_call(
        self, argument: str, repaired: object, gone: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With one argument of the call put right, the hazards that rest on it no longer show; others do."""
        sound = aiter_moe.dispatch.kernel

        def mended(name: str) -> Callable[..., Any]:
            return lambda *given, **named: sound(name)(*given, **named | {argument: repaired})

        monkeypatch.setattr(aiter_moe.dispatch, "kernel", mended)
        assert set(observe_hazards(load_subject("impl"))) == IDS - gone

    def test_a_repaired_gate_mode_of_situ(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The schemes whose call agrees with their layout are no longer named; the others still are."""
        monkeypatch.setattr(
            aiter_moe.dispatch, "_gate_mode", lambda _activation, override, _hint: override or "separated"
        )
        sentence = observe_hazards(load_subject("impl"))["situ-gate-layout"]
        assert sentence == "With a8w4, int4-w4a16 are called otherwise than their gate and up rows lie."

    def test_a_repaired_derivation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A derivation that agrees with the leaf is no hazard."""
        right = aiter_moe.QuantMethod.BLOCK_1X32
        monkeypatch.setattr(aiter_moe, "derive_aiter_quant_method", lambda _config: right)
        assert set(observe_hazards(load_subject("impl"))) == IDS - {"derivation-disagrees"}

    def test_repaired_gates(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An injection that forgets the gates of the call before is no hazard."""
        sound = aiter_moe.inject_shared_expert_weights

        def mended(weights: Any, ids: Any, topk: int, shared: int, gates: Any = None) -> Any:
            merged = sound(weights, ids, topk, shared, gates)
            if gates is None:
                merged[0][:, topk : topk + shared] = 1.0
            return merged

        monkeypatch.setattr(aiter_moe, "inject_shared_expert_weights", mended)
        assert set(observe_hazards(load_subject("impl"))) == IDS - {"stale-shared-gates"}


class TestRecord:
    """How hazards are recorded, and where they are not shown."""

    def test_level_contract_records_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The record of one arch has each as a finding by its name; a matrix takes none for a difference."""
        monkeypatch.setattr(runner, "_cell_by_cell", lambda *_given: {})
        records = runner.collect(load_subject("impl"), levels=[Level.CONTRACT])
        found = [(f.code, f.path) for record in records for f in record.findings]
        assert found == [(HAZARD, hazard.id) for hazard in HAZARDS]
        release = ReleaseId("0.1.99", "sha256:" + "0" * 64, "tree")
        shipped = Evidence(Level.INVENTORY, "gfx942", None, release, "2026-08-22", "0.1.0", {}, {})
        loaded = [Loaded(record, f"{number}.json", "") for number, record in enumerate((*records, shipped))]
        built = matrix.build(loaded, "0.1.99", str(records[0].subject))
        assert (built.differences, built.findings) == ({}, ())
