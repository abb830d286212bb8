"""JSON files in every shape that exports have: values as written, lines as they stand, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.formats import json_count, json_records, json_values
from weighbridge.formats.dialect import UnknownHeader
from weighbridge.model.errors import FileRefused

from .conftest import Read, Row, read_file

Reader = Callable[..., Read]


@pytest.fixture
def read_json(read: Reader) -> Reader:
    return lambda data, *headers: read(data, *headers, kind="json")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('[{"a":1,"b":"x"},{"a":2,"b":"y"}]', [1, 1]),
        ('[\n  {\n    "a": 1,\n    "b": "x"\n  },\r\n  {"a": 2, "b": "y"}\n]\n', [2, 6]),
        ('{"data": [{"a":1,"b":"x"},\n{"a":2,"b":"y"}]}', [1, 2]),
        ('{"rows": [\r{"a":1,"b":"x"},\r{"a":2,"b":"y"}]}', [2, 3]),
        ('{"paging": {"next": "[{"}, "results": [{"a":1,"b":"x"},{"a":2,"b":"y"}], "n": [1, 2]}', [1, 1]),
        ('{"n": [1, [2]], "keywords": [{"a":1,"b":"x"},\n{"a":2,"b":"y"}], "m": []}', [1, 2]),
        ('{"columns": [{"name": "a"}], "items": [{"a":1,"b":"x"},{"a":2,"b":"y"}]}', [1, 1]),
        ('{"a":1,"b":"x"}\n{"a":2,"b":"y"}', [1, 2]),
        ('{"a":1,"b":"x"}\r\n{"a":2,"b":"y"}\r\n', [1, 2]),
        ('{\n"a":1,"b":"x"\n}\n{\n"a":2,"b":"y"\n}\n', [1, 4]),
    ],
)
def test_lists_wrapped_lists_lines_and_bare_objects_are_records(
    read_json: Reader, text: str, lines: list[int]
) -> None:
    found = read_json(text)
    assert found.sheet.header == ("a", "b")
    assert found.values == [["1", "x"], ["2", "y"]]
    assert found.lines == lines
    assert (found.sheet.header_line, found.sheet.preamble, found.sheet.delimiter) == (0, (), None)


def test_one_object_is_one_record(read_json: Reader) -> None:
    for text in ('{"a":1}', '{"a":1}\n', '{\n "a": 1\n}', '{"a": 1, "tags": ["x", "y"]}'):
        assert read_json(text).values[0][0] == "1"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_json_may_be_in_any_of_our_encodings(read_json: Reader, encoding: str) -> None:
    found = read_json('[{"a": "Café – 5 €"}]'.encode(encoding))
    assert found.values == [["Café – 5 €"]]


def test_numbers_stand_exactly_as_written(read_json: Reader) -> None:
    written = [
        "120220000000000000123456789",
        "0.10",
        "-0",
        "1e5",
        "1.20253E+17",
        "3.141592653589793238462643",
    ]
    found = read_json(json.dumps([{"a": "@"}] * len(written)).replace('"@"', "%s") % tuple(written))
    assert found.values == [[number] for number in written]


def test_other_values_become_text(read_json: Reader) -> None:
    found = read_json(
        '[{"a": true, "b": false}, {"a": null}, {"a": {"x": [1.0, "é\\"", null]}, "b": [true]}]'
    )
    assert found.values == [["true", "false"], [None, None], ['{"x": [1.0, "é\\"", null]}', "[true]"]]
    assert {row.cells for row in found.rows} == {2}


def test_the_header_is_every_key_in_order_of_appearance(read_json: Reader) -> None:
    found = read_json('[{"b": 1}, {"a": 2, "b": 3}, {"c": 4}]')
    assert found.sheet.header == ("b", "a", "c")
    assert found.values == [["1", None, None], ["3", "2", None], [None, None, "4"]]


def test_a_key_that_first_appears_late_is_surplus_not_lost(read_json: Reader) -> None:
    records = [{"a": number} for number in range(1000)] + [{"a": 1, "late": [1, "é"], "d": 1.50}]
    found = read_json(json.dumps(records))
    assert found.rows[-1] == Row(1000, 1, 3, ["1"], '{"late": [1, "é"], "d": 1.5}')
    assert {row.surplus for row in found.rows[:-1]} == {None}


def test_what_is_no_object_is_a_misfit_with_its_text(read_json: Reader) -> None:
    found = read_json('[{"a": 1}, 12.50, "x", null, [1, {"a": 2}], {"a": 3}]')
    assert [row.cells for row in found.rows] == [1, 0, 0, 0, 0, 1]
    assert [row.surplus for row in found.rows] == [None, "12.50", '"x"', "null", '[1, {"a": 2}]', None]
    assert found.values == [["1"], [None], [None], [None], [None], ["3"]]


def test_a_number_that_a_window_cuts_is_read_whole(
    read_json: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in range(1, 20):
        monkeypatch.setattr(json_values, "CHUNK", size)
        assert [row.surplus for row in read_json('[{"a": 1}, 12345, 67]').rows] == [None, "12345", "67"]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"a": {"b": [{"c": 1, "c": 2}]}}', "duplicate_key"),
        ('{"a": "x\\u0000"}', "bad_text"),
        ('{"a": ["\\ud800"]}', "bad_text"),
        ('{"\\u0000": 1}', "bad_text"),
        ("12", "not_a_record"),
    ],
)
def test_what_cannot_be_a_row_has_its_fault_and_its_text(read_json: Reader, record: str, fault: str) -> None:
    found = read_json('[{"a": "\\u00e9\\ud83d\\ude00"}, ' + record + "]")
    assert found.rows == [Row(0, 1, 1, ["é😀"], None), Row(1, 1, 0, [None], record, fault)]


@pytest.mark.parametrize("shape", ["[%s, %s]", '{"data": [%s, %s]}', "%s\n%s\n"])
@pytest.mark.parametrize("mark", ["\u200b", "\\u200b", "\\u200B", "\ufeff", "\\ufeff", "\u2066", "\u180e"])
def test_characters_that_show_nothing_are_removed_and_counted(
    read_json: Reader, shape: str, mark: str
) -> None:
    first, second = '{"a@": "x@", "b": [{"n@": 1.50, "t": "@é"}]}', '{"a": "\\u00e9\\u200d", "b": null}'
    found = read_json((shape % (first, second)).replace("@", mark))
    assert found.sheet.header == ("a", "b")
    assert found.values == [["x", '[{"n": 1.50, "t": "é"}]'], ["é\u200d", None]]
    assert found.sheet.warnings["invisible_characters"].startswith(
        "4 invisible characters, such as U+200B, were"
    )
    assert "invisible_characters" not in read_json(shape % (first, second)).sheet.warnings


def test_keys_that_differ_only_in_invisible_characters_are_one_key_twice(read_json: Reader) -> None:
    found = read_json('[{"a": 1}, {"a": 2, "a\u200b": 3}, {"a": {"x": 1, "\\u200bx": 2}}]')
    assert [row.fault for row in found.rows] == [None, "duplicate_key", "duplicate_key"]


@pytest.mark.parametrize(
    "bad",
    [
        '{"a": 2',
        '{"a": 2} {"a": 3}',
        '{"a": "x',
        "hello",
        "[" * 100_000,
        '{"a": 2,}',
        "{'a': 2}",
        '{"a": 2} x',
        '{"a": 2},',
    ],
)
def test_one_bad_line_of_many_is_one_record_that_cannot_be_read(read_json: Reader, bad: str) -> None:
    for lines in (
        ['{"a": 1}', bad, '{"a": 3}'],
        ['{"a": 1}', '{"a": 3}', bad],
        [bad, '{"a": 1}', '{"a": 3}'],
    ):
        found = read_json("\n".join(lines))
        assert [row.fault for row in found.rows] == [(line == bad and "bad_json") or None for line in lines]
        assert [row.values for row in found.rows if not row.fault] == [["1"], ["3"]]
        assert [row.surplus for row in found.rows if row.fault] == [bad]
        assert found.adds_up


@pytest.mark.parametrize("first", ["[1]", "12", '["a"]', "null"])
def test_a_first_line_that_is_no_object_is_one_record_that_cannot_be_read(
    read_json: Reader, first: str
) -> None:
    found = read_json(f"{first}\n" + '{"a": 1}\n' * 30)
    assert [row.fault for row in found.rows] == ["not_a_record", *[None] * 30]
    assert found.rows[0].surplus == first


def test_a_first_object_over_several_lines_is_read_whole(read_json: Reader) -> None:
    assert read_json('{\n"a": 1\n}\n' + '{"a": 2}\n' * 30).values == [["1"], *[["2"]] * 30]


@pytest.mark.parametrize("mark", ["\x1a", "\r\n\x1a", "\n\x1a\x1a\n", "\x1a\r\n \x1a"])
@pytest.mark.parametrize(
    "text",
    ['[{"a": 1}, {"a": 2}]', '{"data": [{"a": 1},\n{"a": 2}]}', '{"a": 1}\n{"a": 2}', '{\n"a": 1}{"a": 2}'],
)
def test_a_trailing_control_z_is_the_end_of_the_file(read_json: Reader, text: str, mark: str) -> None:
    for start in ("", "\ufeff"):
        found = read_json(start + text + mark)
        assert [row.values for row in found.rows if row.values != [""]] == [["1"], ["2"]]
        assert [row.fault for row in found.rows] == [None, None]


def test_nothing_but_a_control_z_is_an_empty_file(read_json: Reader) -> None:
    with pytest.raises(FileRefused) as refused:
        read_json("\x1a\r\n")
    assert refused.value.code == "empty_file"


def test_blank_lines_are_records_of_empty_cells(read_json: Reader) -> None:
    found = read_json('\n{"a": 1, "b": 2}\n\n  \n{"a": 3}\n\n')
    assert found.values == [["", ""], ["1", "2"], ["", ""], ["", ""], ["3", None], ["", ""]]
    assert found.lines == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", ["[]", '{"data": []}', " [\n] ", '{"data": [ ], "n": 0}'])
def test_no_records_are_no_data(read_json: Reader, text: str) -> None:
    with pytest.raises(FileRefused) as refused:
        read_json(text)
    assert refused.value.code == "no_data"


def test_unknown_keys_are_told(read_json: Reader) -> None:
    with pytest.raises(UnknownHeader) as refused:
        read_json('[{"x": 1, "y": 2}]', "a")
    assert (refused.value.code, refused.value.columns, refused.value.line) == ("no_header", ("x", "y"), 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[{"a": 1},\n{"a": 2}', "The file ends inside the JSON value that begins on line 2."),
        ('[{"a": 1},\n{"a": "x', "The file ends inside the JSON value that begins on line 2."),
        ('[{"a": 1},\n{"a": ', "The file ends inside the JSON value that begins on line 2."),
        ('[{"a": 1},\n\n{"a" 2}]', "Line 3 is not valid JSON: expecting ':' delimiter."),
        ('[{"a": 1}\n{"a": 2}]', "Line 2 is not valid JSON: expected , or ]."),
        ('[{"a": 1},\n]', "Line 2 is not valid JSON: expecting value."),
        ('[{"a": 1}]\n[]', "Line 2 is not valid JSON: expected the end of the file."),
        ('{"data": [{"a": 1}]\n x}', "Line 2 is not valid JSON: expected , or }."),
        ('{"data": [{"a": 1}],\n x: 1}', 'Line 2 is not valid JSON: expected a name in ".'),
        ('{\n"a": 1}\n5', "Line 3 is not valid JSON: expected {."),
        (
            "[" + json.dumps({f"a{n}" if n else "a": n for n in range(2001)}) + "]",
            "The header has 2,001 columns; at most 2,000 are read.",
        ),
        ('[{"a": "x\ny"}]', "Line 1 is not valid JSON: invalid control character at."),
        (
            '{"x": [{"a": 1}], "y": [{"a": 1}]}',
            "The records may be in several lists: 'x' and 'y'. Name the list of records 'data'.",
        ),
        ("[" * 100_000, "Line 1 is not valid JSON: nested too deeply."),
        ('{"a": ' + "[" * 100_000, "Line 1 is not valid JSON: nested too deeply."),
        (
            '[{"a": 1},\n{"a": "' + "x" * 3_000_000 + '"}]',
            "The record on line 2 is longer than 1,048,576 characters.",
        ),
        ('{"a": 1}\n{"a": "' + "x" * 3_000_000 + '"}\n', "Line 2 is longer than 1,048,576 characters."),
    ],
)
def test_what_is_not_json_refuses_the_file_by_its_line(read_json: Reader, text: str, sentence: str) -> None:
    with pytest.raises(FileRefused) as refused:
        read_json(text)
    assert (refused.value.code, refused.value.message) == ("malformed_file", sentence)


def test_white_space_alone_is_an_empty_file(read_json: Reader) -> None:
    with pytest.raises(FileRefused) as refused:
        read_json(" \n\n")
    assert refused.value.code == "empty_file"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('aé"\\\n[]{},:'), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from('k"\\{'), inner, max_size=2),
    max_leaves=4,
)
records = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", 'c"{,']), values, max_size=3), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(
    records=records,
    shape=st.sampled_from(["list", "data", "lines"]),
    indent=st.sampled_from([None, 0, 1]),
    chunk=st.sampled_from([1, 2, 7, 1 << 20]),
    ascii_only=st.booleans(),
)
def test_what_the_json_module_writes_is_what_we_read(
    records: list[dict[str, Any]], shape: str, indent: int | None, chunk: int, ascii_only: bool
) -> None:
    records = [{"a": "first"}, *records]
    if shape == "lines":
        text = "".join(json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records)
    else:
        text = json.dumps(
            records if shape == "list" else {"x": [1], "data": records, "y": {"z": [{}]}},
            indent=indent,
            ensure_ascii=ascii_only,
        )
    found = _read(text, chunk)
    assert found.adds_up
    for record, row in zip(records, found.rows, strict=True):
        for key, cell in zip(found.sheet.header, row.values, strict=True):
            expected = record.get(key)
            assert (cell if isinstance(expected, str) or cell is None else json.loads(cell)) == expected
    if shape == "lines":
        assert found.lines == list(range(1, len(records) + 1))


def _read(text: str, chunk: int) -> Read:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "CHUNK", chunk)
        patch.setattr(json_count, "CHUNK", chunk)
        patch.setattr(json_records, "BATCH_ROWS", 3)
        path = Path(folder) / "export.json"
        path.write_text(text)
        return read_file(path, "json", "a", scratch=Path(folder))
