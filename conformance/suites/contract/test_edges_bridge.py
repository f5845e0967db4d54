"""How our package finds a GPU, AITER and its parts, where there is none, and where it is not AMD's.

These are tests of the package ``aiter_moe`` itself: SPEC 7 leaves the bridge's design to us.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiter_conformance.expected_bridge import PARAMETERS, SHARED_TENSORS
from aiter_conformance.protocols import Entry, MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate

# First release of what not every release has, from the git tags of ROCm/aiter up to the main of that date.
FIRST = {
    **dict.fromkeys(("num_local_tokens", "output_dtype"), "v0.1.4"),
    "moe_sorting_dispatch_policy": "v0.1.5",
    **dict.fromkeys(("hidden_pad", "intermediate_pad", "bias1", "bias2"), "v0.1.6.post2"),
    **dict.fromkeys(("gate_mode", "swiglu_limit"), "v0.1.14"),
    **dict.fromkeys(("beta", "linear_beta"), "v0.1.19"),
    **dict.fromkeys((*SHARED_TENSORS, "shared_expert_id"), "v0.1.19.post1"),
    "q_dtype_a": "later than main of 2026-08-22",
}
# Parameter -> arguments in which it says something; one tensor says something of any other.
SHARED = {**dict.fromkeys(SHARED_TENSORS, torch.ones(1)), "shared_expert_id": 4}
SITU = {"activation_method": 3, "beta": 1.0, "linear_beta": 1.0}
SAYS_SOMETHING: dict[str, dict[str, Any]] = {
    "activation_method": {},
    "quant_method": {},
    "doweight_stage1": {},
    "a16": {},
    "hidden_pad": {"hidden_pad": 128},
    "intermediate_pad": {"intermediate_pad": 64},
    "gate_mode": {"gate_mode": "separated"},
    "swiglu_limit": {"swiglu_limit": 7.0},
    "moe_sorting_dispatch_policy": {"moe_sorting_dispatch_policy": 1},
    "output_dtype": {"output_dtype": torch.float16},
    "q_dtype_a": {"q_dtype_a": torch.int8},
    **dict.fromkeys(("beta", "linear_beta"), SITU),
    **dict.fromkeys(SHARED, SHARED),
}


@pytest.fixture
def api(subject: Subject) -> Any:
    """Return the package ``aiter_moe``."""
    if subject.name != "impl":
        pytest.skip("about the package aiter_moe")
    return subject.api


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes torch see a GPU of ROCm, or of somebody else."""

    def see(*, hip: str | None, available: bool, name: str) -> None:
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
        devices = {3: SimpleNamespace(gcnArchName=name)}
        monkeypatch.setattr(torch.cuda, "get_device_properties", devices.__getitem__)

    return see


@pytest.fixture
def found(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, str]], Any]]:
    """Return a function that puts a package ``aiter`` of the given files in the way, and looks for AITER."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith("aiter.")}

    def find(files: dict[str, str]) -> Any:
        for name, text in files.items():
            file = tmp_path / "aiter" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        return api.find_aiter()

    yield find
    for name in [name for name in sys.modules if f"{name}.".startswith("aiter.")]:
        del sys.modules[name]
    sys.modules.update(before)


def enum(**members: int) -> Any:
    """Return an enum like AITER's."""
    return IntEnum("Members", members)  # type: ignore[misc]


