"""Facts of a release's sources: anchors, imports, and what differs between releases."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from aiter_conformance.release import (
    AnchorStatus,
    ChangeKind,
    FindingCode,
    ReleaseFacts,
    facts_table,
    open_release,
    read_facts,
)
from aiter_conformance.release.anchors import ANCHOR_NAMES
from aiter_conformance.release.imports import condition_on
from aiter_conformance.release.samples import sample_files, write_tree

FUSED_MOE = "aiter/fused_moe.py"
ARCHS = ("gfx942", "gfx950", "gfx1250")

# A source on which every anchor holds: the place it is looked for in, and what stands there.
HOLDING = {
    FUSED_MOE: """\
def fused_moe(hidden_states, swiglu_limit=0.0, gate_mode=GateMode.SEPARATED.value):
    shuffled = getattr(w1, "is_shuffled", False)
def get_2stage_cfgs(token, activation):
    keys = (token, str(activation), str(dtype))
def stage1(intermediate_pad, hidden_pad, use_g1u1, k_batch, splitk):
    is_splitk = splitk > 1 and k_batch >= 2
    return partial(
        cktile_stage1,
        n_pad_zeros=intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1),
        k_pad_zeros=hidden_pad // 128 * 128,
    )
def stage2(intermediate_pad, hidden_pad):
    n_pad_zeros = hidden_pad // 64 * 64
    k_pad_zeros = intermediate_pad // 128 * 128
""",
    "aiter/ops/flydsl/kernels/anywhere.py": """\
def stage1(inter_dim_pad):
    inter_dim_pad_total = arith.constant(2 * inter_dim_pad, index=True)
def stage2(base_k, inter_dim, inter_dim_pad):
    return arith.cmpi(CmpIPredicate.ult, base_k, inter_dim - inter_dim_pad)
""",
    "aiter/ops/flydsl/moe_common.py": (
        'class GateMode(str, Enum):\n    SEPARATED = "separated"\n    INTERLEAVE = "interleave"\n'
    ),
    "aiter/utility/dtypes.py": """\
defaultDtypes = {"gfx942": {"fp8": torch.float8_e4m3fnuz}, "gfx950": {"fp8": torch.float8_e4m3fn}}
def get_dtype_fp8():
    return defaultDtypes.get(get_gfx_runtime(), {})["fp8"]
fp4x2 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
""",
    "aiter/ops/shuffle.py": """\
