"""AITER's shuffle_weight cannot interleave gate and up rows, as the w4a16 route has to have them.

python shuffle_without_interleave.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import sys
from pathlib import Path

module = ast.parse((Path(sys.argv[1]) / "aiter/ops/shuffle.py").read_text(encoding="utf-8"))
shuffle = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "shuffle_weight")
names = [argument.arg for argument in (*shuffle.args.args, *shuffle.args.kwonlyargs)]
print("expected: a parameter is_guinterleave of shuffle_weight")  # noqa: T201
print(f"observed: shuffle_weight({', '.join(names)})")  # noqa: T201
sys.exit("is_guinterleave" not in names)
