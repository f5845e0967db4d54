"""The adapter of vLLM's module, on a wheel made by hand that has the least of what it looks for.

A newer vLLM may move things: what the adapter finds by following the module is in other places here.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.protocols import ENABLED
from aiter_conformance.simulated_aiter import simulate
from aiter_conformance.subjects import vllm
from aiter_conformance.subjects.vllm_subject import MAYBE_MISSING, VllmSubject
from aiter_conformance.subjects.vllm_wheel import Wheel

TARGET = "vllm/model_executor/layers/fused_moe/experts/rocm_aiter_moe.py"
MEMBERS = {
    "vllm/__init__.py": "raise SystemExit('must not run')",
    "vllm/utils/torch_utils.py": "def direct_register_custom_op(**_): raise SystemExit('must not register')",
    "vllm/platforms/rocm.py": (
        "import amdsmi\n"
        "amdsmi.amdsmi_init()\n"
        "ARCH = amdsmi.amdsmi_get_gpu_asic_info(amdsmi.amdsmi_get_processor_handles()[0])"
        "['target_graphics_version']\n"
    ),
    "vllm/_aiter_ops.py": """
import functools, os
from importlib.util import find_spec
from vllm.platforms.rocm import ARCH
FOUND = find_spec('aiter') is not None
class rocm_aiter_ops:
    ENABLED = None
    @classmethod
    def refresh_env_variables(cls):
        if os.environ.get('VLLM_BAD'):
            raise ValueError('VLLM_BAD must not be set')
        cls.ENABLED = os.environ.get('VLLM_ROCM_USE_AITER') == '1'
        os.environ['AITER_LEFT_BEHIND'] = '1'
    @classmethod
    def is_fused_moe_enabled(cls):
        return cls.ENABLED if FOUND and ARCH == 'gfx950' else None
    @classmethod
    def is_fusion_moe_shared_experts_enabled(cls):
        return None
    @classmethod
    def get_moe_dispatch_policy(cls):
        return None
    @classmethod
    def is_fused_moe_situv2_gate_up_interleaved(cls):
        return None
    @classmethod
    @functools.cache
    def version(cls):
        import aiter
        return aiter.VERSION
    @staticmethod
    def fused_moe(hidden_states, w1, quant_method=0, output_dtype=None):
        raise RuntimeError('not recorded')
    @staticmethod
    def asm_moe_tkw1(hidden_states):
        raise RuntimeError('not recorded')
""",
    "vllm/elsewhere.py": """
from enum import Enum
class MoEActivation(Enum):
    SILU = 'silu'
class QuantKey: ...
class FusedMoEConfig: ...
kNew = QuantKey()
""",
    TARGET: """
from functools import lru_cache
import torch
import vllm.elsewhere as mk
from vllm._aiter_ops import rocm_aiter_ops
from vllm.elsewhere import FusedMoEConfig, MoEActivation, QuantKey
aiter_topK_meta_data = None
@lru_cache(maxsize=1)
def init_aiter_topK_meta_data(rows):
    global aiter_topK_meta_data
    assert aiter_topK_meta_data is None, 'already initialized'
    aiter_topK_meta_data = torch.zeros(rows, device='cuda'), torch.tensor([rows], device='cuda')
