"""Every reader on damaged input: never a crash, a hang or a write, and no wrong fact without a finding.

What a reader says of a damaged file is held against an independent reading of the same bytes. The hypothesis
profile decides how many inputs each reader gets: 25 in ``dev``, 100 in ``ci``, 5000 in ``nightly``.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from aiter_conformance import documents, evidence, factfile, matrix, matrixfile, modelfile
from aiter_conformance.axes import Cell, spec_dir
from aiter_conformance.errors import HarnessError
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release import open_release, read_facts, read_tuned, take_inventory
from aiter_conformance.release.codeobject import CodeObjectError, parse_code_object
from aiter_conformance.release.cpp_enums import parse_enums
from aiter_conformance.release.inventory import parse_manifest
from aiter_conformance.release.kernel_names import read_kernel_name
from aiter_conformance.release.mutations import mutated
from aiter_conformance.release.samples import (
    VERSION,
    SampleFiles,
    code_object,
    sample_files,
    sample_release,
    wheel_path,
)
from aiter_conformance.release.tuned_rows import parse_tuned
from aiter_conformance.release.version import metadata_version

Guard = Callable[[], AbstractContextManager[None]]
slow = settings(suppress_health_check=[HealthCheck.too_slow])
# Readers of whole artefacts get a fifth of the inputs: 1000 in nightly.
fewer = settings(slow, max_examples=max(5, settings.default.max_examples // 5))

SAMPLE = sample_files()
OBJECT = code_object("gfx942", ["_ZN5aiter4aaaaE", "_ZN5aiter4bbbbE"])
MANIFEST = "hsa/gfx942/fmoe/silu/fmoe_silu.csv"
MANIFESTS = (
    SAMPLE[MANIFEST],
    b"\xef\xbb\xbf// SPDX\n\n" + SAMPLE[MANIFEST] + SAMPLE[MANIFEST],
    SAMPLE["hsa/gfx942/fmoe_2stages/stage1.csv"].replace(b"\n", b"\r\n"),
)
TABLE = "aiter/configs/tuned_fmoe.csv"
TUNED = (
    b"gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    b"doweight_stage1,block_m,kernelName1,kernelName2,run_1stage,_tag\n"
    b"gfx942,80,64,4096,384,128,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
    b"QuantType.No,1,0,32,,moe_ck2stages_gemm2_256x32_1x4_TypeCast_v1_Quant0_MulRoutedWeight1_B16_B16_B16,0,\n"
)
KERNEL_NAMES = (
    b"flydsl_moe1_abf16_wfp4_bf16_t32x32x256_w3_xcd1_kw2",
    b"_ZN5aiter44fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x64E",
    b"moe_ck2stages_gemm1_256x32_1x4_MulABScale_v1_Quant2_MulRoutedWeight0_silu_F8_F8_B16",
)
SOURCES = (
    "aiter/fused_moe.py",
    "aiter/ops/flydsl/moe_common.py",
    "aiter/jit/utils/chip_info.py",
    "csrc/include/aiter_enum.h",
)
RECORD = evidence.to_json(
    evidence.Evidence(
        level=evidence.Level.INVENTORY,
        board="gfx942",
        subject=None,
        release=evidence.ReleaseId(VERSION, "sha256:" + "0" * 64, "wheel"),
        observed="2026-08-22",
        harness="0.1.0",
        environment={},
        outcomes={
            Cell("gfx942", "bf16", "silu", "out"): Outcome(Kind.PASS),
            Cell("gfx942", "bf16", "gelu", "in"): Outcome(Kind.FAIL, Reason.NO_KERNEL, "There is no kernel."),
        },
        findings=(evidence.Finding("missing-object", "hsa/x.csv:3", "It is not there."),),
    )
).encode()
FACTS = documents.render(
    {
        "schema": factfile.SCHEMA,
        "release": {"version": VERSION, "identity": "sha256:" + "0" * 64, "kind": "wheel"},
        "observed": "2026-08-22",
        "harness": "0.1.0",
        "facts": [{"fact": "fused_moe", "text": "24 parameters"}, {"fact": "flydsl", "text": "==0.3.1"}],
    }
).encode()
_LINE = modelfile.Line("mixtral-8x7b", "bf16", "TP 1", "yes", "no", "ck", "-")
MODELS = documents.render(
    {
        "schema": modelfile.SCHEMA,
        "release": {"version": VERSION, "identity": "sha256:" + "0" * 64, "kind": "wheel"},
        "board": "gfx942:80",
        "observed": "2026-08-22",
        "harness": "0.1.0",
        "good": ["mixtral-8x7b"],
        "lines": [asdict(_LINE)],
    }
).encode()
MATRIX = matrixfile.to_json(
    matrix.build(
        [evidence.Loaded(evidence.from_json(RECORD.decode(), "the record"), "a.json", "sha256:" + "0" * 64)],
        VERSION,
        "impl@0.1.0",
        (),
    )
).encode()
LEDGER = (spec_dir() / "ledger.toml").read_bytes()
FAMILIES = re.compile(
    r"_ZN5aiter\d+fmoe|moe_ck2stages_gemm|flydsl_|opus_moe|cktile_|swiglu_mxfp4|grouped_gemm"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of this module's own."""
    return tmp_path_factory.mktemp("fuzz")


