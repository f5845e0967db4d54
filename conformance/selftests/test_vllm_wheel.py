"""The import of modules straight out of a vLLM wheel, on wheels made by hand."""

from __future__ import annotations

import importlib
import inspect
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.subjects.vllm_wheel import ModuleSet, Wheel, WheelFinder

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def make_wheel(folder: Path, members: Mapping[str, str], name: str = "vllm", version: str = "0.33.0") -> Path:
    """Write a wheel that holds the members and the metadata of the distribution."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(f"{name}-{version}.dist-info/METADATA", METADATA.format(name=name, version=version))
    return path


def module_set(
    path: Path, *, values: Mapping[str, Mapping[str, Any]] | None = None, essential: str = "vllm.a"
) -> ModuleSet:
    """Return a module set over a wheel."""
    finder = WheelFinder(Wheel(path), values=values or {}, essential=(essential,))
    return ModuleSet(finder, {})


@pytest.fixture(autouse=True)
def _no_traces() -> Any:
    """Every test leaves `sys.modules` and `sys.meta_path` as they were."""
    before = ({name for name in sys.modules if name.startswith("vllm")}, list(sys.meta_path))
    yield
    assert ({name for name in sys.modules if name.startswith("vllm")}, sys.meta_path) == before


class TestWheel:
    """`Wheel`: only a wheel of vLLM is taken, and it is only read."""

    def test_version(self, tmp_path: Path) -> None:
        """The version is the one in the metadata."""
        assert str(Wheel(make_wheel(tmp_path, {}, version="0.34.0rc1")).version) == "0.34.0rc1"

    def test_missing_file(self, tmp_path: Path) -> None:
        """A path that is no file is a usage error."""
        with pytest.raises(UsageError, match="must be a file"):
            Wheel(tmp_path / "vllm.whl")

    def test_not_an_archive(self, tmp_path: Path) -> None:
        """A file that is no zip archive is a usage error."""
        path = tmp_path / "vllm-1-py3-none-any.whl"
        path.write_text("no archive", encoding="utf-8")
        with pytest.raises(UsageError, match="must be a zip archive"):
            Wheel(path)

    def test_other_distribution(self, tmp_path: Path) -> None:
        """A wheel of something else is a usage error that names it."""
        with pytest.raises(UsageError, match=r"must be one of vllm \(got 'notvllm'"):
            Wheel(make_wheel(tmp_path, {}, name="notvllm"))

    def test_no_metadata(self, tmp_path: Path) -> None:
        """An archive without metadata is a usage error."""
        path = tmp_path / "vllm-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vllm/__init__.py", "")
        with pytest.raises(UsageError, match=r"must have one \.dist-info/METADATA"):
            Wheel(path)

    @pytest.mark.parametrize(
        "member", ["../evil.py", "/etc/evil.py", "vllm/../../evil.py", "vllm\\..\\evil.py"]
    )
    def test_path_traversal(self, tmp_path: Path, member: str) -> None:
        """A member that would lie outside the wheel makes the whole wheel refused, and nothing is written."""
        folder = tmp_path / "in"
        folder.mkdir()
        path = make_wheel(folder, {member: "raise SystemExit"})
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UsageError, match="must lie below it"):
            Wheel(path)
        assert sorted(tmp_path.rglob("*")) == before

    def test_broken_source(self, tmp_path: Path) -> None:
        """A member that does not compile is an infrastructure error that names it."""
        wheel = Wheel(make_wheel(tmp_path, {"vllm/a.py": "def"}))
        with pytest.raises(InfrastructureError, match=r"cannot read vllm/a\.py"):
            wheel.code("vllm/a.py")


class TestModuleSet:
    """`ModuleSet` over a `WheelFinder`: what an import out of the wheel gives."""

    def test_module_and_its_imports(self, tmp_path: Path) -> None:
        """A module is imported with the modules that it imports, none of which had to be listed."""
        members = {
            "vllm/__init__.py": "raise SystemExit('the root must not run')",
            "vllm/a.py": "from vllm.deep.b import ANSWER\nimport vllm.deep.b as b",
            "vllm/deep/__init__.py": "raise SystemExit('only a submodule is asked for')",
            "vllm/deep/b.py": "from .c import ANSWER",
            "vllm/deep/c.py": "ANSWER = 42",
        }
        modules = module_set(make_wheel(tmp_path, members))
        with modules.active():
            assert importlib.import_module("vllm.a").ANSWER == 42
            loaded = sorted(name for name in sys.modules if name.startswith("vllm"))
        assert loaded == ["vllm", "vllm.a", "vllm.deep", "vllm.deep.b", "vllm.deep.c"]

    def test_package_init_runs_on_demand(self, tmp_path: Path) -> None:
        """The ``__init__`` of a package runs, once, when something that it defines is asked for."""
        members = {
            "vllm/a.py": "from vllm.pack import sub, VALUE, VALUE as again",
            "vllm/pack/__init__.py": "VALUE = [1]\ndef __getattr__(name):\n    raise AttributeError(name)",
            "vllm/pack/sub.py": "",
        }
        modules = module_set(make_wheel(tmp_path, members))
        with modules.active():
            module = importlib.import_module("vllm.a")
        assert module.VALUE is module.again

    def test_imports_are_apart(self, tmp_path: Path) -> None:
        """Two sets over one wheel have modules of their own, and each finds its own again."""
        path = make_wheel(tmp_path, {"vllm/a.py": "import amdsmi\nARCH = amdsmi.ARCH"})
        sets = []
        for arch in ("gfx942", "gfx950"):
            amdsmi = ModuleType("amdsmi")
            vars(amdsmi)["ARCH"] = arch
            sets.append(
                ModuleSet(WheelFinder(Wheel(path), values={}, essential=("vllm.a",)), {"amdsmi": amdsmi})
            )
        seen = []
        for modules in (*sets, *sets):
            with modules.active():
                seen.append(importlib.import_module("vllm.a").ARCH)
        assert seen == ["gfx942", "gfx950", "gfx942", "gfx950"]

    def test_active_restores_foreign_modules(self, tmp_path: Path) -> None:
        """A module that was imported before is the same one afterwards, whatever stood in its place."""
        modules = module_set(make_wheel(tmp_path, {"vllm/a.py": "import json\nNAME = json.NAME"}))
        stand_in = ModuleType("json")
        vars(stand_in)["NAME"] = "stand-in"
        real = sys.modules["json"]
        with modules.active({"json": stand_in}):
            assert importlib.import_module("vllm.a").NAME == "stand-in"
        assert sys.modules["json"] is real

    def test_name_made_absent(self, tmp_path: Path) -> None:
        """A foreign name that is given as None cannot be imported, installed or not."""
        modules = module_set(make_wheel(tmp_path, {"vllm/a.py": "import json"}))
        with modules.active({"json": None}), pytest.raises(ModuleNotFoundError, match="json"):
            importlib.import_module("vllm.a")

    def test_missing_module(self, tmp_path: Path) -> None:
        """A module that the wheel does not have is an import error that names it."""
        modules = module_set(make_wheel(tmp_path, {"vllm/a.py": "import vllm.gone"}))
        with modules.active(), pytest.raises(ModuleNotFoundError, match=r"vllm\.gone"):
            importlib.import_module("vllm.a")

    def test_source_is_shown(self, tmp_path: Path) -> None:
        """The source of an imported function can be looked up, as a traceback does."""
        modules = module_set(make_wheel(tmp_path, {"vllm/a.py": "def f():\n    return 1\n"}))
        with modules.active():
            assert inspect.getsource(importlib.import_module("vllm.a").f) == "def f():\n    return 1\n"


class TestPlaceholders:
    """Stubbed areas and modules whose own needs are missing take part in an import, and never answer."""

    def test_stub_area(self, tmp_path: Path) -> None:
        """What a stubbed area has can be imported, subclassed and annotated with; its source never runs."""
        members = {
            "vllm/a.py": (
                "from vllm.config import Base, decorate\nfrom vllm.distributed.deep import X\n"
                "class Sub(Base): ...\n"
                "@decorate\ndef f(x: X | None, y: 'list[X]' = X.Y) -> X[int]: return 'undecorated'\n"
            ),
            "vllm/config/__init__.py": "raise SystemExit('stubbed')",
        }
        modules = module_set(make_wheel(tmp_path, members))
        with modules.active():
            assert importlib.import_module("vllm.a").f(1) == "undecorated"

    def test_values(self, tmp_path: Path) -> None:
        """A stubbed module really answers where it was given a value."""
        path = make_wheel(tmp_path, {"vllm/a.py": "from vllm.config import N"})
        with (modules := module_set(path, values={"vllm.config": {"N": 3}})).active():
            assert importlib.import_module("vllm.a").N == 3
        assert modules.finder.stubbed == {}

    @pytest.mark.parametrize("use", ["X()", "X[0]", "bool(X)", "list(X)", "X.y()"])
    def test_use_after_import(self, tmp_path: Path, use: str) -> None:
        """After the import is closed, every use of a placeholder is an error that names it."""
        path = make_wheel(tmp_path, {"vllm/a.py": f"from vllm.config import X\ndef f(): return {use}"})
        modules = module_set(path)
        with modules.active():
            module = importlib.import_module("vllm.a")
            modules.finder.seal.closed = True
            with pytest.raises(InfrastructureError, match=r"vLLM used vllm\.config\.X"):
                module.f()

    def test_missing_package(self, tmp_path: Path) -> None:
        """A module that needs a package which is not installed becomes a placeholder and is remembered."""
        members = {"vllm/a.py": "from vllm.b import B", "vllm/b.py": "KEPT = 1\nimport surely_not_installed"}
        modules = module_set(make_wheel(tmp_path, members))
        with modules.active():
            importlib.import_module("vllm.a")
            assert not hasattr(sys.modules["vllm.b"], "__wrapped__")
            assert vars(sys.modules["vllm.b"]).get("KEPT") is None
        assert modules.finder.stubbed == {"vllm.b": "surely_not_installed"}

    def test_missing_package_of_essential_module(self, tmp_path: Path) -> None:
        """An essential module never becomes a placeholder: the import fails and names the package."""
        modules = module_set(make_wheel(tmp_path, {"vllm/a.py": "import surely_not_installed"}))
        with modules.active(), pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
            importlib.import_module("vllm.a")
