"""What every AITER release since 0.1.7 is known to be, against a clone of its repository.

Set AITER_GIT_DIR to a clone of ROCm/aiter that has the tags (``nox -s releases -- DIR`` does); without it
nothing here runs. The expectations come from the sources by other ways than the reader: git ls-tree, grep,
awk and the eye.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.version import Version

from aiter_conformance.ledger import Observation, explains, judge, not_looked_at
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.release import (
    AnchorStatus,
    Finding,
    FindingCode,
    ObjectCount,
    ReleaseFacts,
    open_release,
    read_facts,
    read_tuned,
    take_inventory,
)
from aiter_conformance.release.git_files import tag_version

OLDEST = Version("0.1.7")
MAIN = "e4048607a535ace3a2b51ded31b1c8c2d45c0879"
MAIN_VERSION = "main-20260822-e4048607"
# Cut from another branch, and in no one's way: it has features that 0.1.17 has not.
ASIDE = frozenset({"v0.1.17-longctx"})

# Parameters of fused_moe: those of the oldest release, and what each later one put in, after which other one.
OLDEST_PARAMETERS = [
    "hidden_states", "w1", "w2", "topk_weight", "topk_ids", "expert_mask", "activation", "quant_type",
    "doweight_stage1", "w1_scale", "w2_scale", "a1_scale", "a2_scale", "block_size_M", "num_local_tokens",
    "moe_sorting_dispatch_policy", "dtype", "hidden_pad", "intermediate_pad", "bias1", "bias2",
]  # fmt: skip
INSERTED = [
    ("0.1.9", "bias2", ["splitk"]),
    ("0.1.14rc0", "splitk", ["swiglu_limit", "gate_mode"]),
    ("0.1.19", "swiglu_limit", ["beta", "linear_beta"]),
    (
        "0.1.19.post1",
        "gate_mode",
        ["shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale", "shared_expert_id"],
    ),
    (MAIN_VERSION, "shared_expert_id", ["stage2_scatter"]),
]
PARAMETER_COUNTS = {
    "0.1.7": 21,
    "0.1.9": 22,
    "0.1.14": 24,
    "0.1.18": 24,
    "0.1.19": 26,
    "0.1.19.post1": 31,
    "0.1.20.post1": 31,
    MAIN_VERSION: 32,
}
TKW1_PARAMETERS = (
    "hidden_states", "w1", "w2", "topk_weight", "topk_ids", "fc1_scale", "fc2_scale", "fc1_smooth_scale",
    "fc2_smooth_scale", "a16", "per_tensor_quant_scale", "expert_mask", "activation",
)  # fmt: skip
ACTIVATIONS = {"No": -1, "Silu": 0, "Gelu": 1, "Swiglu": 2}
QUANTS = {"No": 0, "per_Tensor": 1, "per_Token": 2, "per_1x32": 3, "per_1x128": 4, "per_128x128": 5}
GATE_MODES = frozenset({"separated", "mock_gate_only", "gate_only", "interleave"})
FLYDSL = {
    "0.1.10": None,
    "0.1.14": "==0.1.7",
    "0.1.16": "==0.2.0",
    "0.1.17": "==0.2.2",
    "0.1.18": "==0.2.4",
    "0.1.19": "==0.2.4",
    "0.1.19.post1": "==0.3.0",
    "0.1.20": "==0.3.1",
    "0.1.20.post1": "==0.3.1",
    MAIN_VERSION: "==0.3.1",
}
# (anchor, status, first release, first release of another status or None), within which every release has it.
ANCHORS = [
    ("ck-tile-stage1-intermediate-pad", "holds", "0.1.7", None),
    ("flydsl-stage1-pad-doubled", "holds", "0.1.13", None),
    ("flydsl-stage2-pad-undoubled", "holds", "0.1.11", None),
    ("activation-type-values", "holds", "0.1.7", None),
    ("quant-type-values", "holds", "0.1.7", None),
    ("gate-mode-values", "absent", "0.1.7", "0.1.14rc0"),
    ("gate-mode-values", "holds", "0.1.14rc0", None),
    ("fp8-by-runtime-arch", "changed", "0.1.14", "0.1.16.post6"),
    ("fp8-by-runtime-arch", "holds", "0.1.18", None),
    ("tuned-key-activation", "changed", "0.1.14", "0.1.17.post1"),
    ("tuned-key-activation", "holds", "0.1.18", "0.1.19.post1"),
    ("tuned-key-activation", "changed", "0.1.19.post1", None),
]
# C1, ROCm/aiter#3997: releases whose block-fp8 stage 1 keeps at least two K tiles, and those that do not.
SPLIT_K_GUARDED = ["0.1.18", "0.1.19"]
SPLIT_K_UNGUARDED = [
    "0.1.16.post3", "0.1.16.post4", "0.1.16.post5", "0.1.16.post6", "0.1.17", "0.1.19.post2", "0.1.20",
    "0.1.20.post1", MAIN_VERSION,
]  # fmt: skip
# C8, ROCm/aiter#2191: tuned rows of this key on gfx950 with 256 CUs.
C8 = {
    "gfx": "gfx950", "cu_num": 256, "model_dim": 3072, "inter_dim": 384, "expert": 256, "topk": 8,
    "q_dtype_a": "float4_e2m1fn_x2", "q_dtype_w": "float4_e2m1fn_x2", "q_type": "per_1x32",
}  # fmt: skip
C8_ROWS = {"v0.1.12": 0, "v0.1.14": 0, "v0.1.15.post3": 0, "v0.1.16.post3": 16, "v0.1.20.post1": 16, MAIN: 16}
# Tuned rows by CU count, without the tables of grouped kernels; counted with awk.
TUNED_ROWS = {
    "v0.1.14": {80: 947, 256: 1008},
    "v0.1.20.post1": {80: 962, 256: 1357, 304: 83},
}
# Code objects and rows of MoE manifests; counted with git ls-tree and grep.
INVENTORIES = {
    "v0.1.14": (1321, {"gfx942": ObjectCount(1421, 1051, 412), "gfx950": ObjectCount(1373, 1044, 362)}),
    MAIN: (
        1342,
        {
            "gfx1250": ObjectCount(38, 0, 0),
            "gfx942": ObjectCount(1432, 1056, 412),
            "gfx950": ObjectCount(1439, 1058, 362),
        },
    ),
}
# Modules that a function of the grouped gfx1250 path imports and these releases have not (git ls-tree).
MISSING_MODULES = {
    "aiter.ops.flydsl.kernels.mxfp4_preshuffle",
    "aiter.ops.flydsl.kernels.mxfp4_preshuffle_batched_gemm_gfx1250_tdm",
}
WITH_MISSING_MODULES = ["0.1.19.post1", "0.1.19.post2", "0.1.20", "0.1.20.post1"]


@dataclass(frozen=True)
class Clone:
    """A clone, and what was read of its releases by version, oldest first.

    Attributes:
        path: Its git directory.
        facts: The facts of each release.
        findings: What is wrong in its sources, tuned tables, manifests and code objects.
    """

    path: Path
    facts: dict[str, ReleaseFacts]
    findings: dict[str, tuple[Finding, ...]]

    def between(self, first: str, until: str | None) -> list[str]:
        """Return the versions from *first* on, up to and without *until*; main is the last."""
        versions = list(self.facts)
        low = Version(first)
        high = None if until is None else Version(until)
        released = [v for v in versions if v != MAIN_VERSION]
        found = [v for v in released if Version(v) >= low and (high is None or Version(v) < high)]
        return [*found, MAIN_VERSION] if until is None else found


def _repository() -> Path:
    text = os.environ.get("AITER_GIT_DIR")
    if not text:
        pytest.skip("NOT RUN: AITER_GIT_DIR is not set; `nox -s releases -- DIR` runs this against a clone")
    return Path(text)


def version_tags(repository: Path) -> list[str]:
    """Return the tags of releases since `OLDEST`, oldest version first."""
    listed = subprocess.run(
        ["git", "-C", str(repository), "tag", "--list"], check=True, capture_output=True, text=True
    ).stdout.split()
    found = {tag: tag_version(tag) for tag in listed if tag not in ASIDE}
    versions = {tag: version for tag, version in found.items() if version is not None and version >= OLDEST}
    return sorted(versions, key=versions.__getitem__)


@pytest.fixture(scope="module")
def clone() -> Clone:
    """Return the clone with the facts of every tag since `OLDEST` and of main."""
    repository = _repository()
    tags = version_tags(repository)
    facts, findings = {}, {}
    for revision in (*tags, MAIN):
        with open_release(f"git:{repository}@{revision}") as release:
            found = read_facts(release)
            facts[found.version] = found
            inventory = take_inventory(release)
            tuned = read_tuned(release, inventory)
            findings[found.version] = (*found.findings, *tuned.findings, *inventory.findings)
    return Clone(repository, facts, findings)


def test_all_releases_are_there(clone: Clone) -> None:
    """The clone has the tags that the expectations speak of, and main is called by date and commit."""
    assert {*PARAMETER_COUNTS, *FLYDSL, *SPLIT_K_GUARDED, *SPLIT_K_UNGUARDED} <= set(clone.facts)


def test_parameters_of_fused_moe(clone: Clone) -> None:
    """Each release has the parameters of the one before and those that it put in, in this order."""
    expected: dict[str, list[str]] = {}
    for version in clone.facts:
        names = list(OLDEST_PARAMETERS)
        for first, after, new in INSERTED:
            if version in clone.between(first, None) if first != MAIN_VERSION else version == MAIN_VERSION:
                at = names.index(after) + 1
                names[at:at] = new
        expected[version] = names
    found = {v: list(f.api.fused_moe.names) if f.api.fused_moe else None for v, f in clone.facts.items()}
    assert found == expected
    assert {version: len(expected[version]) for version in PARAMETER_COUNTS} == PARAMETER_COUNTS


def test_default_of_swiglu_limit(clone: Clone) -> None:
    """The limit is off as 0.0, and as None from 0.1.17 on."""
    signatures = {v: f.api.fused_moe for v, f in clone.facts.items() if f.api.fused_moe}
    found = {
        version: parameter.default
        for version, signature in signatures.items()
        for parameter in signature.parameters
        if parameter.name == "swiglu_limit"
    }
    expected = dict.fromkeys(clone.between("0.1.14rc0", "0.1.17rc0"), "0.0")
    expected |= dict.fromkeys(clone.between("0.1.17rc0", None), "None")
    assert found == expected


def test_asm_moe_tkw1(clone: Clone) -> None:
    """Its 13 parameters never changed."""
    found = {v: f.api.asm_moe_tkw1.names if f.api.asm_moe_tkw1 else None for v, f in clone.facts.items()}
    assert found == dict.fromkeys(clone.facts, TKW1_PARAMETERS)


def test_enumerations(clone: Clone) -> None:
    """Situv2 came with 0.1.19, two kinds of quantisation with 0.1.12, and no value ever changed."""
    situ, more = clone.between("0.1.19", None), clone.between("0.1.12", None)
    for version, facts in clone.facts.items():
        assert facts.api.activation_type is not None
        assert facts.api.quant_type is not None
        assert facts.api.activation_type.members == ACTIVATIONS | ({"Situv2": 3} if version in situ else {})
        extra = {"per_256x128": 6, "per_1024x128": 7} if version in more else {}
        assert facts.api.quant_type.members == QUANTS | extra


def test_gate_mode(clone: Clone) -> None:
    """GateMode came with 0.1.14, with these four values."""
    found = {v: set(f.api.gate_mode.members.values()) for v, f in clone.facts.items() if f.api.gate_mode}
    assert found == dict.fromkeys(clone.between("0.1.14rc0", None), GATE_MODES)


def test_flydsl(clone: Clone) -> None:
    """The FlyDSL that a release asks for."""
    assert {version: clone.facts[version].flydsl for version in FLYDSL} == FLYDSL


@pytest.mark.parametrize(("name", "status", "first", "until"), ANCHORS)
def test_anchor(clone: Clone, name: str, status: str, first: str, until: str | None) -> None:
    """The anchor has this status in every release of the window."""
    window = clone.between(first, until)
    found = {v: next(a.status for a in clone.facts[v].anchors if a.name == name) for v in window}
    assert found == dict.fromkeys(window, AnchorStatus(status))


def test_c1_split_k(clone: Clone) -> None:
    """C1: split-K may leave a single K tile, except in the two releases that guard against it."""
    found = {
        version: next(a.status for a in clone.facts[version].anchors if a.name == "block-fp8-split-k-guard")
        for version in (*SPLIT_K_GUARDED, *SPLIT_K_UNGUARDED)
    }
    expected = dict.fromkeys(SPLIT_K_GUARDED, AnchorStatus.HOLDS)
    expected |= dict.fromkeys(SPLIT_K_UNGUARDED, AnchorStatus.CHANGED)
    assert found == expected


def test_imports(clone: Clone) -> None:
    """Every import that a call can reach resolves, but for two modules that four releases do not have."""
    found = {v: {fact.module for fact in f.imports if fact.fails} for v, f in clone.facts.items()}
    missing = {version: modules for version, modules in found.items() if modules}
    assert sorted(missing, key=Version) == WITH_MISSING_MODULES
    assert all(modules >= MISSING_MODULES for modules in missing.values())


def test_nothing_is_unreadable(clone: Clone) -> None:
    """All that the readers look at can be read, in every release."""
    found = {v: [str(x) for x in f.findings if x.code == "source-unreadable"] for v, f in clone.facts.items()}
    assert not {v: texts for v, texts in found.items() if texts}


def test_the_ledger(clone: Clone) -> None:
    """Every entry about sources explains something in its releases, and every finding has its entry."""
    entries = [entry for entry in load_ledger() if entry.reason in set(FindingCode)]
    seen = [
        Observation(version, path=finding.path, reason=finding.code.value, message=finding.message)
        for version, findings in clone.findings.items()
        for finding in findings
    ]
    assert not_looked_at(entries, seen) == []
    assert judge(entries, seen, full=True) == []
    assert {(one.release, one.path, one.message) for one in seen if explains(entries, one) is None} == set()


def test_windows_of_the_ledger(clone: Clone) -> None:
    """Each release in a window of an entry about sources has the finding: no window is wider than it is."""
    without = []
    for entry in load_ledger():
        if entry.reason not in set(FindingCode):
            continue
        for version, findings in clone.findings.items():
            observed = (Observation(version, path=f.path, reason=f.code, message=f.message) for f in findings)
            if entry.covers(version) and not any(entry.matches(one) for one in observed):
                without.append((entry.id, version))
    assert without == []


@pytest.mark.parametrize("revision", C8_ROWS)
def test_c8_tuned_rows(revision: str) -> None:
    """C8: the shape is untuned up to 0.1.15.post3, and has 16 tuned rows from 0.1.16.post3 on."""
    with open_release(f"git:{_repository()}@{revision}") as release:
        assert len(read_tuned(release).matching(**C8)) == C8_ROWS[revision]


@pytest.mark.parametrize("revision", TUNED_ROWS)
def test_tuned_rows_by_board(revision: str) -> None:
    """As many rows for each CU count as the tables have lines, and kernels do what their rows ask for."""
    with open_release(f"git:{_repository()}@{revision}") as release:
        tables = read_tuned(release)
    found: dict[int, int] = {}
    for row in tables.rows:
        if "grouped" not in row.path:
            found[row.key.cu_num] = found.get(row.key.cu_num, 0) + 1
    assert found == TUNED_ROWS[revision]
    assert not [str(f) for f in tables.findings if f.code != "tuned-ambiguous-arch"]


@pytest.mark.parametrize("revision", INVENTORIES)
def test_inventory(revision: str) -> None:
    """Every row of every manifest is sound, and gfx1250 ships no code object for fused MoE."""
    with open_release(f"git:{_repository()}@{revision}") as release:
        inventory = take_inventory(release)
    rows, objects = INVENTORIES[revision]
    assert (inventory.row_count, inventory.sound_count, inventory.findings) == (rows, rows, ())
    assert inventory.objects == objects