class TestDetectArch:
    """``detect_arch``, ``current_arch`` and ``use_arch``."""

    def test_rocm(self, api: Any, gpu: Callable[..., None]) -> None:
        """It is the current device's name without the features that ROCm adds."""
        gpu(hip="7.0", available=True, name="gfx942:sramecc+:xnack-")
        assert (api.detect_arch(), api.current_arch()) == ("gfx942", "gfx942")

    def test_no_rocm(self, api: Any, gpu: Callable[..., None]) -> None:
        """A GPU of somebody else has no ROCm architecture."""
        gpu(hip=None, available=True, name="gfx942")
        assert api.detect_arch() is None

    def test_no_device(self, api: Any, gpu: Callable[..., None]) -> None:
        """A ROCm build of torch on a machine without a GPU has none either."""
        gpu(hip="7.0", available=False, name="gfx942")
        assert api.detect_arch() is None

    def test_no_torch(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without torch there is nobody to ask."""
        arch = importlib.import_module("aiter_moe.arch")
        asked: list[str] = []
        monkeypatch.setattr(arch.importlib.util, "find_spec", asked.append)
        assert (api.detect_arch(), asked) == (None, ["torch"])

    def test_choice_beats_device(self, api: Any, gpu: Callable[..., None]) -> None:
        """A chosen architecture is the answer inside the block only, and the inner choice wins."""
        gpu(hip="7.0", available=True, name="gfx90a")
        answers = [api.current_arch()]
        with api.use_arch("gfx950"):
            answers.append(api.current_arch())
            with api.use_arch("gfx942"):
                answers.append(api.current_arch())
            answers.append(api.current_arch())
        assert [*answers, api.current_arch()] == ["gfx90a", "gfx950", "gfx942", "gfx950", "gfx90a"]

    def test_choice_ends_with_an_error(self, api: Any, gpu: Callable[..., None]) -> None:
        """An error inside the block ends the choice too."""
        gpu(hip=None, available=False, name="")
        with pytest.raises(KeyError), api.use_arch("gfx950"):
            raise KeyError
        assert api.current_arch() is None

    def test_other_threads(self, api: Any, gpu: Callable[..., None]) -> None:
        """A choice is of its own thread."""
        gpu(hip=None, available=False, name="")
        answers: list[str | None] = []
        with api.use_arch("gfx950"):
            thread = threading.Thread(target=lambda: answers.append(api.current_arch()))
            thread.start()
            thread.join()
        assert answers == [None]

    @pytest.mark.parametrize(
        ("arch", "is_fnuz"),
        [("gfx940", True), ("gfx942", True), ("gfx950", False), ("gfx90a", False), (None, False)],
    )
    def test_fnuz(self, api: Any, arch: str | None, is_fnuz: bool) -> None:
        """gfx94x reads e4m3fnuz, and nothing else does."""
        assert api.is_fp8_fnuz(arch) is is_fnuz


class TestFindAiter:
    """``find_aiter``."""

    def test_none(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where there is no package of that name there is no AITER."""
        library = importlib.import_module("aiter_moe.library")
        asked: list[str] = []
        monkeypatch.setattr(library.importlib.util, "find_spec", asked.append)
        assert (api.find_aiter(), asked) == (None, ["aiter"])

    def test_another_package(self, found: Callable[[dict[str, str]], Any]) -> None:
        """The unrelated package of that name is not taken for it."""
        assert found({"__init__.py": ""}) is None

    def test_a_module(self, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is a single module, which has no parts."""
        (tmp_path / "aiter.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert api.find_aiter() is None

    def test_without_importing_it(
        self, found: Callable[[dict[str, str]], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is found by its files, and its version by its distribution: importing it compiles kernels."""
        versions = {"amd-aiter": "0.1.20"}
        module = importlib.import_module("aiter_moe.library")
        monkeypatch.setattr(module, "version", versions.__getitem__)
        library = found({"__init__.py": "raise AssertionError", "fused_moe.py": ""})
        assert (library.version, "aiter" in sys.modules) == ("0.1.20", False)

    def test_source_tree(
        self, found: Callable[[dict[str, str]], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A source tree on the path works, and its version is unknown."""

        def version(_: str) -> str:
            raise importlib.metadata.PackageNotFoundError

        module = importlib.import_module("aiter_moe.library")
        monkeypatch.setattr(module, "version", version)
        assert found({"__init__.py": "", "fused_moe.py": ""}).version == "unknown"

    def test_parts(self, found: Callable[[dict[str, str]], Any]) -> None:
        """Each part comes from where AITER has it (SPEC 7 and 10)."""
        in_package = ("ActivationType", "QuantType", "dtypes", "biased_grouped_topk", "grouped_topk")
        library = found(
            {
                "__init__.py": "".join(f"{name} = {name!r}\n" for name in in_package),
                "fused_moe.py": "fused_moe = 'aiter.fused_moe.fused_moe'\n",
                "fused_moe_bf16_asm.py": "asm_moe_tkw1 = 'aiter.fused_moe_bf16_asm.asm_moe_tkw1'\n",
            }
        )
        names = (*in_package, "fused_moe", "asm_moe_tkw1")
        assert [library.part(name) for name in names] == [
            *in_package,
            "aiter.fused_moe.fused_moe",
            "aiter.fused_moe_bf16_asm.asm_moe_tkw1",
        ]

    @pytest.mark.parametrize(
        ("init", "error"),
        [
            ("", "AttributeError: module 'aiter' has no attribute 'QuantType'"),
            ("raise OSError('no libamdhip64.so')", "OSError: no libamdhip64.so"),
        ],
    )
    def test_missing_part(self, found: Callable[[dict[str, str]], Any], init: str, error: str) -> None:
        """A part that is not there, or breaks at import, is an ImportError with version, part and cause."""
        library = found({"__init__.py": init, "fused_moe.py": ""})
        with pytest.raises(ImportError) as caught:
            library.part("QuantType")
        assert str(caught.value) == f"AITER {library.version} does not give QuantType ({error})"


class TestAiter:
    """``Aiter``."""

    def test_simulated(self, api: Any) -> None:
        """It is of the version that is said, and has the parts that are given and no other."""
        library = api.Aiter.simulated("0.1.20", dtypes="some")
        assert (library.version, library.part("dtypes")) == ("0.1.20", "some")
        with pytest.raises(
            ImportError, match=r"AITER 0\.1\.20 does not give fused_moe \(KeyError: 'fused_moe'\)"
        ):
            library.part("fused_moe")

    def test_cannot_be_changed(self, api: Any) -> None:
        """A bridge probes it once: it must not become another."""
        with pytest.raises(AttributeError):
            api.Aiter.simulated("0.1.20").version = "0.1.21"


class TestAiterBridge:
    """``AiterBridge``."""

    def test_default(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a choice it is the one to the installed AITER, which is looked for once."""
        bridge = importlib.import_module("aiter_moe.bridge")
        library = api.Aiter.simulated("0.1.20")
        looked: list[str] = []
        monkeypatch.setattr(bridge, "find_aiter", lambda: looked.append("") or library)
        bridge._installed_bridge.cache_clear()
        try:
            first, again = api.current_bridge(), api.current_bridge()
        finally:
            bridge._installed_bridge.cache_clear()
        assert (first is again, first.library is library, first.use_operators, looked) == (
            True,
            True,
            True,
            [""],
        )

    def test_choice(self, api: Any) -> None:
        """A chosen bridge is handed over, is current inside the block only, and an error ends it too."""
        outer, inner = api.AiterBridge(None), api.AiterBridge(None)
        with api.use_bridge(outer) as given:
            seen = [given, api.current_bridge()]
            with api.use_bridge(inner):
                seen.append(api.current_bridge())
            with pytest.raises(KeyError), api.use_bridge(inner):
                raise KeyError
            seen.append(api.current_bridge())
        assert [one is wanted for one, wanted in zip(seen, (outer, outer, inner, outer), strict=True)] == [
            True
        ] * 4

    def test_no_gpu(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a ROCm GPU that is what is said, whatever else is missing."""
        monkeypatch.setattr(torch.version, "hip", None)
        bridge = api.AiterBridge(None)
        assert (bridge.fused_moe_obstacle(), bridge.is_available()) == ("there is no ROCm GPU", False)

    @pytest.mark.parametrize(
        ("arch", "library", "env", "obstacle"),
        [
            ("gfx90a", False, {}, "gfx90a is not one of gfx942, gfx950, gfx1250"),
            ("gfx942", False, {}, "AITER is not installed"),
            ("gfx942", True, {}, "VLLM_ROCM_USE_AITER is not 1"),
            ("gfx942", True, {"VLLM_ROCM_USE_AITER": "0"}, "VLLM_ROCM_USE_AITER is not 1"),
            (
                "gfx950",
                True,
                {"VLLM_ROCM_USE_AITER": "TRUE", "VLLM_ROCM_USE_AITER_MOE": "off"},
                "VLLM_ROCM_USE_AITER_MOE is not 1",
            ),
            ("gfx950", True, {"VLLM_ROCM_USE_AITER": "True"}, None),
        ],
    )
    def test_first_obstacle(
        self, subject: Subject, api: Any, arch: str, library: bool, env: dict[str, str], obstacle: str | None
    ) -> None:
        """The first thing that is missing is named: architecture, AITER, then each variable."""
        with subject.environment(arch, env, installed=simulate(FUTURE) if library else None):
            assert api.current_bridge().fused_moe_obstacle() == obstacle

    def test_no_aiter(self, subject: Subject, api: Any) -> None:
        """A call without AITER is an ImportError that says what to install, not a failure further down."""
        tensors = [torch.zeros(2, 2) for _ in range(5)]
        with subject.environment("gfx950", installed=None):
            for call in (api.fused_moe, api.asm_moe_tkw1):
                with pytest.raises(ImportError, match=r"AITER must be installed .* amd-aiter"):
                    call(*tensors)

    def test_catch_all_signature(self, api: Any) -> None:
        """An AITER that takes any keyword is asked for everything, under its own names."""
        got: dict[str, Any] = {}

        def fused_moe(**keywords: Any) -> torch.Tensor:
            got.update(keywords)
            return torch.zeros(2, 2)

        library = api.Aiter.simulated(
            "9.9", fused_moe=fused_moe, ActivationType=enum(Silu=0), QuantType=enum(No=0)
        )
        tensors = [torch.zeros(2, 2) for _ in range(5)]
        with api.use_bridge(api.AiterBridge(library)):
            api.fused_moe(*tensors, q_dtype_a=torch.int8, hidden_pad=128, output_dtype=torch.float16)
        sent = {name: value for name, value in got.items() if not isinstance(value, torch.Tensor)}
        assert sent == {
            "activation": 0,
            "quant_type": 0,
            "doweight_stage1": False,
            "dtype": torch.float16,
            "hidden_pad": 128,
            "quant_dtype_a": torch.int8,
        }

    @pytest.mark.parametrize("entry", ["fused_moe", "asm_moe_tkw1"])
    def test_any_keyword(self, api: Any, entry: str) -> None:
        """Each of both calls sends all that says something to an AITER that takes any keyword."""
        got: dict[str, Any] = {}

        def call(**keywords: Any) -> torch.Tensor:
            got.update(keywords)
            return torch.zeros(2, 2)

        enums = {"ActivationType": enum(Silu=0), "QuantType": enum(No=0)}
        library = api.Aiter.simulated("9.9", **{entry: call}, **enums)
        mask = torch.ones(2, dtype=torch.int32)
        with api.use_bridge(api.AiterBridge(library)):
            getattr(api, entry)(*[torch.zeros(2, 2) for _ in range(5)], expert_mask=mask)
        assert ("expert_mask" in got, "topk_weight" in got, "topk_weights" in got) == (True, True, False)

    @pytest.mark.parametrize(("entry", "parameter"), [(e, p) for e in PARAMETERS for p in PARAMETERS[e]])
    def test_what_it_cannot_take(self, api: Any, entry: Entry, parameter: str) -> None:
        """The error says what, which AITER, and the first one that has it, also of what each release has."""
        names = PARAMETERS[entry]
        # It takes whatever goes with the parameter, so that the parameter alone is at fault.
        takes = [name for name in names.values() if name != names[parameter]]
        called: list[Any] = []

        def call(**keywords: Any) -> None:
            called.append(keywords)

        kind = inspect.Parameter.KEYWORD_ONLY
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in takes]
        )
        enums = {"ActivationType": enum(Silu=0, Situv2=3), "QuantType": enum(No=0)}
        library = api.Aiter.simulated("0.0.3", **{entry: call}, **enums)
        base = dict(zip(names, (torch.zeros(2, 2) for _ in range(5)), strict=False))
        given = {**base, **SAYS_SOMETHING.get(parameter, {parameter: torch.ones(1)})}
        with (
            api.use_bridge(api.AiterBridge(library)),
            pytest.raises(ValueError, match=r"^\w+ must") as caught,
        ):
            getattr(api, entry)(**given)
        assert str(caught.value) == (
            f"{parameter} must be left at its default with AITER 0.0.3, whose call has no {names[parameter]} "
            f"(got a value); the first AITER that has it is {FIRST.get(parameter, 'v0.1.1')}"
        )
        assert called == []

    @pytest.mark.usefixtures("api")
    def test_tables_cannot_be_changed(self) -> None:
        """Both calls are data that nobody may bend in passing."""
        calls = importlib.import_module("aiter_moe.calls")
        for parameter in (*calls.FUSED_MOE, *calls.ASM_MOE_TKW1):
            with pytest.raises(AttributeError):
                parameter.neutral = 0

    def test_signature_is_read_once(self, api: Any) -> None:
        """Signature and enums are read at the first call only."""
        loaded: list[str] = []
        parts = {"ActivationType": enum(Silu=0), "QuantType": enum(No=0)}

        def load(name: str) -> Any:
            loaded.append(name)
            return parts[name] if name in parts else lambda **_: torch.zeros(2, 2)

        tensors = [torch.zeros(2, 2) for _ in range(5)]
        with api.use_bridge(api.AiterBridge(api.Aiter("9.9", load))):
            api.fused_moe(*tensors)
            first = sorted(set(loaded))
            loaded.clear()
            api.fused_moe(*tensors)
        assert (first, loaded.count("QuantType")) == (["ActivationType", "QuantType", "fused_moe"], 0)

    @pytest.mark.parametrize("use_operators", [True, False])
    def test_meta_tensors(self, subject: Subject, api: Any, use_operators: bool) -> None:
        """With operators a call on meta tensors ends in the fake; without them it arrives at AITER."""
        simulated = simulate(FUTURE)
        leaves = [(api.AiterUnquantizedExperts, False), (api.AiterFp8ChannelExperts, True)]
        with subject.environment("gfx950", installed=simulated):
            layer = subject.moe_config(MoEConfigSpec(hidden_dim=64, intermediate_size=32))
            bridge = api.AiterBridge(api.current_bridge().library, use_operators=use_operators)
            with api.use_bridge(bridge), torch.device("meta"):
                for leaf, on_input in leaves:
                    output = torch.zeros(3, 64)
                    leaf(layer, subject.quant_config(QuantSpec(), {})).apply(
                        output,
                        torch.zeros(3, 64),
                        torch.zeros(8, 64, 64),
                        torch.zeros(8, 64, 32),
                        torch.zeros(3, 1),
                        torch.zeros(3, 1, dtype=torch.int32),
                        api.MoEActivation.SILU,
                        8,
                        *[None] * 6,
                        on_input,
                    )
        called = [call.function for call in simulated.calls]
        assert called == ([] if use_operators else ["fused_moe", "asm_moe_tkw1"])

    @pytest.mark.parametrize(
        ("leaf", "on_input", "sent"),
        [
            ("AiterUnquantizedExperts", False, {"doweight_stage1": False, "swiglu_limit": 7.0}),
            ("AiterUnquantizedExperts", True, {"doweight_stage1": True, "swiglu_limit": 7.0}),
            ("AiterFp8ChannelExperts", False, {"doweight_stage1": False, "swiglu_limit": 7.0}),
            ("AiterFp8ChannelExperts", True, {"a16": False}),
        ],
    )
    def test_types_without_operators(
        self, subject: Subject, api: Any, leaf: str, on_input: bool, sent: dict[str, Any]
    ) -> None:
        """What no operator's schema has made right is of the right type by itself."""
        simulated = simulate(FUTURE)
        limit = 7 if "swiglu_limit" in sent else None
        spec = MoEConfigSpec(hidden_dim=64, intermediate_size=32, swiglu_limit=limit)
        with subject.environment("gfx950", installed=simulated):
            bridge = api.AiterBridge(api.current_bridge().library, use_operators=False)
            tensors = [torch.zeros(shape) for shape in ((3, 64), (3, 64), (8, 64, 64), (8, 64, 32), (3, 1))]
            ids = torch.zeros(3, 1, dtype=torch.int32)
            with api.use_bridge(bridge):
                experts = getattr(api, leaf)(subject.moe_config(spec), subject.quant_config(QuantSpec(), {}))
                experts.apply(*tensors, ids, api.MoEActivation.SILU, 8, *[None] * 6, on_input)
        got = {name: simulated.calls[0].arguments[name] for name in sent}
        assert {n: (type(v), v) for n, v in got.items()} == {n: (type(v), v) for n, v in sent.items()}


class TestPackage:
    """The package's own namespace."""

    def test_unknown_name(self, api: Any) -> None:
        """A name that is not there is an AttributeError that says so."""
        with pytest.raises(AttributeError, match="module 'aiter_moe' has no attribute 'fused_mou'"):
            api.fused_mou  # noqa: B018

    def test_dir(self, api: Any) -> None:
        """Every public name is listed, those that wait for torch too, and each can be had."""
        listed = dir(api)
        assert [name for name in api.__all__ if name not in listed] == []
        assert listed == sorted(listed)
        assert [name for name in api.__all__ if not hasattr(api, name)] == []

    def test_buffers_are_read_live(self, subject: Subject, api: Any) -> None:
        """The shared experts' buffers are those of the moment, also in the package's namespace."""
        with subject.environment("gfx950"):
            before = api.aiter_topK_meta_data
            api.init_aiter_topK_meta_data(8, 1, 2, 0, 1, max_num_tokens=4)
            between = api.aiter_topK_meta_data
            api.reset_aiter_topK_meta_data()
            after = api.aiter_topK_meta_data
        assert (before, [t.shape for t in between], after) == (None, [(4, 3), (4, 3)], None)
