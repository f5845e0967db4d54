"""The provider ``reference``: what it refuses, what it makes of pads, and that its pieces can fail.

That it is right is shown by the golden suite, cell by cell, against the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from aiter_conformance.axes import Cell, load_axes  # noqa: E402 -- what follows needs torch
from aiter_conformance.case import Case  # noqa: E402
from aiter_conformance.families import load_families  # noqa: E402
from aiter_conformance.golden import apply_leaf, live_rows  # noqa: E402
from aiter_conformance.ledgerfile import parse_ledger  # noqa: E402
from aiter_conformance.levels.reference import observe_cell, provider_for  # noqa: E402
from aiter_conformance.numerics.formats import (  # noqa: E402
    E2M1,
    E4M3FN,
    E4M3FNUZ,
    ScaleRounding,
    decode_e8m0,
    e8m0_scale,
)
from aiter_conformance.numerics.inputs import Features, Problem  # noqa: E402
from aiter_conformance.numerics.oracle import expected  # noqa: E402
from aiter_conformance.numerics.packed import Packed, pack  # noqa: E402
from aiter_conformance.numerics.pipeline import nominal_pipeline  # noqa: E402
from aiter_conformance.numerics.verdict import judge  # noqa: E402
from aiter_conformance.outcome import Kind, Reason  # noqa: E402
from aiter_conformance.protocols import KernelCall, Provider, Subject  # noqa: E402
from aiter_conformance.providers import reference  # noqa: E402
from aiter_conformance.providers import reference_tensors as rt  # noqa: E402
from aiter_conformance.providers.reference import ReferenceProvider  # noqa: E402
from aiter_conformance.providers.reference_call import understand  # noqa: E402
from aiter_conformance.providers.reference_families import (  # noqa: E402
    KERNEL_FAMILIES,
    FamilyRefusal,
    Masked,
    choose_family,
    dispatched_activations,
    size_refusal,
)


def problem_for(cell: str, features: Features = Features(), **numbers: int) -> Problem:  # noqa: B008 -- frozen
    """Return a small problem."""
    return Problem(Case(load_axes().parse_cell(cell), **({"experts": 5, "tokens": 9} | numbers)), features)


class TestTensors:
    """`reference_tensors`: torch's own pieces against the numpy ones."""

    def test_e2m1_round(self) -> None:
        """Every bfloat16 in range rounds as the format does, ties and clamping included."""
        x = (
            torch.arange(-(2**15), 2**15, dtype=torch.int32)
            .to(torch.int16)
            .view(torch.bfloat16)
            .to(torch.float32)
        )
        x = x[torch.isfinite(x)]
        assert torch.equal(rt.e2m1_round(x), torch.from_numpy(E2M1.round(x.numpy())).to(torch.float32))

    @pytest.mark.parametrize("fmt", [E2M1, E4M3FN, E4M3FNUZ], ids=lambda f: f.name)
    def test_mx_scale(self, fmt: Any) -> None:
        """Scales of every bfloat16 magnitude are those of RCEIL."""
        x = torch.arange(0, 0x7F80, dtype=torch.int16).view(torch.bfloat16).to(torch.float32)
        ours = decode_e8m0(e8m0_scale(x.numpy(), fmt, ScaleRounding.RCEIL))
        assert (rt.mx_scale(x, fmt.maximum).numpy() == ours.astype(np.float32)).all()

    @pytest.mark.parametrize(
        ("dtype", "fmt"),
        [(torch.float8_e4m3fn, E4M3FN), (torch.float8_e4m3fnuz, E4M3FNUZ)],
        ids=["fn", "fnuz"],
    )
    def test_fp8_roundtrip(self, dtype: Any, fmt: Any) -> None:
        """Torch's cast gives the codes of ml_dtypes for every bfloat16, clamped."""
        x = (
            torch.arange(-(2**15), 2**15, dtype=torch.int32)
            .to(torch.int16)
            .view(torch.bfloat16)
            .to(torch.float32)
        )
        x = x[torch.isfinite(x)]
        theirs = torch.from_numpy(fmt.round(x.numpy())).to(torch.float32)
        assert torch.equal(rt.fp8_roundtrip(x, torch.tensor(1.0), dtype), theirs)

    def test_e8m0_values(self) -> None:
        """Every code is its power of two, 255 NaN."""
        codes = torch.arange(256, dtype=torch.uint8)
        ours = torch.from_numpy(decode_e8m0(codes.numpy())).to(torch.float32)
        assert torch.equal(rt.e8m0_values(codes).nan_to_num(-1), ours.nan_to_num(-1))

    @pytest.mark.parametrize(
        "cell",
        [
            "gfx950/bf16/silu/out",
            "gfx942/fp8-block/silu/out",
            "gfx950/mxfp4-w4a16/swigluoai/out",
            "gfx950/mxfp4-w4a4/silu/out",
            "gfx942/int4-w4a16/situ/out",
        ],
    )
    def test_reads_what_was_packed(self, cell: str, subject: Subject) -> None:
        """Unpacked weights are the logical ones, rounded to what they are held in."""
        problem = problem_for(cell)
        seen: list[KernelCall] = []
        packed = pack(problem)

        def record(call: KernelCall) -> torch.Tensor:
            seen.append(call)
            return torch.zeros_like(packed.hidden_states)

        apply_leaf(problem, packed, subject, record)
        provider = provider_for(problem.case.cell)
        known = understand(seen[0], problem.case.cell.arch, provider.mx_activations)
        for tensor, name in zip(reference._read_weights(known), ("w1", "w2"), strict=True):
            for index, expert in enumerate(problem.held_experts):
                values = getattr(problem.expert(expert), name).values()
                rounded = torch.from_numpy(values).to(torch.float32)
                if "int4" in cell:
                    rounded = rounded.to(torch.bfloat16).to(torch.float32)
                assert torch.equal(tensor[index], rounded)


