"""SPEC 7: settings, the two torch operators, and what reaches each AITER release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiter_conformance.checks import contract_bridge, contract_operators, contract_settings
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Entry, Subject
from aiter_conformance.simulated_aiter import VERSIONS

Conforms = Callable[[Report], None]

each_entry = pytest.mark.parametrize("entry", contract_bridge.ENTRIES)


class TestSettings:
    """What the environment variables mean."""

    def test_fusion_and_policy(self, subject: Subject, conforms: Conforms) -> None:
        """Shared-expert fusion needs fused MoE, and the dispatch policy is one of three numbers."""
        conforms(contract_settings.fusion_and_policy(subject))

    def test_situ(self, subject: Subject, conforms: Conforms) -> None:
        """Every spelling of SITU's variable means what the table says, and others are refused."""
        conforms(contract_settings.situ_settings(subject))

    def test_situ_switches(self, subject: Subject, conforms: Conforms) -> None:
        """AITER is told by its own variables, and a change behind the bridge's back is an error."""
        conforms(contract_settings.situ_switches(subject))

    def test_aiter_is_left_alone(self, subject: Subject, conforms: Conforms) -> None:
        """Nothing but a call looks into AITER."""
        conforms(contract_settings.aiter_is_left_alone(subject))


@each_entry
class TestEntry:
    """The two kernel entries."""

    @pytest.mark.parametrize("version", VERSIONS)
    def test_release(self, subject: Subject, entry: Entry, version: str, conforms: Conforms) -> None:
        """The release gets every argument that says something, or the call is refused."""
        conforms(contract_bridge.calls_of_release(subject, entry, version))

    def test_parameters(self, subject: Subject, entry: Entry, conforms: Conforms) -> None:
        """C7 (vllm-project/vllm#36100): wrapper, operator, implementation and fake take the same names."""
        conforms(contract_operators.parameters(subject, entry))

    def test_fakes(self, subject: Subject, entry: Entry, conforms: Conforms) -> None:
        """C7: a fake's result has the shape and dtype of the real one, for packed fp4 too."""
        conforms(contract_operators.fakes(subject, entry))

    def test_opcheck(self, subject: Subject, entry: Entry, conforms: Conforms) -> None:
        """The operator passes torch.library.opcheck."""
        conforms(contract_operators.opcheck(subject, entry))
