"""Quotes that are wrong: the first line of the record is given up, and nothing is swallowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weighbridge.formats import quoting

from .conftest import Read

Reader = Callable[..., Read]


def lines(count: int) -> list[str]:
    return [f"{number},Plain {number},{number}.50" for number in range(1, count + 1)]


def test_two_stray_quotes_far_apart_swallow_nothing(read: Reader) -> None:
    rows = lines(1000)
    rows[99] = rows[99].replace("Plain", '"Plain')
    rows[599] = rows[599].replace("Plain", '"Plain')
    found = read("id,name,price\n" + "\n".join(rows) + "\n", "id", "name", "price")
    assert [(row.line, row.fault) for row in found.rows if row.fault] == [
        (101, "text_after_quote"),
        (601, "open_quote"),
    ]
    good = [line.split(",") for place, line in enumerate(lines(1000)) if place not in (99, 599)]
    assert [row.values for row in found.rows if not row.fault] == good
    assert found.adds_up


def test_a_quoted_cell_that_holds_whole_records_is_none(read: Reader) -> None:
    rows = lines(1000)
    rows[99] = '100,"Plain 100,100.50'
    rows[599] = '600,Plain 600",600.50'
    found = read("id,name,price\n" + "\n".join(rows) + "\n", "id", "name", "price")
    assert [(row.line, row.fault) for row in found.rows if row.fault] == [(101, "records_in_quotes")]
    assert found.rows[599].values == ["600", 'Plain 600"', "600.50"]  # the file quotes no cell: it is text
    assert len(found.rows) == 1000


def test_two_neighbouring_lines_are_not_joined_by_two_stray_quotes(read: Reader) -> None:
    found = read('id,name,price\n1,a,1\n2,"b,2\n3,c",3\n4,d,4\n', "id", "name", "price")
    in_doubt = "records_in_quotes"  # one record or two: both lines are given up
    assert [row.fault for row in found.rows] == [None, in_doubt, in_doubt, None]
    assert [row.values for row in found.rows if not row.fault] == [["1", "a", "1"], ["4", "d", "4"]]


def test_delimiters_in_quoted_cells_do_not_hide_that_two_lines_are_records(read: Reader) -> None:
    text = 'id,name,price\n1,a,1\n"2,b,2\n3","c, d",3\n4,"e, f","4\n5","g, h",5\n6,i,6\n'
    found = read(text, "id", "name", "price")
    assert [row.values for row in found.rows if not row.fault] == [["1", "a", "1"], ["6", "i", "6"]]
    assert len(found.rows) == 6


@pytest.mark.parametrize("mark", ["\x1a", "\x1a\x1a", "\x1a\r\n\x1a"])
def test_end_marks_of_dos_are_no_records(read: Reader, mark: str) -> None:
    assert read(f"id,name\r\n1,a\r\n{mark}", "id", "name").values == [["1", "a"]]


def test_a_quoted_cell_may_hold_line_breaks(read: Reader) -> None:
    found = read('id,name,note\n1,a,"first\n\nsecond, with a comma\nthird"\n2,b,c\n', "id", "name", "note")
    assert found.values == [["1", "a", "first\n\nsecond, with a comma\nthird"], ["2", "b", "c"]]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ('1,"a"b,c', "text_after_quote"),
        ('1,"a" "b",c', "text_after_quote"),
        ('1,""a"",c', "text_after_quote"),
        ('1,"a,c', "text_after_quote"),  # the quote of the next line closes it, and text follows
        ('1,a"b,c', "quote_in_cell"),
        ('1,a,"', "text_after_quote"),
    ],
)
def test_a_malformed_record_is_given_up_and_its_neighbours_are_read(
    read: Reader, record: str, fault: str
) -> None:
    found = read(f'id,name,note\n0,"x, y",z\n{record}\n2,"q, r",s\n', "id", "name", "note")
    assert [row.fault for row in found.rows] == [None, fault, None]
    assert [row.values for row in found.rows if not row.fault] == [["0", "x, y", "z"], ["2", "q, r", "s"]]
    assert found.rows[1].surplus == record


def test_a_quote_that_stays_open_to_the_end_costs_one_line(read: Reader) -> None:
    found = read('a,b\n1,"x"\n2,"y\n3,4\n5,6\n')
    assert [row.fault for row in found.rows] == [None, "open_quote", None, None]
    assert [row.values for row in found.rows if not row.fault] == [["1", "x"], ["3", "4"], ["5", "6"]]


def test_a_quote_that_stays_open_for_a_megabyte_costs_one_line(read: Reader) -> None:
    found = read('a,b\n1,2\n3,"' + "x,y\n" * 400_000 + "5,6\n")
    assert [(row.line, row.fault) for row in found.rows if row.fault] == [(3, "open_quote")]
    assert len(found.rows) == 400_002
    assert found.rows[-1].values == ["5", "6"]


def test_spaces_around_quotes_are_dropped(read: Reader) -> None:
    found = read('a, b, c\n1, "x, y", z\n2, "p" , "q ""r"" "\n "3" , " s",t\n')
    assert found.sheet.header == ("a", " b", " c")
    assert found.values == [["1", "x, y", " z"], ["2", "p", 'q "r" '], ["3", " s", "t"]]


def test_a_file_may_quote_with_apostrophes(read: Reader) -> None:
    found = read("id,'name',note\n1,'Men''s, red',it's\n2,'b',c\n", "id", "name", "note")
    assert (
        found.values == [["1", "Men's, red", "it's"], ["2", "b", "c"]]
        or found.rows[0].fault == "quote_in_cell"
    )


@pytest.mark.parametrize("before", [60, 1_200])
@pytest.mark.parametrize("chunk", [7, 1 << 21])
def test_a_file_that_quotes_its_cells_late_quotes_cells(
    read: Reader, monkeypatch: pytest.MonkeyPatch, before: int, chunk: int
) -> None:
    monkeypatch.setattr(quoting, "CHUNK", chunk)
    plain = "".join(f"A{number},x,y\n" for number in range(before))
    bad = 'BAD,$78.07"Table, Round",wood'
    found = read(f'code,name,kind\n{plain}{bad}\nB,"Table, square",wood\n', "code", "name", "kind")
    assert [(row.line, row.fault) for row in found.rows if row.fault] == [(before + 2, "quote_in_cell")]
    assert found.rows[-1].values == ["B", "Table, square", "wood"]


@pytest.mark.parametrize(
    ("last", "quotes"),
    [
        ('"x","y"', True),
        ('x,"y"', True),
        ('x,"y"\r\n', True),
        ('x , "y ""z""" \n', True),
        ('x,\u200b"y"\n', True),
        ('x,"y\nz"\n', True),
        ('x,5" y 6"\n', False),
        ('x,y "z"\n', False),
        ('x,"y" z\n', False),
    ],
)
def test_a_quoted_cell_in_the_last_record_makes_a_quote_inside_a_cell_a_fault(
    read: Reader, last: str, quotes: bool
) -> None:
    rows = read("a,b\n" + "1,2\n" * 1_000 + '3,4" pipe\n' + last).rows
    assert rows[1_000].fault == ("quote_in_cell" if quotes else None)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_cell_over_two_lines_shows_that_the_file_quotes_cells(read: Reader, end: str) -> None:
    text = 'Price;Name;Type;SKU\n1;Foo ""Bar"" Co 33";k;S0\n2;x;"multi\nline";S1\n3;y;"multi\nline";S2\n'
    found = read(text.replace("\n", end), "price", "name", "type", "sku")
    assert [row.fault for row in found.rows] == ["quote_in_cell", None, None]


def test_records_between_stray_quotes_do_not_show_that_the_file_quotes_cells(read: Reader) -> None:
    rows = ['1,"a,x', "2,b,x", "3,c,x", "4,d,x", '5,e",x', '6,5" pipe,x']
    found = read("\n".join(["id,name,kind", *rows, ""]), "id", "name", "kind")
    assert found.rows[-1].values == ["6", '5" pipe', "x"]