class TestFamilies:
    """`reference_families`."""

    @pytest.mark.parametrize(
        ("family", "biased", "masked"),
        [
            ("ck-2stage", False, Masked()),
            ("flydsl-situ-a16w4", False, Masked()),
            ("cktile-2stage", False, Masked(hidden=128, intermediate=192, contracted=128, output=192)),
            ("cktile-2stage", True, Masked(hidden=128, intermediate=192, contracted=128, output=192)),
            ("flydsl", False, Masked(hidden=200, intermediate=200, contracted=200, output=200)),
            ("flydsl", True, Masked()),
        ],
    )
    def test_pads(self, family: str, biased: bool, masked: Masked) -> None:
        """CK-Tile floors to its tiles, FlyDSL takes pads as they are unless there is a bias, others none."""
        assert KERNEL_FAMILIES[family].masked(200, 200, biased=biased) == masked

    def test_every_family_is_modelled(self) -> None:
        """Every family of families.toml that serves a cell leads to a model, and no cell without one does."""
        for cell in load_axes().cells():
            tkw1 = cell.scheme == "fp8-channel" and cell.router == "in"
            served = any(family.serves(cell) for family in load_families())
            if served:
                assert choose_family(cell, tkw1=tkw1, bf16_activations=True).name in KERNEL_FAMILIES
            else:
                with pytest.raises(FamilyRefusal, match="no kernel family of AITER computes"):
                    choose_family(cell, tkw1=tkw1, bf16_activations=True)

    @pytest.mark.parametrize(
        ("cell", "tkw1", "name"),
        [
            (Cell("gfx942", "fp8-channel", "silu", "in"), True, "asm-1stage-tkw1"),
            (Cell("gfx950", "fp8-channel", "swigluoai", "in"), True, "ck-2stage"),
            (Cell("gfx1250", "fp8-channel", "silu", "in"), True, "ck-2stage"),
            (Cell("gfx942", "fp8-channel", "silu", "out"), False, "ck-2stage"),
            (Cell("gfx950", "mxfp4-w4a16", "swigluoai", "out"), False, "cktile-2stage"),
            (Cell("gfx950", "mxfp4-w4a16", "silu", "out"), False, "flydsl"),
            (Cell("gfx950", "mxfp4-w4a16", "situ", "out"), False, "flydsl-situ-a16w4"),
            (Cell("gfx950", "mxfp4-w4a4", "silu", "out"), False, "flydsl"),
            (Cell("gfx942", "int4-w4a16", "situ", "out"), False, "flydsl"),
            (Cell("gfx942", "int4-w4a16", "silu", "out"), False, "flydsl"),
            (Cell("gfx1250", "bf16", "silu", "out"), False, "ck-2stage"),
        ],
        ids=str,
    )
    def test_choice(self, cell: Cell, tkw1: bool, name: str) -> None:
        """Each path is computed by the family that AITER's dispatch names for it."""
        assert choose_family(cell, tkw1=tkw1, bf16_activations=True).name == name

    @pytest.mark.parametrize(
        ("scheme", "hidden", "intermediate", "message"),
        [
            ("bf16", 256, 192, None),
            ("bf16", 256, 256, None),
            ("bf16", 256, 320, "an intermediate size that is a multiple of 128 (got N = 320)"),
            ("bf16", 256, 96, "an intermediate size that is a multiple of 64 (got N = 96)"),
            ("fp8-block", 256, 128, None),
            ("fp8-block", 256, 64, "an intermediate size that is a multiple of 128 (got N = 64)"),
            ("fp8-block", 192, 128, "a hidden size that is a multiple of 128 (got K = 192)"),
            ("mxfp4-w4a4", 48, 32, "a hidden size that is a multiple of 32 (got K = 48)"),
        ],
    )
    def test_sizes(self, scheme: str, hidden: int, intermediate: int, message: str | None) -> None:
        """Sizes on both sides of each rule."""
        assert size_refusal(scheme, hidden, intermediate) == message

    @pytest.mark.parametrize(
        ("arch", "activation", "mode", "activations"),
        [
            ("gfx950", "Swiglu", "interleave", ("bf16", "fp8")),
            ("gfx950", "Silu", "interleave", ("bf16", "fp8")),
            ("gfx942", "Silu", "interleave", ("bf16", "bf16")),
            ("gfx950", "Swiglu", "", ("bf16", "fp4")),
            ("gfx950", "Swiglu", "separated", ("bf16", "fp4")),
            ("gfx950", "Silu", "", ("fp4", "fp4")),
        ],
    )
    def test_dispatched(self, arch: str, activation: str, mode: str, activations: tuple[str, str]) -> None:
        """What becomes of activations with 255 and with 256 tokens."""
        found = tuple(dispatched_activations(arch, activation, mode, tokens) for tokens in (255, 256))
        assert found == activations

    def test_sources(self) -> None:
        """Every model says where it was read."""
        assert all(family.source for family in KERNEL_FAMILIES.values())


