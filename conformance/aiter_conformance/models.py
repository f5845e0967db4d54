"""The model catalogue ``matrices/spec/models.toml``: layers of public models, and the calls they make."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final

from aiter_conformance.axes import ROUTERS, Router, load_axes, spec_dir
from aiter_conformance.errors import UsageError
from aiter_conformance.trace.call import Call

# One decoding step, a small batch, a large batch, a chunk of a prompt.
TOKENS: Final = (1, 64, 1024, 8192)


@dataclass(frozen=True, slots=True)
class Model:
    """One model.

    Attributes:
        name: Short name, e.g. ``deepseek-v3``.
        title: Its name for people.
        hidden: Hidden size in which the routed experts work.
        intermediate: Intermediate size of an expert.
        experts: Routed experts.
        topk: Routed experts per token.
        shared: Shared experts, beside the routed call.
        schemes: Quantisations in which it is traced, each with the source that says so.
        source: Where the shape was read.
        activation: A value of ``MoEActivation``.
        router: Where the router weight multiplies.
        bias: Whether the experts have biases.
        swiglu_limit: The activation's clamp, None for none.
    """

    name: str
    title: str
    hidden: int
    intermediate: int
    experts: int
    topk: int
    shared: int
    schemes: dict[str, str]
    source: str
    activation: str = "silu"
    router: Router = "out"
    bias: bool = False
    swiglu_limit: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Deployment:
    """How a model is divided: by tensor or by expert parallelism."""

    tp: int = 1
    ep: int = 1

    def __str__(self) -> str:
        return f"EP {self.ep}" if self.ep > 1 else f"TP {self.tp}"


DEPLOYMENTS: Final = (*(Deployment(tp=size) for size in (1, 2, 4, 8)), Deployment(ep=8))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The catalogue.

    Attributes:
        models: The models by name, in the file's order.
        unread: Models whose shape could not be read, each with the reason.
    """

    models: dict[str, Model]
    unread: dict[str, str]

    def find(self, name: str) -> Model:
        """Return the model of a name.

        Raises:
            UsageError: There is none.
        """
        if name in self.unread:
            msg = f"the shape of {name} is not known: {self.unread[name]}"
            raise UsageError(msg)
        if name not in self.models:
            near = [known for known in self.models if name in known] or get_close_matches(name, self.models)
            meant = f"; did you mean {', '.join(near)}?" if near and name else ""
            msg = f"a model must be one of {', '.join(self.models)} (got {name!r}){meant}"
            raise UsageError(msg)
        return self.models[name]


@cache
def load_models() -> Catalogue:
    """Read the catalogue.

    Raises:
        ValueError: An entry has no source, an unknown word, or a value that is none of its axis.
    """
    data = tomllib.loads((spec_dir() / "models.toml").read_text(encoding="utf-8"))
    models = [_checked(Model(**entry)) for entry in data["model"]]
    if len({model.name for model in models}) != len(models):
        msg = "models.toml must name each model once"
        raise ValueError(msg)
    unread = {entry["name"]: entry["why"] for entry in data["unread"]}
    return Catalogue({model.name: model for model in models}, unread)


def _checked(model: Model) -> Model:
    axes = load_axes()
    for what, value, known in (
        ("activation", model.activation, axes.activations),
        ("router", model.router, ROUTERS),
        *(("scheme", scheme, tuple(axes.schemes)) for scheme in model.schemes),
    ):
        if value not in known:
            msg = f"{what} of {model.name} must be one of {', '.join(known)} (got {value!r})"
            raise ValueError(msg)
    if not model.schemes or not model.source or not all(model.schemes.values()):
        msg = f"{model.name} must have a source, and one for each of its schemes"
        raise ValueError(msg)
    return model


def loaded_sizes(scheme: str, activation: str, hidden: int, intermediate: int) -> tuple[int, int]:
    """Return hidden and intermediate size as a loader pads them, from one partition's own (SPEC 12).

    Args:
        scheme: A scheme of the axes.
        activation: A value of ``MoEActivation``.
        hidden: Hidden size.
        intermediate: Intermediate size of one partition.
    """
    if scheme == "bf16":
        return hidden, _up(intermediate, 64 if intermediate <= 192 else 128)
    if scheme == "mxfp4-w4a16":
        multiple = 128 if activation in ("situ", "silu") else 256
        return _up(hidden, multiple), _up(intermediate, multiple)
    if scheme == "mxfp4-w4a4":
        return _up(hidden, 256), _up(intermediate, 128)
    return hidden, intermediate


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def model_calls(
    model: Model, scheme: str, *, tokens: tuple[int, ...] = TOKENS
) -> Iterator[tuple[Deployment, Call]]:
    """Yield the calls of a model's layer through the leaf, one a deployment and number of tokens.

    Deployments that do not divide the model are left out.
    """
    for deployment in DEPLOYMENTS:
        if model.intermediate % deployment.tp or model.experts % deployment.ep:
            continue
        own = model.intermediate // deployment.tp
        hidden, intermediate = loaded_sizes(scheme, model.activation, model.hidden, own)
        for number in tokens:
            yield (
                deployment,
                Call(
                    scheme=scheme,
                    activation=model.activation,
                    router=model.router,
                    tokens=number,
                    experts=model.experts,
                    local_experts=model.experts // deployment.ep,
                    topk=model.topk,
                    hidden=hidden,
                    intermediate=intermediate,
                    hidden_pad=hidden - model.hidden,
                    intermediate_pad=intermediate - own,
                    tp=deployment.tp,
                    mask=deployment.ep > 1,
                    bias=model.bias and scheme == "mxfp4-w4a16",
                    swiglu_limit=model.swiglu_limit,
                ),
            )