def shuffle_weight(x, layout=(16, 16), use_int4=False, is_guinterleave=False): pass
def shuffle_scale(src, experts_cnt=None, is_guinterleave=False): pass
def shuffle_weight_a16w4(src, NLane, gate_up): pass
def shuffle_scale_a16w4(src, experts_cnt, gate_up): pass
def shuffle_scale_for_int4(scale, group_size=32): pass
""",
    "aiter/utility/fp4_utils.py": "def e8m0_shuffle(scale): pass\n",
    "csrc/include/aiter_enum.h": sample_files()["csrc/include/aiter_enum.h"].decode(),
}

# For each anchor: a change to `HOLDING` (file, find, put) after which it must say that it has changed.
CHANGED = {
    "ck-tile-stage1-intermediate-pad": (FUSED_MOE, "(2 if use_g1u1 else 1)", "(1 if use_g1u1 else 2)"),
    "ck-tile-stage1-hidden-pad": (FUSED_MOE, "hidden_pad // 128 * 128", "hidden_pad // 256 * 256"),
    "ck-tile-stage2-hidden-pad": (FUSED_MOE, "hidden_pad // 64 * 64", "hidden_pad"),
    "ck-tile-stage2-intermediate-pad": (FUSED_MOE, "intermediate_pad // 128", "2 * intermediate_pad // 128"),
    "flydsl-stage1-pad-doubled": (
        "aiter/ops/flydsl/kernels/anywhere.py",
        "2 * inter_dim_pad",
        "inter_dim_pad",
    ),
    "flydsl-stage2-pad-undoubled": (
        "aiter/ops/flydsl/kernels/anywhere.py",
        "inter_dim - inter_dim_pad",
        "inter_dim - 2 * inter_dim_pad",
    ),
    "activation-type-values": ("csrc/include/aiter_enum.h", "Silu = 0", "Silu = 1"),
    "quant-type-values": ("csrc/include/aiter_enum.h", "per_1x32, per_1x128", "per_1x128, per_1x32"),
    "gate-mode-values": ("aiter/ops/flydsl/moe_common.py", '"interleave"', '"interleaved"'),
    "gate-mode-default": (FUSED_MOE, "GateMode.SEPARATED.value", "GateMode.INTERLEAVE.value"),
    "swiglu-limit-default": (FUSED_MOE, "swiglu_limit=0.0", "swiglu_limit=7.0"),
    "fp4x2-dtype": ("aiter/utility/dtypes.py", '"float4_e2m1fn_x2"', '"float4_e2m1"'),
    "fp8-dtype-of-arch": ("aiter/utility/dtypes.py", "torch.float8_e4m3fnuz", "torch.float8_e4m3fn"),
    "fp8-by-runtime-arch": ("aiter/utility/dtypes.py", "get_gfx_runtime()", "get_gfx()"),
    "shuffle-weight": ("aiter/ops/shuffle.py", "layout=(16, 16)", "layout=(32, 16)"),
    "shuffle-weight-interleave": (
        "aiter/ops/shuffle.py",
        "use_int4=False, is_guinterleave",
        "use_int4=False, x_",
    ),
    "shuffle-scale-interleave": (
        "aiter/ops/shuffle.py",
        "experts_cnt=None, is_guinterleave",
        "experts_cnt=None, x_",
    ),
    "shuffle-weight-a16w4": ("aiter/ops/shuffle.py", "NLane, gate_up", "NLane, gate_up=True"),
    "shuffle-scale-a16w4": ("aiter/ops/shuffle.py", "experts_cnt, gate_up", "experts, gate_up"),
    "shuffle-scale-int4": ("aiter/ops/shuffle.py", "group_size=32", "group_size=64"),
    "e8m0-shuffle": ("aiter/utility/fp4_utils.py", "(scale)", "(x)"),
    "is-shuffled-tag": (FUSED_MOE, '"is_shuffled", False', '"is_shuffled", True'),
    "tuned-key-activation": (FUSED_MOE, "str(activation)", "activation"),
    "block-fp8-split-k-guard": (FUSED_MOE, " and k_batch >= 2", ""),
}

Read = Callable[[dict[str, str]], ReleaseFacts]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the facts of the good sample with some files replaced."""

    def reading(changes: dict[str, str]) -> ReleaseFacts:
        files = sample_files() | {path: text.encode() for path, text in changes.items()}
        with open_release(str(write_tree(tmp_path / "tree", files))) as release:
            return read_facts(release, ARCHS)

    return reading


def _statuses(facts: ReleaseFacts) -> dict[str, AnchorStatus]:
    return {anchor.name: anchor.status for anchor in facts.anchors}


