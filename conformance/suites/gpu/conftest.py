"""Level hardware as tests: one an input; under pytest-xdist one worker a GPU, bound to its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from aiter_conformance import store
from aiter_conformance.axes import load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.hardware.items import Item, Tier, plan
from aiter_conformance.hardware.machine import Machine, find_machine
from aiter_conformance.hardware.part import Part, opened
from aiter_conformance.hardware.run import Request, open_aiter
from aiter_conformance.models import load_models
from aiter_conformance.protocols import Subject

MACHINE = pytest.StashKey[Machine]()
RUN = pytest.StashKey[str]()
# Said to workers by whoever hands out their tests: all inputs of a cell go to one of them.
WHOLE_CELLS = "aiter_conformance_whole_cells"


class OneWorkerACell(LoadScopeScheduling):  # type: ignore[misc]
    """Gives all inputs of a cell to one worker, whatever ``--dist`` says."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("@")[0]  # an input's id is CELL@SIZES/NAME/rRANK


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `gpu run` has as ``--tier``, ``--cell`` and ``--root``."""
    group = parser.getgroup("aiter-conformance")
    tiers = [tier.value for tier in Tier]
    group.addoption(
        "--gpu-tier", choices=tiers, default="smoke", help="inputs of suites/gpu (default: smoke)"
    )
    group.addoption("--gpu-cell", action="append", default=[], help="only this cell; may be repeated")
    group.addoption("--gpu-root", help="folder whose build/ takes journals, logs and evidence")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneWorkerACell:
    """Keep cells together."""
    return OneWorkerACell(config, log)


def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker that cells are kept together, and remember where workers write."""
    node.workerinput[WHOLE_CELLS] = True
    node.config.stash[RUN] = node.workerinput["testrunuid"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each input, in the order of the plan; or one that says why there is none."""
    if "item" not in metafunc.fixturenames:
        return
    config = metafunc.config
    try:
        machine = config.stash[MACHINE] = find_machine()
    except InfrastructureError as error:
        nothing = pytest.param(None, id="not-run", marks=pytest.mark.skip(reason=str(error)))
        metafunc.parametrize("item", [nothing])
        return
    request = _request(config, machine)
    groups = plan(request.cells, request.tier, models=request.models)
    items = [item for group in groups for item in group]
    if not items:
        msg = f"--gpu-cell must name a cell of {machine.board.arch} that its leaf accepts"
        raise pytest.UsageError(msg)
    metafunc.parametrize("item", items, ids=str)


def _request(config: pytest.Config, machine: Machine) -> Request:
    """Return what is asked for. The options have no value where another folder's tests are run too."""
    axes, tier = load_axes(), Tier(config.getoption("gpu_tier", "smoke"))
    cells = [axes.parse_cell(text) for text in config.getoption("gpu_cell", [])] or list(axes.cells())
    models = tuple(load_models().models.values()) if tier is Tier.FULL else ()
    return Request(tuple(c for c in cells if c.arch == machine.board.arch), tier, models, resume=True)


def _folder(config: pytest.Config) -> Path:
    """Return the folder of this run, which all its workers write into."""
    root = Path(config.getoption("gpu_root", None) or config.rootpath)
    words = getattr(config, "workerinput", {})  # only a worker has them
    name = words.get("testrunuid") or config.stash.setdefault(RUN, uuid.uuid4().hex)
    return store.build_place(root).reports.parent / "gpu" / f"pytest-{name}"


@pytest.fixture(scope="session")
def part(request: pytest.FixtureRequest, subject: Subject, worker_id: str) -> Iterator[Part]:
    """What this worker runs, on its own GPU: worker ``gw3`` has the fourth."""
    config = request.config
    machine = config.stash[MACHINE]
    number = 0 if worker_id == "master" else int(worker_id.removeprefix("gw"))
    with (
        open_aiter(machine) as release,
        opened(_request(config, machine), machine, subject, release, _folder(config), number) as own,
    ):
        yield own


@pytest.fixture
def together(request: pytest.FixtureRequest, item: Item, worker_id: str) -> list[Item]:
    """The inputs that are run with this one: its cell, unless other workers may have some of it."""
    words = getattr(request.config, "workerinput", {})
    if worker_id != "master" and not words.get(WHOLE_CELLS):
        return [item]
    inputs = [node.callspec.params.get("item") for node in request.session.items if hasattr(node, "callspec")]
    return [each for each in inputs if isinstance(each, Item) and each.case.cell == item.case.cell]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the evidence is."""
    if RUN in config.stash and any(_folder(config).glob("*/reports")):
        terminalreporter.section("evidence of level hardware, in parts")
        terminalreporter.write_line(f"build/gpu/{_folder(config).name}/*/reports (see evidence merge)")
