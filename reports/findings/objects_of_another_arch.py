"""Code objects in the folder of one arch are compiled for another, whose instructions the GPU does not have.

python objects_of_another_arch.py TREE

TREE is a checkout of ROCm/aiter, or an unpacked wheel of amd-aiter. The arch is the low byte of e_flags, at
byte 48 of a 64-bit ELF header (LLVM's AMDGPU usage guide).
"""

import sys
from pathlib import Path

ARCHS = {0x4C: "gfx942", 0x4F: "gfx950", 0x49: "gfx1250"}

tree = Path(sys.argv[1])
hsa = next(folder for folder in (tree / "hsa", tree / "aiter_meta/hsa") if folder.is_dir())
wrong = []
for path in sorted(hsa.rglob("*.co")):
    folder, flags = path.relative_to(hsa).parts[0], path.read_bytes()[48]
    if folder in ARCHS.values() and ARCHS.get(flags) != folder:
        wrong.append(f"{path.relative_to(hsa)} is for {ARCHS.get(flags, hex(flags))}")
print("expected: every code object is for the arch of its folder")  # noqa: T201
print(f"observed: {len(wrong)} are not", *wrong, sep="\n  ")  # noqa: T201
sys.exit(bool(wrong))
