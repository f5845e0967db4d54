"""The pytest plugin: header, profiles, the subject, and what is said of failures and of known differences."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

FAILING = "def test_fails(): assert 1 == 2"
PASSING = "def test_passes(): pass"


def run(pytester: pytest.Pytester, source: str, *arguments: str, active: str = "true") -> pytest.RunResult:
    """Run a test file in a process of its own: hypothesis' profile is global to one."""
    pytester.makeini(f"[pytest]\naiter_conformance = {active}\n")
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


class TestHeader:
    """What a run says first."""

    def test_settings(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        """The header names subject, versions, the variables that matter, and the profile."""
        monkeypatch.setenv("VLLM_ROCM_USE_AITER_MOE", "0")
        monkeypatch.setenv("AITER_SITUV2_A8W4", "1")
        result = run(pytester, PASSING)
        result.stdout.fnmatch_lines(
            [
                "subject: impl 0.*",
                "environment: Python 3.*, torch *, amd-aiter *, aiter-moe-conformance 0.*",
                "variables: *AITER_SITUV2_A8W4=1 *VLLM_ROCM_USE_AITER_MOE=0*",
                "hypothesis profile: dev",
            ]
        )
        assert result.ret == pytest.ExitCode.OK

    def test_missing_subject(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        """A subject that cannot be found is named with what to do, and tests that need none run."""
        monkeypatch.setenv("AITER_CONFORMANCE_VLLM_WHEEL", "nowhere/vllm-1.0-py3-none-any.whl")
        result = run(pytester, PASSING, "--subject=vllm")
        result.stdout.fnmatch_lines(["subject: vllm not found: *"])
        assert result.ret == pytest.ExitCode.OK


class TestOptions:
    """``--subject`` and hypothesis' own ``--hypothesis-profile``."""

    def test_unknown_subject(self, pytester: pytest.Pytester) -> None:
        """Another name than the known ones ends the run before any test."""
        result = run(pytester, PASSING, "--subject=upstream")
        result.stderr.fnmatch_lines(["*--subject: invalid choice: 'upstream' (choose from *impl*vllm*"])
        assert result.ret == pytest.ExitCode.USAGE_ERROR

    @pytest.mark.parametrize(("profile", "examples"), [("dev", 25), ("ci", 100), ("nightly", 5000)])
    def test_profiles(self, pytester: pytest.Pytester, profile: str, examples: int) -> None:
        """Each profile sets the number of examples that it is for."""
        source = f"""
            from hypothesis import settings

            def test_profile():
                assert settings().max_examples == {examples}
                assert settings().deadline is None
        """
        result = run(pytester, source, f"--hypothesis-profile={profile}")
        result.stdout.fnmatch_lines([f"hypothesis profile: {profile}"])
        result.assert_outcomes(passed=1)

    def test_subject_fixture(self, pytester: pytest.Pytester) -> None:
        """The fixture is the adapter of the chosen subject."""
        source = "def test_subject(subject): assert (subject.name, subject.missing) == ('impl', frozenset())"
        run(pytester, source).assert_outcomes(passed=1)


class TestReports:
    """What is said of single tests."""

    def test_reproduce(self, pytester: pytest.Pytester) -> None:
        """A failure ends with one line that repeats it with the same settings."""
        result = run(pytester, FAILING, "--hypothesis-profile=ci")
        command = "python -m pytest test_reproduce.py::test_fails --subject=impl --hypothesis-profile=ci"
        result.stdout.fnmatch_lines(["*reproduce*", command])
        result.assert_outcomes(failed=1)

    def test_known_differences(self, pytester: pytest.Pytester) -> None:
        """Differences that passing tests met are listed with what they mean, each once."""
        pytester.makeconftest(
            """
            from aiter_conformance.protocols import Difference
            from aiter_conformance.subjects.impl import ImplSubject

            ImplSubject.differences = {"odd-pads": Difference("odd-pads", "pads are odd")}
            """
        )
        source = """
            import pytest

            @pytest.mark.parametrize("i", range(3))
            def test_difference(i, record_property):
                if i:
                    record_property("difference", "odd-pads")
        """
        result = run(pytester, source)
        result.stdout.fnmatch_lines(["*known differences of impl 0.*", "odd-pads (in 2 tests): pads are odd"])
        result.assert_outcomes(passed=3)

    def test_no_differences(self, pytester: pytest.Pytester) -> None:
        """Without differences nothing is said of them."""
        result = run(pytester, PASSING)
        result.stdout.no_fnmatch_line("*known differences*")


class TestElsewhere:
    """In a project that only has the package installed."""

    def test_settings_are_left_alone(self, pytester: pytest.Pytester) -> None:
        """Another project's hypothesis settings, header and reports stay as they are."""
        source = """
            from hypothesis import settings

            def test_default():
                assert settings().max_examples == 100

            def test_fails():
                assert 1 == 2
        """
        # Where CI is set, hypothesis takes another profile as the default one.
        result = run(pytester, source, "--hypothesis-profile=default", active="false")
        for line in ("subject: *", "hypothesis profile: dev", "*reproduce*"):
            result.stdout.no_fnmatch_line(line)
        result.assert_outcomes(passed=1, failed=1)

    def test_subject(self, pytester: pytest.Pytester) -> None:
        """The subject can be used there all the same."""
        source = "def test_subject(subject): assert subject.name == 'impl'"
        run(pytester, source, active="false").assert_outcomes(passed=1)
