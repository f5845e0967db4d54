"""Tuned tables: keys old and new, and every kind of row that cannot be right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from aiter_conformance.release import FindingCode, open_release
from aiter_conformance.release.kernel_names import KernelClaim, read_kernel_name
from aiter_conformance.release.samples import code_object, sample_files, write_tree
from aiter_conformance.release.tables import Table, TableError, read_table
from aiter_conformance.release.tuned import Coverage, TunedTables, read_tuned
from aiter_conformance.release.tuned_rows import parse_tuned

TABLE = "aiter/configs/tuned_fmoe.csv"
MODEL = "aiter/configs/model_configs/some_tuned_fmoe.csv"
GROUPED = "aiter/configs/tuned_grouped_fmoe.csv"
COLUMNS = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,block_m,kernelName1,kernelName2,run_1stage,_tag"
)
CK1 = "moe_ck2stages_gemm1_256x32x64x128_1x4_MulABScale_v1_Nswizzle0_Quant2_MulRoutedWeight0_silu_F8_F8_B16"
CK2 = "moe_ck2stages_gemm2_256x32x64x128_1x4_MulABScale_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"
ASM = "_ZN5aiter44fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x64E"
FNUZ, OCP = "float8_e4m3fnuz", "float8_e4m3fn"

Read = Callable[..., TunedTables]


def _row(bucket: int | str = 64, **changes: str) -> str:
    """Return a good row for 80 CUs (gfx942), fp8 per token, with some cells changed."""
    cells = {
        "cu_num": "80", "token": str(bucket), "model_dim": "4096", "inter_dim": "384",
        "expert": "128", "topk": "8",
        "act_type": "ActivationType.Silu", "dtype": "torch.bfloat16", "q_dtype_a": f"torch.{FNUZ}",
        "q_dtype_w": f"torch.{FNUZ}", "q_type": "QuantType.per_Token", "use_g1u1": "1",
        "doweight_stage1": "0",
        "block_m": "32", "kernelName1": CK1, "kernelName2": CK2, "run_1stage": "0", "_tag": "",
    } | changes  # fmt: skip
    return ",".join(cells.values())


def _table(*rows: str, columns: str = COLUMNS) -> str:
    return "\n".join((columns, *rows)) + "\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the tuned tables of the good sample with these files added."""
    numbers = itertools.count()

    def reading(files: dict[str, str | bytes], *, knows_arch: bool = True) -> TunedTables:
        gfx = "gfx, " if knows_arch else ""
        changed: dict[str, str | bytes] = {
            "aiter/fused_moe.py": f"def get_2stage_cfgs(token):\n    keys = ({gfx}cu_num, token)\n",
            "aiter/jit/utils/chip_info.py": 'GFX_MAP = {1: "gfx942", 2: "gfx950", 3: "gfx1250"}\n',
            **files,
        }
        contents = {path: c.encode() if isinstance(c, str) else c for path, c in changed.items()}
        tree = write_tree(tmp_path / f"tree{next(numbers)}", sample_files() | contents)
        with open_release(str(tree)) as release:
            return read_tuned(release)

    return reading


