"""CSV files with every oddity that exports have: rows, lines and counts come out right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weighbridge.formats import open_sheet, scan, stray_line_ends
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
        Row(0, 2, 1, ["1", None, None], None, "wrong_cell_count"),
        Row(1, 3, 3, ["1", "2", "3"], None),
        Row(2, 4, 2, ["4", "", None], None, "wrong_cell_count"),
    ]


def test_a_record_with_cells_too_many_does_not_fit_even_if_they_are_empty(read: Reader) -> None:
    found = read('a;b\n1;2;"x;""y"";";z\n1;2;;\n3;4\n5;6\n')
    assert found.rows == [
        Row(0, 2, 4, ["1", "2"], 'x;"y";;z', "wrong_cell_count"),
        Row(1, 3, 4, ["1", "2"], None, "wrong_cell_count"),
        Row(2, 4, 2, ["3", "4"], None),
        Row(3, 5, 2, ["5", "6"], None),
    ]


def test_empty_cells_that_nearly_all_records_have_belong_to_the_file(read: Reader) -> None:
    found = read("a,b\n" + "1,2,,\n" * 60 + "1,,2,\n1,2\n1,2,,\n3,4,5,\n,1,,\n")
    assert found.sheet.extra_cells == 2
    assert "extra_cells" in found.sheet.warnings
    wrong = "wrong_cell_count"
    assert [row.fault for row in found.rows[60:]] == [wrong, wrong, None, wrong, None]
    assert found.adds_up


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_records_are_enough_where_all_have_the_empty_cells(read: Reader, count: int) -> None:
    found = read("a,b\n" + "1,2,\n" * count)
    assert found.values == [["1", "2"]] * count
    assert not any(row.fault for row in found.rows)
    assert found.sheet.warnings["extra_cells"] == (
        "Records have 1 empty cell more than the header; it was ignored."
    )
    short = read("a,b,,\n" + "1,2\n" * count)
    assert (short.sheet.header, short.values) == (("a", "b"), [["1", "2"]] * count)


def test_two_records_that_differ_prove_nothing(read: Reader) -> None:
    found = read("a,b\n1,2,\n1,2\n")
    assert [row.fault for row in found.rows] == ["wrong_cell_count", None]
    assert read("a,b\n1,2,3\n").rows[0].fault == "wrong_cell_count"
    assert read("a,,b\n1,2\n").rows[0].fault == "wrong_cell_count"


@pytest.mark.parametrize("chunk", [1, 3, 8, 1 << 20])
@pytest.mark.parametrize(("end", "stray"), [("\n", "\r"), ("\r\n", "\r"), ("\r", "\n")])
def test_a_line_end_of_another_kind_inside_a_cell_does_not_cut_it_off(
    read: Reader, monkeypatch: pytest.MonkeyPatch, end: str, stray: str, chunk: int
) -> None:
    monkeypatch.setattr(scan, "CHUNK", chunk)
    found = read(end.join(["a,b,c", "A,1,fine", f"A,1,x{stray}y", f"A,x{stray}{stray}y,1", 'B,"2",z', ""]))
    broken = [None, None, None]
    assert [(row.values, row.surplus, row.fault) for row in found.rows] == [
        (["A", "1", "fine"], None, None),
        (broken, f"A,1,x{stray}y", "stray_line_end"),
        (broken, f"A,x{stray}{stray}y,1", "stray_line_end"),
        (["B", "2", "z"], None, None),
    ]
    assert found.lines == [2, 3, 5, 8]


def test_in_one_column_a_line_end_of_another_kind_is_never_the_end_of_a_record(read: Reader) -> None:
    found = read("a\nx\ry\nz\r\r\n")
    assert [(row.values, row.fault) for row in found.rows] == [
        ([None], "stray_line_end"),
        (["z"], None),
        ([""], None),
    ]


def test_records_of_another_line_end_that_were_pasted_in_are_records(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stray_line_ends, "LONGEST_RECORD", 100)
    monkeypatch.setattr(scan, "CHUNK", 150)
    found = read("a,b\n1,2\n3,4\n" + "5,6\r" * 200 + "7,x\ry\n8,9\n")
    assert found.values[:202] == [["1", "2"], ["3", "4"], *[["5", "6"]] * 200]
    assert [row.fault for row in found.rows[202:]] == ["stray_line_end", None]


def test_empty_names_at_the_end_of_the_header_need_no_cells(read: Reader) -> None:
    found = read("a,b,,\n" + "1,2\n" * 3)
    assert found.sheet.header == ("a", "b")
    assert found.values == [["1", "2"]] * 3


def test_an_empty_name_that_no_record_has_a_cell_for_is_ignored_with_a_warning(read: Reader) -> None:
    found = read("a,,b\n" + "1,2\n" * 3)
    assert (found.sheet.header, found.values) == (("a", "b"), [["1", "2"]] * 3)
    assert "after 'a'" in found.sheet.warnings["empty_header_ignored"]


def test_characters_that_show_nothing_are_removed_and_counted(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 2, 3, 5, 1 << 20):
        monkeypatch.setattr(scan, "CHUNK", size)
        found = read('a,b\n\u200b1\u2060,\ufeff"x,y"\n2,\u200ez\n3,\u200d\n')
        assert found.values == [["1", "x,y"], ["2", "z"], ["3", "\u200d"]]
        assert "4 invisible characters" in found.sheet.warnings["invisible_characters"]
        assert found.adds_up


def test_invisible_characters_in_the_header_are_counted_too(read: Reader) -> None:
    found = read("\u200ba,b\u2060\n1,2\u200b\n")
    assert (found.sheet.header, found.values) == (("a", "b"), [["1", "2"]])
    assert "3 invisible characters" in found.sheet.warnings["invisible_characters"]


@pytest.mark.parametrize("end", ["\x1a", "\n\x1a", "\r\n\x1a\r\n", "\x1a\n"])
def test_a_trailing_control_z_is_the_end_of_the_file(read: Reader, end: str) -> None:
    found = read("a,b\n1,2\n3,4" + end)
    assert found.values == [["1", "2"], ["3", "4"]]
    assert found.adds_up


def test_a_misfit_with_a_cell_over_several_lines_keeps_its_place(read: Reader) -> None:
    found = read('a,b\n1,"x\ny",z,z\n2,3\n"4\n\n"\n5,6\n')
    assert found.lines == [2, 4, 5, 8]
    assert found.values == [["1", "x\ny"], ["2", "3"], ["4\n\n", None], ["5", "6"]]


def test_a_quote_inside_a_plain_cell_is_text(read: Reader) -> None:
    found = read('a,b\n5" pipe,2\nab"c,d""e\n 7"",8\n')
    assert found.values == [['5" pipe', "2"], ['ab"c', 'd""e'], [' 7""', "8"]]
    assert found.lines == [2, 3, 4]


def test_trailing_delimiters_make_nameless_columns(read: Reader) -> None:
    found = read("a,b,,\n1,2,,\n3,4,5,\n")
    assert found.sheet.header == ("a", "b", "", "")
    assert found.values == [["1", "2", "", ""], ["3", "4", "5", ""]]
    assert [row.fault for row in found.rows] == [None, "unnamed_cell"]


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


def test_a_line_without_end_refuses_the_file_by_its_number(read: Reader) -> None:
    with pytest.raises(FileRefused, match="Line 3 is longer than") as refused:
        read("a,b\n1,2\n" + "x" * 1_100_000)
    assert refused.value.code == "malformed_file"


def test_a_first_record_without_end_refuses_the_file(read: Reader) -> None:
    with pytest.raises(FileRefused, match="Line 1 is longer than"):
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
        open_sheet(tmp_path / "x", "xlsx", count_fields=knows("a"), scratch=tmp_path)