def derive_aiter_quant_method(config): ...
""",
}


def make_wheel(folder: Path, members: Mapping[str, str], version: str = "9.9") -> Path:
    """Write a wheel of vLLM that holds the members."""
    path = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(f"vllm-{version}.dist-info/METADATA", f"Name: vllm\nVersion: {version}\n")
    return path


@pytest.fixture
def subject(tmp_path: Path) -> VllmSubject:
    """Return the adapter over the hand-made wheel."""
    return VllmSubject(Wheel(make_wheel(tmp_path, MEMBERS)))


@pytest.fixture
def no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be in an empty folder, with no wheel named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(vllm.WHEEL_VARIABLE, raising=False)
    monkeypatch.setattr(vllm, "__file__", str(tmp_path / "a" / "b" / "c" / "vllm.py"))
    return tmp_path


class TestFindWheel:
    """`find_wheel` and `find_version`."""

    @pytest.mark.usefixtures("no_wheel")
    def test_none(self) -> None:
        """Without a wheel the error says how to get one."""
        with pytest.raises(InfrastructureError, match=rf"{vllm.WHEEL_VARIABLE}.*pip download"):
            vllm.find_version()

    def test_downloaded(self, no_wheel: Path) -> None:
        """The newest downloaded wheel is taken, by version and not by name."""
        folder = no_wheel / "build" / "downloads"
        folder.mkdir(parents=True)
        for version in ("0.9.2", "0.33.0", "0.4.0"):
            make_wheel(folder, {}, version)
        assert vllm.find_version() == "0.33.0"

    def test_named(self, no_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The variable names the wheel."""
        monkeypatch.setenv(vllm.WHEEL_VARIABLE, str(make_wheel(no_wheel, {}, "1.2")))
        assert vllm.find_version() == "1.2"

    @pytest.mark.usefixtures("no_wheel")
    def test_named_but_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable that names nothing is an error, not a reason to look elsewhere."""
        monkeypatch.setenv(vllm.WHEEL_VARIABLE, "gone.whl")
        with pytest.raises(UsageError, match=r"must be a file \(got 'gone\.whl'"):
            vllm.find_version()


class TestImport:
    """What the adapter makes of a wheel that it cannot use."""

    @pytest.mark.parametrize(
        ("member", "named"),
        [
            (TARGET, "vllm.model_executor"),  # nothing is left of the package, so that is what is missed
            ("vllm/_aiter_ops.py", "vllm._aiter_ops"),
            ("vllm/platforms/rocm.py", "vllm.platforms"),
        ],
    )
    def test_missing_module(self, tmp_path: Path, member: str, named: str) -> None:
        """A module that the wheel lacks is named, with vLLM's version."""
        wheel = Wheel(make_wheel(tmp_path, {k: v for k, v in MEMBERS.items() if k != member}))
        with pytest.raises(
            InfrastructureError, match=rf"vLLM 9\.9 .* for gfx950: .*No module named '{named}'"
        ):
            VllmSubject(wheel)

    @pytest.mark.parametrize(
        ("member", "old", "new", "named"),
        [
            ("vllm/elsewhere.py", "class FusedMoEConfig: ...", "", "FusedMoEConfig"),
            (TARGET, "as mk", "as modular", "mk"),
            (TARGET, "init_aiter_topK_meta_data(rows)", "start(rows)", "init_aiter_topK_meta_data"),
        ],
    )
    def test_missing_name(self, tmp_path: Path, member: str, old: str, new: str, named: str) -> None:
        """So is a name that a module lacks, whether vLLM looks for it or the adapter."""
        members = MEMBERS | {member: MEMBERS[member].replace(old, new)}
        with pytest.raises(InfrastructureError, match=rf"vLLM 9\.9 cannot be imported .*{named}"):
            VllmSubject(Wheel(make_wheel(tmp_path, members)))

    def test_missing_package(self, tmp_path: Path) -> None:
        """A package that is not installed is named, also where its lack shows somewhere else."""
        members = MEMBERS | {
            "vllm/helper.py": "import surely_not_installed\nNAMES = ['ARCH']",
            "vllm/platforms/rocm.py": "from vllm.helper import NAMES\nARCH = NAMES + 1",
        }
        with pytest.raises(InfrastructureError, match=r"surely_not_installed \(by vllm\.helper\)"):
            VllmSubject(Wheel(make_wheel(tmp_path, members)))


