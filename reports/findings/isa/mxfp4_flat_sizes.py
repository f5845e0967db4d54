"""MXFP4 kernels of AITER that take their tokens unsorted are right at some sizes alone.

python mxfp4_flat_sizes.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

import numpy as np

from aiter_conformance.errors import UsageError
from aiter_conformance.isa import judge, launch, toy
from aiter_conformance.isa.objects import open_object

SIZES = {  # tile: (hidden size, intermediate)
    "16x256": ((1024, 256), (1536, 256), (2048, 256), (2560, 256), (4096, 256)),
    "16x128": ((512, 128), (2048, 128), (2048, 384), (2048, 256), (4096, 256), (4096, 512), (8192, 256)),
}
print("expected: right (relative error below 8e-3), and each column is, at every size that is launched")  # noqa: T201
shows = False
for tile, sizes in SIZES.items():
    name = f"gfx950/fmoe/silu/fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_{tile}.co"
    try:
        opened = open_object(sys.argv[1], name)
    except UsageError as error:
        print(f"observed: nothing, for {error}")  # noqa: T201
        continue
    for hidden, intermediate in sizes:
        shape = toy.Shape(tokens=3, experts=1, topk=1, hidden=hidden, intermediate=intermediate)
        problem = toy.problem(opened.kind, shape)
        ran = launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=1 << 16)
        error = problem.error(ran.outputs["O"])
        off = np.linalg.norm(problem.decode(ran.outputs["O"]) - problem.expected, axis=0)
        size = np.sqrt((problem.expected**2).sum(0).mean())  # root mean square of the columns' norms
        columns = np.flatnonzero(~(off < judge.COLUMN_LIMIT * size))
        few = f"; wrong columns: {', '.join(map(str, columns))}" if 0 < len(columns) < 5 else ""
        print(f"observed: {tile}, {hidden=}, {intermediate=}: relative error {error:.2g}{few}")  # noqa: T201
        shows |= not error < 8e-3 or bool(len(columns))
sys.exit(shows)
