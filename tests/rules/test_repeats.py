"""Records with the same key: told twice, or contradicting each other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rules.checking import check_text, meta
from weighbridge.model.errors import FileRefused
from weighbridge.model.reading import ReadOptions
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
            f"Expected one record for each metric date and campaign, got another on line {other}, which differs in "
            f"Impressions (line {line}). Find out which one is right; none of them was loaded.",
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
    with pytest.raises(FileRefused, match=r"distinguished by 'Age'. Export again without") as refused:
        check_text(meta(*records, header=header))
    assert refused.value.code == "unexpected_breakdown"


@pytest.mark.parametrize("figures", [("5,1.50", "5,1.50"), ("5,1.50", "6,2")])
@pytest.mark.parametrize("column", ["Placement", "Gerätetyp", "Hour", "Unlisted"])
def test_rows_told_apart_by_a_column_that_no_field_uses_refuse_the_file(
    column: str, figures: tuple[str, str]
) -> None:
    header = f"Day,Campaign name,{column},Impressions,Amount spent (USD)"
    parts = ["one", "two"] if column != "Hour" else ["1", "2"]
    records = [f"2025-07-01,Spring,{part},{figure}" for part, figure in zip(parts, figures, strict=True)]
    if column == "Hour" and figures[0] != figures[1]:  # figures everywhere: they contradict each other
        assert check_text(meta(*records, header=header)).codes == ["conflicting_repeat"] * 2
        return
    with pytest.raises(FileRefused) as refused:
        check_text(meta(*records, header=header))
    assert refused.value.code == "unexpected_breakdown"
    assert f"as on lines 2 and 3, distinguished by '{column}'" in refused.value.message
    assert "--sum-breakdowns" in refused.value.message


def test_breakdowns_are_added_up_on_request_and_what_cannot_be_is_left_empty() -> None:
    header = "Day,Campaign name,Age,Impressions,Amount spent (USD),Reach"
    records = [
        "2025-07-01,Spring,18-24,5,1.50,4",
        "2025-07-01,Spring,25-34,6,,5",
        "2025-07-01,Spring,25-34,6,,5",  # told twice: counted once
        "2025-07-02,Spring,18-24,1,2,1",
    ]
    outcome = check_text(meta(*records, header=header), options=ReadOptions(sum_breakdowns=True))
    assert outcome.bins == Bins(header=1, accepted=2, duplicate=2)
    assert [(row["impressions"], row["spend"], row["reach"]) for row in outcome.metrics] == [
        (11, Decimal("1.5"), None),
        (1, Decimal(2), 1),
    ]
    assert outcome.warnings["breakdowns_summed"] == (
        "2 records were added up into 1; they were distinguished by 'Age'. "
        "Left empty, as they cannot be added up: reach."
    )


def test_parts_in_two_currencies_are_not_added_up() -> None:
    header = "Day,Campaign name,Age,Impressions,Amount spent,Currency"
    records = ["2025-07-01,Spring,18-24,5,1.50,USD", "2025-07-01,Spring,25-34,6,2,EUR"]
    outcome = check_text(meta(*records, header=header), options=ReadOptions(sum_breakdowns=True))
    assert outcome.codes == ["conflicting_repeat"] * 2
    assert all("keep" not in r["message"].lower() for r in outcome.rejections)
    assert "differs in Age, Impressions, Amount spent, Currency" in outcome.rejections[0]["message"]


def test_a_breakdown_column_that_splits_nothing_is_accepted() -> None:
    header = "Day,Campaign name,Age,Impressions"
    outcome = check_text(meta("2025-07-01,Spring,All,5", "2025-07-02,Spring,All,6", header=header))
    assert outcome.bins.accepted == 2