class TestEnvironment:
    """`VllmSubject.environment`."""

    def test_arch_and_aiter(self, subject: VllmSubject) -> None:
        """Each environment sees its own architecture, variables and AITER, in whatever order."""
        seen = []
        for arch, env, version in (
            ("gfx950", ENABLED, "0.1.20"),
            ("gfx942", ENABLED, "0.1.20"),
            ("gfx950", {}, "0.1.20"),
            ("gfx950", ENABLED, None),
            ("gfx950", ENABLED, "0.1.20"),
        ):
            with subject.environment(arch, env, None if version is None else simulate(version)):
                seen.append(subject.settings().fused_moe_enabled)
        assert seen == [True, False, False, False, True]

    def test_everything_is_put_back(self, subject: VllmSubject, monkeypatch: pytest.MonkeyPatch) -> None:
        """Variables and modules are afterwards as before, after an error too."""
        monkeypatch.setenv("VLLM_MINE", "1")
        before = (
            dict(os.environ),
            {n for n in sys.modules if n.partition(".")[0] in ("vllm", "aiter", "amdsmi")},
        )

        def use() -> None:
            with subject.environment("gfx950", ENABLED, simulate("0.1.20")):
                assert "VLLM_MINE" not in os.environ
                assert "AITER_LEFT_BEHIND" in os.environ
                raise KeyError

        with pytest.raises(KeyError):
            use()
        after = (
            dict(os.environ),
            {n for n in sys.modules if n.partition(".")[0] in ("vllm", "aiter", "amdsmi")},
        )
        assert after == before

    def test_nothing_is_remembered(self, subject: VllmSubject) -> None:
        """Buffers and what vLLM caches of AITER are new in every environment."""
        seen = []
        for version in ("0.1.13", "0.1.20"):
            aiter_found = simulate(version)
            vars(aiter_found.modules["aiter"])["VERSION"] = version
            with subject.environment("gfx950", ENABLED, aiter_found):
                assert subject.api.aiter_topK_meta_data is None
                subject.api.init_aiter_topK_meta_data(3)
                subject.api.init_aiter_topK_meta_data(3)
                seen.append(
                    (subject.api.rocm_aiter_ops.version(), subject.api.aiter_topK_meta_data[0].device.type)
                )
        assert [version for version, _ in seen] == ["0.1.13", "0.1.20"]
        assert {device for _, device in seen} == {"cpu" if not torch.accelerator.is_available() else "cuda"}

    def test_invalid_variable(self, subject: VllmSubject) -> None:
        """What ends the start of vLLM is told by `settings`, and only in that environment."""
        with subject.environment("gfx950", {"VLLM_BAD": "1"}, simulate("0.1.20")):
            with pytest.raises(ValueError, match="VLLM_BAD must not be set") as caught:
                subject.settings()
            assert subject.refusal(caught.value) is ValueError
        with subject.environment("gfx950", ENABLED, simulate("0.1.20")):
            assert subject.settings().dispatch_policy == 0

    def test_use_outside(self, subject: VllmSubject) -> None:
        """Outside an environment there is no answer."""
        with pytest.raises(UsageError, match="inside `environment`"):
            _ = subject.api


class TestApi:
    """`VllmSubject.api` and `missing`."""

    def test_names_are_found_where_they_are(self, subject: VllmSubject) -> None:
        """Names are looked for where the module itself has them from."""
        with subject.environment("gfx950", ENABLED, simulate("0.1.20")):
            assert type(subject.api.kNew) is subject.api.QuantKey
            with pytest.raises(AttributeError, match="vLLM has no kOld"):
                _ = subject.api.kOld

    def test_missing(self, subject: VllmSubject) -> None:
        """A name that this vLLM has is not among the missing."""
        assert subject.missing == set(MAYBE_MISSING) - {"derive_aiter_quant_method"}


class TestRecording:
    """`VllmSubject.recording` and `entry`."""

    def test_call(self, subject: VllmSubject) -> None:
        """A call is recorded with every argument, enums as numbers, tensors as they are."""
        hidden, weights = torch.zeros(2, 4), torch.zeros(1)
        with subject.environment("gfx950", ENABLED, simulate("0.1.20")), subject.recording() as calls:
            answer = subject.api.rocm_aiter_ops.fused_moe(hidden, weights, torch.tensor(5))
        assert [call.entry for call in calls] == ["fused_moe"]
        arguments = dict(calls[0].arguments)
        assert arguments.pop("hidden_states") is hidden
        assert arguments.pop("w1") is weights
        assert arguments == {"quant_method": 5, "output_dtype": None}
        assert (answer.shape, answer.dtype) == (hidden.shape, hidden.dtype)

    def test_only_inside(self, subject: VllmSubject) -> None:
        """After the recording the real function is back."""
        with subject.environment("gfx950", ENABLED, simulate("0.1.20")):
            with subject.recording():
                pass
            with pytest.raises(RuntimeError, match="not recorded"):
                subject.api.rocm_aiter_ops.asm_moe_tkw1(torch.zeros(1))

    def test_entry_without_operator(self, subject: VllmSubject) -> None:
        """An operator that vLLM did not register is named."""
        with (
            subject.environment("gfx950", ENABLED, simulate("0.1.20")),
            pytest.raises(InfrastructureError, match="rocm_aiter_fused_moe only where"),
        ):
            subject.entry("fused_moe")


class TestRefusal:
    """`VllmSubject.refusal`."""

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (AssertionError("Only support topk=1"), ValueError),
            (AssertionError("AITER topK meta data is already initialized"), RuntimeError),
            (AssertionError("aiter_topK_meta_data is not initialized but"), RuntimeError),
            (ValueError("no"), ValueError),
            (RuntimeError("The expanded size of the tensor"), None),
            (TypeError("unexpected keyword"), None),
            (ModuleNotFoundError("aiter.ops.flydsl"), None),
        ],
    )
    def test_kinds(self, subject: VllmSubject, error: Exception, kind: type[Exception] | None) -> None:
        """Assertions stand for SPEC's errors; what nobody meant as an answer stands for none."""
        assert subject.refusal(error) is kind