def _stored_wheel() -> bytes:
    """Return the sample as a wheel without compression, so that damage reaches every part of the format."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in SAMPLE.items():
            archive.writestr(wheel_path(path), content)
    return buffer.getvalue()


WHEEL = _stored_wheel()


class TestArtefacts:
    """Damaged wheels and trees."""

    @fewer
    @given(data=mutated(WHEEL))
    def test_a_wheel(self, guarded: Guard, folder: Path, data: bytes) -> None:
        """What comes out of a damaged wheel is what went in, or there is an error that says so."""
        path = folder / f"amd_aiter-{VERSION}-py3-none-any.whl"
        path.write_bytes(data)
        with guarded(), contextlib.suppress(HarnessError), open_release(str(path)) as release:
            assert release.version == VERSION
            for name in sorted(SAMPLE.keys() & set(release.files.paths)):
                with contextlib.suppress(HarnessError):
                    assert release.files.read(name) == SAMPLE[name]
            take_inventory(release)

    @fewer
    @given(path=st.sampled_from(SOURCES), data=st.data())
    def test_a_source(self, guarded: Guard, path: str, data: st.DataObject) -> None:
        """Damaged sources give facts, absences and findings, whatever is in them."""
        release = sample_release(SAMPLE | {path: data.draw(mutated(SAMPLE[path]))})
        with guarded():
            facts = read_facts(release, ("gfx942",))
        for name in ("fused_moe", "asm_moe_tkw1", "activation_type", "quant_type", "gate_mode", "archs"):
            assert (getattr(facts.api, name) is None) == (name in facts.api.absent)

    @slow
    @given(data=mutated(SAMPLE["PKG-INFO"]))
    def test_metadata(self, guarded: Guard, data: bytes) -> None:
        """Damaged metadata gives the version that stands in it, or an error."""
        with guarded(), contextlib.suppress(HarnessError):
            version = metadata_version(SampleFiles({"PKG-INFO": data}))
            assert version is not None
            lines = re.split(r"\r\n|\r|\n", data.decode("utf-8", "replace"))
            said = next(line for line in lines if line.lower().startswith("version:"))
            assert Version(version) == Version(said.partition(":")[2])


class TestTables:
    """Damaged CSV."""

    @given(data=mutated(*MANIFESTS))
    def test_a_manifest(self, guarded: Guard, data: bytes) -> None:
        """Each row that a manifest gives stands in the line that it names, cell by cell."""
        with guarded():
            manifest, _ = parse_manifest(MANIFEST, data)
        lines = data.decode("utf-8-sig", "replace").split("\n")
        for row in manifest.rows:
            line = lines[row.line - 1]
            assert row.kernel in line
            assert row.object_path.rpartition("/")[2] in line
            assert all(value in line and value.lstrip("+-").isdecimal() for value in row.tile.values())

    @given(data=mutated(TUNED))
    def test_a_tuned_table(self, guarded: Guard, data: bytes) -> None:
        """Each tuned row is made of the cells of the line that it names."""
        with guarded():
            rows, _ = parse_tuned(TABLE, data)
        lines = data.decode("utf-8-sig", "replace").split("\n")
        for row in rows:
            line = lines[row.line - 1]
            numbers = (row.key.cu_num, row.key.token, row.key.model_dim, row.key.inter_dim, row.key.expert)
            assert all(str(number) in line for number in numbers)
            assert all(text in line for text in (row.key.act_type, row.key.q_type, *row.kernels))

    @fewer
    @given(data=mutated(TUNED))
    def test_checks_of_a_tuned_table(self, guarded: Guard, data: bytes) -> None:
        """A row that no finding is about has an arch that exists and kernels of known families."""
        with guarded():
            tables = read_tuned(sample_release(SAMPLE | {TABLE: data}))
        for row in tables.rows:
            if row.sound:
                assert row.key.gfx in {"gfx942", "gfx950", "gfx1250"}
                assert all(not kernel or FAMILIES.match(kernel) for kernel in row.kernels)
                assert not re.search("gemm2|moe2|_g2_", row.kernels[0])
                assert not re.search("gemm1|moe1|_g1_", row.kernels[1])

    @given(data=mutated(*KERNEL_NAMES))
    def test_a_kernel_name(self, guarded: Guard, data: bytes) -> None:
        """A name that is understood says so itself: what is claimed stands in the name."""
        name = data.decode("utf-8", "replace")
        with guarded():
            claim = read_kernel_name(name)
        if claim is not None and claim.activation is not None:
            assert claim.activation.lower() in name


class TestCodeObjects:
    """Damaged ELF and MessagePack."""

    @given(data=mutated(OBJECT))
    def test_symbols(self, guarded: Guard, data: bytes) -> None:
        """What is read of a damaged object is what pyelftools reads of it, if that reads it at all."""
        with guarded(), contextlib.suppress(CodeObjectError):
            found = parse_code_object(data)
            try:
                elf = ELFFile(io.BytesIO(data))
                tables = [section for section in elf.iter_sections() if section["sh_type"] == "SHT_DYNSYM"]
                expected = {
                    symbol.name
                    for table in tables
                    for symbol in table.iter_symbols()
                    if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
                }
            except Exception:  # pyelftools raises all sorts of things on damaged files
                return
            assert found.flags == elf["e_flags"]
            assert {name for name in found.symbols if name.isascii()} == {n for n in expected if n.isascii()}


class TestText:
    """Damaged C++, JSON and TOML."""

    @given(data=mutated(SAMPLE["csrc/include/aiter_enum.h"]))
    def test_enums(self, guarded: Guard, data: bytes) -> None:
        """Members of an enumeration that is understood stand in the text, and have distinct names."""
        text = data.decode("utf-8", "replace")
        with guarded():
            enums, _ = parse_enums(text)
        for enum in enums.values():
            assert enum.name in text
            assert all(member in text for member in enum.members)

    @slow
    @given(data=mutated(RECORD))
    def test_evidence(self, guarded: Guard, data: bytes) -> None:
        """A damaged record of evidence is refused, or it says what its bytes say."""
        text = data.decode("utf-8", "replace")
        with guarded(), contextlib.suppress(HarnessError):
            record = evidence.from_json(text, "a record")
            expected = json.loads(text)
            assert {str(cell): str(outcome.kind) for cell, outcome in record.outcomes.items()} == {
                item["cell"]: item["outcome"] for item in expected["cells"]
            }
            assert record.release is not None
            assert record.release.identity == expected["release"]["identity"]

    @slow
    @given(data=mutated(LEDGER))
    def test_the_ledger(self, guarded: Guard, data: bytes) -> None:
        """A damaged ledger is refused, or its entries are those that TOML gives, each of them whole."""
        text = data.decode("utf-8", "replace")
        with guarded(), contextlib.suppress(HarnessError):
            entries = parse_ledger(text)
            expected = tomllib.loads(text).get("entry", [])
            assert [entry.id for entry in entries] == [item["id"] for item in expected]
            assert [(list(entry.cells), list(entry.paths), entry.about) for entry in entries] == [
                (item.get("cells", []), item.get("paths", []), item.get("about", "")) for item in expected
            ]

    @slow
    @given(data=mutated(FACTS))
    def test_facts(self, guarded: Guard, folder: Path, data: bytes) -> None:
        """A damaged record of facts is refused, or it says what its bytes say."""
        file = folder / "reports" / VERSION / factfile.NAME
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        with guarded(), contextlib.suppress(HarnessError):
            (record,) = factfile.load(folder / "reports")
            expected = json.loads(data.decode("utf-8"))
            assert record.release.version == VERSION
            assert record.facts == {item["fact"]: item["text"] for item in expected["facts"]}

    @slow
    @given(data=mutated(MODELS))
    def test_models(self, guarded: Guard, folder: Path, data: bytes) -> None:
        """A damaged record of traced models is refused, or it says what its bytes say."""
        file = folder / "traced" / VERSION / "models-gfx942-80.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        with guarded(), contextlib.suppress(HarnessError):
            (record,) = modelfile.load(folder / "traced")
            expected = json.loads(data.decode("utf-8"))
            assert record.board == "gfx942:80"
            assert [asdict(line) for line in record.lines] == expected["lines"]

    @fewer
    @given(data=mutated(MATRIX))
    def test_a_matrix(self, guarded: Guard, data: bytes) -> None:
        """A damaged matrix is refused, or its cells are those that its bytes have."""
        text = data.decode("utf-8", "replace")
        with guarded(), contextlib.suppress(HarnessError):
            found = matrixfile.from_json(text, "a matrix")
            expected = json.loads(text)
            assert {str(cell): state.verdict.value for cell, state in found.cells.items()} == {
                item["cell"]: item["verdict"] for item in expected["cells"]
            }
