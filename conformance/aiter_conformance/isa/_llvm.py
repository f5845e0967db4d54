"""Child process of `disasm`: one run of LLVM's disassembler over code read from standard input.

A script of its own that imports nothing of the project: an abort in LLVM ends only this process, and the LLVM
that numba brings never meets this one. Usage: ``python -I _llvm.py LIBRARY``; standard input is one JSON line
``[[cpu, address, bytes], ...]`` and then the bytes of all jobs; standard output is one JSON list per job of
``[address, size, text]``, where the text of a word that cannot be decoded is "".
"""

from __future__ import annotations

import ctypes
import json
import sys

_TEXT_BYTES = 512
_LONGEST = 24  # bytes; the longest encoding has 16


def main() -> None:
    """Answer every job on standard input, in order."""
    llvm = ctypes.CDLL(sys.argv[1])
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    create = llvm.LLVMCreateDisasmCPUFeatures
    create.restype = ctypes.c_void_p
    create.argtypes = [ctypes.c_char_p] * 3 + [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    decode = llvm.LLVMDisasmInstruction
    decode.restype = ctypes.c_size_t
    decode.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    for cpu, address, size in json.loads(sys.stdin.buffer.readline()):
        code = sys.stdin.buffer.read(size)
        context = create(b"amdgcn-amd-amdhsa", cpu.encode(), b"", None, 0, None, None)
        if not context or len(code) != size:
            raise SystemExit(f"no disassembler for {cpu}, or only {len(code)} of {size} bytes came")
        buffer = ctypes.create_string_buffer(code, size + _LONGEST)
        base = ctypes.addressof(buffer)
        found, at = [], 0
        while at < size:
            used = decode(context, base + at, min(_LONGEST, size - at), address + at, text, _TEXT_BYTES)
            found.append((address + at, used or 4, text.value.decode().strip() if used else ""))
            at += used or 4
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
