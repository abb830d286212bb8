"""A text file with a keyword a line and no header: every line is a record, whatever is in it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.workers import LONG
from weighbridge.formats import UnknownHeader, record_syntax, scan, sniff
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins

from .checking import check, check_bytes, identity, rows


def keywords(text: str) -> list[str]:
    return [keyword for (keyword,) in rows(check(text), "keyword")]


def test_each_line_is_a_keyword_and_there_is_no_header() -> None:
    outcome = check("blue shoes\nred shoes\n")
    assert outcome.bins == Bins(accepted=2)
    assert rows(outcome, "line", "keyword", "volume") == [(1, "blue shoes", None), (2, "red shoes", None)]
    assert outcome.mapping["keyword.keyword"] == "Keyword"


@pytest.mark.parametrize("text", ["blue shoes\nred shoes\n", "Keyword\nblue shoes\n"])
def test_a_list_without_a_volume_says_so(text: str) -> None:
    outcome = check(text)
    assert [each.field for each in outcome.column_report.missing] == ["keyword.volume"]
    assert outcome.warnings.keys() == {"volume_column_not_found"}


def test_one_keyword_is_a_list() -> None:
    assert keywords("blue shoes") == ["blue shoes"]


def test_a_lone_carriage_return_does_not_make_two_keywords_of_one() -> None:
    outcome = check("blue shoes\nred\rshoes\nboots\n")
    assert [keyword for (keyword,) in rows(outcome, "keyword")] == ["blue shoes", "boots"]
    assert outcome.codes == ["stray_line_end"]


@pytest.mark.parametrize(
    ("line", "keyword"),
    [
        ('"blue shoes"', "blue shoes"), (' "blue shoes" ', "blue shoes"), ('"blue, shoes"', "blue, shoes"),
        ('"5"" pipe"', '5" pipe'), ('5" pipe', '5" pipe'), ('"open', '"open'), ("[blue shoes]", "[blue shoes]"),
        ("plumber in boston, ma", "plumber in boston, ma"), ("men's shoes", "men's shoes"), ("a; b", "a; b"),
        ("this | that", "this | that"), ("a\tb", "a b"), ("'90s music", "'90s music"), ("cpc", "cpc"),
        ("keyword", "keyword"), ("keyword, volume", "keyword, volume"), ("Volume;CPC", "Volume;CPC"), ('"', '"'),
        ('"red" or "blue"', '"red" or "blue"'), ('"a""b"', 'a"b'), ('"a"b"', '"a"b"'), ('"5"" or ""6"""', '5" or "6"'),
    ],
)  # fmt: skip
def test_a_line_may_have_anything_in_it(line: str, keyword: str) -> None:
    assert keywords(f"boots\nred shoes\n{line}\nsandals\nslippers\n") == [
        "boots",
        "red shoes",
        keyword,
        "sandals",
        "slippers",
    ]