class TestReadTuned:
    """`read_tuned`."""

    def test_a_good_row(self, read: Read) -> None:
        """Key, kernels and settings are those of the row, the arch is that of the CU count."""
        tables = read({TABLE: _table(_row())})
        (row,) = tables.rows
        assert (tables.paths, tables.findings, row.sound) == ((TABLE,), (), True)
        assert (row.path, row.line, row.kernels, row.fallback) == (TABLE, 2, (CK1, CK2), False)
        key = row.key
        assert (key.gfx, key.cu_num, key.token) == ("gfx942", 80, 64)
        assert (key.model_dim, key.inter_dim, key.expert, key.topk) == (4096, 384, 128, 8)
        assert (key.act_type, key.dtype, key.q_dtype_a, key.q_type) == ("Silu", "bfloat16", FNUZ, "per_Token")
        assert (key.use_g1u1, key.doweight_stage1, key.variant) == (True, False, "")
        assert row.settings == {"block_m": "32", "run_1stage": "0", "_tag": ""}

    def test_which_files_are_tables(self, read: Read) -> None:
        """Tables of models and of grouped kernels count; lists of what is still to tune do not."""
        untuned = {path.replace("tuned_", "untuned_"): _table(_row()) for path in (TABLE, MODEL, GROUPED)}
        files = untuned | {
            TABLE: _table(),
            MODEL: _table(),
            GROUPED: _table(),
            "aiter/configs/a_tuned_gemm.csv": "x",
        }
        assert read(files).paths == (MODEL, TABLE, GROUPED)

    def test_a_table_with_archs(self, read: Read) -> None:
        """Where the table has the arch, that is the arch, whatever else has as many CUs."""
        ocp = {"cu_num": "256", "q_dtype_a": f"torch.{OCP}", "q_dtype_w": f"torch.{OCP}"}
        rows = [f"gfx950,{_row(**ocp)}", f"gfx1250,{_row(**ocp)}"]
        tables = read({TABLE: _table(*rows, columns=f"gfx,{COLUMNS}")})
        assert [row.key.gfx for row in tables.rows] == ["gfx950", "gfx1250"]
        assert tables.findings == ()

    @pytest.mark.parametrize(("cu_num", "gfx"), [("80", "gfx942"), ("304", "gfx942"), ("256", "gfx950")])
    def test_a_table_without_archs(self, read: Read, cu_num: str, gfx: str) -> None:
        """Without an arch the CU count stands for one, as it does for AITER."""
        fp8 = f"torch.{FNUZ if gfx == 'gfx942' else OCP}"
        tables = read({TABLE: _table(_row(cu_num=cu_num, q_dtype_a=fp8, q_dtype_w=fp8))})
        assert [row.key.gfx for row in tables.rows] == [gfx]
        assert tables.findings == ()

    def test_an_unknown_board(self, read: Read) -> None:
        """A CU count that no board has, or an arch that the matrix does not know, is a finding."""
        tables = read(
            {TABLE: _table(_row(cu_num="111")), MODEL: _table(f"gfx90a,{_row()}", columns=f"gfx,{COLUMNS}")}
        )
        assert [(f.path, f.line, f.code) for f in tables.findings] == [
            (MODEL, 2, FindingCode.TUNED_UNKNOWN_BOARD),
            (TABLE, 2, FindingCode.TUNED_UNKNOWN_BOARD),
        ]

    @pytest.mark.parametrize(("knows_arch", "cu_num", "ambiguous"), [
        (False, "256", True),
        (False, "80", False),
        (True, "256", False),
    ])  # fmt: skip
    def test_a_cu_count_of_two_archs(
        self, read: Read, knows_arch: bool, cu_num: str, ambiguous: bool
    ) -> None:
        """If the lookup asks for the CU count alone, rows of one arch answer for another."""
        fp8 = f"torch.{FNUZ if cu_num == '80' else OCP}"
        row = {"cu_num": cu_num, "q_dtype_a": fp8, "q_dtype_w": fp8}
        tables = read({TABLE: _table(_row(**row), _row(128, **row))}, knows_arch=knows_arch)
        assert [f.code for f in tables.findings] == [FindingCode.TUNED_AMBIGUOUS_ARCH] * ambiguous
        assert all("gfx950 and gfx1250" in finding.message for finding in tables.findings)

    def test_duplicate_keys(self, read: Read) -> None:
        """The same key again, in the table or in another, is a finding that names the first."""
        tables = read(
            {TABLE: _table(_row(), _row(block_m="64")), MODEL: _table(_row(topk="4"), _row(block_m="16"))}
        )
        assert [(f.path, f.line, f.code) for f in tables.findings] == [
            (TABLE, 2, FindingCode.TUNED_DUPLICATE_KEY),
            (TABLE, 3, FindingCode.TUNED_DUPLICATE_KEY),
        ]
        assert f"{MODEL}:3" in tables.findings[0].message

    def test_stand_ins_repeat_keys_on_purpose(self, read: Read) -> None:
        """A row that stands in where FlyDSL is missing has another's key, and is not coverage."""
        tables = read({TABLE: _table(_row(), _row(_tag="flydsl_fallback"), _row(8, _tag="flydsl_fallback"))})
        assert tables.findings == ()
        assert [row.fallback for row in tables.rows] == [False, True, True]
        assert [row.line for row in tables.matching(gfx="gfx942")] == [2]

    @pytest.mark.parametrize(
        "changes",
        [
            {"q_dtype_a": f"torch.{OCP}"},
            {"q_dtype_w": f"torch.{OCP}"},
            {"cu_num": "256", "q_dtype_w": f"torch.{OCP}"},
        ],
    )
    def test_the_other_fp8(self, read: Read, changes: dict[str, str]) -> None:
        """A row with the fp8 flavour of another arch is looked up by no call."""
        (finding,) = read({TABLE: _table(_row(**changes))}).findings
        assert (finding.line, finding.code) == (2, FindingCode.TUNED_WRONG_FP8)

    def test_an_asm_kernel(self, read: Read) -> None:
        """An asm kernel must have a sound row in a manifest of the row's own arch."""
        row = _table(_row(kernelName1=ASM, kernelName2="Null", run_1stage="1"))

        def shipped(arch: str) -> dict[str, str | bytes]:
            folder = f"hsa/{arch}/fmoe/silu"
            manifest = f"knl_name,co_name\n{ASM},more.co\n"
            return {f"{folder}/more.csv": manifest, f"{folder}/more.co": code_object(arch, [ASM])}

        good = read({TABLE: row} | shipped("gfx942"))
        assert (good.findings, good.rows[0].sound) == ((), True)
        damaged = shipped("gfx942") | {"hsa/gfx942/fmoe/silu/more.co": b""}
        for files in ({}, shipped("gfx950"), damaged):
            tables = read({TABLE: row} | files)
            assert [(f.line, f.code) for f in tables.findings] == [(2, FindingCode.TUNED_KERNEL_MISSING)]
            assert not tables.rows[0].sound

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"act_type": "ActivationType.Gelu"}, "it does Silu, not Gelu"),
            ({"q_type": "QuantType.per_Tensor"}, "it quantises per_Token, not per_Tensor"),
            ({"q_dtype_w": "torch.int4"}, "its weights are fp8, not int4"),
            ({"q_dtype_a": "torch.bfloat16"}, "its activations are fp8, not bf16"),
            ({"doweight_stage1": "1"}, "it does not multiply by the router weight in stage 1"),
            ({"kernelName1": CK2, "kernelName2": ""}, "it is for stage 2, not stage 1"),
            ({"kernelName1": "", "kernelName2": CK1}, "it is for stage 1, not stage 2"),
            ({"run_1stage": "1", "kernelName2": ""}, "it is for stage 1, not both stages"),
        ],
    )
    def test_a_kernel_that_does_something_else(self, read: Read, changes: dict[str, str], said: str) -> None:
        """What the kernel's name claims is held against the key."""
        tables = read({TABLE: _table(_row(**changes))})
        assert {finding.code for finding in tables.findings} == {FindingCode.TUNED_KERNEL_DIFFERS}
        assert said in tables.findings[0].message
        assert not tables.rows[0].sound

    def test_an_unknown_kernel(self, read: Read) -> None:
        """A kernel of no known family is a finding, never taken for a good one."""
        (finding,) = read({TABLE: _table(_row(kernelName2="triton_moe_stage2"))}).findings
        assert finding.code is FindingCode.TUNED_KERNEL_UNKNOWN

    @pytest.mark.parametrize("nothing", ["", "Null", "nan"])
    def test_no_kernel(self, read: Read, nothing: str) -> None:
        """Rows may leave the choice of a kernel to C++, in several spellings."""
        tables = read({TABLE: _table(_row(kernelName1=nothing, kernelName2=nothing))})
        assert (tables.findings, tables.rows[0].kernels) == ((), ("", ""))

    def test_a_grouped_table(self, read: Read) -> None:
        """A grouped table is keyed by more columns, and may hold for any number of experts per token."""
        mx = {
            "cu_num": "256", "q_dtype_a": f"torch.{OCP}", "q_dtype_w": "torch.float4_e2m1fn_x2",
            "q_type": "QuantType.per_1x32", "kernelName1": "grouped_gemm1_fp4_gugu",
            "kernelName2": "grouped_gemm2_fp4", "topk": "-1",
        }  # fmt: skip
        rows = [f"gfx1250,{m},{_row(**mx)}" for m in ("384", "512")]
        tables = read({GROUPED: _table(*rows, columns=f"gfx,max_m,{COLUMNS}")})
        assert tables.findings == ()
        assert [(row.key.topk, row.key.variant) for row in tables.rows] == [
            (-1, "max_m=384"),
            (-1, "max_m=512"),
        ]
        assert [f.code for f in read({TABLE: _table(_row(topk="-1"))}).findings] == [
            FindingCode.MALFORMED_ROW
        ]

    def test_coverage(self, read: Read) -> None:
        """Token buckets are gathered by board, quantisation, activation, router weight and shape."""
        on_input = {"doweight_stage1": "1", "kernelName1": "", "kernelName2": ""}
        tables = read({TABLE: _table(_row(64), _row(8), _row(16, **on_input))})
        shape = (4096, 384, 128, 8)
        assert tables.coverage() == (
            Coverage("gfx942", 80, "per_Token fp8 x fp8", "Silu", "in", shape, (16,)),
            Coverage("gfx942", 80, "per_Token fp8 x fp8", "Silu", "out", shape, (8, 64)),
        )


