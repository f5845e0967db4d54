"""The pytest plugin: the subject under test, the settings of a run, and how to repeat a failure.

It is loaded wherever the package is installed, also by the tests of other projects. There it only offers
``--subject`` and the fixture; the rest is for projects whose pytest configuration says
``aiter_conformance = true``.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections import Counter
from collections.abc import Generator
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from aiter_conformance import subjects
from aiter_conformance.errors import HarnessError

if TYPE_CHECKING:
    from aiter_conformance.protocols import Subject

# Variables that change what the code under test does; the header prints those that are set.
PREFIXES = ("AITER_", "VLLM_", "GPU_ARCHS", "CU_NUM")
INI = "aiter_conformance"
DEFAULT_PROFILE = "dev"
PROFILES: dict[str, settings] = {
    # dev and ci repeat exactly; only nightly looks for new examples.
    "dev": settings(max_examples=25, derandomize=True, deadline=None, database=None),
    "ci": settings(max_examples=100, derandomize=True, deadline=None, database=None),
    "nightly": settings(
        max_examples=5000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--subject`` and the switch of the configuration file."""
    parser.addini(INI, "header, hypothesis profiles and reports of the conformance suites", "bool", False)
    group = parser.getgroup("aiter-conformance")
    group.addoption(
        "--subject",
        choices=tuple(subjects.SUBJECTS),
        default="impl",
        help="implementation that the suites test (default: impl)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the hypothesis profiles before hypothesis' own plugin loads the chosen one."""
    if not config.getini(INI):
        return
    for name, profile in PROFILES.items():
        settings.register_profile(name, profile)
    settings.load_profile(_profile(config))


def _profile(config: pytest.Config) -> str:
    chosen: str | None = config.getoption("--hypothesis-profile", default=None)
    return chosen or DEFAULT_PROFILE


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is tested and with which settings."""
    if not config.getini(INI):
        return []
    name: str = config.getoption("--subject")
    try:
        version = subjects.find_version(name)
    except (HarnessError, ImportError) as error:
        version = f"not found: {error}"
    variables = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(PREFIXES)]
    return [
        f"subject: {name} {version}",
        f"environment: Python {platform.python_version()}, torch {_installed('torch')}, "
        f"amd-aiter {_installed('amd-aiter')}, aiter-moe-conformance {_installed('aiter-moe-conformance')}",
        f"variables: {' '.join(variables) or 'no AITER or vLLM variable is set'}",
        f"hypothesis profile: {_profile(config)}",
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to each failure the one line that repeats it."""
    report = yield
    if report.failed and item.config.getini(INI):
        command = [
            "python",
            "-m",
            "pytest",
            item.nodeid,
            f"--subject={item.config.getoption('--subject')}",
            f"--hypothesis-profile={_profile(item.config)}",
        ]
        report.sections.append(("reproduce", shlex.join(command)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the differences of the subject that tests met, with what each means."""
    met: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        met.update(str(value) for name, value in report.user_properties if name == "difference")
    if not met:
        return
    chosen = subjects.load_subject(config.getoption("--subject"))
    terminalreporter.section(f"known differences of {chosen.name} {chosen.version}")
    for identity, count in sorted(met.items()):
        consequence = chosen.differences[identity].consequence
        terminalreporter.write_line(f"{identity} (in {count} tests): {consequence}")


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The implementation under test, chosen by ``--subject``."""
    name: str = request.config.getoption("--subject")
    return subjects.load_subject(name)
