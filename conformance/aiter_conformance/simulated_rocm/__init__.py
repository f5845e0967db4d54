"""A stand-in for a ROCm runner: no GPU, and an AITER made of the harness's own model of its kernels.

It tests the harness: its AITER can be told to lie, die, hang and more (`plan.Fault`). What it gives is marked
as simulated in every record, and nothing that is published takes such a record.
"""

from __future__ import annotations

from pathlib import Path

# Folder that a worker imports the package ``aiter`` from; its csrc/ makes it a tree like AITER's.
SITE = Path(__file__).parent / "site"
# The version that the package says it has: a local one, so that it is no release.
VERSION = "0.1.20+simulated"
