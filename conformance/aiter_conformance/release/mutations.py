"""Damaged inputs: a hypothesis strategy that mutates a good file as disks, downloads and people do."""

from __future__ import annotations

from hypothesis import strategies as st

# Numbers that sizes, offsets and counts in file formats dislike.
_NUMBERS = tuple(
    value.to_bytes(width, "little", signed=False)
    for width in (1, 2, 4, 8)
    for value in (
        0,
        1,
        2 ** (8 * width - 1) - 1,
        2 ** (8 * width - 1),
        2 ** (8 * width) - 2,
        2 ** (8 * width) - 1,
    )
)
_TEXTS = (
    b"",
    b"\0",
    b"\n",
    b"\r",
    b",",
    b'"',
    b"../",
    b"\\",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"{",
    b"[",
    b"#",
    b"//",
    b"=",
)
_MOST_STEPS = 6


@st.composite
def mutated(draw: st.DrawFn, *seeds: bytes) -> bytes:
    """Draw one of *seeds* and damage it in one to six places.

    A step cuts, drops, doubles, moves or overwrites a part, or puts in numbers, texts or bytes that hurt.
    """
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, _MOST_STEPS))):
        start = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, min(64, len(data) - start)))
        part = data[start : start + size]
        put = draw(st.sampled_from((*_NUMBERS, *_TEXTS)) | st.binary(max_size=8))
        match draw(st.sampled_from(("cut", "drop", "double", "move", "overwrite", "insert", "flip"))):
            case "cut":
                data = data[:start]
            case "drop":
                data = data[:start] + data[start + size :]
            case "double":
                data = data[:start] + part + data[start:]
            case "move":
                rest = data[:start] + data[start + size :]
                to = draw(st.integers(0, len(rest)))
                data = rest[:to] + part + rest[to:]
            case "overwrite":
                data = data[:start] + put + data[start + len(put) :]
            case "insert":
                data = data[:start] + put + data[start:]
            case _:
                flipped = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in part[:1])
                data = data[:start] + flipped + data[start + len(flipped) :]
    return data
