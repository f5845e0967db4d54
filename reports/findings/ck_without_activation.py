"""AITER has activations that its generator of CK kernels does not make, and dispatch picks CK for them.

python ck_without_activation.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import re
import sys
from pathlib import Path

tree = Path(sys.argv[1])
csrc = next(folder for folder in (tree / "csrc", tree / "aiter_meta/csrc") if folder.is_dir())
header = (csrc / "include/aiter_enum.h").read_text(encoding="utf-8")
body = re.search(r"enum class ActivationType[^{]*\{(.*?)\}", header, re.DOTALL)
assert body is not None  # noqa: S101
known = {name.lower() for name in re.findall(r"^\s*(\w+)\s*(?:=|,|$)", body[1], re.MULTILINE)} - {"no"}
generator = ast.parse((csrc / "ck_gemm_moe_2stages_codegen/gen_instances.py").read_text(encoding="utf-8"))
made: set[str] = set()
for node in ast.walk(generator):
    if isinstance(node, ast.Call) and any(
        isinstance(a, ast.Constant) and a.value == "--activation" for a in node.args
    ):
        choices = next(keyword.value for keyword in node.keywords if keyword.arg == "choices")
        made = set(ast.literal_eval(choices))
print(f"expected: gen_instances.py makes {', '.join(sorted(known))}")  # noqa: T201
print(f"observed: it makes {', '.join(sorted(made))}")  # noqa: T201
sys.exit(bool(known - made))
