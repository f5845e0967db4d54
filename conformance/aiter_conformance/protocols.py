"""The three roles of the harness: who is tested, who computes a kernel call, and which AITER it is about.

Everything here is a description: nothing imports torch, AITER or an implementation under test. Names of
SPEC are used as they are; enum members cross as their values, dtypes as torch names without ``torch.``, so
that one description serves every subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch

Entry = Literal["fused_moe", "asm_moe_tkw1"]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel entry, as it reached the bridge to AITER.

    Attributes:
        entry: Which of the two kernel entries was called.
        arguments: Every parameter of the entry under SPEC 7's names, defaults included.
    """

    entry: Entry
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """The four faces of one kernel entry of a subject; their parameters must be the same.

    Attributes:
        wrapper: What the dispatcher calls.
        operator: The torch custom operator (``torch._ops.OpOverload``).
        implementation: The plain function under the operator: it calls AITER.
        fake: The operator's fake: shape and dtype of the result without computing it.
    """

    wrapper: Callable[..., Any]
    operator: Any
    implementation: Callable[..., Any]
    fake: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ParallelSpec:
    """A deployment: sizes and ranks as given to vLLM, before EP and the MoE's own tp_size are derived."""

    tp: int = 1
    pcp: int = 1
    dp: int = 1
    sp: int = 1
    tp_rank: int = 0
    pcp_rank: int = 0
    dp_rank: int = 0
    use_ep: bool = False
    all2all_backend: str = "allgather_reducescatter"


@dataclass(frozen=True, slots=True)
class MoEConfigSpec:
    """The fields of ``FusedMoEConfig`` that a leaf reads (SPEC 9); None is the field's own default."""

    num_experts: int = 8
    num_local_experts: int | None = None
    experts_per_token: int = 2
    hidden_dim: int = 256
    intermediate_size: int = 256
    in_dtype: str = "bfloat16"
    activation: str = "silu"
    parallel: ParallelSpec = ParallelSpec()
    hidden_dim_unpadded: int | None = None
    intermediate_size_per_partition_unpadded: int | None = None
    intermediate_pad: int | None = None
    swiglu_limit: float | None = None
    activation_situ_beta: float | None = None
    activation_situ_linear_beta: float | None = None
    use_mxfp4_w4a4_dsv4: bool = False
    is_lora_enabled: bool = False
    has_hash_routing: bool = False
    require_decomposed_backend: bool = False


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """What ``FusedMoEQuantConfig.make`` is told, without the tensors (SPEC 9).

    Attributes:
        activations: ``None``, ``"fp8"`` (the platform's) or ``"mxfp4"``.
        weights: ``None``, ``"fp8"``, ``"mxfp4"`` or ``"int4"``.
        per_act_token: Activation scales per token.
        per_out_ch: Weight scales per output channel.
        block_shape: (rows, columns) of a weight block, or None.
    """

    activations: str | None = None
    weights: str | None = None
    per_act_token: bool = False
    per_out_ch: bool = False
    block_shape: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the subject makes of the environment it is in (SPEC 7)."""

    fused_moe_enabled: bool
    shared_experts_fusion: bool
    dispatch_policy: int
    situ_interleaved: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where a subject does not do what SPEC says, known and listed.

    Attributes:
        id: Short name, e.g. ``tkw1-drops-arguments``; the ids that suites know are ``contract.DIFFERENCES``.
        consequence: What it means to whoever runs this subject, one sentence.
    """

    id: str
    consequence: str


class FoundAiter(Protocol):
    """An AITER that a subject may find: its modules by import name, and its version."""

    @property
    def version(self) -> str:
        """Version text, e.g. ``0.1.20``."""

    @property
    def modules(self) -> Mapping[str, ModuleType]:
        """Import name to module, parents included: ``aiter``, ``aiter.fused_moe``, ..."""


# What `Subject.environment` sets when it is not told otherwise: AITER switched on, everything else default.
ENABLED: Mapping[str, str] = {"VLLM_ROCM_USE_AITER": "1"}


class Subject(Protocol):
    """An implementation under test. One object per process; use it inside `environment`."""

    name: str
    version: str
    differences: Mapping[str, Difference]
    missing: frozenset[str]

    @property
    def api(self) -> Any:
        """Namespace of SPEC's public names; a name in `missing` is absent (AttributeError)."""

    def environment(
        self, arch: str, env: Mapping[str, str] = ENABLED, installed: FoundAiter | None = None
    ) -> AbstractContextManager[None]:
        """Make the subject believe that it starts on ``arch`` with ``env`` and this AITER.

        ``env`` is complete: every other VLLM_* and AITER_* variable is unset. ``installed=None``
        means that there is no AITER. Everything is put back at the end, module-level state included.
        """

    def recording(
        self, result: Callable[[KernelCall], torch.Tensor] | None = None
    ) -> AbstractContextManager[list[KernelCall]]:
        """Put a recorder in place of both kernel calls and yield the list of what it saw.

        The recorder answers with ``result(call)``, by default zeros of the shape and dtype that the
        entry's fake gives.
        """

    def entry(self, name: Entry) -> KernelEntry:
        """Return the kernel entry, not recorded: calling it reaches the AITER of the environment."""

    def settings(self) -> Settings:
        """Return what the subject makes of its environment; the subject's own errors pass through."""

    def moe_config(self, spec: MoEConfigSpec) -> Any:
        """Build the subject's ``FusedMoEConfig``."""

    def quant_config(self, spec: QuantSpec, tensors: Mapping[str, torch.Tensor]) -> Any:
        """Build the subject's ``FusedMoEQuantConfig`` by its own ``make``.

        ``tensors`` may hold w1_scale, w2_scale, a1_scale, a2_scale, w1_bias, w2_bias; they are taken as
        they are (no copy), so that a recorded call can be compared by identity.
        """

    def refusal(self, error: Exception) -> type[Exception] | None:
        """Return ValueError or RuntimeError, as SPEC asks for, where ``error`` is the subject's form of it.

        None: not a refusal but a failure of the subject.
        """


class Provider(Protocol):
    """Who computes a kernel call: a model of the kernels, an emulator, or the hardware."""

    name: str
    level: str  # of evidence that it gives: reference, isa or hardware

    def compute(self, call: KernelCall, arch: str) -> torch.Tensor:
        """Return the result of ``call`` on ``arch``: (M, K) in the call's output dtype.

        Raises:
            InfrastructureError: No result could be obtained, through no fault of the kernel.
        """


class Release(Protocol):
    """One AITER artefact, read as files and never imported."""

    name: str  # PEP 440 version; main-<date>-<sha8> for a commit
    identity: str  # sha256 over the sorted (path, hash) of its files

    def paths(self) -> Iterable[str]:
        """Yield every file, relative to AITER's source tree whatever the artefact's own layout."""

    def read(self, path: str) -> bytes:
        """Return the content of one file.

        Raises:
            UsageError: The release has no such file.
        """
