"""Encodings: the whole file decides, and what cannot be read is refused by its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weighbridge.formats import file_bytes
from weighbridge.formats.to_utf8 import as_utf8
from weighbridge.model.errors import FileRefused

from .conftest import Read

Reader = Callable[..., Read]
TEXT = "a,b\r\nCafé – 5 €,“Ünï”\r\nnaïve,x\r\n"
ROWS = [["Café – 5 €", "“Ünï”"], ["naïve", "x"]]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16-le"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_every_encoding_of_a_text_reads_the_same(
    read: Reader, monkeypatch: pytest.MonkeyPatch, written: str, named: str, chunk: int
) -> None:
    monkeypatch.setattr(file_bytes, "CHUNK", chunk)
    found = read(TEXT.encode(written))
    assert found.sheet.header == ("a", "b")
    assert found.values == ROWS
    assert found.sheet.encoding == named


def test_utf16_with_a_big_endian_mark(read: Reader) -> None:
    assert read(b"\xfe\xff" + TEXT.encode("utf-16-be")).values == ROWS


@pytest.mark.parametrize("written", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_and_with_hardly_a_latin_letter(read: Reader, written: str) -> None:
    found = read("a,b\n北京烤鸭好吃吗,上海小笼包\nĀȀ,Ж\n".encode(written))
    assert found.values == [["北京烤鸭好吃吗", "上海小笼包"], ["ĀȀ", "Ж"]]


def test_utf8_is_read_where_it_lies(tmp_path: Path) -> None:
    path, scratch = tmp_path / "x.csv", tmp_path / "scratch"
    path.write_bytes(TEXT.encode())
    assert as_utf8(path, scratch).path == path
    assert not scratch.exists()


def test_one_byte_at_the_very_end_makes_a_file_windows_1252(read: Reader) -> None:
    found = read(b"a,b\n" + (b"1," + b"2" * 10_000 + b"\n") * 300 + b"caf\xe9,\x80")
    assert found.sheet.encoding == "cp1252"
    assert found.values[-1] == ["café", "€"]


def test_a_file_that_ends_inside_a_character_is_refused_by_its_line(read: Reader) -> None:
    for data in (b"a,b\n1,x\xc3", "a,b\nCafé,Köln\n1,x".encode() + b"\xc3"):
        with pytest.raises(FileRefused, match=r"Line \d cannot be read as UTF-8.*--encoding") as refused:
            read(data)
        assert refused.value.code == "bad_encoding"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            "a,b\nCafé,naïve\nÜber,größer\nstraße,Köln\nJosé,x\n".encode() + b"1,\xe9\n",
            "Line 6 cannot be read as UTF-8.",
        ),
        (b"\xef\xbb\xbfa,b\r1,2\r\xff,3\r", "Line 3 cannot be read as UTF-8."),
        (b"a,b\n1,\x81\n", "Line 2 cannot be read as UTF-8, and its encoding is ambiguous: it has "),
        ("a,b\n1,2\n".encode("utf-16") + b"x", "Line 3 cannot be read as UTF-16."),
        ("a,b\n1,".encode("utf-16") + b"\x00\xd8\x00\x00", "Line 2 cannot be read as UTF-16."),
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_what_no_encoding_explains_is_refused_by_its_line(
    read: Reader, monkeypatch: pytest.MonkeyPatch, data: bytes, sentence: str, chunk: int
) -> None:
    monkeypatch.setattr(file_bytes, "CHUNK", chunk)
    with pytest.raises(FileRefused) as refused:
        read(data)
    assert refused.value.code == "bad_encoding"
    assert refused.value.message.startswith(sentence)


@pytest.mark.parametrize("written", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_nul_is_refused_by_its_line_in_every_encoding(read: Reader, written: str) -> None:
    with pytest.raises(FileRefused, match="Line 3 has a NUL character") as refused:
        read("a,b\ré,é\r\nx\0y,2\n".encode(written))
    assert refused.value.code == "malformed_file"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a,b\nкупить обувь,1\nкрасные туфли,2\n", "cp1251"),
        ("a,b\nπαπούτσια,1\nΑθήνα,2\n", "cp1253"),
        ("a,b\n北京烤鸭好吃吗,1\n上海小笼包很好吃,2\n", "gb18030"),
        ("a,b\n新しい靴、赤い靴,1\n", "cp932"),
    ],
)
def test_other_alphabets_are_read_in_their_own_encoding(read: Reader, text: str, written: str) -> None:
    found = read(text.encode(written))
    assert [row[0] for row in found.values] == [line.split(",")[0] for line in text.splitlines()[1:]]
    assert found.sheet.encoding == written
