"""On gfx1250 AITER quantises activations to fp4 for every scheme, fp8 and int8 among them.

python gfx1250_activations_in_fp4.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import sys
from pathlib import Path

module = ast.parse((Path(sys.argv[1]) / "aiter/fused_moe.py").read_text(encoding="utf-8"))
found = []
for function in ast.walk(module):
    for statement in function.body if isinstance(function, ast.FunctionDef) else ():
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "get_gfx() == 'gfx1250'":
            texts = {ast.unparse(node) for node in ast.walk(statement) if isinstance(node, ast.Assign)}
            if "q_dtype_a = dtypes.fp4x2" in texts:
                found.append(statement.lineno)
print("expected: the activations' dtype on gfx1250 depends on the scheme")  # noqa: T201
print(f"observed: {len(found)} places set it to fp4x2 whatever the scheme, lines {found} of fused_moe.py")  # noqa: T201
sys.exit(bool(found))
