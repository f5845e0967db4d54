"""What a trace says: the release's choice for one call, and every launch in terms that all families share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from aiter_conformance.trace.call import Call, call_from_json


class Role(StrEnum):
    """What a launch does for the layer."""

    SORT = "sort"
    QUANTISE = "quantise"
    ONE_STAGE = "one-stage"
    STAGE1 = "stage1"
    ACTIVATION = "activation"
    STAGE2 = "stage2"
    REDUCE = "reduce"
    OTHER = "other"


class Status(StrEnum):
    """How a call ended."""

    LAUNCHED = "launched"
    REFUSED = "refused"
    RAISED = "raised"
    DIED = "died"


class Dispatch(StrEnum):
    """Where the choice of kernels comes from."""

    TUNED = "tuned"
    TUNED_BLIND = "tuned-whatever-the-activation"
    DEFAULT = "default"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch, as the kernel sees it. None: the family does not say, or has no such thing.

    Attributes:
        role: What it does.
        family: Kernel family: ``asm-1stage``, ``asm-stage1``, ``ck``, ``ck-tile``, ``flydsl``, ``opus``,
            ``grouped``; ``helper`` for the small kernels between the products.
        operator: The operator that is called, or the function that compiles the kernel.
        name: Name of the kernel; empty where the call names none and C++ picks.
        candidates: Where C++ picks: the kernels that it may pick, the preferred ones first.
        activation: Member of ``ActivationType`` that the kernel applies, in lower case.
        a: Dtype of the activations that it reads: bf16, fp16, fp8, fp4, int8.
        w: Dtype of the weights: the same, or int4.
        out: Dtype that it writes.
        quant: Member of ``QuantType``.
        router_weight: Whether it multiplies by the router weight.
        tile: Rows, columns and depth of the tile of a work-group; a missing depth is 0.
        block_m: Rows of a block of sorted tokens.
        split_k: Into how many parts the depth is split.
        n_pad: Dead columns of the product (gate and up together) that the kernel is told.
        k_pad: Dead depth that the kernel is told.
        gate_mode: Layout of gate and up that it was made for: ``separated``, ``interleave``,
            ``mock_gate_only`` or ``gate_only``.
        bias: Whether it adds a bias.
        expert_mask: Whether it is told which experts are local.
        depth: Length of the sum: K of stage 1, N of stage 2.
        largest: Bytes of its largest tensor, weights aside.
        weights: Bytes of one expert's weights.
        ignored: A name that the call gives and that C++ ignores, since no such kernel is made.
        problem: Why C++ would not launch it.
    """

    role: Role
    family: str
    operator: str
    name: str = ""
    candidates: tuple[str, ...] = ()
    activation: str | None = None
    a: str | None = None
    w: str | None = None
    out: str | None = None
    quant: str | None = None
    router_weight: bool | None = None
    tile: tuple[int, int, int] | None = None
    block_m: int | None = None
    split_k: int = 1
    n_pad: int | None = None
    k_pad: int | None = None
    gate_mode: str | None = None
    bias: bool | None = None
    expert_mask: bool | None = None
    depth: int | None = None
    largest: int = 0
    weights: int = 0
    ignored: str | None = None
    problem: str | None = None

    @property
    def kernel(self) -> str:
        """Name of the kernel, or of the one that C++ prefers; the operator's where neither is known."""
        return self.name or (self.candidates[0] if self.candidates else self.operator)


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look into a tuned table.

    Attributes:
        table: Which: 0 is the one with the activation, a later one may leave it out.
        key: What is looked for.
        hit: Whether a row was found.
        never: Why no row could ever be found: parts of the key that are of another kind than the rows'.
    """

    table: int
    key: tuple[Any, ...]
    hit: bool
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised.

    Attributes:
        type: Name of the exception's type.
        message: Its message, without paths of the machine.
        origin: ``subject``, ``release``, ``harness`` (the call cannot be made at all), or ``other``.
        place: Relative file and line.
    """

    type: str
    message: str
    origin: str
    place: str

    def __str__(self) -> str:
        where = f" in {self.place}" if self.place else ""
        return f"{self.type}{where}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one call does on one board.

    Attributes:
        board: The board, as ``gfx942:304``.
        call: The call.
        status: How it ended.
        raised: What it raised.
        died: Last words of the process, where it did not survive.
        dispatch: Where the choice comes from.
        bucket: Token bucket that was looked up.
        asked: What was looked up, by the names of the release's own chooser.
        row: What the tuned row says, where there is one.
        lookups: Looks into the tuned tables.
        one_stage: Whether one kernel does the whole layer.
        block_m: Rows of a block of sorted tokens.
        split_k: Split of the depth that was chosen, as the release counts it.
        activation_dtype: Dtype in which stage 1 reads activations: the pipeline.
        launches: Every launch, in order.
        warnings: What the release warned of.
    """

    board: str
    call: Call
    status: Status
    raised: Raised | None = None
    died: str | None = None
    dispatch: Dispatch = Dispatch.UNKNOWN
    bucket: int | None = None
    asked: dict[str, Any] | None = None
    row: dict[str, Any] | None = None
    lookups: tuple[Lookup, ...] = ()
    one_stage: bool | None = None
    block_m: int | None = None
    split_k: int | None = None
    activation_dtype: str | None = None
    launches: tuple[Launch, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def products(self) -> tuple[Launch, ...]:
        """The launches that compute the layer's products."""
        return tuple(
            launch for launch in self.launches if launch.role in (Role.ONE_STAGE, Role.STAGE1, Role.STAGE2)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the trace as plain JSON values; what is None or empty is left out, but for the call."""
        plain: dict[str, Any] = _without_empty(asdict(self))
        return plain | {"call": self.call.to_json()}


def trace_from_json(data: dict[str, Any]) -> Trace:
    """Return the trace that `Trace.to_json` gave."""
    call = call_from_json(data["call"])
    raised = data.get("raised")
    return Trace(
        **{
            **data,
            "call": call,
            "status": Status(data["status"]),
            "raised": None if raised is None else Raised(**{"message": "", "place": "", **raised}),
            "dispatch": Dispatch(data.get("dispatch", Dispatch.UNKNOWN)),
            "lookups": tuple(_lookup_from_json(each) for each in data.get("lookups", ())),
            "launches": tuple(_launch_from_json(each) for each in data.get("launches", ())),
            "warnings": tuple(data.get("warnings", ())),
        }
    )


def _lookup_from_json(data: dict[str, Any]) -> Lookup:
    return Lookup(data["table"], tuple(data["key"]), data["hit"], tuple(data.get("never", ())))


def _launch_from_json(data: dict[str, Any]) -> Launch:
    tile = data.get("tile")
    return Launch(
        **{
            **data,
            "role": Role(data["role"]),
            "candidates": tuple(data.get("candidates", ())),
            "tile": None if tile is None else (tile[0], tile[1], tile[2]),
        }
    )


def _is_empty(value: Any) -> bool:
    return value is None or value in ((), [], {}, "")


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if not _is_empty(item)}
    if isinstance(value, list | tuple):
        return [_without_empty(item) for item in value]
    return value
