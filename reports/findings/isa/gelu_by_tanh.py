"""AITER's one-stage kernels for GELU compute its tanh approximation.

python gelu_by_tanh.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys
from unittest import mock

import numpy as np

from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.judge import SLACK
from aiter_conformance.isa.objects import open_object

OBJECTS = (
    "gfx942/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_32x256.co",
    "gfx942/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_vs_tkw1_gelu_1tg_ps_32x128.co",
    "gfx942/fmoe/gelu/fmoe_bf16_blockscaleFp8_g1u1_vs_gelu_1tg_32x256.co",
    "gfx950/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_32x256.co",
)


def by_tanh(gate, up, **_):
    """GELU's tanh approximation, times up."""
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


print("expected: 0.5 g (1 + erf(g / sqrt 2)) u, which is nearer than its tanh approximation")  # noqa: T201
shows = False
for name in OBJECTS:
    opened = open_object(sys.argv[1], name)
    shape = toy.Shape(tokens=9, experts=2, topk=1, hidden=512, intermediate=opened.kind.tile_n)
    problem = toy.problem(opened.kind, shape)
    with mock.patch.object(toy, "_activate", by_tanh):
        other = toy.problem(opened.kind, shape)
    ran = launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=SLACK)
    exact, approximate = (p.error(ran.outputs["O"]) for p in (problem, other))
    print(  # noqa: T201
        f"observed: {name}: relative error {exact:.2g} to erf, {approximate:.2g} to tanh"
    )
    shows |= approximate < exact
sys.exit(shows)
