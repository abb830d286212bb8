"""Read options: what is accepted, how an invalid one is refused, and which uploads are the same with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.uploads.check_request import AUTO, Request, check_sender
from weighbridge.uploads.read_options import read_options
from weighbridge.uploads.receive import Received, receive

from .conftest import CSV

Query = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {}),
        ({"encoding": "", "delimiter": None, "sum_breakdowns": False}, {}),
        ({"encoding": "UTF8"}, {"encoding": "utf-8"}),
        ({"encoding": " Windows-1252 "}, {"encoding": "windows-1252"}),
        ({"encoding": "utf-16-le"}, {"encoding": "utf-16-le"}),
        ({"delimiter": "tab"}, {"delimiter": "\t"}),
        ({"delimiter": "\t"}, {"delimiter": "\t"}),
        ({"delimiter": "\\t"}, {"delimiter": "\t"}),
        ({"delimiter": "Semicolon"}, {"delimiter": ";"}),
        ({"delimiter": "pipe"}, {"delimiter": "|"}),
        ({"delimiter": "comma"}, {"delimiter": ","}),
        ({"delimiter": "space"}, {"delimiter": " "}),
        ({"delimiter": " "}, {"delimiter": " "}),
        ({"delimiter": "^"}, {"delimiter": "^"}),
        ({"decimal": ","}, {"decimal": ","}),
        ({"decimal": "point"}, {"decimal": "."}),
        ({"date_order": "DMY"}, {"date_order": "dmy"}),
        ({"sum_breakdowns": True}, {"sum_breakdowns": True}),
        ({"decimal": "detect", "encoding": "Detect"}, {}),
    ],
)
def test_one_option_has_one_stored_form(given: dict[str, Any], stored: dict[str, Any]) -> None:
    assert read_options(given).as_dict() == stored


INVALID = [
    (
        {"encoding": "utf-88"},
        "encoding: expected an encoding such as utf-8, windows-1252 or utf-16, got 'utf-88'; did you mean 'utf-8'?",
    ),
    (
        {"encoding": "base64"},
        "encoding: expected an encoding such as utf-8, windows-1252 or utf-16, got 'base64'.",
    ),
    (
        {"delimiter": "semicolom"},
        "delimiter: expected one character, or one of the words comma, semicolon, tab, pipe, space, got 'semicolom'; "
        "did you mean 'semicolon'?",
    ),
    (
        {"delimiter": "a"},
        "delimiter: expected an ASCII character that is no letter, digit, quote or line end, or one of the words "
        "comma, semicolon, tab, pipe, space, got 'a'.",
    ),
    (
        {"decimal": "coma"},
        "decimal: expected a point ('.') or a comma (','), or the word point or comma, got 'coma'; "
        "did you mean 'comma'?",
    ),
    (
        {"decimal": ";"},
        "decimal: expected a point ('.') or a comma (','), or the word point or comma, got ';'.",
    ),
    (
        {"date_order": "dym"},
        "date_order: expected dmy (3/4/2025 is 3 April), mdy (it is 4 March) or ymd, got 'dym'.",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), INVALID)
def test_an_invalid_option_is_refused_with_what_was_expected(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_options(given)
    assert (refused.value.status, refused.value.code, refused.value.message) == (
        422,
        "invalid_field",
        sentence,
    )


@pytest.mark.parametrize("delimiter", ['"', "'", "\n", "\r", "7", "ä", "\0", "；"])
def test_a_character_that_can_be_part_of_a_value_is_no_delimiter(delimiter: str) -> None:
    with pytest.raises(RequestRefused, match=r"^delimiter: expected an ASCII character"):
        read_options({"delimiter": delimiter})


@pytest.mark.parametrize(
    "name", ["idna", "punycode", "unicode_escape", "rot13", "zlib", "utf-7", "x" * 99, "a\0b"]
)
def test_a_codec_that_is_no_text_encoding_is_refused(name: str) -> None:
    with pytest.raises(RequestRefused, match=r"^encoding: expected an encoding"):
        read_options({"encoding": name})


@given(
    st.dictionaries(st.sampled_from(["encoding", "delimiter", "decimal", "date_order"]), st.text(max_size=12))
)
def test_any_text_is_stored_or_refused_and_what_is_stored_is_stored_again(given: dict[str, str]) -> None:
    options = DETECT_ALL
    with suppress(RequestRefused):
        options = read_options(given)
    assert read_options(options.as_dict()) == options == ReadOptions.of(options.as_dict())


def test_an_option_that_is_given_replaces_the_stored_one() -> None:
    stored = ReadOptions(encoding="windows-1252", date_order="mdy", sum_breakdowns=True)
    changed = read_options({"date_order": "dmy", "decimal": ","}, stored)
    assert changed == ReadOptions(encoding="windows-1252", decimal=",", date_order="dmy", sum_breakdowns=True)
    assert (
        read_options({"encoding": "detect", "date_order": "detect", "sum_breakdowns": False}, stored)
        == DETECT_ALL
    )
    assert read_options({"sum_breakdowns": None}, stored) == stored


@pytest.fixture
def send(ctx: Context, workspace: UUID, tmp_path: Path) -> Callable[..., Any]:
    async def send(**said: Any) -> Received:
        file = tmp_path / "export.csv"
        file.write_bytes(CSV)
        return await receive(ctx, Request(**{"workspace_id": workspace, "platform": "meta", **said}), file)

    return send


async def test_the_same_content_with_other_options_is_another_upload(send: Any, query: Query) -> None:
    plain, dmy = await send(), await send(date_order="dmy")
    assert (plain.duplicate, dmy.duplicate) == (False, False)
    again = [await send(), await send(date_order="DMY"), await send(date_order="detect")]
    assert [each.upload_id for each in again] == [plain.upload_id, dmy.upload_id, plain.upload_id]
    assert {each.reason for each in again} == {"duplicate_content"}
    stored = dict(query("SELECT id, reading FROM data_uploads"))
    assert stored == {plain.upload_id: {}, dmy.upload_id: {"date_order": "dmy"}}


async def test_a_batch_is_known_by_its_content_whatever_the_options(send: Any) -> None:
    first = await send(source_batch_id="march")
    again = await send(source_batch_id="march", decimal=",")
    assert (again.upload_id, again.duplicate, again.reason) == (first.upload_id, True, "duplicate_pending")


async def test_options_are_checked_before_a_file_is_recognised(
    ctx: Context, send: Any, workspace: UUID
) -> None:
    with pytest.raises(RequestRefused, match=r"^decimal: expected"):
        check_sender(ctx, Request(workspace, pipeline=AUTO, decimal="x"))
    received = await send(pipeline=AUTO, platform=None, delimiter="comma", encoding="utf-8")
    assert not received.duplicate


async def test_a_file_is_recognised_in_the_encoding_that_is_given(
    ctx: Context, workspace: UUID, tmp_path: Path, query: Query
) -> None:
    file = tmp_path / "export.csv"
    file.write_bytes(CSV.decode().encode("utf-16-be"))
    request = Request(workspace, pipeline=AUTO, encoding="utf-16-be", filename="export.csv")
    received = await receive(ctx, request, file)
    assert query(
        "SELECT pipeline, platform, reading FROM data_uploads WHERE id = %s", (received.upload_id,)
    ) == [("ads", "meta", {"encoding": "utf-16-be"})]
