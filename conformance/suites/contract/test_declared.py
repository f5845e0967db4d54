"""SPEC 1, 2, 3, 8 and 9: what the leaves accept and refuse, in which order, and their constants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiter_conformance.axes import load_axes
from aiter_conformance.checks import contract_cascade, contract_keys
from aiter_conformance.checks import contract_declared as checks
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import LEAVES
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]

each_leaf = pytest.mark.parametrize("leaf", LEAVES)
each_arch = pytest.mark.parametrize("arch", checks.ARCHS)


class TestEnums:
    """SPEC 1."""

    def test_members_and_values(self, subject: Subject, conforms: Conforms) -> None:
        """Enum members have AITER's values, and activation names read back."""
        conforms(contract_keys.enums(subject))


class TestQuantKeys:
    """SPEC 2."""

    @each_arch
    def test_structure(self, subject: Subject, arch: str, conforms: Conforms) -> None:
        """All 38 keys have the structure of the table, and only one pair of them is equal."""
        conforms(contract_keys.key_structure(subject, arch))

    def test_same_on_every_arch(self, subject: Subject, conforms: Conforms) -> None:
        """An fp8 key names no flavour: it is the same on gfx942 and on gfx950."""
        conforms(contract_keys.key_across_archs(subject))


@each_leaf
class TestLeaf:
    """SPEC 3 and 9, one question to a leaf at a time."""

    @each_arch
    def test_quant_schemes(self, subject: Subject, leaf: str, arch: str, conforms: Conforms) -> None:
        """Of all pairs of the 38 keys and None, the leaf takes the listed ones on the arch, and no other."""
        conforms(checks.quant_schemes(subject, leaf, arch))

    @each_arch
    def test_device(self, subject: Subject, leaf: str, arch: str, conforms: Conforms) -> None:
        """The device is supported where arch, both variables and the installation agree, and nowhere else."""
        conforms(checks.device(subject, leaf, arch))

    def test_activations(self, subject: Subject, leaf: str, conforms: Conforms) -> None:
        """The leaf takes five activations and refuses the other seven."""
        conforms(checks.activations(subject, leaf))

    def test_parallel_configs(self, subject: Subject, leaf: str, conforms: Conforms) -> None:
        """Only the FlashInfer NVLink families are refused, and only where all-to-all kernels are in use."""
        conforms(checks.parallel_configs(subject, leaf))

    def test_constants(self, subject: Subject, leaf: str, conforms: Conforms) -> None:
        """Mask, format, reduction, quantisation method and batching arguments are as listed."""
        conforms(checks.constants(subject, leaf))

    def test_mori(self, subject: Subject, leaf: str, conforms: Conforms) -> None:
        """Under MoRI the leaf wants quantised inputs; a w4a4 output is twice as wide as the packed input."""
        conforms(checks.mori(subject, leaf))

    def test_cascade(self, subject: Subject, leaf: str, conforms: Conforms) -> None:
        """Of any two simultaneous failures the earlier step of the cascade gives the reason."""
        conforms(contract_cascade.cascade(subject, leaf))


class TestParallelConfig:
    """SPEC 9."""

    def test_sizes(self, subject: Subject, conforms: Conforms) -> None:
        """The MoE's tp_size, ep_size and all-to-all flags follow from the deployment."""
        conforms(checks.parallel_sizes(subject))


class TestCells:
    """The declared level of the matrix."""

    @pytest.mark.parametrize("arch", load_axes().archs)
    def test_declaration(self, subject: Subject, arch: str, conforms: Conforms) -> None:
        """Every cell of the arch is supported, or refused with a reason, as the contract says."""
        report = Report()
        for cell in load_axes().cells():
            if cell.arch == arch:
                report.merge(contract_cascade.declared(subject, cell))
        conforms(report)

    def test_fp8_pairs(self, subject: Subject, conforms: Conforms) -> None:
        """C10 (ROCm/aiter#2419): four fp8 pairs are taken; static scales with channel weights are refused."""
        conforms(contract_cascade.listed_fp8_pairs(subject))
