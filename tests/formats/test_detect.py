"""What is let in: by content, the name only between equals."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile

import pytest

from weighbridge.formats import describe, sniff

TABLE = "Keyword,Volume\nCafé,10\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("text", [TABLE, "Keyword\nrøde sko\nblå sko\n", "No data available.", "x"])
def test_text_in_any_of_our_encodings_is_csv(text: str, encoding: str) -> None:
    assert sniff(text.encode(encoding), None) == "csv"


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}]',
        '{"data": [{"a": 1}]}',
        '{"a": 1}\n{"a": 2}\n',
        '\n  {\n  "a": 1}',
        "[]",
        "{}",
        "[1, 2, 3]",
        '["a", "b"]',
        "[[1, 2], [3, 4]]",
        '[{"a": 1,, broken further on',
        json.dumps([{"a": "é" * 100}] * 1000, ensure_ascii=False),
        json.dumps([["é" * 100]] * 1000, ensure_ascii=False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_objects_and_lines_of_json_are_json_whatever_the_name(text: str, encoding: str) -> None:
    assert sniff(text.encode(encoding), "export.csv") == "json"


@pytest.mark.parametrize(
    "text",
    [
        "[broad match]\n[red shoes]\n",
        "[null keyword]\n",
        "[123 main street],5\n",
        "{KeyWord:Shoes},10\n",
        "{brand} shoes\n",
        '"[{""a"": 1}]",2\n',
        "[",
        "{",
        "[1",
    ],
)
def test_brackets_that_begin_no_json_are_csv(text: str) -> None:
    assert sniff(text.encode(), "export.csv") == "csv"
    assert sniff(text.encode(), None) == "csv"


def test_between_equals_the_name_decides() -> None:
    lists_in_lines = b"[123]\n[456]\n"
    assert sniff(lists_in_lines, "keywords.csv") == "csv"
    assert sniff(lists_in_lines, None) == "csv"
    assert sniff(lists_in_lines, "Export.JSONL") == "json"


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("xl/workbook.xml", TABLE)
    return out.getvalue()


NEITHER = {
    "nothing": b"",
    "white space": b" \n\t\r\n",
    "a mark alone": b"\xef\xbb\xbf",
    "a UTF-16 mark alone": b"\xff\xfe",
    "xlsx": _zip(),
    "gzip": gzip.compress(TABLE.encode(), mtime=0),
    "pdf": b"%PDF-1.7\n1 0 obj\n",
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01",
    "gif": b"GIF89a\x01\x00\x01\x00",
    "bmp": b"BM\x36\x00\x0c\x00\x00\x00\x00\x00",
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100,
    "parquet": b"PAR1\x15\x04\x15",
    "sqlite": b"SQLite format 3\0",
    "wav": b"RIFF\x24\x08\x00\x00WAVEfmt ",
    "bzip2": b"BZh91AY&SY\x01\x02",
    "html": b"<!DOCTYPE html><html><body>a,b</body></html>",
    "html without doctype": b"\n<html lang='en'>",
    "html in UTF-16": "<html>".encode("utf-16"),
    "an html table": b"<table><tr><td>1</td></tr></table>",
    "xml": b"\xef\xbb\xbf<?xml version='1.0'?><rows/>",
    "rtf": b"{\\rtf1\\ansi a,b}",
    "a script": b"#!/bin/sh\necho a,b\n",
    "a certificate": b"-----BEGIN CERTIFICATE-----\n",
    "a NUL": b"a,b\n1,\x002\n",
    "a bell": b"a,b\n1,\x07\n",
    "terminal colours": b"\x1b[31mred\x1b[0m",
    "noise": random.Random(1).randbytes(1000),
    "UTF-32": TABLE.encode("utf-32"),
}


@pytest.mark.parametrize("head", NEITHER.values(), ids=NEITHER)
@pytest.mark.parametrize("name", ["export.csv", "export.json", None])
def test_what_is_no_text_table_is_neither(head: bytes, name: str | None) -> None:
    assert sniff(head, name) is None


DESCRIBED = {
    "xlsx": "an Excel workbook. Save the sheet as CSV.",
    "xls": "an old Office file, such as an Excel workbook (.xls). Save the sheet as CSV.",
    "gzip": "a gzip archive. Unpack it and send the files in it.",
    "bzip2": "a bzip2 archive. Unpack it and send the files in it.",
    "png": "a PNG picture. Export the figures as CSV.",
    "pdf": "a PDF. Export the report as CSV.",
    "parquet": "a Parquet file. Export it as CSV.",
    "html in UTF-16": "a web page. Was a login needed to download it? Export the report as CSV.",
    "xml": "XML. Export the report as CSV.",
    "UTF-32": "text in UTF-32. Save it as UTF-8.",
    "a NUL": "text with a NUL on line 2. Export the file again as plain text.",
    "a bell": "text with the control character U+0007 on line 2. Export the file again as plain text.",
    "noise": "a binary file of an unknown format. Export the data as CSV.",
    "nothing": "",
    "white space": "",
    "a mark alone": "",
    "a UTF-16 mark alone": "",
}


@pytest.mark.parametrize("kind", DESCRIBED)
def test_what_is_neither_is_called_by_its_name(kind: str) -> None:
    assert describe(NEITHER[kind]) == DESCRIBED[kind]


def test_an_archive_is_told_from_a_workbook_by_what_is_in_it() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("report.csv", TABLE)
    assert describe(out.getvalue()) == "a zip archive. Unpack it and send the files in it."


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5000])
def test_nuls_alone_are_not_nothing(count: int) -> None:
    assert describe(b"\0" * count) == "NUL bytes only. Export the file again."


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_white_space_in_utf_16_is_nothing(encoding: str) -> None:
    assert describe(" \r\n".encode(encoding)) == ""


def test_a_character_cut_by_the_end_of_the_head_does_no_harm() -> None:
    for padding in range(4):
        assert sniff((b"x" * padding + "€,é\n".encode() * 20_000)[: 1 << 16], None) == "csv"


def test_text_in_an_encoding_we_do_not_know_is_let_in_to_be_refused_by_its_line() -> None:
    assert sniff("a,b\nкупить,Џ\n".encode("cp1251"), None) == "csv"


@pytest.mark.parametrize("first", ["hello", "[1]", "{'a': 1}", '{"a": 1} x'])
def test_lines_of_json_under_a_first_line_that_is_none_are_json_by_name(first: str) -> None:
    text = f"{first}\n" + '{"a": "é"}\n' * 30
    assert sniff(text.encode(), "export.ndjson") == "json"
    assert sniff(b"payload\n" + b'{"a": 1}\n' * 30, "export.csv") == "csv"
