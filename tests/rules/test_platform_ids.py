"""Ids that were made of names, that a spreadsheet has rounded, or that have several names, are reported."""

from __future__ import annotations

import pytest

from rules.checking import check_text, meta
from weighbridge.model.errors import FileRefused


def test_ids_made_of_names_are_reported_with_their_levels() -> None:
    header = "Day,Campaign name,Ad set name,Impressions,Amount spent (USD)"
    outcome = check_text(meta("2025-07-01,Spring,Set,5,1", header=header))
    assert outcome.warnings == {
        "ids_from_names": "The file has no ids of campaign and ad set: they were made from the names. An export with "
        "ids is stored as other campaigns, and figures that are in both exports count twice. Add the columns "
        "'Campaign ID' and 'Ad set ID' to the export."
    }


def test_a_file_with_ids_has_no_such_warning() -> None:
    assert check_text(meta("2025-07-01,11,Spring,5,1")).warnings == {}


def test_an_unused_column_that_looks_like_the_ids_is_named() -> None:
    header = "Day,Campaign name,Campaigns ID,Campaign delivered,Impressions,Amount spent (USD)"
    warning = check_text(meta("2025-07-01,Spring,11,x,5,1", header=header)).warnings["ids_from_names"]
    assert warning.endswith("Perhaps the ids are in 'Campaigns ID', which no field uses.")


def test_a_column_that_is_no_id_is_not_taken_for_one() -> None:
    header = "Day,Campaign name,Campaign idea,Impressions,Amount spent (USD)"
    assert (
        "Perhaps" not in check_text(meta("2025-07-01,Spring,x,5,1", header=header)).warnings["ids_from_names"]
    )


@pytest.mark.parametrize(
    "records",
    [
        ("2025-01-30,120210123456789000,Spring,5,1", "2025-01-31,120210123456789000,Autumn,5,1"),
        ("2025-01-30,120210123456789000,Spring,5,1", "2025-01-30,120210123456789000,Autumn,6,1"),
        ("2025-01-30,120210123456789000,Spring,5,1", "2025-01-30,120210123456788000,Autumn,6,1"),
    ],
)
def test_ids_that_a_spreadsheet_has_rounded_refuse_the_file(records: tuple[str, ...]) -> None:
    with pytest.raises(FileRefused, match="ids have lost digits in a spreadsheet") as refused:
        check_text(meta(*records))
    assert refused.value.code == "ids_rounded"


def test_a_single_id_that_may_be_rounded_is_a_warning() -> None:
    records = [f"2025-01-{day},120210123456789000,Spring,5,1" for day in (30, 31)]
    assert list(check_text(meta(*records)).warnings) == ["ids_rounded"]


@pytest.mark.parametrize(
    "ids", [(1785000000000010, 1785000000000020), (120210123456789000, 120210123456789001)]
)
def test_an_id_may_end_in_zeros_by_chance(ids: tuple[int, int]) -> None:
    records = [f"2025-01-30,{number},C{number},5,1" for number in ids]
    assert check_text(meta(*records)).bins.accepted == 2


def test_an_id_with_several_names_is_reported_with_an_example() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", "2025-07-02,11,Autumn,5,1"))
    assert outcome.rows["campaign"][0]["name"] == "Autumn"
    assert outcome.warnings == {
        "several_names": "'Campaign ID': one id has several names: '11' is 'Autumn' and 'Spring'. "
        "The name of the latest day was kept."
    }
