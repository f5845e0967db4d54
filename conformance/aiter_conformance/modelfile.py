"""What a release does with the catalogue's models on one board, as a record beside its evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from aiter_conformance import documents
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import ReleaseId

SCHEMA = "aiter-conformance/models/1"


@dataclass(frozen=True, slots=True)
class Line:
    """What the deployments of one model and scheme get that fare alike, all numbers of tokens together.

    Attributes:
        model: The model's name.
        scheme: The quantisation.
        divided: The deployments; empty for a model that the leaf refuses.
        runs: ``yes``, for how many numbers of tokens it runs, or ``refused``.
        tuned: How many of them a tuned row answers.
        kernels: The kernel families, each with the activations' dtype.
        wrong: What is wrong, each with the numbers of tokens that it is about, or why it is refused.
    """

    model: str
    scheme: str
    divided: str
    runs: str
    tuned: str
    kernels: str
    wrong: str


@dataclass(frozen=True)
class ModelFile:
    """What was traced of one release on one board.

    Attributes:
        release: The release.
        board: ``gfx942:304`` and the like.
        observed: Day of the trace, ``YYYY-MM-DD``.
        harness: Version of this harness.
        good: Models that run in some scheme, in every deployment and for every number of tokens.
        lines: What each model, scheme and deployment gets.
    """

    release: ReleaseId
    board: str
    observed: str
    harness: str
    good: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def path(self) -> Path:
        """Where the record is kept, relative to the folder of reports."""
        return Path(self.release.version) / f"models-{self.board.replace(':', '-')}.json"


def write(made: ModelFile, reports: Path) -> Path:
    """Write a record under the folder of reports and return its path.

    Raises:
        InfrastructureError: The file cannot be written.
    """
    target = reports / made.path
    head = {"schema": SCHEMA, "release": asdict(made.release), "board": made.board}
    head |= {"observed": made.observed, "harness": made.harness, "good": list(made.good)}
    documents.write_text(target, documents.render(head | {"lines": [asdict(line) for line in made.lines]}))
    return target


def load(reports: Path) -> list[ModelFile]:
    """Read every such record under the folder of reports, in the order of their paths.

    Raises:
        InfrastructureError: A file is unreadable, or lies where another one belongs.
    """
    found = []
    for file in sorted(reports.glob("*/models-*.json")):
        source = file.relative_to(reports)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{source.as_posix()} must be a readable UTF-8 file ({error}): restore it or make it anew"
            raise InfrastructureError(msg) from error
        data = documents.parse(text, schema="models", source=source.as_posix())
        made = ModelFile(
            ReleaseId(**data["release"]),
            data["board"],
            data["observed"],
            data["harness"],
            tuple(data["good"]),
            tuple(Line(**line) for line in data["lines"]),
        )
        if made.path != source:
            msg = f"the models of {made.path.as_posix()} lie in {source.as_posix()}: move or delete them"
            raise InfrastructureError(msg)
        found.append(made)
    return found