class TestParseTuned:
    """`parse_tuned`."""

    @pytest.mark.parametrize("content", ["", "\n\n", "# comment\n", COLUMNS, f"// SPDX\n{COLUMNS}\n"])
    def test_nothing_in_it(self, content: str) -> None:
        """An empty table is empty, and that is no fault."""
        assert parse_tuned(TABLE, content.encode()) == ([], [])

    @pytest.mark.parametrize(
        "content",
        [
            b"\xff\xff",
            b"a,b\n",
            COLUMNS.replace("token", "tokens").encode(),
            f"{COLUMNS},token\n".encode(),
            b'"a\n',
        ],
    )
    def test_not_a_table(self, content: bytes) -> None:
        """A file without the columns of a key, or with one of them twice, is one finding."""
        rows, (finding,) = parse_tuned(TABLE, content)
        assert rows == []
        assert (finding.path, finding.code) == (TABLE, FindingCode.TABLE_UNREADABLE)

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            (_row() + ",1", "must have 18 cells"),
            (_row("many"), "token must be a number"),
            (_row(-1), "token must be a number"),
            (_row(expert="1" * 30), "expert must be a number"),
            (_row(use_g1u1="2"), "use_g1u1 must be 0 or 1"),
            (_row(act_type="Silu"), "act_type must be ActivationType"),
            (_row(q_dtype_a="fp8"), "q_dtype_a must be torch."),
            (_row(q_type="QuantType."), "q_type must be QuantType."),
            ("80,64", "must be a number"),
        ],
    )
    def test_a_malformed_row(self, row: str, said: str) -> None:
        """A row that no key can be made of is a finding with its line; the rows around it stay."""
        rows, (finding,) = parse_tuned(TABLE, _table(row, _row()).encode())
        assert (finding.line, finding.code) == (2, FindingCode.MALFORMED_ROW)
        assert said in finding.message
        assert [found.line for found in rows] == [3]

    def test_a_short_row(self) -> None:
        """A row without its last, optional cells is read as AITER reads it: as if they were empty."""
        rows, findings = parse_tuned(TABLE, _table(_row().rpartition(",")[0]).encode())
        assert findings == []
        assert rows[0].settings["_tag"] == ""


