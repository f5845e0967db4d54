"""The code objects of a release: found by a part of their path, loaded, decoded, and made ready to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance.errors import HarnessError, InfrastructureError, UsageError
from aiter_conformance.isa import codeobject, decode, disasm, fast
from aiter_conformance.isa.assembly import UnknownInstructionError
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.judge import Case, Judgement, Observation, Status, observe
from aiter_conformance.isa.variant import Variant, read_variant
from aiter_conformance.release.artefact import Release, open_release
from aiter_conformance.release.inventory import MANIFEST_PATH, parse_manifest


def named_objects(release: Release, archs: Sequence[str] = (), family: str = "") -> list[str]:
    """Paths of the code objects that a sound or unsound row of a MoE manifest names, sorted.

    Args:
        release: An open release.
        archs: Only those of these archs; all without.
        family: Only those whose path contains this.

    Raises:
        UsageError: No manifest names such an object.
    """
    manifests = [path for path in release.files.paths if MANIFEST_PATH.fullmatch(path)]
    found: set[str] = set()
    for path, content in release.files.read_many(manifests):
        manifest, _ = parse_manifest(path, content)
        if not archs or manifest.arch in archs:
            found |= {row.object_path for row in manifest.rows if family in row.object_path}
    if not found:
        raise UsageError(
            f"a MoE manifest of {release.label} must name an object with {family!r} in its path, for "
            f"{' or '.join(archs) or 'any arch'} (none does); `release show` lists what it ships"
        )
    return sorted(found)


def find_object(release: Release, text: str) -> str:
    """The one MoE code object whose path ends in a text, or contains it.

    Raises:
        UsageError: None does, or several do.
    """
    objects = [path for path in release.files.paths if path.startswith("hsa/") and path.endswith(".co")]
    for matching in (
        [path for path in objects if path == text],
        [path for path in objects if path.removesuffix(".co").endswith(f"/{text.removesuffix('.co')}")],
        [path for path in objects if text in path],
    ):
        if len(matching) == 1:
            return matching[0]
        if matching:
            some = ", ".join(matching[:4]) + (", ..." if len(matching) > 4 else "")
            raise UsageError(f"{text!r} must be one object of {release.label} (got {len(matching)}: {some})")
    raise UsageError(f"{text!r} must be part of a code object's path in {release.label} (none has it)")


def load_objects(
    contents: Iterable[tuple[str, bytes]],
) -> Iterator[tuple[str, CodeObject | Judgement, decode.Program | None]]:
    """Load and decode objects in one run of the disassembler; one that cannot be is judged not executable."""
    loaded: dict[str, CodeObject | Judgement] = {}
    for path, content in contents:
        try:
            loaded[path] = codeobject.load(content)
        except HarnessError as error:
            loaded[path] = Judgement(Status.NOT_EXECUTABLE, str(error), None)
    objects = [code for code in loaded.values() if isinstance(code, CodeObject)]
    disasm.library()  # absent: nothing can be tested, which is no property of an object
    try:
        programs: list[decode.Program | None] = [*decode.decode(objects)]
    except UnknownInstructionError:
        programs = [None] * len(objects)  # one of them is at fault: below, each alone
    following = iter(programs)
    for path, code in loaded.items():
        if isinstance(code, Judgement):
            yield path, code, None
            continue
        program = next(following)
        if program is None:
            try:
                program = decode.decode([code])[0]
            except UnknownInstructionError as error:
                yield path, Judgement(Status.NOT_EXECUTABLE, str(error), None), None
                continue
        yield path, code, program


@dataclass(frozen=True, slots=True)
class Opened:
    """One object, ready to run.

    Attributes:
        path: Release-relative path.
        code: The object.
        program: It decoded.
        kind: What its name says that it computes.
        core: The interpreter.
    """

    path: str
    code: CodeObject
    program: decode.Program
    kind: Variant
    core: Core

    def observe(self, case: Case) -> Observation:
        """Run one case; errors as for `judge.observe`."""
        return observe(self.code, self.program, self.kind, case, self.core)[0]


def open_object(release_text: str, object_text: str, folder: Path | None = None) -> Opened:
    """Open one object of a release to run it.

    Args:
        release_text: The release, as `open_release` takes it.
        object_text: The object, as `find_object` takes it.
        folder: Where compiled code is kept; None lets numba choose.

    Raises:
        UsageError: There is no such release or object, or the object's launch is not modelled.
        InfrastructureError: It cannot be decoded, or numba or the disassembler is absent.
    """
    with open_release(release_text) as release:
        path = find_object(release, object_text)
        content = release.files.read(path)
    core = fast.load(folder)
    [(_, code, program)] = load_objects([(path, content)])
    if isinstance(code, Judgement) or program is None:
        reason = code.reason if isinstance(code, Judgement) else "it was not decoded"
        raise InfrastructureError(f"{path} must be executable (got: {reason}); NOT RUN")
    return Opened(path, code, program, read_variant(code.arch, path), core)