def refusal_of(problem: Problem, subject: Subject, **change: Any) -> str:
    """Return the sentence with which the provider refuses the leaf's call, some arguments changed."""
    provider = provider_for(problem.case.cell)

    def compute(call: KernelCall) -> torch.Tensor:
        return provider.compute(KernelCall(call.entry, dict(call.arguments) | change), problem.case.cell.arch)

    with pytest.raises(FamilyRefusal) as raised:
        apply_leaf(problem, pack(problem), subject, compute)
    return str(raised.value)


class TestRefusals:
    """What families refuse is refused, with the family and the argument."""

    def test_biases(self, subject: Subject) -> None:
        """CK takes no biases."""
        bias = torch.zeros(5, 512)
        message = refusal_of(problem_for("gfx950/bf16/silu/out"), subject, bias1=bias)
        assert message == "ck-2stage must be called without biases (got them for gfx950/bf16/silu/out)"

    def test_mask(self, subject: Subject) -> None:
        """SiTUv2 a16w4 takes no expert mask."""
        message = refusal_of(problem_for("gfx950/mxfp4-w4a16/situ/out", experts=6, ep=2), subject)
        assert message.startswith("flydsl-situ-a16w4 must be called without expert masks")

    def test_shared_tensors(self, subject: Subject) -> None:
        """Shared experts in tensors of their own are for MXFP4 and SILU on gfx950 (aiter/fhmoe.py)."""
        message = refusal_of(problem_for("gfx950/bf16/silu/out"), subject, shared_w1=torch.zeros(1))
        assert "must be called without shared experts in tensors of their own" in message

    def test_no_family(self, subject: Subject) -> None:
        """A cell that no family computes."""
        message = refusal_of(problem_for("gfx950/bf16/situ/out"), subject)
        assert message == "no kernel family of AITER computes gfx950/bf16/situ/out through fused_moe"