class TestAnchors:
    """`read_anchors`."""

    def test_every_anchor_can_hold(self, read: Read) -> None:
        """On sources that are as the contract expects, every anchor holds."""
        assert _statuses(read(HOLDING)) == dict.fromkeys(ANCHOR_NAMES, AnchorStatus.HOLDS)

    @pytest.mark.parametrize("name", ANCHOR_NAMES)
    def test_every_anchor_can_change(self, read: Read, name: str) -> None:
        """One change to what an anchor is about changes that anchor, and no other."""
        path, find, put = CHANGED[name]
        assert HOLDING[path].count(find) >= 1
        facts = read(HOLDING | {path: HOLDING[path].replace(find, put, 1)})
        expected = dict.fromkeys(ANCHOR_NAMES, AnchorStatus.HOLDS) | {name: AnchorStatus.CHANGED}
        assert _statuses(facts) == expected
        (anchor,) = (anchor for anchor in facts.anchors if anchor.name == name)
        assert any(not place.agrees and place.path == path for place in anchor.places)

    def test_every_anchor_can_be_absent(self, read: Read) -> None:
        """Without what it is about, an anchor says so: it never holds by default."""
        facts = read(dict.fromkeys(HOLDING, "pass\n"))
        assert _statuses(facts) == dict.fromkeys(ANCHOR_NAMES, AnchorStatus.ABSENT)

    def test_a_place_is_found_by_structure(self, read: Read) -> None:
        """Moved, respelled and split over lines, it is the same anchor, and the line is its own."""
        moved = "\n\n\n" + HOLDING[FUSED_MOE].replace(
            "intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1)",
            "(\n  ((intermediate_pad//64) * 64)\n  * (2 if (use_g1u1) else 1)  # why\n)",
        )
        facts = read(HOLDING | {FUSED_MOE: moved})
        anchor = facts.anchors[ANCHOR_NAMES.index("ck-tile-stage1-intermediate-pad")]
        assert anchor.status is AnchorStatus.HOLDS
        (place,) = anchor.places
        assert (place.path, place.line) == (FUSED_MOE, 13)
        assert place.source == "intermediate_pad // 64 * 64 * (2 if use_g1u1 else 1)"

    def test_one_place_of_several_is_enough_to_change(self, read: Read) -> None:
        """Where a formula stands twice, both must be what the contract expects."""
        second = "def more(hidden_pad):\n    k_pad_zeros = hidden_pad // 64 * 64\n"
        facts = read(HOLDING | {FUSED_MOE: HOLDING[FUSED_MOE] + second})
        anchor = facts.anchors[ANCHOR_NAMES.index("ck-tile-stage1-hidden-pad")]
        assert (anchor.status, [place.agrees for place in anchor.places]) == (
            AnchorStatus.CHANGED,
            [True, False],
        )

    def test_a_gate_mode_without_a_member(self, read: Read) -> None:
        """A member that is gone is a change, although those that are left agree."""
        path = "aiter/ops/flydsl/moe_common.py"
        facts = read(HOLDING | {path: HOLDING[path].replace('    INTERLEAVE = "interleave"\n', "")})
        assert _statuses(facts)["gate-mode-values"] is AnchorStatus.CHANGED


