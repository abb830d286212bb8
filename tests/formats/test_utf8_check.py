"""Where a file stops being UTF-8, in pieces of any size: what Python's decoder says."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from weighbridge.formats.file_bytes import Utf8Check

# Bytes at the borders of the definition: overlong forms, surrogates, beyond U+10FFFF, and single bytes of each kind.
ODD = [
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",
    b"\xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xf5",
    b"\xff",
]
PIECES = st.one_of(
    st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(["–", "é", "😀", "\U0010ffff", "\ue000", "\ud7ff"]).map(str.encode),
    st.sampled_from(ODD),
    st.binary(max_size=2),
)


def by_python(text: bytes) -> int | None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(1, 9), max_size=8))
@example(["a – b".encode()[:4]], [])
@example(["😀😀".encode()], [1, 2, 3, 1])
@example([b"\xed\xa0\x80"], [1])
def test_the_first_broken_byte_is_the_one_that_python_finds(pieces: list[bytes], sizes: list[int]) -> None:
    text = b"".join(pieces)
    check = Utf8Check()
    found, start = None, 0
    for size in [*sizes, len(text) + 1]:
        chunk, start = text[start : start + size], start + size
        if chunk and found is None:
            found = check.broken_at(chunk)
    found = check.broken_at(b"") if found is None else found
    assert found == by_python(text)
