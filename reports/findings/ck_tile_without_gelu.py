"""AITER's CK-Tile dispatch compares the activation with some numbers, and returns nothing for any other.

python ck_tile_without_gelu.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import re
import sys
from pathlib import Path

GELU = 1  # ActivationType.Gelu, csrc/include/aiter_enum.h

tree = Path(sys.argv[1])
csrc = next(folder for folder in (tree / "csrc", tree / "aiter_meta/csrc") if folder.is_dir())
dispatch = csrc / "ck_tile_gemm_moe_2stages/moe_cktile2stages.cu"
text = dispatch.read_text(encoding="utf-8") if dispatch.is_file() else ""
compared = sorted({int(number) for number in re.findall(r"\bactivation == (\d+)", text)})
print(f"expected: GELU ({GELU}) has kernels, or is refused")  # noqa: T201
print(f"observed: moe_dispatch knows the activations {compared}, and has no return for others")  # noqa: T201
sys.exit(bool(compared) and GELU not in compared)
