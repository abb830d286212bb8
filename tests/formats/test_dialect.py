"""Delimiter, quote, preamble and header row: the pipeline's own headers decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weighbridge.formats import delimited, open_sheet
from weighbridge.formats.dialect import UnknownHeader
from weighbridge.model.errors import FileRefused

from .conftest import Read, knows

Reader = Callable[..., Read]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_delimiter_is_the_one_that_gives_known_headers(read: Reader, delimiter: str) -> None:
    found = read(
        delimiter.join(["Keyword", "Volume"]) + "\n" + delimiter.join(['"a, b; c"', "1"]), "keyword", "volume"
    )
    assert found.sheet.delimiter == delimiter
    assert found.values == [["a, b; c", "1"]]


def test_commas_in_the_preamble_do_not_make_commas_the_delimiter(read: Reader) -> None:
    found = read("Report, of, many, commas, here\nall,of,it\nday\tcost\n2025-01-01\t1,50\n", "day", "cost")
    assert found.sheet.delimiter == "\t"
    assert found.sheet.preamble == ("Report, of, many, commas, here", "all,of,it")
    assert (found.sheet.header, found.sheet.header_line, found.lines) == (("day", "cost"), 3, [4])


def test_a_title_and_a_date_range_are_preamble(read: Reader) -> None:
    found = read(
        'Campaign report\r\n"July 8, 2025 - July 31, 2025"\r\nCampaign,Cost\r\nx,1\r\n', "campaign", "cost"
    )
    assert found.sheet.preamble == ("Campaign report", '"July 8, 2025 - July 31, 2025"')
    assert found.values == [["x", "1"]]


def test_blank_lines_before_the_header_are_preamble(read: Reader) -> None:
    found = read("\n\na,b\n1,2\n")
    assert (found.sheet.preamble, found.sheet.header_line, found.sheet.records) == (("", ""), 3, 4)


def test_the_row_with_the_most_known_headers_is_the_header_and_the_first_of_equals(read: Reader) -> None:
    found = read("a,x,y\na,b,c\na,b,c\n1,2,3\n")
    assert found.sheet.header_line == 2
    assert found.values == [["a", "b", "c"], ["1", "2", "3"]]


def test_a_header_below_the_fiftieth_record_is_not_looked_for(read: Reader) -> None:
    assert read("x\n" * 49 + "a,b\n1,2\n").sheet.header_line == 50
    with pytest.raises(UnknownHeader):
        read("x\n" * 50 + "a,b\n1,2\n")


def test_between_delimiters_that_give_as_many_known_headers_the_rows_decide(read: Reader) -> None:
    assert read("a;x,b\n1;2\n3;4\n").sheet.delimiter == ";"
    assert read("a;x,b\n1,2\n3,4\n").sheet.delimiter == ","


def test_a_record_whose_crlf_is_cut_by_the_head_is_not_taken_for_whole(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "HEAD", len("title\r\na,b\r"))
    with pytest.raises(UnknownHeader):
        read("title\r\na,b\r\n1,2\r\n")


def test_a_list_of_one_column_keeps_the_commas_of_its_cells(read: Reader) -> None:
    found = read("Keyword\nred shoes\nshoes, red\n" + "x\n" * 60 + "a;b,c\td\n", "keyword")
    assert found.values[:2] + found.values[-1:] == [["red shoes"], ["shoes, red"], ["a;b,c\td"]]


def test_a_header_in_apostrophes_makes_them_quotes(read: Reader) -> None:
    found = read("'Keyword','Volume'\n'it''s, so','1'\n", "keyword", "volume")
    assert found.sheet.header == ("Keyword", "Volume")
    assert found.values == [["it's, so", "1"]]


def test_apostrophes_elsewhere_are_text(read: Reader) -> None:
    found = read("a,b\n'x,y'\n'tis,'twas\n")
    assert found.values == [["'x", "y'"], ["'tis", "'twas"]]


def test_unknown_columns_are_taken_from_the_likeliest_header_and_not_repeated(read: Reader) -> None:
    with pytest.raises(UnknownHeader) as refused:
        read("Some title, so\nFoo;Bar;Baz\n1;2;3,5\n4;5;6\n", "keyword")
    assert (refused.value.code, refused.value.columns) == ("no_header", ("Foo", "Bar", "Baz"))
    assert (refused.value.line, refused.value.message) == (2, "No column of the file is known.")


def test_more_columns_than_any_export_has_are_refused(read: Reader) -> None:
    header = ["a"] * 2000
    assert read(",".join(header) + "\n").sheet.header == tuple(header)
    with pytest.raises(FileRefused, match="has 2,001 columns") as refused:
        read(",".join([*header, "a"]) + "\n")
    assert refused.value.code == "malformed_file"


@pytest.mark.parametrize(
    "text",
    [
        "No data available.",
        '"No data available."\r\n',
        "\ufeffNo data available.\n\n",
        "\nno data available\n",
        "a,b\nNo data available.\n",
    ],
)
def test_an_export_that_says_no_data_is_refused_as_such(read: Reader, text: str) -> None:
    with pytest.raises(FileRefused) as refused:
        read(text)
    assert refused.value.code == "no_data"


def test_a_row_that_says_no_data_among_others_is_a_row(read: Reader) -> None:
    assert read("a,b\nNo data available.\n1,2\n").values == [["No data available.", None], ["1", "2"]]
    assert read("a\nNo data available\n").values == [["No data available"]]


@pytest.mark.parametrize("text", ["", "\n", " \r\n\t\n", "\ufeff"])
def test_nothing_but_white_space_is_an_empty_file(read: Reader, text: str) -> None:
    with pytest.raises(FileRefused) as refused:
        read(text)
    assert refused.value.code == "empty_file"


def test_a_stray_quote_in_the_header_swallows_nothing(read: Reader) -> None:
    assert read('"a,b\n1,2\n').values == [["1", "2"]]


def test_a_first_line_of_a_megabyte_in_one_delimiter_is_no_obstacle_to_another(read: Reader) -> None:
    inches = 'x;"5 inch' + "-" * 10_000 + "\n"
    assert len(read("a,b\n1,2\n" + inches * 301).rows) == 302


@pytest.mark.parametrize("between", ["", "\n", ",,\n"])
@pytest.mark.parametrize("above", ["ann,rome,blue", '"ann","rome, it",blue', "A1,7,x"])
def test_a_record_above_the_header_refuses_the_file(read: Reader, above: str, between: str) -> None:
    text = f"Title\n{above}\n{between}name,city,colour\nbob,oslo,red\n"
    with pytest.raises(FileRefused, match="Line 2 looks like a record") as refused:
        read(text, "name", "city", "colour")
    assert refused.value.code == "records_above_header"


@pytest.mark.parametrize(
    ("above", "header", "lines"),
    [
        ("A1,7", "name,city", "Line 1 may be a record: 'A1,7'."),
        (
            "Report,Campaign performance",
            "name,city",
            "Line 1 may be a record: 'Report,Campaign performance'.",
        ),
        ("Report\nDate range,2025-01-01", "name,city,x", "Line 2 may be a record: 'Date range,2025-01-01'."),
        ("A1,,7", "name,city,colour", "Line 1 may be a record: 'A1,,7'."),
        ("ann", "name", "Line 1 may be a record: 'ann'."),
        ("ann\nbob", "name", "Lines 1 and 2 may be records, such as 'ann'."),
        ("a,b\n" * 7 + "c,d", "name,city", "Lines 1, 2, 3, 4, 5 and 3 more may be records, such as 'a,b'."),
        ("name,first,second", "name,city,colour", "Line 1 may be a record: 'name,first,second'."),
        ("Who,Who,What", "name,city,colour", "Line 1 may be a record: 'Who,Who,What'."),
        ("ann,rome,blue,tall", "name,city,colour", "Line 1 may be a record: 'ann,rome,blue,tall'."),
        (
            "ann,rome,blue\nTitle,of it,",
            "name,city,colour",
            "Lines 1 and 2 may be records, such as 'ann,rome,",
        ),
        ("x" * 200, "name", f"Line 1 may be a record: '{'x' * 80}…'."),
    ],
)
def test_lines_above_the_header_that_may_be_records_are_reported(
    read: Reader, above: str, header: str, lines: str
) -> None:
    found = read(
        f"{above}\n{header}\n" + ",".join("x" * len(header.split(","))) + "\n", "name", "city", "colour"
    )
    assert len(found.sheet.preamble) == above.count("\n") + 1
    assert lines in found.sheet.warnings["lines_above_header"]


@pytest.mark.parametrize(
    "above",
    [
        "Campaign report",
        'Campaign report\n"July 8, 2025 - July 31, 2025"',
        "Campaign report,,\n,,",
        ",Report,\n\nAll time",
        "Parameters:TimeZone=Europe/Berlin",
        "",
        " , , ",
    ],
)
def test_titles_above_the_header_are_no_records(read: Reader, above: str) -> None:
    assert read(f"{above}\nname,city,colour\nbob,oslo,red\n", "name", "city").sheet.warnings == {}


def test_a_line_above_the_header_is_not_shown_where_cells_are_personal(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("ann,rome\nname,city\nbob,oslo\n")
    sheet = open_sheet(path, "csv", count_fields=knows("name", "city"), scratch=tmp_path, show_cell=False)
    assert "Line 1 may be a record." in sheet.warnings["lines_above_header"]
    assert "ann" not in sheet.warnings["lines_above_header"]
