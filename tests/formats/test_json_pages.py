"""What a JSON export says beside its records, and keys that come late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weighbridge.formats import open_sheet, sniff


def warnings_of(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "export.json"
    path.write_text(text)
    sheet = open_sheet(path, "json", wanted=lambda header: int("code" in header), scratch=tmp_path)
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
    assert f"{name!r} names the next one" in found["more_pages"]


@pytest.mark.parametrize(
    "beside",
    [{"paging": {"cursors": {"after": "x"}}}, {"paging": {"next": None}}, {"has_more": False}, {"total": 2}],
)
def test_a_last_page_is_a_whole_file(tmp_path: Path, beside: dict[str, Any]) -> None:
    assert warnings_of(tmp_path, json.dumps({"data": [{"code": "A"}], **beside})) == {}


def test_keys_that_come_after_the_sample_are_reported(tmp_path: Path) -> None:
    lines = ['{"code": "A"}'] * 1001 + ['{"code": "B", "discount": 5}']
    assert "not loaded: 'discount'" in warnings_of(tmp_path, "\n".join(lines))["late_columns"]


@pytest.mark.parametrize("mark", [b"\x1a", b"\x1a\r\n", b"\x1a\x1a"])
def test_a_file_with_the_end_mark_of_dos_is_a_table(mark: bytes) -> None:
    assert sniff(b"Code,Note\r\nA1,x\r\n" + mark, "export.csv") == "csv"
