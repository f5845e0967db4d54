"""Reading AITER releases without importing them.

`open_release` gives an artefact its version and identity. `read_api` reads its interface, `take_inventory`
its kernels, `read_tuned` its tuned tables, `read_facts` what its sources say; `facts_table` compares them.
"""

from aiter_conformance.release.anchor_finders import Place
from aiter_conformance.release.anchors import Anchor, AnchorStatus
from aiter_conformance.release.api import ApiFacts, EnumFact, read_api
from aiter_conformance.release.artefact import Release, ReleaseKind, open_release
from aiter_conformance.release.facts import (
    Change,
    ChangeKind,
    FactsTable,
    ReleaseFacts,
    facts_table,
    read_facts,
)
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.imports import ImportFact
from aiter_conformance.release.inventory import Inventory, Manifest, ManifestRow, ObjectCount, take_inventory
from aiter_conformance.release.pysource import Parameter, Signature
from aiter_conformance.release.tuned import Coverage, TunedTables, read_tuned
from aiter_conformance.release.tuned_rows import TunedKey, TunedRow
from aiter_conformance.release.version import version_key

__all__ = [
    "Anchor",
    "AnchorStatus",
    "ApiFacts",
    "Change",
    "ChangeKind",
    "Coverage",
    "EnumFact",
    "FactsTable",
    "Finding",
    "FindingCode",
    "ImportFact",
    "Inventory",
    "Manifest",
    "ManifestRow",
    "ObjectCount",
    "Parameter",
    "Place",
    "Release",
    "ReleaseFacts",
    "ReleaseKind",
    "Signature",
    "TunedKey",
    "TunedRow",
    "TunedTables",
    "facts_table",
    "open_release",
    "read_api",
    "read_facts",
    "read_tuned",
    "take_inventory",
    "version_key",
]
