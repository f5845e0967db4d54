"""Takes apart the tables of a release: manifests of kernels, and tuned rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from aiter_conformance.gate.calls import shape_token
from aiter_conformance.gate.classes import Standing
from aiter_conformance.gate.item import CODE, MISSING, Item, ItemKind
from aiter_conformance.gate.items_findings import by_place, finding_of, loose_findings
from aiter_conformance.levels.inventory import Contents
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding as Fault
from aiter_conformance.release.tuned_rows import TunedKey, TunedRow, short_dtype

# Columns of tuned tables that were measured, or are remarks: they steer nothing.
_MEASURED: Final = frozenset({"us", "us1", "us2", "err1", "err2", "tflops", "bw", "_tag"})
_NOT_SET: Final = frozenset({"", "0", "0.0", "False", "nan"})


def kernel_items(release: Release, contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    """Yield each manifest and each of its rows, the row's text with a hash of its machine code.

    Findings that are about a row go into *attributed*.
    """
    places = by_place(contents.inventory.findings)
    objects = {row.object_path for manifest in contents.inventory.manifests for row in manifest.rows}
    present = sorted(objects & contents.paths)
    digests = {p: hashlib.sha256(c).hexdigest()[:12] for p, c in release.files.read_many(present)}
    for manifest in contents.inventory.manifests:
        yield Item(
            ItemKind.MANIFEST,
            manifest.path,
            Standing.GOOD,
            "present",
            manifest.path,
            provides=(f"manifest {manifest.path}",),
            rests_on=(f"file {manifest.path}",),
        )
        seen: set[str] = set()
        for row in manifest.rows:
            faults = places.get((manifest.path, row.line), [])
            attributed.update(faults)
            if row.kernel in seen:  # a repeated row is a fault of the first one
                continue
            seen.add(row.kernel)
            tile = " ".join(f"{name}={value}" for name, value in row.tile.items())
            yield Item(
                ItemKind.KERNEL,
                f"{manifest.path} {row.kernel}",
                Standing.GOOD if row.sound else Standing.BAD,
                f"{tile}{CODE}{digests.get(row.object_path, MISSING)}",
                f"{manifest.path}:{row.line}",
                group=manifest.path,
                note=tile,
                provides=(f"rows of {manifest.path}", f"kernel {manifest.arch} {row.kernel}"),
                rests_on=(
                    f"manifest {manifest.path}",
                    f"file {manifest.path}",
                    f"file {row.object_path}",
                    f"arch {manifest.arch}",
                ),
                findings=tuple(finding_of(fault) for fault in faults),
            )


def tuned_items(contents: Contents, attributed: set[Fault]) -> Iterator[Item]:
    """Yield every key of the tuned tables, the first good row of each; findings go into *attributed*."""
    places = by_place(contents.tuned.findings)
    seen: set[str] = set()
    for row in sorted(contents.tuned.rows, key=lambda row: not row.sound):
        faults = places.get((row.path, row.line), [])
        attributed.update(faults)
        group = tuned_group(row.key, fallback=row.fallback)
        key = f"{group} M={row.key.token}"
        if key in seen:  # the first good row counts; what is wrong with another is a finding of its own
            if faults:
                yield from loose_findings(faults)
            continue
        seen.add(key)
        yield Item(
            ItemKind.TUNED,
            key,
            Standing.GOOD if row.sound else Standing.BAD,
            _tuned_text(row),
            f"{row.path}:{row.line}",
            group=group,
            note=f"M={row.key.token}",
            provides=(_shape_token(row.key),),
            rests_on=(
                f"file {row.path}",
                f"arch {row.key.gfx}",
                *(f"kernel {row.key.gfx} {kernel}" for kernel in row.kernels if kernel),
            ),
            findings=tuple(finding_of(fault) for fault in faults),
        )


def _shape_token(key: TunedKey) -> str:
    return shape_token(f"{key.gfx}:{key.cu_num}", key.model_dim, key.inter_dim, key.expert, key.topk)


def tuned_group(key: TunedKey, *, fallback: bool) -> str:
    """Return all of a tuned key but its token bucket, for people: the board, a comma and the rest.

    A *fallback* row stands in where FlyDSL is not installed.
    """
    board = f"{key.gfx or 'no arch'} {key.cu_num} CUs"
    board += " where FlyDSL is not installed," if fallback else ","
    a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
    parts = [
        f"{board} {key.q_type} {a}x{w} {key.act_type}",
        f"H{key.model_dim} I{key.inter_dim} E{key.expert} k{key.topk}",
    ]
    parts += [] if key.use_g1u1 else ["g1u0"]
    parts += ["router weight in"] if key.doweight_stage1 else []
    parts += [] if key.dtype == "bfloat16" else [key.dtype]
    parts += [key.variant] if key.variant else []
    return " ".join(parts)


def _tuned_text(row: TunedRow) -> str:
    settings = {n: v for n, v in row.settings.items() if n not in _MEASURED and v not in _NOT_SET}
    kernels = " + ".join(kernel or "C++ picks" for kernel in row.kernels)
    return ", ".join([kernels, *(f"{name} {value}" for name, value in sorted(settings.items()))])
