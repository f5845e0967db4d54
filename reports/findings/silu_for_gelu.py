"""AITER's call of FlyDSL stage 1 takes every activation that it does not name for SiLU, GELU among them.

python silu_for_gelu.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import sys
from pathlib import Path

module = ast.parse((Path(sys.argv[1]) / "aiter/fused_moe.py").read_text(encoding="utf-8"))
found = set()
for node in ast.walk(module):
    # Up to 0.1.18: act = "swiglu" if activation == ActivationType.Swiglu else "silu"
    if isinstance(node, ast.IfExp) and "activation == ActivationType." in ast.unparse(node.test):
        if ast.unparse(node.orelse) == "'silu'" and "Gelu" not in ast.unparse(node):
            found.add(node.orelse.lineno)
        continue
    # Since 0.1.19: the same with if and elif, and SiTU named too.
    if not isinstance(node, ast.If) or "activation == ActivationType." not in ast.unparse(node.test):
        continue
    last = node
    tests = [ast.unparse(node.test)]
    while len(last.orelse) == 1 and isinstance(last.orelse[0], ast.If):
        last = last.orelse[0]
        tests.append(ast.unparse(last.test))
    otherwise = [ast.unparse(statement) for statement in last.orelse]
    if otherwise == ["act = 'silu'"] and not any("Gelu" in test for test in tests):
        found.add(last.orelse[0].lineno)
print("expected: GELU is refused, or handed on")  # noqa: T201
print(f"observed: {len(found)} places make silu of what they do not name, lines {sorted(found)}")  # noqa: T201
sys.exit(bool(found))
