"""What comments and documents cite is there: sections of SPEC and its companions, releases that were read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version

from aiter_conformance.release.version import version_key

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "conformance" / "docs" / "reference"
FOLDERS = ("impl", "conformance", "matrices/spec", "reports/findings")
SUFFIXES = {".py", ".toml", ".md", ".j2"}
CITED = {"SPEC": "spec.md", "NUMERICS": "numerics.md", "ISA-FACTS": "isa-facts.md", "DESIGN": "design.md"}
# A title and, after it, the numbers of one or more sections: "SPEC 4", "ISA-FACTS 2.4 and 3.4".
CITATION = re.compile(rf"\b({'|'.join(CITED)}) (\d+(?:\.\d+)?(?:(?:, | and )\d+\.\d+)*)")
CASE = re.compile(r"\bCASES (C\d+)")
# Newer releases are named where no more is said than that vLLM names them: there no claim is made.
CLAIM = re.compile(r"\b(?:before|from|since|until|up to) v(0\.1\.\d+(?:\.post\d+)?)")


def texts() -> dict[str, str]:
    """Return every text that may cite something, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and path != Path(__file__) and "__pycache__" not in path.parts
    }


def sections(title: str) -> set[str]:
    """Return the numbers of a document's sections."""
    text = (REFERENCE / CITED[title]).read_text(encoding="utf-8")
    return set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, flags=re.MULTILINE))


def cases() -> set[str]:
    """Return the ids of the cases."""
    return set(re.findall(r"^\| (C\d+) \|", (REFERENCE / "cases.md").read_text("utf-8"), flags=re.MULTILINE))


def dangling(text: str) -> list[str]:
    """Return the citations of a text that lead nowhere."""
    found = [f"CASES {case}" for case in CASE.findall(text) if case not in cases()]
    for title, numbers in CITATION.findall(text):
        found += [f"{title} {n}" for n in re.findall(r"[\d.]+\d|\d", numbers) if n not in sections(title)]
    return found


class TestCitations:
    """Citations by title and number."""

    def test_all_lead_somewhere(self) -> None:
        """Every section and case that a text cites is in the documents beside it."""
        assert {path: lost for path, text in texts().items() if (lost := dangling(text))} == {}

    def test_there_are_some(self) -> None:
        """Each of the documents is cited, so that the check above has something to look at."""
        cited = {title for text in texts().values() for title, _ in CITATION.findall(text)}
        assert cited >= CITED.keys() - {"DESIGN"}
        assert "DESIGN: figures to reach" in texts()["conformance/aiter_conformance/isa_speed.py"]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("as SPEC 4 has it", []),
            ("see SPEC 13.", ["SPEC 13"]),
            ("ISA-FACTS 2.4, 3.9", ["ISA-FACTS 3.9"]),
            ("ISA-FACTS 2.4 and 3.4", []),
            ("CASES C12 and CASES C13", ["CASES C13"]),
        ],
    )
    def test_one_that_leads_nowhere_is_seen(self, text: str, found: list[str]) -> None:
        """A section or case that is not there is named."""
        assert dangling(text) == found


class TestDocuments:
    """The documents themselves."""

    def test_speak_of_the_project_alone(self) -> None:
        """No path of a machine, no rough proof that is not in the repository, no link that leads nowhere."""
        for path in sorted(REFERENCE.glob("*.md")):
            text = path.read_text(encoding="utf-8")
            assert re.findall(r"(?<![\w.])/(?:work|tmp|home|root)\b|prototypes/", text) == [], path.name
            for target in re.findall(r"\]\(([^)#:]+)\)", text):
                assert (path.parent / target).exists(), f"{path.name}: {target}"


class TestReadme:
    """The first page that anyone reads."""

    def test_links_lead_somewhere(self) -> None:
        """Every file that it links is there, and the pages that say what broke are among them."""
        targets = set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
        assert [target for target in sorted(targets) if not (ROOT / target).exists()] == []
        assert targets >= {
            "matrices/published/releases.md",
            "reports/gate/README.md",
            "reports/isa/README.md",
        }
        assert any(target.endswith("/models.md") for target in targets)

    def test_names_the_vllm_that_is_meant(self) -> None:
        """The vLLM of the contract is the one whose wheel the sessions download."""
        (version,) = re.findall(
            r'^VLLM_VERSION = "(.+)"', (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE
        )
        assert f"of vLLM {version}'s leaves" in (ROOT / "README.md").read_text(encoding="utf-8")


class TestReleases:
    """What is said of AITER's releases."""

    @pytest.mark.parametrize(
        "path",
        [
            "conformance/docs/departures.md",
            "conformance/aiter_conformance/subjects/vllm_differences.py",
            "reports/findings/vllm/README.md",
            "reports/findings/vllm/negative_topk_ids.py",
        ],
    )
    def test_no_bound_lies_beyond_what_was_read(self, path: str) -> None:
        """A claim about releases before or since another one names one that was read."""
        published = (folder.name for folder in (ROOT / "matrices" / "published").iterdir() if folder.is_dir())
        newest = Version(max((n for n in published if not n.startswith("main")), key=version_key))
        claimed = CLAIM.findall((ROOT / path).read_text(encoding="utf-8"))
        assert [version for version in claimed if Version(version) > newest] == []
        assert CLAIM.findall("AITER before v0.1.22.post1 does") == ["0.1.22.post1"]
