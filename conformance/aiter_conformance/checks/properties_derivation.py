"""Properties of ``derive_aiter_quant_method`` (SPEC 4), and where it and a leaf are known to disagree."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

import torch

from aiter_conformance.axes import load_axes
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import QUANT_METHODS, SCHEME_CONFIGS, leaf_of_scheme
from aiter_conformance.protocols import ENABLED, QuantSpec, Subject


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A quant config for which the derivation says something else than the leaf that takes the scheme.

    Attributes:
        scheme: The scheme whose leaf takes such weights.
        config: The config with which they disagree.
        derived: Member of ``QuantMethod`` that the derivation gives.
        declared: Member that the leaf hands to the kernel.
        consequence: What goes wrong for a caller that derives.
    """

    scheme: str
    config: QuantSpec
    derived: str
    declared: str
    consequence: str


# Hazards of the contract itself, kept as they are. A pair that begins to agree must be taken off the list.
KNOWN_DISAGREEMENTS: Final = (
    Disagreement(
        "int4-w4a16",
        QuantSpec(None, "int4"),
        derived="NO",
        declared="BLOCK_1X32",
        consequence="weights that say int4 are run as unquantised by whoever derives the method; "
        "only the label mxfp4 of Kimi-K3's loader gives the 1x32 kernels",
    ),
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a quant config answers to the questions that the derivation may ask, true in any combination."""

    use_mxfp4_w4a4: bool = False
    use_mxfp4_w4a16: bool = False
    use_int4_w4a16: bool = False
    use_fp8_w8a8: bool = False
    per_act_token_quant: bool = False
    per_out_ch_quant: bool = False
    blocks: bool = False

    def expected(self) -> str:
        """Return the member of ``QuantMethod`` that SPEC 4 gives: the first that matches."""
        rules = (
            (self.use_mxfp4_w4a4 or self.use_mxfp4_w4a16, "BLOCK_1X32"),
            (self.blocks and self.use_fp8_w8a8, "BLOCK_128x128"),
            (self.use_fp8_w8a8 and self.per_out_ch_quant, "PER_TOKEN"),
            (self.use_fp8_w8a8, "PER_TENSOR"),
        )
        return next((name for matches, name in rules if matches), "NO")


def check_derivation(subject: Subject, answers: Answers) -> Report:
    """Every combination of properties has an answer, that of the first rule that matches."""
    config = SimpleNamespace(
        use_mxfp4_w4a4=answers.use_mxfp4_w4a4,
        use_mxfp4_w4a16=answers.use_mxfp4_w4a16,
        use_int4_w4a16=answers.use_int4_w4a16,
        use_fp8_w8a8=answers.use_fp8_w8a8,
        per_act_token_quant=answers.per_act_token_quant,
        per_out_ch_quant=answers.per_out_ch_quant,
        block_shape=[128, 128] if answers.blocks else None,
    )
    report = Report()
    with subject.environment("gfx950"):
        derived = subject.api.derive_aiter_quant_method(config)
    _compare_member(report, f"derivation of {answers}", answers.expected(), derived)
    return report


def check_derivation_of_config(subject: Subject, arch: str, spec: QuantSpec) -> Report:
    """A config made by ``make`` is derived from what it was told, or ``make`` itself refuses it."""
    report = Report()
    with subject.environment(arch):
        try:
            config = subject.quant_config(spec, {})
        except Exception as error:  # whether it is a refusal is the subject's to say
            stands_for = subject.refusal(error)
            report.compare(f"make of {spec} on {arch}: kind of {error!r}", ValueError, stands_for)
            return report
        derived = subject.api.derive_aiter_quant_method(config)
    # `make` takes the weights for quantised like the activations unless told otherwise.
    weights = spec.activations if spec.weights is None else spec.weights
    answers = Answers(
        use_mxfp4_w4a4=weights == "mxfp4" and spec.activations == "mxfp4",
        use_mxfp4_w4a16=weights == "mxfp4" and spec.activations is None,
        use_fp8_w8a8=spec.activations == "fp8",
        per_out_ch_quant=spec.per_out_ch,
        blocks=spec.block_shape is not None,
    )
    _compare_member(report, f"derivation of {spec} on {arch}", answers.expected(), derived)
    return report


def check_derivation_agrees(subject: Subject, scheme: str, arch: str) -> Report:
    """For a scheme that a leaf accepts, derivation, the leaf's constant and SPEC's table say the same."""
    report = Report()
    leaf = leaf_of_scheme(scheme)
    with subject.environment(arch, ENABLED):
        api = subject.api
        constant = getattr(api, leaf.name)._AITER_QUANT_METHOD
        derived = api.derive_aiter_quant_method(subject.quant_config(SCHEME_CONFIGS[scheme], _scales(scheme)))
    _compare_member(report, f"_AITER_QUANT_METHOD of {leaf.name}", leaf.quant_method, constant)
    _compare_member(report, f"derivation for {scheme} on {arch}", leaf.quant_method, derived)
    return report


def check_known_disagreement(subject: Subject, known: Disagreement) -> Report:
    """A listed disagreement is still there, both sides as listed: a silent repair would change what runs."""
    report = Report()
    leaf = leaf_of_scheme(known.scheme).name
    # Every arch of the matrix: the disagreement is one of labels, not of hardware.
    for arch in load_axes().archs:
        with subject.environment(arch, ENABLED):
            api = subject.api
            constant = getattr(api, leaf)._AITER_QUANT_METHOD
            derived = api.derive_aiter_quant_method(subject.quant_config(known.config, {}))
        where = f"{known.config} on {arch}"
        _compare_member(report, f"{where}, declared by {leaf}", known.declared, constant)
        _compare_member(report, f"{where}, derived", known.derived, derived)
    return report


def _scales(scheme: str) -> dict[str, torch.Tensor]:
    return {} if scheme == "bf16" else {"w1_scale": torch.ones(1), "w2_scale": torch.ones(1)}


def _compare_member(report: Report, where: str, expected: str, got: object) -> None:
    """Compare a member of ``QuantMethod`` by name and value with a name of SPEC's table."""
    name, value = getattr(got, "name", None), getattr(got, "value", None)
    report.compare(where, (expected, QUANT_METHODS[expected]), (name, value))
