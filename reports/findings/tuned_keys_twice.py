"""One key has tuned rows in two of AITER's tables, which are merged into one: the order of reading decides.

python tuned_keys_twice.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter.
"""

import csv
import sys
from pathlib import Path

KEY = [
    *("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype"),
    *("q_dtype_a", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1"),
]

configs = Path(sys.argv[1]) / "aiter/configs"
rows: dict[tuple[str, ...], list[tuple[str, str]]] = {}
for table in sorted(configs.rglob("*tuned_fmoe*.csv")):
    if "untuned" in table.name:
        continue
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        if "gfx" not in row and not row.get("_tag"):
            rows.setdefault(tuple(row[name] for name in KEY), []).append(
                (row["kernelName1"], row["kernelName2"])
            )
twice = [kernels for kernels in rows.values() if len(kernels) > 1]
differ = [kernels for kernels in twice if len(set(kernels)) > 1]
print("expected: one row for each key")  # noqa: T201
print(f"observed: {len(twice)} keys with more, {len(differ)} of them with other kernels")  # noqa: T201
sys.exit(bool(twice))
