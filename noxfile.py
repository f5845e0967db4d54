"""What this project runs, each session in a virtual environment of its own: ``nox --list``."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import nox

nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).parent
DOWNLOADS = ROOT / "build" / "downloads"
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")

# The one AITER release on PyPI (PyPI's "aiter" is another package).
AITER_VERSION = "0.1.7.post2.dev18"
AITER_WHEEL = f"amd_aiter-{AITER_VERSION}-py3-none-any.whl"
AITER_SHA256 = "fe139d74438217c35e87e3b961166bac8db2d381eadccb371da2e63615f05a31"
VLLM_VERSION = "0.33.0"
# Parts of the harness whose tests take longer, below conformance/selftests.
SLOW_SELFTESTS = ("faults", "fuzz", "gate", "gpu", "isa", "numerics", "trace")


def install(
    session: nox.Session, *, extras: str = "", groups: tuple[str, ...] = (), editable: bool = True
) -> None:
    """Install the project with what pyproject.toml asks for, in the versions of constraints.txt."""
    packages = nox.project.dependency_groups(PROJECT, *groups)
    project = f"{ROOT}[{extras}]" if extras else str(ROOT)
    session.install(*CONSTRAINTS, *packages, *(("--editable",) if editable else ()), project)


def download_aiter(session: nox.Session) -> Path:
    """Download PyPI's AITER release once, without its dependencies, and check what came."""
    wheel = DOWNLOADS / AITER_WHEEL
    if not wheel.is_file():
        session.run(
            *("python", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--dest", str(DOWNLOADS), f"amd-aiter=={AITER_VERSION}"),
        )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != AITER_SHA256:
        session.error(f"{wheel.name} must have sha256 {AITER_SHA256} (got {digest}): delete it and try again")
    return wheel


@nox.session
def matrix(session: nox.Session) -> None:
    """Build the matrix of a release under build/: PyPI's AITER, or the RELEASE given after --."""
    install(session, editable=False)
    release = session.posargs or [str(download_aiter(session))]
    session.run("aiter-conformance", "matrix", "build", *release)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the suites over impl and the quick tests of the harness, then check what is published."""
    install(session, extras="cpu", groups=("test",))
    download_aiter(session)
    session.env["OPENBLAS_NUM_THREADS"] = "1"  # the workers share the cores already
    slow = [f"--ignore=conformance/selftests/{folder}" for folder in SLOW_SELFTESTS]
    session.run("pytest", "--numprocesses=2", *(session.posargs or slow))
    session.run("aiter-conformance", "matrix", "check")
    session.run("aiter-conformance", "ledger", "check")


@nox.session
def selftests(session: nox.Session) -> None:
    """Run the longer tests of the harness: oracle and models, tracer, gate, their planted faults."""
    install(session, extras="cpu", groups=("test",))
    session.env["AITER_CONFORMANCE_WHEEL"] = str(download_aiter(session))  # for its own torch references
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    folders = [f"conformance/selftests/{folder}" for folder in SLOW_SELFTESTS]
    session.run("pytest", "--numprocesses=2", *(session.posargs or folders))


@nox.session
def vllm(session: nox.Session) -> None:
    """Run the suites over vLLM's own module, out of its wheel, and compare it with impl."""
    install(session, extras="cpu", groups=("test", "vllm"))
    wheel = next(DOWNLOADS.glob(f"vllm-{VLLM_VERSION}-*.whl"), None)
    if wheel is None:
        session.run(
            *("python", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--dest", str(DOWNLOADS), f"vllm=={VLLM_VERSION}"),
        )
        wheel = next(DOWNLOADS.glob(f"vllm-{VLLM_VERSION}-*.whl"))
    session.env["AITER_CONFORMANCE_VLLM_WHEEL"] = str(wheel)
    session.run(
        *("pytest", "--numprocesses=2", "--subject=vllm", "--hypothesis-profile=ci", "conformance/suites"),
        *session.posargs,
    )


@nox.session
def releases(session: nox.Session) -> None:
    """Hold readers and tracer against the AITER tags of a clone: ``nox -s releases -- GITDIR``."""
    if not session.posargs:
        session.skip("NOT RUN: give the git directory of a clone of ROCm/aiter after --")
    install(session, extras="cpu,trace", groups=("test",))
    session.env["AITER_GIT_DIR"] = str(Path(session.posargs[0]).resolve())
    folders = (
        *("conformance/selftests/releases", "conformance/selftests/trace/test_releases.py"),
        "conformance/selftests/gate/test_pages.py",
        *(f"conformance/selftests/numerics/test_{name}.py" for name in ("against_release", "layout")),
    )
    session.run("pytest", "--numprocesses=2", *folders, *session.posargs[1:])


@nox.session
def trace(session: nox.Session) -> None:
    """Test the tracer, on hand-made releases and on PyPI's AITER."""
    install(session, extras="cpu,trace", groups=("test",))
    download_aiter(session)
    session.run("pytest", "--numprocesses=2", "conformance/selftests/trace", *session.posargs)


@nox.session
def isa(session: nox.Session) -> None:
    """Test the emulator of CDNA3 and CDNA4 code objects; ``-- sweep [RELEASE]`` judges all that one ships."""
    wheel = download_aiter(session)
    if session.posargs[:1] == ["sweep"]:
        install(session, extras="isa")
        release = session.posargs[1:] or [str(wheel)]
        # 1: an object is wrong, as in every release so far; the table says which.
        session.run("aiter-conformance", "isa", "sweep", *release, success_codes=[0, 1])
        return
    install(session, extras="cpu,isa,trace", groups=("test",))
    session.env["AITER_CONFORMANCE_WHEEL"] = str(wheel)
    session.run("pytest", "--numprocesses=2", "conformance/selftests/isa", *session.posargs)


@nox.session(venv_backend="none")
def device(session: nox.Session) -> None:
    """Hold the leaves to the device contract on this machine's GPU, with the torch beside nox."""
    path = {"PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("impl", "conformance"))}
    probe = (
        "import aiter_conformance.device.run, torch as t; t.cuda.is_available() or exit('torch finds no GPU')"
    )
    command = (sys.executable, "-c", probe)
    tried = subprocess.run(command, check=False, env={**os.environ, **path}, capture_output=True, text=True)
    if tried.returncode:
        session.skip(f"NOT RUN: {tried.stderr.strip().splitlines()[-1]}")
    command = (sys.executable, "-m", "aiter_conformance.device")
    session.run(*command, *session.posargs, env=path, external=True)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Run AITER's kernels on this machine's AMD GPUs, with the torch and AITER of the Python that runs nox.

    Nothing of that Python is changed and no network is needed. Where nothing can be run the session fails
    with NOT RUN and the reason; `aiter-conformance gpu run`, which takes the same options, ends with 3 then.
    """
    if not Path("/dev/kfd").exists():
        session.error("NOT RUN: there is no AMD GPU here (/dev/kfd is not there)")
    needed = [re.split("[^A-Za-z0-9_.-]", each)[0] for each in PROJECT["project"]["dependencies"]]
    missing = [name for name in (*needed, "hatchling") if not is_installed(name)]
    if missing:
        session.error(f"NOT RUN: {sys.executable} lacks {', '.join(missing)}: install them with its pip")
    site = ROOT / "build" / "gpu" / "site"
    session.run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--no-index", "--upgrade", "--target", str(site), str(ROOT)),
        external=True,
    )
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    command = (sys.executable, "-m", "aiter_conformance", "gpu", "run", *session.posargs)
    session.run(*command, env={"PYTHONPATH": path}, external=True)


def is_installed(distribution: str) -> bool:
    """Return whether the Python that runs nox has a distribution."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


@nox.session
def faults(session: nox.Session) -> None:
    """Check that the suites reach every branch of impl, then plant faults in it and print who sees them."""
    install(session, extras="cpu", groups=("test", "faults"))
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    if not session.posargs:
        suites = ("conformance/suites/contract", "conformance/suites/properties")
        session.run("pytest", "--numprocesses=2", "--cov", "--cov-fail-under=100", *suites)
    session.run("python", "-m", "aiter_conformance.faults", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Look for new examples: properties, the differential and the fuzzing of every reader, at length."""
    install(session, extras="cpu", groups=("test",))
    session.run(
        *("pytest", "--numprocesses=2", "--hypothesis-profile=nightly"),
        *(session.posargs or ("conformance/suites", "conformance/selftests/fuzz")),
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and types."""
    install(session, extras="cpu", groups=("lint", "test"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what the design promises; ``-- --git GITDIR`` measures the gate too."""
    install(session, extras="cpu,isa,trace", groups=("test",))
    session.run("python", "-m", "aiter_conformance.bench", str(download_aiter(session)), *session.posargs)
