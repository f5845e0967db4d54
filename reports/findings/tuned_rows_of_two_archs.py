"""AITER knows two archs with 256 CUs, and looks its tuned rows up by the number of CUs alone.

python tuned_rows_of_two_archs.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import csv
import sys
from pathlib import Path

tree = Path(sys.argv[1])
module = ast.parse((tree / "aiter/fused_moe.py").read_text(encoding="utf-8"))
lookup = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "get_2stage_cfgs")
assigned = [node for node in ast.walk(lookup) if isinstance(node, ast.Assign)]
keys = next(node.value for node in assigned if ast.unparse(node).startswith("keys = ("))
by_arch = any(ast.unparse(element) == "gfx" for element in keys.elts)
known = any("gfx1250" in file.read_text(encoding="utf-8") for file in (tree / "aiter/jit/utils").glob("*.py"))
rows = 0
for table in (tree / "aiter/configs").rglob("*tuned_fmoe*.csv"):
    if "untuned" not in table.name:
        text = table.read_text(encoding="utf-8").splitlines()
        rows += sum(row["cu_num"] == "256" and "gfx" not in row for row in csv.DictReader(text))
print("expected: a lookup that asks for the arch, or only one arch with 256 CUs")  # noqa: T201
print(f"observed: gfx1250 known: {known}, asks for the arch: {by_arch}, rows for 256 CUs without one: {rows}")  # noqa: T201
sys.exit(known and not by_arch and rows > 0)
