"""AITER's batched MXFP4 GEMM imports kernels that are not in the release.

python grouped_gemm_modules_missing.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import ast
import sys
from pathlib import Path

package = Path(sys.argv[1]) / "aiter/ops/flydsl"
file = package / "batched_gemm_mxfp4.py"
missing = []
for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else ():
    name = node.module or "" if isinstance(node, ast.ImportFrom) and node.level == 1 else ""
    if name.startswith("kernels.") and not (package / f"{name.replace('.', '/')}.py").is_file():
        missing.append(f"{name} in line {node.lineno}")
print("expected: every module that aiter/ops/flydsl/batched_gemm_mxfp4.py imports is there")  # noqa: T201
print(f"observed: {'; '.join(missing) or 'they are'}{' (not there)' if missing else ''}")  # noqa: T201
sys.exit(bool(missing))
