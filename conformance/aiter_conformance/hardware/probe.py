"""What GPUs, ROCm, torch and AITER there are. Run as a process of its own, ``python -m``: it prints JSON.

A driver that hangs or dies must not take the run with it, and the run itself must never open a device.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

# Set by tests: the plan of a simulated ROCm runner (`aiter_conformance.simulated_rocm`).
SIMULATION: Final = "AITER_CONFORMANCE_SIMULATED_ROCM"
_DRIVER: Final = Path("/sys/module/amdgpu/version")
_ROCM: Final = Path("/opt/rocm/.info/version")


def find() -> dict[str, Any]:
    """Return what there is; ``missing`` says what is not, in the order in which it has to be mended."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "missing": [],
        "gpus": [],
        "simulated": False,
    }
    if plan := os.environ.get(SIMULATION):
        return found | _simulated(json.loads(plan))
    found |= {"driver": _first_line(_DRIVER), "rocm": _first_line(_ROCM)}
    if not Path("/dev/kfd").exists():
        found["missing"].append("there is no AMD GPU here (/dev/kfd is not there)")
    if importlib.util.find_spec("torch") is None:
        found["missing"].append("torch is not installed in this Python")
    elif not found["missing"]:
        _ask_torch(found)
    _ask_aiter(found)
    return found


def _simulated(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the machine that a plan describes."""
    board = plan["board"]
    gpu = {"arch": board["arch"], "units": board["units"], "name": "simulated", "memory": 0, "clock": 0}
    facts = {"driver": "simulated", "rocm": "simulated", "hip": "simulated", "simulated": True}
    return facts | {
        "torch": metadata.version("torch"),
        "aiter": "simulated",
        "build_archs": board["arch"],
        "gpus": [gpu] * plan.get("gpus", 1),
    }


def _ask_torch(found: dict[str, Any]) -> None:
    import torch

    found |= {"torch": str(torch.__version__), "hip": torch.version.hip}
    if torch.version.hip is None:
        found["missing"].append(f"torch {torch.__version__} is not built for ROCm")
    elif not torch.cuda.is_available():
        found["missing"].append("torch sees no GPU: look at HIP_VISIBLE_DEVICES and the rights on /dev/kfd")
    else:
        for index in range(torch.cuda.device_count()):
            given = torch.cuda.get_device_properties(index)
            gpu = {"arch": given.gcnArchName.partition(":")[0], "units": given.multi_processor_count}
            # In kHz, and only in newer versions of torch.
            clock = 1000 * getattr(given, "clock_rate", 0)
            found["gpus"].append(gpu | {"name": given.name, "memory": given.total_memory, "clock": clock})


def _ask_aiter(found: dict[str, Any]) -> None:
    """Look for AMD's AITER without importing it: an import would build and needs the GPU."""
    spec = importlib.util.find_spec("aiter")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    if not any(Path(folder, "fused_moe.py").is_file() for folder in folders):
        found["missing"].append("AMD's AITER (amd-aiter) is not installed in this Python")
        return
    try:
        found["aiter"] = metadata.version("amd-aiter")
    except metadata.PackageNotFoundError:
        found["aiter"] = "a tree without package metadata"
    # AITER builds for these; unset, for the GPU that it finds (aiter/jit/core.py, GPU_ARCHS).
    found["build_archs"] = os.environ.get("GPU_ARCHS", "native")


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip().splitlines()[0]
    except (OSError, IndexError):
        return "unknown"


if __name__ == "__main__":
    json.dump(find(), sys.stdout)