@pytest.mark.parametrize(
    "first", ["cpc", "volume", '"blue, shoes"', "[shoes]", "{shoes}", "<3 shoes", "#shoes"]
)
def test_a_list_may_begin_with_anything(first: str) -> None:
    text = f"{first}\nred shoes\nboots\n"
    assert sniff(text.encode(), "keywords.txt") == "csv"
    assert keywords(text) == [first.strip('"'), "red shoes", "boots"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_any_encoding_and_line_end_will_do(tmp_path: Path, encoding: str, end: str) -> None:
    data = end.join(["café crème", "", "Müller, Söhne", "-", "plain"]).encode(encoding)
    assert sniff(data, "list.txt") == "csv"
    outcome = check_bytes(tmp_path, data)
    assert outcome.bins == Bins(blank=1, accepted=3, rejected=1)
    assert rows(outcome, "line", "keyword") == [(1, "café crème"), (3, "Müller, Söhne"), (5, "plain")]
    assert outcome.rejections[0]["raw"] == ["-"]


def test_invisible_characters_of_a_list_are_removed_and_counted() -> None:
    outcome = check("blue\u200b shoes\nred shoes\u2060\nboots\n")
    assert [keyword for (keyword,) in rows(outcome, "keyword")] == ["blue shoes", "red shoes", "boots"]
    assert outcome.warnings["invisible_characters"].startswith("2 invisible characters, such as U+200B, were")
    assert "invisible_characters" not in check("blue shoes\nboots\n").warnings


def test_blank_lines_are_blank_and_repeats_are_duplicates() -> None:
    outcome = check('\n  \nblue shoes\n""\nBLUE  shoes\n\n-\n')
    assert outcome.bins == Bins(blank=4, accepted=1, duplicate=1, rejected=1)
    assert [(r["line"], r["column_name"], r["raw"]) for r in outcome.rejections] == [(7, "Keyword", ["-"])]


@pytest.mark.parametrize("header", ["Keyword", "keywords", '"Search term"', "\ufeffKeyword", "\nKeyword"])
def test_a_list_with_a_known_header_is_read_as_a_table(header: str) -> None:
    outcome = check(f'{header}\nblue shoes\n"red, or\npink"\n')
    assert (outcome.bins.header, outcome.bins.accepted) == (1, 2)
    assert rows(outcome, "keyword") == [("blue shoes",), ("red, or pink",)]


@pytest.mark.parametrize(
    "text",
    [
        "blue shoes,500\nred shoes,20\nboots,7\n",
        "Suchbegriff;Anzahl\nschuhe;5\n",
        "a\tb\tc\nd\te\nf\n",
        "blue shoes,1\nred shoes,2\nboots\n",
    ],
)
def test_several_columns_and_no_known_header_are_refused(text: str) -> None:
    with pytest.raises(UnknownHeader):
        check(text)


def test_a_header_under_a_preamble_is_found_even_in_a_short_file() -> None:
    outcome = check("Keyword Stats\nJuly 2025\nNot final\nKeyword\tVolume\nblue shoes\t5\n")
    assert outcome.bins == Bins(preamble=3, header=1, accepted=1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_file"), (" \n\n", "empty_file"), ("No data available.\n", "no_data"), ("-\n", None),
        ("x" * (record_syntax.LONGEST_RECORD + 1), "malformed_file"),
        ("a\nb\n" + "x" * (record_syntax.LONGEST_RECORD + 1) + "\n", "malformed_file"),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(text: str, code: str | None) -> None:
    if code is None:
        assert check(text).bins == Bins(rejected=1)
        return
    with pytest.raises(FileRefused) as refused:
        check(text)
    assert refused.value.code == code


def test_a_list_longer_than_its_head_is_read_in_blocks(tmp_path: Path) -> None:
    lines = [f"keyword number {number} é" for number in range(120_000)]
    outcome = check_bytes(tmp_path, "\n".join(lines).encode())
    assert outcome.bins == Bins(accepted=120_000)
    assert rows(outcome, "line", "keyword")[99_999] == (100_000, lines[99_999])


line = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cn"]), max_size=12)
chunk_sizes = st.sampled_from([1, 3, 7, scan.CHUNK])


@settings(max_examples=300 if LONG else 25, deadline=None)
@given(st.lists(line | st.sampled_from(["", '"a, b"', "a,b", '"']), max_size=12), chunk_sizes)
def test_the_bins_are_the_lines_whatever_they_hold(lines: list[str], chunk: int) -> None:
    body = ["two words"] * 13 + lines  # a list, surely
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "CHUNK", chunk)
        outcome = check_bytes(Path(folder), ("\n".join(body) + "\n").encode())
    assert outcome.bins.records == len(body)
    assert outcome.bins.header == outcome.bins.preamble == outcome.bins.totals == 0
    assert {row["keyword_normalized"] for row in outcome.rows["keyword"]} <= {
        identity(each.strip('" \u200b\ufeff').replace('""', '"')) for each in body
    } | {identity(each.strip(" \u200b\ufeff")) for each in body}
