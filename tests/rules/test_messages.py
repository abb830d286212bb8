"""Messages about a file: plural forms are correct, and the problem is named."""

from __future__ import annotations

import pytest

from weighbridge.model.counts import counted
from weighbridge.model.pipeline import Entity, Field, Pipeline
from weighbridge.pipelines import keywords

from .checking import check_text

PEOPLE = Pipeline(
    name="people",
    entities=[
        Entity(
            table="people",
            key=["name"],
            fields=[Field("name", header=["Name"]), Field("city", header=["City"])],
        )
    ],
    min_valid=0,
)


def test_one_is_singular_and_many_are_plural() -> None:
    assert [counted(1, "row"), counted(2000, "row")] == ["1 row", "2,000 rows"]
    assert [counted(1, "entry", "entries"), counted(0, "entry", "entries")] == ["1 entry", "0 entries"]


def test_one_removed_character_and_one_combined_row_are_singular() -> None:
    outcome = check_text("Keyword,Volume\nshoes\u200b,10\nshoes,3\n", None, pipeline=keywords.pipeline)
    assert outcome.warnings["invisible_characters"].startswith(
        "1 invisible character, such as U+200B, was removed"
    )
    assert "they became 1 row (" in outcome.warnings["repeats_combined"]


@pytest.mark.parametrize(
    ("record", "twice"),
    [
        ('{"Name": "b", "City": 1, "City": 2}', "got 'City' twice"),
        ('{"Name": "b", "City": {"x": 1, "x": 2}}', "got a nested key twice"),
        ('{"Name": NaN, "City": 1, "City": 2}', "got 'City' twice"),
    ],
)
def test_a_key_that_a_record_has_twice_is_named(record: str, twice: str) -> None:
    outcome = check_text('{"Name": "a", "City": "x"}\n' + record + "\n", None, pipeline=PEOPLE, kind="json")
    assert [each["message"] for each in outcome.rejections] == [
        f"Expected every key once, {twice} (line 2). Rename or remove one of them."
    ]


def test_columns_with_neither_a_name_nor_text_are_not_unused() -> None:
    assert "unused_columns" not in check_text("Name,City,,\na,b,,\nc,d,,\n", None, pipeline=PEOPLE).warnings
    warned = check_text("Name,City,,\na,b,,\nc,d,,x\n", None, pipeline=PEOPLE).warnings["unused_columns"]
    assert warned == "No field uses these columns, so they were not loaded: '(no name)'."