class TestReadKernelName:
    """`read_kernel_name`."""

    @pytest.mark.parametrize(
        ("name", "claim"),
        [
            (CK1, KernelClaim("ck", 1, "Silu", ("per_Token",), "fp8", "fp8", False)),
            (CK2, KernelClaim("ck", 2, None, ("per_Token",), "fp8", "fp8", True)),
            (
                "moe_ck2stages_gemm1_256x32x32x128_1x4_MulABScaleShuffled_v3_Nswizzle0_Quant3_MulRoutedWeight0_silu_"
                "FP4X2_FP4X2_B16",
                KernelClaim("ck", 1, "Silu", ("per_1x32",), "fp4", "fp4", False),
            ),
            (ASM, KernelClaim("asm", 0, "Silu", ("per_Token", "per_Tensor"), "fp8", "fp8", None)),
            (
                "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E",
                KernelClaim("asm", 0, "Silu", ("per_1x128", "per_128x128"), "fp8", "fp8", None),
            ),
            (
                "_ZN5aiter41fmoe_bf16_blockscaleBf16_g1u1_silu_32x256E",
                KernelClaim("asm", 0, "Silu", ("per_1x128", "per_128x128"), None, "fp8", None),
            ),
            (
                "_ZN5aiter57fmoe_stage1_bf16_pertokenFp8_doweight_g1u1_16x128_4tg_pf2E",
                KernelClaim("asm-stage1", 1, None, ("per_Token", "per_Tensor"), "fp8", "fp8", True),
            ),
            (
                "_ZN5aiter47fmoe_bf16_pertokenMXfp4_g1u1_vs_silu_2tg_32x256E",
                KernelClaim("asm", 0, "Silu", ("per_1x32",), "fp4", "fp4", None),
            ),
            (
                "flydsl_moe1_abf16_wfp4_bf16_t32x32x256_w3_xcd1_kw2",
                KernelClaim("flydsl", 1, None, (), "bf16", "fp4", None),
            ),
            (
                "flydsl_moe2_layout_afp8_wfp4_bf16_t32x128x128_atomic_sbm32",
                KernelClaim("flydsl", 2, None, (), "fp8", "fp4", None),
            ),
            (
                "flydsl_mxmoe_g1_a4w4_32x128_nt",
                KernelClaim("flydsl", 1, None, ("per_1x32",), "fp4", "fp4", None),
            ),
            (
                "opus_moe2_afp8_wfp4_fp8_t64x256x256_sbm64",
                KernelClaim("opus", 2, None, (), "fp8", "fp4", None),
            ),
            ("cktile_a8w4_bm32", KernelClaim("ck-tile", None, None, ("per_1x32",), "fp8", "fp4", None)),
            (
                "swiglu_mxfp4_bf16_cktile",
                KernelClaim("ck-tile", None, "Swiglu", ("per_1x32",), None, "fp4", None),
            ),
            ("grouped_gemm1_fp4_gugu", KernelClaim("grouped", 1, None, (), None, "fp4", None)),
        ],
    )
    def test_claims(self, name: str, claim: KernelClaim) -> None:
        """Each family's grammar says what its name spells out, and no more."""
        assert read_kernel_name(name) == claim

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "moe",
            "_ZN5aiter43fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x64E",
            "_ZN5aiter9gemm_fp8_E",
            "flydsl_moe3_afp4_wfp4_bf16_t1",
            "flydsl_moe1_afp9_wfp4_bf16_t1",
            "moe_ck2stages_gemm1_x_Quant9_MulRoutedWeight0_silu_F8_F8_B16",
            "cktile_a3w4_bm32",
        ],
    )
    def test_unknown_names(self, name: str) -> None:
        """A name of no known family, or with a part that is not of its grammar, claims nothing at all."""
        assert read_kernel_name(name) is None


class TestReadTable:
    """`read_table`."""

    def test_cells_and_lines(self) -> None:
        """Lines are the file's; comments, blanks, quotes, a byte-order mark and CRLF are understood."""
        content = b'\xef\xbb\xbf// one\r\n a , b \r\n\r\n"x,1",2 # two\r\n3\r\n'
        assert read_table(content) == Table(2, ("a", "b"), ((4, ("x,1", "2")), (5, ("3",))))

    @pytest.mark.parametrize("content", [b"\xff", b'a,"b\n', b"a,b\n\xc3\n", b'"a"b\n'])
    def test_not_csv(self, content: bytes) -> None:
        """What is not UTF-8 or not CSV is refused with a sentence."""
        with pytest.raises(TableError, match="must be"):
            read_table(content)