class TestImports:
    """`read_imports`."""

    @pytest.mark.parametrize(
        ("statement", "fails"),
        [
            ("from aiter.missing import x", True),
            ("from aiter.there import x", True),
            ("from aiter.there import y", False),
            ("from aiter import there", False),
            ("from aiter import not_there", True),
            ("from . import there", False),
            ("from .there import y", False),
            ("from .missing import y", True),
            ("import aiter.there", False),
            ("import aiter.missing", True),
            ("import torch.missing", False),
            ("from aiter.stars import y", False),
            ("from aiter.stars import z", True),
            ("from aiter.dynamic import z", False),
            ("from aiter.package import there", False),
            ("from aiter.missing import *", True),
            ("try:\n        from aiter.missing import x\n    except ImportError:\n        x = None", False),
            ("try:\n        from aiter.missing import x\n    except ValueError:\n        x = None", True),
            ("try:\n        pass\n    except ImportError:\n        from aiter.missing import x", True),
            ("with y:\n        from aiter.missing import x", True),
            ("for i in y:\n        pass\n    else:\n        from aiter.missing import x", True),
            ("match y:\n        case 1:\n            from aiter.missing import x", True),
        ],
    )
    def test_an_import_in_a_function(self, read: Read, statement: str, fails: bool) -> None:
        """What the release has resolves; what it has not is a finding, unless its failure is caught."""
        facts = read(
            {
                FUSED_MOE: f"def fused_moe():\n    {statement}\n",
                "aiter/there.py": "y = 1\n",
                "aiter/stars.py": "from .there import *\n",
                "aiter/dynamic.py": "def __getattr__(name): pass\n",
                "aiter/package/there.py": "",
            }
        )
        assert [f.code for f in facts.findings] == [FindingCode.IMPORT_UNRESOLVED] * fails
        assert [fact.fails for fact in facts.imports if fact.fails] == [True] * fails

    def test_a_branch_of_one_arch(self, read: Read) -> None:
        """Under a condition on the arch, the failure is one of that arch alone, as the finding says."""
        source = """\
def fused_moe():
    if get_gfx() == "gfx950":
        from aiter.missing import a
    elif get_gfx().startswith("gfx12"):
        from aiter.missing import b
    else:
        from aiter.missing import c
    if get_gfx() != "gfx1250":
        raise RuntimeError
    from aiter.missing import d
"""
        facts = read({FUSED_MOE: source})
        assert {fact.name: fact.archs for fact in facts.imports} == {
            "a": ("gfx950",),
            "b": ("gfx1250",),
            "c": ("gfx942",),
            "d": ("gfx1250",),
        }
        assert [finding.line for finding in facts.findings] == [3, 5, 7, 10]
        assert "on gfx950" in facts.findings[0].message

    def test_modules_are_followed(self, read: Read) -> None:
        """A failure two modules further is found; one in a function that nothing enters is not."""
        facts = read(
            {
                FUSED_MOE: "def fused_moe():\n    from aiter.ops.one import g\n",
                "aiter/ops/__init__.py": "from . import loaded\n",
                "aiter/ops/one.py": "from .reexport import g\n",
                "aiter/ops/reexport.py": "from .two import g\n",
                "aiter/ops/two.py": "def g():\n    from aiter.missing import deep\n",
                "aiter/ops/loaded.py": "from aiter.missing import at_import\ndef f():\n    import aiter.no\n",
            }
        )
        found = {(fact.path, fact.name) for fact in facts.imports if fact.fails}
        assert found == {
            ("aiter/ops/two.py", "deep"),
            ("aiter/ops/loaded.py", "at_import"),
        }

    @pytest.mark.parametrize(
        ("test", "archs"),
        [
            ('get_gfx() == "gfx950"', {"gfx950": True, "gfx942": False}),
            ('"gfx950" != gfx', {"gfx950": False, "gfx942": True}),
            ('gfx in ("gfx942", "gfx950")', {"gfx950": True, "gfx1250": False}),
            ('gfx not in ["gfx942"]', {"gfx950": True, "gfx942": False}),
            ('gfx.startswith("gfx94")', {"gfx950": False, "gfx942": True}),
            ('not gfx == "gfx950"', {"gfx950": False, "gfx942": True}),
            ('gfx == "gfx950" and fast', {"gfx950": None, "gfx942": False}),
            ('gfx == "gfx950" or fast', {"gfx950": True, "gfx942": None}),
            ("fast", {"gfx950": None}),
            ('"gfx" in columns', {"gfx950": None}),
            ('mode == "fast"', {"gfx950": None}),
            ("gfx == other", {"gfx950": None}),
        ],
    )
    def test_conditions(self, test: str, archs: dict[str, bool | None]) -> None:
        """A condition is decided where the arch alone decides it, and left open elsewhere."""
        node = ast.parse(test, mode="eval").body
        assert {arch: condition_on(node, arch) for arch in archs} == archs