class TestProvider:
    """`ReferenceProvider` where the golden suite does not go."""

    def run(self, problem: Problem, subject: Subject, provider: Provider, **change: Any) -> torch.Tensor:
        """Return the output of the leaf's call with some arguments changed."""
        packed = pack(problem)

        def compute(call: KernelCall) -> torch.Tensor:
            changed = KernelCall(call.entry, dict(call.arguments) | change)
            return provider.compute(changed, problem.case.cell.arch)

        return apply_leaf(problem, packed, subject, compute)[0]

    def test_quantised_hidden_states(self, subject: Subject) -> None:
        """Hidden states that come quantised, with their scales, are not quantised again."""
        problem = problem_for("gfx950/fp8-channel/silu/out")
        plain = self.run(problem, subject, ReferenceProvider())
        x = pack(problem).hidden_states.to(torch.float32)
        scale = x.abs().amax(1, keepdim=True) / 448
        codes = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        quantised = self.run(problem, subject, ReferenceProvider(), hidden_states=codes, a1_scale=scale)
        assert torch.equal(plain, quantised)

    def test_packed_hidden_states(self, subject: Subject) -> None:
        """So with packed MXFP4 and its e8m0 scales."""
        problem = problem_for("gfx950/mxfp4-w4a4/silu/out")
        plain = self.run(problem, subject, ReferenceProvider())
        from aiter_conformance.numerics.formats import pack_nibbles
        from aiter_conformance.numerics.quantise import quantise_mxfp4

        q = quantise_mxfp4(problem.hidden, ScaleRounding.RCEIL)
        codes = torch.from_numpy(pack_nibbles(q.codes)).view(torch.float4_e2m1fn_x2)
        scale = torch.from_numpy(np.asarray(q.scales))
        given = self.run(problem, subject, ReferenceProvider(), hidden_states=codes, a1_scale=scale)
        assert torch.equal(plain, given)

    def test_mx_activations(self, subject: Subject) -> None:
        """fp8 and fp4 activations are other pipelines, and other numbers than bf16."""
        problem = problem_for("gfx950/mxfp4-w4a16/silu/out")
        outputs = [self.run(problem, subject, ReferenceProvider(kind)) for kind in ("bf16", "fp8", "fp4")]
        expect = expected(problem, nominal_pipeline(problem.case.cell))
        passed = [judge(live_rows(output, problem), expect).passed for output in outputs]
        assert passed == [True, False, False]

    def test_undefined_rows(self, subject: Subject) -> None:
        """Rows beyond num_local_tokens, and ids that no expert has, are NaN: nothing may rely on them."""
        problem = problem_for("gfx950/bf16/silu/out")
        output = self.run(problem, subject, ReferenceProvider(), num_local_tokens=torch.tensor([4]))
        assert torch.isfinite(output[:4]).all()
        assert output[4:].isnan().all()
        ids = pack(problem).topk_ids
        ids[2, 0] = 5
        output = self.run(problem, subject, ReferenceProvider(), topk_ids=ids)
        assert output[2].isnan().all()
        assert torch.isfinite(output[3]).all()

    def test_no_data_dependent_shapes(self, subject: Subject) -> None:
        """The call runs on fake tensors: no value is read and no shape depends on one."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        for cell in ("gfx950/bf16/silu/out", "gfx942/fp8-block/silu/out", "gfx950/mxfp4-w4a4/silu/out"):
            problem = problem_for(cell)
            seen: list[KernelCall] = []
            packed = pack(problem)

            def record(
                call: KernelCall, seen: list[KernelCall] = seen, packed: Packed = packed
            ) -> torch.Tensor:
                seen.append(call)
                return torch.zeros_like(packed.hidden_states)

            apply_leaf(problem, packed, subject, record)
            with FakeTensorMode(allow_non_fake_inputs=False) as mode:
                fakes = {
                    name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
                    for name, value in seen[0].arguments.items()
                }
                result = provider_for(problem.case.cell).compute(
                    KernelCall(seen[0].entry, fakes), problem.case.cell.arch
                )
            assert tuple(result.shape) == (9, 256)
            assert result.dtype == torch.bfloat16


LIMIT = """
[[entry]]
id = "limit-dropped"
title = "It is dropped"
upstream = "ROCm/aiter#1"
effect = "expected-fail"
reason = "numbers-differ"
cells = ["gfx950/bf16/silu/*"]
levels = ["reference"]
cases = ["*+limit"]
bound = 5.0
"""


class TestLevel:
    """`levels.reference`."""

    CELL = load_axes().parse_cell("gfx950/bf16/silu/out")

    def test_pass(self, subject: Subject) -> None:
        """A cell that holds passes, with how many inputs ran, by what margin, and what is known of some."""
        outcome = observe_cell(subject, self.CELL, parse_ledger(LIMIT))
        assert outcome.kind is Kind.PASS
        assert outcome.details["cases"] > 10
        assert (outcome.details["wrong"], outcome.details["refused"]) == (0, 0)
        known = outcome.details["known"]["limit-dropped"]
        assert (known["cases"], known["reason"]) == (1, "numbers-differ")
        assert known["case"] == "gfx950/bf16/silu/out@E5-k2-K256-N256-M17-tp1-ep1-hp0-ip0-s0+limit"
        assert 1 < known["size"] <= 5

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("[[entry]]", "", "limit: token 0"),
            ("bound = 5.0", "bound = 0.5", "limit-dropped: its failures must be at most 0.5"),
            ("*+limit", "*-M33-*", "limit-dropped: it must fail with numbers-differ"),
            ("numbers-differ", "no-kernel", "limit-dropped: it must fail with no-kernel"),
        ],
        ids=["no entry", "beyond its bound", "unexpected pass", "another reason"],
    )
    def test_ledger_hides_nothing(self, old: str, new: str, message: str, subject: Subject) -> None:
        """What is not known, is worse than known, or no longer fails, fails the cell."""
        ledger = parse_ledger(LIMIT.replace(old, new)) if new else ()
        outcome = observe_cell(subject, self.CELL, ledger)
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NUMBERS_DIFFER)
        name, _, rest = message.partition(": ")
        assert name in str(outcome.message)
        assert rest in str(outcome.message)

    def test_wrong(self, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrong numbers are a failure that names the input, the case, the place and the sizes."""

        def zeros(_provider: ReferenceProvider, call: KernelCall, _arch: str) -> torch.Tensor:
            return torch.zeros_like(call.arguments["hidden_states"])

        monkeypatch.setattr(ReferenceProvider, "compute", zeros)
        outcome = observe_cell(subject, self.CELL, ())
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NUMBERS_DIFFER)
        assert outcome.message is not None
        assert "inputs are wrong: tokens, gfx950/bf16/silu/out@E5-k2-" in outcome.message
        assert "token 0, column 0: must be" in outcome.message
        assert outcome.details["wrong"] == outcome.details["cases"]

    def test_raised(self, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a subject raises for an input that the contract accepts is a failure, and ends nothing."""

        def fail(_provider: ReferenceProvider, _call: KernelCall, _arch: str) -> torch.Tensor:
            msg = "out of ideas"
            raise RuntimeError(msg)

        monkeypatch.setattr(ReferenceProvider, "compute", fail)
        outcome = observe_cell(subject, self.CELL, ())
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NUMBERS_DIFFER)
        assert str(outcome.message).endswith("RuntimeError: out of ideas")

    def test_refused(self, subject: Subject) -> None:
        """A cell that the leaf accepts and no kernel family computes is a failure that says so."""
        outcome = observe_cell(subject, load_axes().parse_cell("gfx950/bf16/situ/out"))
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NO_KERNEL)
        assert outcome.message == (
            "The leaf accepts the cell, but no kernel family of AITER computes gfx950/bf16/situ/out through "
            "fused_moe."
        )
        assert outcome.details["refused"] == outcome.details["cases"]

    def test_partly_refused(self, subject: Subject) -> None:
        """A family that refuses some inputs of a cell fails it: here every input with an expert mask."""
        outcome = observe_cell(subject, load_axes().parse_cell("gfx950/mxfp4-w4a16/situ/out"))
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NO_KERNEL)
        assert 0 < outcome.details["refused"] < outcome.details["cases"]


FAULTS: list[tuple[str, str, str, Callable[[Any], Any]]] = [
    # name, cell, attribute of reference_tensors or reference, what stands in its place
    ("weights-not-unshuffled", "gfx950/bf16/silu/out", "unshuffle", lambda _: lambda w: w),
    ("gate-and-up-not-separated", "gfx950/mxfp4-w4a16/swigluoai/out", "separate", lambda _: lambda w: w),
    ("nibbles-swapped", "gfx950/mxfp4-w4a4/silu/out", "e2m1_values", lambda f: lambda b: f(b << 4 | b >> 4)),
    ("e8m0-off-by-one", "gfx950/mxfp4-w4a4/silu/out", "e8m0_values", lambda f: lambda c: f(c) * 2),
    (
        "e8m0-rows-not-unshuffled",
        "gfx950/mxfp4-w4a16/swigluoai/out",
        "e8m0_rows",
        lambda _: lambda p, rows, groups: p.view(torch.uint8)[:rows, :groups],
    ),
    (
        "weight-scale-of-the-next-block",
        "gfx942/fp8-block/silu/out",
        "spread_scale",
        lambda f: lambda s, shape, kind: f(s.roll(1, -1), shape, kind),
    ),
    (
        "weight-scale-of-the-next-channel",
        "gfx942/fp8-channel/silu/out",
        "spread_scale",
        lambda f: lambda s, shape, kind: f(s.roll(1, 1), shape, kind),
    ),
    (
        "weight-scale-of-the-next-expert",
        "gfx942/fp8-tensor-dynamic/silu/out",
        "spread_scale",
        lambda f: lambda s, shape, kind: f(s.roll(1, 0), shape, kind),
    ),
    (
        "activations-not-quantised",
        "gfx942/fp8-block/silu/out",
        "fp8_roundtrip",
        lambda _: lambda x, *_more: x,
    ),
    (
        "mxfp4-activations-not-quantised",
        "gfx950/mxfp4-w4a4/silu/out",
        "mxfp4_roundtrip",
        lambda _: lambda x: x,
    ),
    ("mx-scale-floor", "gfx950/mxfp4-w4a4/silu/out", "mx_scale", lambda f: lambda a, m: f(a * 0.6, m)),
    (
        "int4-codes-unsigned",
        "gfx942/int4-w4a16/situ/out",
        "read_int4",
        lambda f: lambda w, s, **k: f(w, s, **k).abs(),
    ),
    (
        "router-weight-ignored",
        "gfx950/bf16/silu/out",
        "_routes",
        lambda f: lambda *a: replace(f(*a), weight=torch.ones_like(f(*a).weight)),
    ),
    (
        "tokens-of-the-next-expert",
        "gfx950/bf16/silu/out",
        "_routes",
        lambda f: lambda *a: replace(f(*a), expert=(f(*a).expert + 1) % f(*a).experts),
    ),
    (
        "split-k-adds-to-memory-nobody-cleared",  # ROCm/aiter#3997
        "gfx942/fp8-block/silu/out",
        "_activate",
        lambda f: lambda k, g, u: f(k, g + 0.125, u + 0.125),
    ),
    ("gate-and-up-swapped", "gfx950/bf16/silu/out", "_activate", lambda f: lambda k, g, u: f(k, u, g)),
    (
        "one-column-of-the-intermediate-lost",
        "gfx950/bf16/silu/out",
        "_without_last",
        lambda f: lambda x, count: f(x, count + 1),
    ),
]


@pytest.mark.parametrize(("fault", "cell", "attribute", "stand_in"), FAULTS, ids=[f[0] for f in FAULTS])
def test_planted_fault(
    fault: str,
    cell: str,
    attribute: str,
    stand_in: Callable[[Any], Any],
    subject: Subject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault in one piece of the reference is called by the verdict; without it the same input passes."""
    problem = problem_for(cell)
    provider = provider_for(problem.case.cell)
    expect = expected(problem, nominal_pipeline(problem.case.cell))

    def verdict() -> bool:
        output, _ = apply_leaf(
            problem, pack(problem), subject, lambda call: provider.compute(call, problem.case.cell.arch)
        )
        return judge(live_rows(output, problem), expect).passed

    assert verdict()
    home = rt if hasattr(rt, attribute) else reference
    monkeypatch.setattr(home, attribute, stand_in(getattr(home, attribute)))
    assert not verdict(), fault
