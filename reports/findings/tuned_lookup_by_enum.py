"""AITER's tuned lookup asks for the activation as an enumeration, while its tables hold a text.

python tuned_lookup_by_enum.py TREE

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
asked = next(ast.unparse(element) for element in keys.elts if "activation" in ast.unparse(element))
with (tree / "aiter/configs/tuned_fmoe.csv").open(encoding="utf-8", newline="") as file:
    held = next(csv.DictReader(file))["act_type"]
print(f"expected: a key with str(activation), as the tables hold the text {held!r}")  # noqa: T201
print(f"observed: a key with {asked}, in aiter/fused_moe.py:{keys.lineno}")  # noqa: T201
sys.exit(asked != "str(activation)")
