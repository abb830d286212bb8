"""Records with the same key: told twice, or contradicting each other."""

from __future__ import annotations

import pytest

from rules.checking import check_text, meta
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins


def test_equal_repeats_count_as_duplicates_and_the_first_is_staged() -> None:
    day = "2025-07-01,11,Spring,5,1.50"
    outcome = check_text(meta(day, "2025-07-02,11,Spring,4,1", day, " 2025-07-01,11,Spring,5,1.500000"))
    assert outcome.bins == Bins(header=1, accepted=2, duplicate=2)
    assert [row["line"] for row in outcome.metrics] == [2, 3]


def test_repeats_with_other_values_are_all_rejected_and_name_each_other() -> None:
    outcome = check_text(
        meta("2025-07-01,11,Spring,5,1", "2025-07-02,11,Spring,4,1", "2025-07-01,11,Spring,6,1")
    )
    assert outcome.bins == Bins(header=1, accepted=1, rejected=2)
    assert [(r["line"], r["code"], r["message"]) for r in outcome.rejections] == [
        (
            line,
            "conflicting_repeat",
            "Expected one record for each metric date and campaign, got another with other values "
            f"on line {other} (line {line}). Keep the right one.",
        )
        for line, other in ((2, 4), (4, 2))
    ]


def test_a_value_against_none_is_a_contradiction() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", "2025-07-01,11,Spring,5,"))
    assert outcome.codes == ["conflicting_repeat"] * 2


def test_an_entity_that_only_rejected_records_name_is_not_staged() -> None:
    outcome = check_text(
        meta("2025-07-01,11,Spring,5,1", "2025-07-01,22,Autumn,5,1", "2025-07-01,22,Autumn,6,1")
    )
    assert outcome.counts == {"campaign": 1, "ad_set": 0, "ad": 0, "daily_metric": 1}
    assert [row["external_id"] for row in outcome.rows["campaign"]] == ["11"]


def test_records_without_an_ad_set_repeat_too() -> None:
    header = "Day,Campaign ID,Ad set ID,Impressions"
    outcome = check_text(meta("2025-07-01,11,,5", "2025-07-01,11,,5", "2025-07-01,11,-,5", header=header))
    assert outcome.bins == Bins(header=1, accepted=1, duplicate=2)


def test_days_split_by_a_breakdown_are_refused_by_its_name() -> None:
    header = "Day,Campaign name,Age,Impressions"
    records = ["2025-07-01,Spring,18-24,5", "2025-07-01,Spring,25-34,6"]
    with pytest.raises(FileRefused, match=r"told apart by 'Age'. Export again without") as refused:
        check_text(meta(*records, header=header))
    assert refused.value.code == "unexpected_breakdown"


def test_a_breakdown_column_that_splits_nothing_is_accepted() -> None:
    header = "Day,Campaign name,Age,Impressions"
    outcome = check_text(meta("2025-07-01,Spring,All,5", "2025-07-02,Spring,All,6", header=header))
    assert outcome.bins.accepted == 2
