"""What a JSON export says beside its records, and keys that come late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from weighbridge.formats import open_sheet, sniff
from weighbridge.model.errors import FileRefused


def warnings_of(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "export.json"
    path.write_text(text)
    sheet = open_sheet(path, "json", count_fields=known, scratch=tmp_path)
    for _ in sheet.batches():
        pass
    return dict(sheet.warnings)


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        ({"paging": {"cursors": {"after": "x"}, "next": "https://graph.example.com/page2"}}, "paging.next"),
        ({"nextPageToken": "CAo"}, "nextPageToken"),
        ({"has_more": True}, "has_more"),
    ],
)
def test_a_page_that_names_the_next_one_is_reported(
    tmp_path: Path, beside: dict[str, Any], name: str
) -> None:
    found = warnings_of(tmp_path, json.dumps({"data": [{"code": "A"}], **beside}))
    assert f"{name!r} refers to the next page" in found["more_pages"]


@pytest.mark.parametrize(
    "beside",
    [{"paging": {"cursors": {"after": "x"}}}, {"paging": {"next": None}}, {"has_more": False}, {"total": 2}],
)
def test_a_last_page_is_a_whole_file(tmp_path: Path, beside: dict[str, Any]) -> None:
    assert warnings_of(tmp_path, json.dumps({"data": [{"code": "A"}], **beside})) == {}


RECORDS = [{"code": "A", "price": 1, "city": "Rome"}]


def refusal_of(tmp_path: Path, text: str) -> FileRefused:
    with pytest.raises(FileRefused) as refused:
        warnings_of(tmp_path, text)
    return refused.value


def known(header: Sequence[str]) -> int:
    return sum(name in ("code", "price", "city") for name in header)


@pytest.mark.parametrize("count", [1, 1_500])
@pytest.mark.parametrize(
    ("first", "second"),
    [("data", "rows"), ("items", "deleted"), ("data", "more.rows"), ("data", "x.y.z"), ("campaigns", "x.y")],
)
def test_a_second_list_of_records_refuses_the_file(
    tmp_path: Path, first: str, second: str, count: int
) -> None:
    *outer, name = second.split(".")
    other: Any = {name: [{"code": "B", "price": 2}]}
    for each in reversed(outer):
        other = {each: other}
    refused = refusal_of(tmp_path, json.dumps({first: RECORDS * count, **other}))
    assert refused.code == "several_tables"
    assert f"'{first}' and '{second}'" in refused.message


@pytest.mark.parametrize("name", ["data", "paging", "x"])
def test_a_name_twice_in_the_outer_object_refuses_the_file(tmp_path: Path, name: str) -> None:
    members = ['"data": [{"code": "A"}]', f'"{name}": [{{"code": "B"}}]', f'"{name}": 1']
    for text in (", ".join(members[: 2 if name == "data" else 3]), ", ".join(reversed(members))):
        refused = refusal_of(tmp_path, "{" + text + "}")
        assert (refused.code, f"{name!r} twice" in refused.message) == ("duplicate_key", True)


@pytest.mark.parametrize(
    ("beside", "names"),
    [
        ({"summary": [{"code": "all", "price": 1, "city": "all"}]}, "'summary'"),
        ({"columns": [{"code": "text"}], "meta": {"fields": [{"price": 1}]}}, "'columns', 'meta.fields'"),
        ({"tags": [{"city": "Rome"}]}, "'tags'"),
        ({"items": [1, {"colour": "red"}]}, "'items'"),
        ({"paging": {"cursors": [{"after": "x"}]}}, "'paging.cursors'"),
    ],
)
def test_another_list_beside_the_records_is_reported(
    tmp_path: Path, beside: dict[str, Any], names: str
) -> None:
    for members in ({"data": RECORDS, **beside}, {**beside, "data": RECORDS}):
        found = warnings_of(tmp_path, json.dumps(members))
        assert f"not loaded: {names}." in found["lists_not_loaded"]


@pytest.mark.parametrize("beside", [{"errors": []}, {"n": [1, "x", [2]]}, {"paging": {"cursors": {}}}])
def test_a_list_without_objects_is_no_second_list(tmp_path: Path, beside: dict[str, Any]) -> None:
    assert warnings_of(tmp_path, json.dumps({"data": RECORDS, **beside})) == {}


@pytest.mark.parametrize("name", ["data", "campaigns"])
def test_the_list_that_the_pipeline_knows_is_read(tmp_path: Path, name: str) -> None:
    found = warnings_of(tmp_path, json.dumps({"errors": [{"reason": "x"}], name: RECORDS}))
    assert f"list {name!r} was loaded" in found["lists_not_loaded"]


def test_the_list_with_a_usual_name_that_has_objects_is_read(tmp_path: Path) -> None:
    for text in ('{"items": [], "data": [{"code": "A"}]}', '{"rows": ["x"], "data": [{"code": "A"}]}'):
        assert warnings_of(tmp_path, text) == {}


def test_keys_that_come_after_the_sample_are_reported(tmp_path: Path) -> None:
    lines = ['{"code": "A"}'] * 1001 + ['{"code": "B", "discount": 5}']
    assert "not loaded: 'discount'" in warnings_of(tmp_path, "\n".join(lines))["late_columns"]


@pytest.mark.parametrize("mark", [b"\x1a", b"\x1a\r\n", b"\x1a\x1a"])
def test_a_file_with_the_end_mark_of_dos_is_a_table(mark: bytes) -> None:
    assert sniff(b"Code,Note\r\nA1,x\r\n" + mark, "export.csv") == "csv"
