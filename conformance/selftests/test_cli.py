"""The command: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance import matrix, modelfile, store
from aiter_conformance.axes import spec_dir
from aiter_conformance.cli import doctor
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.release.samples import sample_files, write_tree, write_wheel

# What `invoke` of conftest.py gives has code, out and err.
Invoke = Callable[..., Any]

# The level contract has tests of its own and takes long: most commands here do without it.
QUICK = ("--level", "declared", "--level", "inventory")
BUILD = ("matrix", "build", *QUICK)
PUBLISH = ("matrix", "publish", *QUICK)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A small good release."""
    return write_wheel(tmp_path, sample_files())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An empty checkout of this project."""
    root = tmp_path / "checkout"
    shutil.copytree(spec_dir(), root / "matrices" / "spec")
    return root


def files(folder: Path) -> set[str]:
    """Return every file below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


class TestExitCodes:
    """Exit codes and messages of what goes wrong."""

    def test_unknown_command_is_usage(self, invoke: Invoke) -> None:
        """Exit code 2."""
        assert invoke("matrix", "shw").code == 2

    def test_missing_release_is_usage(self, invoke: Invoke, tmp_path: Path) -> None:
        """A path where nothing is: code 2 and one sentence."""
        result = invoke("release", "show", tmp_path / "nothing.whl")
        assert result.code == 2
        assert result.err.startswith("error: a release must be")
        assert result.out == ""

    def test_truncated_wheel_is_infrastructure(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """Half a wheel: code 3, one sentence, and nothing written."""
        wheel.write_bytes(wheel.read_bytes()[:1000])
        result = invoke(*BUILD, wheel, "--root", tmp_path / "out")
        assert result.code == 3
        assert result.err.startswith("error: ")
        assert not (tmp_path / "out").exists()

    def test_a_fault_of_the_harness_is_not_a_finding(
        self, invoke: Invoke, wheel: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An exception that nobody foresaw is code 3, never 1."""

        def broken(*_arguments: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("aiter_conformance.cli.release.read_api", broken)
        result = invoke("release", "show", wheel)
        assert result.code == 3
        assert "fault of aiter-conformance" in result.err


class TestReleaseShow:
    """``release show``."""

    def test_good_release(self, invoke: Invoke, wheel: Path) -> None:
        """Version, interface and kernels; code 0."""
        result = invoke("release", "show", wheel)
        assert result.code == 0
        for words in ("AITER 0.1.99 (wheel)", "fused_moe (22 parameters)", "Silu = 0", "no findings"):
            assert words in result.out

    def test_json(self, invoke: Invoke, wheel: Path) -> None:
        """The same as one JSON document."""
        document = json.loads(invoke("release", "show", wheel, "--json").out)
        assert document["version"] == "0.1.99"
        assert document["inventory"] | {"objects": None} == {
            "manifests": 4,
            "rows": 4,
            "sound_rows": 4,
            "objects": None,
        }

    def test_faulty_release(self, invoke: Invoke, tmp_path: Path) -> None:
        """A row without its file is listed, and code 1."""
        damaged = sample_files()
        del damaged["hsa/gfx942/fmoe/silu/one.co"]
        result = invoke("release", "show", write_tree(tmp_path / "tree", damaged))
        assert result.code == 1
        assert "missing-object" in result.out


class TestReleaseFacts:
    """``release facts``."""

    def test_one_release(self, invoke: Invoke, wheel: Path) -> None:
        """Its facts by name: signature, enums, anchors, tuned rows."""
        result = invoke("release", "facts", wheel, "--json")
        document = json.loads(result.out)
        assert document["versions"] == ["0.1.99"]
        assert document["facts"]["ActivationType.Silu"] == ["0"]
        assert document["changes"] == []

    def test_what_changed_between_two(self, invoke: Invoke, tmp_path: Path) -> None:
        """A parameter that is gone is named with the release since which it is; order does not matter."""
        older = write_wheel(tmp_path, sample_files("0.1.98"), "0.1.98")
        files = sample_files("0.1.99")
        files["aiter/fused_moe.py"] = files["aiter/fused_moe.py"].replace(b"bias2=None, ", b"")
        newer = write_wheel(tmp_path, files, "0.1.99")
        result = invoke("release", "facts", newer, older)
        assert result.code == 0
        line = next(line for line in result.out.splitlines() if "fused_moe(bias2)" in line)
        assert line.split()[:3] == ["0.1.99", "fused_moe(bias2)", "disappeared"]


class TestLedger:
    """``ledger list`` and ``ledger check``."""

    def test_list(self, invoke: Invoke) -> None:
        """Every entry with its releases and where it is reported."""
        entries = json.loads(invoke("ledger", "list", "--json").out)
        assert {"block-fp8-split-k-single-tile", "tuned-lookup-by-enum"} <= {entry["id"] for entry in entries}

    def test_show(self, invoke: Invoke) -> None:
        """One entry in words, with its cells and where it is reported; the same as JSON."""
        result = invoke("ledger", "show", "block-fp8-split-k-single-tile")
        assert result.code == 0
        assert result.out.startswith("block-fp8-split-k-single-tile: ")
        assert "  reported: ROCm/aiter#3997" in result.out
        entries = json.loads(invoke("ledger", "list", "--json").out)
        by_id = {entry["id"]: entry for entry in entries}
        assert (
            json.loads(invoke("ledger", "show", "tuned-lookup-by-enum", "--json").out)
            == (by_id["tuned-lookup-by-enum"])
        )

    def test_show_of_one_that_there_is_not(self, invoke: Invoke) -> None:
        """Code 2, and what may have been meant."""
        result = invoke("ledger", "show", "split-k")
        assert (result.code, result.out) == (2, "")
        assert "did you mean block-fp8-split-k-single-tile" in result.err

    def test_who_was_not_told(self, invoke: Invoke) -> None:
        """What upstream does not know is said in words."""
        assert "not reported upstream" in invoke("ledger", "list").out
        assert " unreported" not in invoke("ledger", "list").out

    def test_an_entry_that_explains_nothing_is_a_fault(
        self, invoke: Invoke, wheel: Path, checkout: Path
    ) -> None:
        """With evidence of a sound release alone no entry matches: code 1, and each is named."""
        invoke(*PUBLISH, wheel, "--root", checkout)
        result = invoke("ledger", "check", "--root", checkout, "--json")
        assert result.code == 1
        assert {fault["kind"] for fault in json.loads(result.out)["faults"]} == {"unmatched"}

    def test_what_is_wrong_comes_with_advice(self, invoke: Invoke, wheel: Path, checkout: Path) -> None:
        """A fault says what to do; entries about releases that nobody looked at are named, and no faults."""
        invoke(*PUBLISH, wheel, "--root", checkout)
        lines = invoke("ledger", "check", "--root", checkout).out.splitlines()
        heads = [number for number, line in enumerate(lines) if re.fullmatch(r"  [a-z0-9-]+:", line)]
        faulty = {lines[number].strip(" :") for number in heads}
        kinds = [(lines[n + 1].split(":")[0], lines[n + 2].endswith("mend what it matches.")) for n in heads]
        assert len(faulty) == len(heads) > 0
        assert set(kinds) == {("    unmatched", True)}
        (unseen,) = [line for line in lines if line.startswith("NOT LOOKED AT")]
        assert "tuned-keys-twice" in unseen
        assert "tuned-keys-twice" not in faulty


class TestMatrixBuildAndShow:
    """``matrix build`` and ``matrix show``."""

    def test_build_writes_below_build_only(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """Evidence for each level and arch, matrix and page, and nothing else."""
        root = tmp_path / "root"
        assert invoke(*BUILD, wheel, "--root", root).code == 0
        archs = ("gfx942", "gfx950", "gfx1250")
        expected = {f"build/reports/0.1.99/inventory-{arch}.json" for arch in archs}
        expected |= {f"build/matrices/published/0.1.99/{name}" for name in ("matrix.json", "README.md")}
        found = files(root)
        declared = found - expected
        assert found >= expected
        assert {Path(path).name for path in declared} == {f"declared-{arch}.json" for arch in archs}

    def test_build_names_what_to_look_at(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """The version that was built, and the page that names the findings, if there are any."""
        result = invoke(*BUILD, wheel, "--root", tmp_path)
        assert "0 findings in the release itself.\n" in result.out
        assert "Look closer: aiter-conformance matrix show 0.1.99 --arch " in result.out
        files = sample_files()
        del files["hsa/gfx942/fmoe/silu/one.co"]
        faulty = write_tree(tmp_path / "tree", files)
        result = invoke(*BUILD, faulty, "--root", tmp_path)
        found = re.search(r"(\d+) findings? in the release itself, \1 of them new: see (.*)", result.out)
        assert found is not None
        page = Path(found[2])
        assert page == tmp_path / "build/matrices/published/0.1.99/README.md"
        assert "| missing-object | hsa/gfx942/" in page.read_text(encoding="utf-8")

    def test_build_json_counts_every_cell(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """Each arch has 8 x 12 x 2 cells."""
        document = json.loads(invoke(*BUILD, wheel, "--root", tmp_path, "--json").out)
        assert {arch: sum(counts.values()) for arch, counts in document["cells"].items()} == {
            "gfx942": 192,
            "gfx950": 192,
            "gfx1250": 192,
        }

    def test_show_chooses_cells(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """The options choose; a conflict is code 1, and --json has the same cells."""
        invoke(*BUILD, wheel, "--root", tmp_path)
        options = ("--root", tmp_path, "--arch", "gfx950", "--scheme", "bf16", "--activation", "situ")
        result = invoke("matrix", "show", *options)
        assert result.code == 1
        assert result.err.startswith("findings: 2 cells are in conflict: the leaf accepts, ")
        assert "Situv2" in result.out
        document = json.loads(invoke("matrix", "show", *options, "--json").out)
        assert [state["cell"] for state in document["cells"]] == [
            "gfx950/bf16/situ/out",
            "gfx950/bf16/situ/in",
        ]
        assert {state["verdict"] for state in document["cells"]} == {"conflict"}

    def test_show_without_conflict_is_good(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """A refusal with a reason is no conflict: code 0."""
        invoke(*BUILD, wheel, "--root", tmp_path)
        result = invoke("matrix", "show", "0.1.99", "--root", tmp_path, "--verdict", "unsupported")
        assert result.code == 0
        assert {"unsupported", "conflict"} & set(result.out.split()) == {"unsupported"}

    def test_show_is_short(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """Verdict, first sentence and ledger; the rest is for explain, as the last line says."""
        invoke(*BUILD, wheel, "--root", tmp_path)
        result = invoke(
            "matrix", "show", "v0.1.99", "--root", tmp_path, "--arch", "gfx950", "--scheme", "bf16"
        )
        lines = result.out.splitlines()
        assert "(from build/matrices/published/0.1.99)" in lines[0]
        assert re.split(r"  +", lines[2])[-3:] == ["verdict", "why", "ledger"]
        assert lines[-1].endswith("aiter-conformance matrix explain CELL [VERSION]")

    def test_show_cannot_require_of_nothing(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """No cell is left that could be too weak: code 2, never a pass."""
        invoke(*BUILD, wheel, "--root", tmp_path)
        options = ("--root", tmp_path, "--verdict", "validated")
        assert invoke("matrix", "show", *options).code == 0
        result = invoke("matrix", "show", *options, "--require", "declared")
        assert (result.code, result.out) == (2, "")
        assert "--require declared must be asked of a cell" in result.err

    @pytest.mark.parametrize("command", ["show", "explain", "query", "check", "publish"])
    def test_without_a_checkout(self, invoke: Invoke, tmp_path: Path, command: str) -> None:
        """Where nothing was built, every command says the same."""
        more = {
            "explain": ["gfx950/bf16/silu/out"],
            "query": ["--model", "grok-2", "--board", "gfx950"],
        }.get(command, [])
        result = invoke("matrix", command, *more, "--root", tmp_path)
        assert result.code == 2
        assert result.err.startswith("error: --root must be a checkout of this project (no matrices/spec in ")
        assert "`aiter-conformance matrix build RELEASE` needs none" in result.err

    @pytest.mark.parametrize(("required", "code"), [("declared", 0), ("modelled", 1)])
    def test_show_can_require_a_verdict(
        self, invoke: Invoke, wheel: Path, tmp_path: Path, required: str, code: int
    ) -> None:
        """A cell that is weaker than what is required is code 1: declared is not modelled."""
        options = b'p.add_argument("--activation", choices=["silu"])\n'
        generator = {"csrc/ck_gemm_moe_2stages_codegen/gen_instances.py": options}
        write_wheel(tmp_path, sample_files() | generator)
        invoke(*BUILD, wheel, "--root", tmp_path)
        cell = ("--arch", "gfx950", "--scheme", "bf16", "--activation", "silu")
        result = invoke("matrix", "show", "--root", tmp_path, *cell, "--require", required)
        said = "findings: 2 of 2 cells are less than --require modelled asks for (declared)\n"
        assert (result.code, result.err) == (code, said if code else "")

    def test_show_before_build_is_usage(self, invoke: Invoke, tmp_path: Path) -> None:
        """Nothing to show: the message says what to run."""
        result = invoke("matrix", "show", "--root", tmp_path)
        assert (result.code, "matrix build" in result.err) == (2, True)

    def test_show_names_the_versions_that_there_are(
        self, invoke: Invoke, wheel: Path, tmp_path: Path
    ) -> None:
        """A version that is not there: the message lists those that are."""
        invoke(*BUILD, wheel, "--root", tmp_path)
        result = invoke("matrix", "show", "0.2.0", "--root", tmp_path)
        assert result.code == 2
        assert "VERSION must be one of 0.1.99 (got '0.2.0')" in result.err


class TestPublishAndCheck:
    """``matrix publish`` and ``matrix check``."""

    def test_what_is_published_can_be_rebuilt(self, invoke: Invoke, wheel: Path, checkout: Path) -> None:
        """Publishing and checking agree; the evidence is in reports/."""
        assert invoke(*PUBLISH, wheel, "--root", checkout).code == 0
        assert (checkout / "reports" / "0.1.99" / "inventory-gfx950.json").is_file()
        result = invoke("matrix", "check", "--root", checkout)
        assert result.code == 0
        assert result.out.count("same") == 3

    @pytest.mark.parametrize("name", ["matrix.json", "README.md"])
    def test_an_edited_file_is_seen(self, invoke: Invoke, wheel: Path, checkout: Path, name: str) -> None:
        """One changed word in a published file: code 1, and the line is shown."""
        invoke(*PUBLISH, wheel, "--root", checkout)
        path = checkout / "matrices" / "published" / "0.1.99" / name
        path.write_text(path.read_text(encoding="utf-8").replace("conflict", "declared", 1), encoding="utf-8")
        result = invoke("matrix", "check", "--root", checkout)
        assert result.code == 1
        assert f"DIFFERENT matrices/published/0.1.99/{name}" in result.out
        assert "line " in result.out

    def test_edited_evidence_is_seen(self, invoke: Invoke, wheel: Path, checkout: Path) -> None:
        """Evidence that no longer gives the published verdicts: code 1."""
        invoke(*PUBLISH, wheel, "--root", checkout)
        path = checkout / "reports" / "0.1.99" / "inventory-gfx950.json"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("2026", "2025").replace('"fail"', '"crash"', 1), encoding="utf-8")
        assert invoke("matrix", "check", "--root", checkout).code == 1

    def test_publish_without_release_rebuilds(self, invoke: Invoke, wheel: Path, checkout: Path) -> None:
        """An edited page is made again from the evidence, and nothing is observed."""
        invoke(*PUBLISH, wheel, "--root", checkout)
        wheel.unlink()
        path = checkout / "matrices" / "published" / "0.1.99" / "README.md"
        published = path.read_bytes()
        path.write_text("edited", encoding="utf-8")
        assert invoke("matrix", "publish", "--root", checkout).code == 0
        assert path.read_bytes() == published

    def test_nothing_published_is_not_run(self, invoke: Invoke, checkout: Path) -> None:
        """A check of nothing is code 3 and says NOT RUN."""
        result = invoke("matrix", "check", "--root", checkout)
        assert (result.code, "NOT RUN" in result.err) == (3, True)

    def test_outside_a_checkout_is_usage(self, invoke: Invoke, wheel: Path, tmp_path: Path) -> None:
        """Nothing is published into a folder that is no checkout."""
        result = invoke(*PUBLISH, wheel, "--root", tmp_path)
        assert result.code == 2
        assert "must be a checkout" in result.err


class TestTraceRun:
    """``trace run``."""

    def test_without_what_the_tracer_needs(
        self, invoke: Invoke, wheel: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Code 3, what is missing, and which extra brings it."""
        there = doctor.importlib.util.find_spec
        monkeypatch.setattr(
            "aiter_conformance.runner.importlib.util.find_spec",
            lambda name: None if name in ("torch", "einops") else there("json"),
        )
        result = invoke("trace", "run", wheel)
        assert (result.code, result.out) == (3, "")
        assert "trace: NOT RUN, it needs torch, einops; in a checkout: " in result.err
        assert "python -m pip install '.[cpu,trace]'" in result.err


class TestQuery:
    """``matrix query``."""

    @pytest.mark.parametrize(("good", "code"), [(("gpt-oss-120b",), 0), ((), 1)])
    def test_it_names_model_and_board(
        self, invoke: Invoke, checkout: Path, good: tuple[str, ...], code: int
    ) -> None:
        """Both are in what is printed, the board with its CUs; nothing that is good is code 1."""
        line = modelfile.Line("gpt-oss-120b", "mxfp4-w4a16", "TP 1", "yes", "0/4", "ck", "-")
        release = ReleaseId("0.1.99", "sha256:" + "0" * 64, "git")
        made = modelfile.ModelFile(release, "gfx950:256", "2026-01-01", "0.1.0", good, (line,))
        modelfile.write(made, checkout / "reports")
        asked = ("matrix", "query", "--model", "gpt-oss-120b", "--board", "gfx950", "--root", checkout)
        best = "0.1.99" if good else "none of 1 traced releases"
        assert invoke(*asked, "--best")[:2] == (code, f"{best} runs gpt-oss-120b on gfx950:256\n")
        assert invoke(*asked).out.splitlines()[0] == "gpt-oss-120b on gfx950:256:"

    def test_nearest_names(self, invoke: Invoke, checkout: Path) -> None:
        """A name that is half right: code 2, and those that it may be."""
        result = invoke("matrix", "query", "--model", "gpt-oss", "--board", "gfx950", "--root", checkout)
        assert result.code == 2
        assert result.err.endswith("(got 'gpt-oss'); did you mean gpt-oss-20b, gpt-oss-120b?\n")


class TestWriteMatrix:
    """`store.write_matrix`."""

    def test_what_breaks_the_schema_is_not_written(
        self, invoke: Invoke, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A matrix that nobody could read back: code 3, and neither it nor its page is there."""
        real = store.matrixfile.to_json
        monkeypatch.setattr(store.matrixfile, "to_json", lambda built: real(built).replace("conflict", "odd"))
        result = invoke(*BUILD, wheel, "--root", tmp_path)
        assert result.code == 3
        assert "the matrix must obey the schema 'matrix'" in result.err
        assert not (tmp_path / "build" / "matrices").exists()


class TestFindMatrix:
    """`store.find_matrix`."""

    def test_the_newest_release_is_chosen(self, tmp_path: Path, invoke: Invoke) -> None:
        """By version, not by name: 0.1.20.post1 is newer than 0.1.20 and 0.1.9; main is newest."""
        versions = ["0.1.9", "0.1.20", "0.1.20.post1"]
        for version in versions:
            folder = tmp_path / version
            folder.mkdir()
            invoke(*BUILD, write_wheel(folder, sample_files(version), version), "--root", tmp_path)
        found, _ = store.find_matrix(tmp_path, None)
        assert isinstance(found, matrix.Matrix)
        assert found.release.version == "0.1.20.post1"


class TestDoctor:
    """``doctor``."""

    def test_json_lists_what_was_looked_at(self, invoke: Invoke) -> None:
        """Harness, torch, GPU, AITER, switches and subjects, each with a state."""
        checks = json.loads(invoke("doctor", "--json").out)
        names = [check["name"] for check in checks]
        assert names[:4] == ["harness", "torch", "GPU", "AITER"]
        assert names[4:7] == ["level trace", "level reference", "level isa"]
        assert {"subject impl", "subject vllm", "VLLM_ROCM_USE_AITER"} <= set(names)

    @pytest.mark.parametrize(
        ("package", "absent", "extras"),
        [
            ("torch", ["trace", "reference", "isa"], "cpu"),
            ("pandas", ["trace", "isa"], "trace"),
            ("rocm", ["isa"], "isa"),
        ],
    )
    def test_what_levels_need(
        self, monkeypatch: pytest.MonkeyPatch, package: str, absent: list[str], extras: str
    ) -> None:
        """Without a package, the levels that need it are absent, and the extra that brings it is named."""
        there = doctor.importlib.util.find_spec
        found = {"pandas", "einops", "psutil", "pybind11", "numba", "rocm", "torch"} - {package}
        monkeypatch.setattr(
            "aiter_conformance.runner.importlib.util.find_spec",
            lambda name: object() if name in found else None if name == package else there(name),
        )
        monkeypatch.setattr(doctor, "_torch", lambda: doctor.Check("torch", "good", ""))
        monkeypatch.setattr(doctor, "_gpu", lambda: doctor.Check("GPU", "absent", ""))
        rows = {c.name: c for c in doctor.examine() if c.name.startswith("level ")}
        assert [name for name, c in rows.items() if c.state == "absent"] == [f"level {n}" for n in absent]
        assert all(f"'.[{extras}]'" in rows[f"level {name}"].message for name in absent)

    def test_the_other_aiter_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyPI's aiter in place of AMD's would be tested in silence: code 1."""
        versions = {"aiter": "0.13.20191203"}
        monkeypatch.setattr(doctor, "_version", versions.get)
        monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _name: object())
        check = doctor._aiter()
        assert check.state == "problem"
        assert "amd-aiter" in check.message

    def test_amd_s_aiter_is_good(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The distribution that AMD publishes is what is wanted."""
        monkeypatch.setattr(doctor, "_version", {"amd-aiter": "0.1.20"}.get)
        assert doctor._aiter() == doctor.Check("AITER", "good", "amd-aiter 0.1.20")