class TestReadFacts:
    """`read_facts`."""

    def test_modules(self, read: Read) -> None:
        """The modules that the bridge imports are there or not, as packages too."""
        facts = read({"aiter/ops/shuffle/__init__.py": "", "aiter/ops/topk.py": ""})
        assert facts.modules == {
            "aiter.fused_moe": True,
            "aiter.fused_moe_bf16_asm": True,
            "aiter.ops.shuffle": True,
            "aiter.ops.topk": True,
            "aiter.utility.dtypes": False,
            "aiter.utility.fp4_utils": False,
        }

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({}, None),
            ({"setup.py": 'FLYDSL_VERSION = "flydsl==0.2.0"\n'}, "==0.2.0"),
            ({"requirements.txt": "# all\n-r other.txt\nflydsl>=0.2,<0.3  # jit\nnumpy\n"}, "<0.3,>=0.2"),
            ({"setup.py": 'FLYDSL_VERSION = "flydslish==1"\n', "requirements.txt": "einops\n"}, None),
        ],
    )
    def test_flydsl(self, read: Read, files: dict[str, str], expected: str | None) -> None:
        """The FlyDSL pin is found wherever a release keeps it."""
        assert read(files).flydsl == expected

    def test_build_archs(self, read: Read) -> None:
        """The archs of prebuilt MoE modules, and of no others, are read from the names in their bundles."""
        bundle = "\x7fELF....hipv4-amdgcn-amd-amdhsa--{}\0....hipv4-amdgcn-amd-amdhsa--{}:xnack-\0"
        facts = read(
            {
                "aiter/jit/module_moe_asm.so": bundle.format("gfx950", "gfx942"),
                "aiter/jit/module_norm.so": bundle.format("gfx90a", "gfx908"),
            }
        )
        assert facts.build_archs == ("gfx942", "gfx950")
        assert read({"aiter/jit/module_moe_asm.so": "no bundle"}).build_archs is None

    def test_unreadable_sources_are_findings_once(self, read: Read) -> None:
        """A file that several readers look at and none can parse is one finding."""
        facts = read({FUSED_MOE: "def fused_moe(:\n"})
        assert [(f.path, f.line, f.code) for f in facts.findings] == [
            (FUSED_MOE, 1, FindingCode.SOURCE_UNREADABLE)
        ]


class TestFactsTable:
    """`facts_table`."""

    def _facts(self, tmp_path: Path, version: str, fused_moe: str) -> ReleaseFacts:
        files = sample_files(version) | {FUSED_MOE: fused_moe.encode()}
        with open_release(str(write_tree(tmp_path / version, files))) as release:
            return read_facts(release, ARCHS)

    def test_what_appeared_disappeared_and_changed(self, tmp_path: Path) -> None:
        """Differences are told release by release, in the order of versions and not of the arguments."""
        facts = [
            self._facts(tmp_path, "0.1.10", "def fused_moe(a, new=None, c=2): pass\n"),
            self._facts(tmp_path, "0.1.9", "def fused_moe(a, c=1): pass\n"),
            self._facts(tmp_path, "0.1.10.post1", "def fused_moe(a, c=2): pass\n"),
        ]
        table = facts_table(facts)
        assert table.versions == ("0.1.9", "0.1.10", "0.1.10.post1")
        assert table.rows["fused_moe"] == ("2 parameters", "3 parameters", "2 parameters")
        assert table.rows["ActivationType.Gelu"] == ("1", "1", "1")
        assert [(c.version, c.fact, c.kind, c.before, c.after) for c in table.changes()] == [
            ("0.1.10", "fused_moe", ChangeKind.CHANGED, "2 parameters", "3 parameters"),
            ("0.1.10", "fused_moe(c)", ChangeKind.CHANGED, "default 1, after a", "default 2, after new"),
            ("0.1.10", "fused_moe(new)", ChangeKind.APPEARED, None, "default None, after a"),
            ("0.1.10.post1", "fused_moe", ChangeKind.CHANGED, "3 parameters", "2 parameters"),
            (
                "0.1.10.post1",
                "fused_moe(c)",
                ChangeKind.CHANGED,
                "default 2, after new",
                "default 2, after a",
            ),
            ("0.1.10.post1", "fused_moe(new)", ChangeKind.DISAPPEARED, "default None, after a", None),
        ]

    def test_equal_releases_have_no_change(self, tmp_path: Path) -> None:
        """Nothing is reported where nothing differs."""
        facts = [
            self._facts(tmp_path, version, "def fused_moe(a): pass\n") for version in ("0.1.9", "0.1.10")
        ]
        assert facts_table(facts).changes() == ()
