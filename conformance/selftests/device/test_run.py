"""The runner of the device contract and its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aiter_conformance import subjects
from aiter_conformance.contract import LEAVES
from aiter_conformance.device.checks import Check, make_checks
from aiter_conformance.device.run import NEEDS_GPU, Observed, run_device_contract
from aiter_conformance.device.variants import Variant, load_variants, values
from aiter_conformance.errors import UsageError
from aiter_conformance.outcome import Kind

GPU = torch.cuda.is_available()
BF16 = next(variant for variant in load_variants() if variant.name == "bf16")


class TestLoadVariants:
    """`load_variants`."""

    def test_reach_every_leaf_and_both_entries(self) -> None:
        """No leaf and no kernel entry is left out, and names are given once."""
        variants = load_variants()
        assert {variant.leaf for variant in variants} == set(LEAVES)
        assert {variant.entry for variant in variants} == {"fused_moe", "asm_moe_tkw1"}
        assert len({variant.name for variant in variants}) == len(variants)

    @pytest.mark.parametrize("variant", load_variants(), ids=lambda variant: variant.name)
    def test_inputs_differ_from_seed_to_seed(self, variant: Variant) -> None:
        """Other inputs have other results, so that a leaf that remembers shows; shapes are the same."""
        first, second = (values(variant, seed) for seed in (0, 1))
        rows = min(len(first.expected.values), len(second.expected.values))
        far = (
            abs(first.expected.values[:rows] - second.expected.values[:rows])
            > 4 * first.expected.bound[:rows]
        )
        assert far.any(axis=1).all()
        assert {n: t.shape for n, t in first.tensors.items()} == {
            n: t.shape for n, t in second.tensors.items()
        }


class TestRunDeviceContract:
    """`run_device_contract`."""

    @pytest.mark.skipif(GPU, reason="there is a GPU")
    def test_what_needs_a_gpu_is_not_run_without_one(self) -> None:
        """Such a check says why; the others run."""
        checks = make_checks()
        subject = subjects.load_subject("impl")
        records = run_device_contract(
            torch.device("cpu"), subject, variants=[BF16], checks=[checks["reads"], checks["graph"]]
        )
        where = ("bf16", "AiterUnquantizedExperts", "fused_moe", str(BF16.problem.case))
        assert records == [
            Observed(*where, "reads", Kind.PASS),
            Observed(*where, "graph", Kind.NOT_RUN, NEEDS_GPU),
        ]

    @pytest.mark.skipif(not GPU, reason="NOT RUN: there is no GPU")
    def test_the_cpu_is_refused_where_there_is_a_gpu(self) -> None:
        """Shared experts' buffers would lie on the other device."""
        with pytest.raises(UsageError, match="device must be the GPU"):
            run_device_contract(torch.device("cpu"), subjects.load_subject("impl"))

    def test_an_exception_is_a_failure(self) -> None:
        """A call that raises has failed, and its first line is kept."""

        def raises(_call: object) -> None:
            msg = "first\nsecond"
            raise RuntimeError(msg)

        device = torch.device("cuda" if GPU else "cpu")
        records = run_device_contract(
            device, subjects.load_subject("impl"), variants=[BF16], checks=[Check("raises", "", raises)]
        )
        assert [(r.outcome, r.message) for r in records] == [(Kind.FAIL, "RuntimeError: first")]


class TestCommand:
    """``python -m aiter_conformance.device``."""

    @pytest.mark.skipif(GPU, reason="there is a GPU")
    def test_without_a_gpu_nothing_is_run_or_written(self, tmp_path: Path) -> None:
        """It ends with 3 and says NOT RUN and why."""
        ended = subprocess.run(
            [sys.executable, "-m", "aiter_conformance.device", "--reports", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (3, f"error: {NEEDS_GPU}\n")
        assert list(tmp_path.iterdir()) == []
