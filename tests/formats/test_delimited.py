"""CSV files with every oddity that exports have: rows, lines and counts come out right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weighbridge.formats import open_sheet, scan
from weighbridge.model.errors import FileRefused

from .conftest import Read, Row, knows

Reader = Callable[..., Read]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_any_line_ending_ends_a_record_and_the_last_one_may_lack_it(
    read: Reader, end: str, last: bool
) -> None:
    found = read(end.join(["a,b,c", "1,2,3", "4,5,6"]) + (end if last else ""))
    assert found.values == [["1", "2", "3"], ["4", "5", "6"]]
    assert found.lines == [2, 3]


def test_mixed_line_endings_are_one_line_each(read: Reader) -> None:
    found = read(b"a,b\n1,2\r\n3,4\r5,6\n\r7,8")
    assert found.values == [["1", "2"], ["3", "4"], ["5", "6"], ["", ""], ["7", "8"]]
    assert found.lines == [2, 3, 4, 5, 6]


def test_cells_over_several_lines_move_the_lines_after_them(read: Reader) -> None:
    found = read('a,b\n1,"x\ny\r\nz"\n2,"p\rq"\n3,r\n')
    assert found.values == [["1", "x\ny\r\nz"], ["2", "p\rq"], ["3", "r"]]
    assert found.lines == [2, 5, 7]


def test_a_header_over_several_lines_moves_the_lines_after_it(read: Reader) -> None:
    found = read('"title\nof two lines"\n"a","b\n(USD)"\n1,2\n')
    assert found.sheet.header == ("a", "b\n(USD)")
    assert (found.sheet.header_line, found.lines) == (3, [5])


def test_blank_lines_are_records_of_empty_cells(read: Reader) -> None:
    found = read("a,b\n\n1,2\n\n\n")
    assert found.values == [["", ""], ["1", "2"], ["", ""], ["", ""]]
    assert found.lines == [2, 3, 4, 5]
    assert found.sheet.records == 5


def test_short_records_are_padded_with_null_and_counted_as_they_are(read: Reader) -> None:
    found = read("a,b,c\n1\n1,2,3\n4,\n")
    assert found.rows == [
        Row(0, 2, 1, ["1", None, None], None),
        Row(1, 3, 3, ["1", "2", "3"], None),
        Row(2, 4, 2, ["4", "", None], None),
    ]


def test_surplus_cells_are_kept_and_empty_ones_are_no_surplus(read: Reader) -> None:
    found = read('a;b\n1;2;"x;""y"";";z\n1;2;;\n')
    assert found.rows == [Row(0, 2, 4, ["1", "2"], 'x;"y";;z'), Row(1, 3, 4, ["1", "2"], None)]


def test_a_misfit_with_a_cell_over_several_lines_keeps_its_place(read: Reader) -> None:
    found = read('a,b\n1,"x\ny",z\n2,3\n"4\n\n"\n5,6\n')
    assert found.lines == [2, 4, 5, 8]
    assert found.values == [["1", "x\ny"], ["2", "3"], ["4\n\n", None], ["5", "6"]]


def test_a_quote_inside_a_plain_cell_is_text(read: Reader) -> None:
    found = read('a,b\n5" pipe,2\nab"c,"d""e"\n"q"x,"y\n"z\n 7"","8\n"\n')
    assert found.values == [['5" pipe', "2"], ['ab"c', 'd"e'], ["qx", "y\nz"], [' 7""', "8\n"]]
    assert found.lines == [2, 3, 4, 6]


def test_a_doubled_quote_after_a_quote_that_is_text_is_still_one_quote(read: Reader) -> None:
    found = read('a,b\n5" pipe,"x""\ny"\n1,2\n')
    assert found.values == [['5" pipe', 'x"\ny'], ["1", "2"]]


def test_trailing_delimiters_make_nameless_columns(read: Reader) -> None:
    found = read("a,b,,\n1,2,,\n3,4,5,\n")
    assert found.sheet.header == ("a", "b", "", "")
    assert found.values == [["1", "2", "", ""], ["3", "4", "5", ""]]


def test_duplicate_headers_stay_apart(read: Reader) -> None:
    found = read("a,b,a\n1,2,3\n")
    assert found.sheet.header == ("a", "b", "a")
    assert found.values == [["1", "2", "3"]]


def test_cells_are_not_trimmed_nor_taken_for_null_or_numbers(read: Reader) -> None:
    found = read('a,b,c\n  --, NA ,null\n007,"1,356,884",1.20253E+17\n"",N/A,true\n')
    assert found.values == [
        ["  --", " NA ", "null"],
        ["007", "1,356,884", "1.20253E+17"],
        ["", "N/A", "true"],
    ]


def test_a_header_alone_has_no_batches(read: Reader) -> None:
    for text in ("a,b", "a,b\n"):
        found = read(text)
        assert (found.rows, found.sheet.records) == ([], 1)


def test_a_sheet_can_be_read_twice(read: Reader) -> None:
    sheet = read("a,b\n1,2\n\n3\n").sheet
    assert sum(batch.num_rows for batch in sheet.batches()) == 3
    assert sheet.records == 4


def test_blocks_smaller_than_the_file_change_nothing(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'a,b\r\n1,"x\r\n""y"""\r\n\r\n2\r\n3,4,5\r\n6" 7,8\r\n' * 3
    whole = read(text)
    for size in range(1, 40):
        monkeypatch.setattr(scan, "CHUNK", size)
        assert read(text).rows == whole.rows


def test_a_quote_that_is_never_closed_refuses_the_file_by_its_line(read: Reader) -> None:
    with pytest.raises(FileRefused, match="line 3 is never closed") as refused:
        read('a,b\n1,"x"\n2,"y\n""z"" 5\n3,4\n5,6\n')
    assert refused.value.code == "malformed_file"


def test_a_record_without_end_refuses_the_file_by_its_line(read: Reader) -> None:
    for text in ("a,b\n1,2\n" + "x" * 1_100_000, 'a,b\n1,2\n3,"' + "x,y\n" * 300_000 + '"\n'):
        with pytest.raises(FileRefused, match="line 3 is longer than") as refused:
            read(text)
        assert refused.value.code == "malformed_file"


def test_a_first_record_without_end_refuses_the_file(read: Reader) -> None:
    with pytest.raises(FileRefused, match="line 1 is longer than"):
        read("a" * 3_000_000)


def test_a_long_record_below_the_limit_is_fine(read: Reader) -> None:
    cell = "x" * 1_000_000
    found = read(f'a,b\n1,{cell}\n2,"{cell}",3\n')
    assert found.values == [["1", cell], ["2", cell]]


def test_a_nul_byte_refuses_the_file_by_its_line(read: Reader) -> None:
    with pytest.raises(FileRefused, match="Line 3 has a NUL") as refused:
        read(b"a,b\n1,2\n3,\0\n" + b"5,6\n" * 100)
    assert refused.value.code == "malformed_file"


def test_a_kind_that_is_neither_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    with pytest.raises(ValueError, match="expected 'csv' or 'json'"):
        open_sheet(tmp_path / "x", "xlsx", wanted=knows("a"), scratch=tmp_path)
