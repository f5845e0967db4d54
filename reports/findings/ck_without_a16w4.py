"""AITER has no CK kernels for bf16 activations with MXFP4 weights, and dispatch picks CK for them.

python ck_without_a16w4.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import re
import sys
from pathlib import Path

tree = Path(sys.argv[1])
csrc = next(folder for folder in (tree / "csrc", tree / "aiter_meta/csrc") if folder.is_dir())
lists = (csrc / "ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py").read_text(encoding="utf-8")
table = re.search(r"^gemm1_kernels_dict = \{(.*?)^\}", lists, re.DOTALL | re.MULTILINE)
assert table is not None  # noqa: S101
made = set(re.findall(r'^\s*"(\w+)":', table[1], re.MULTILINE))
assert "a4w4" in made  # noqa: S101
print("expected: kernels of stage 1 for a16w4, which dispatch asks for below 256 tokens")  # noqa: T201
print(f"observed: kernels for {', '.join(sorted(made))}")  # noqa: T201
sys.exit("a16w4" not in made)
