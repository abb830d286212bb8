"""Records with the same key: repeated, or with different values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from rules.checking import check_text, meta
from weighbridge import Entity, Field, Pipeline
from weighbridge.model.column_limits import ColumnLimits
from weighbridge.model.errors import FileRefused
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.upload import Bins
from weighbridge.pipelines import judgments


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
            f"Impressions (line {line}). None of them was loaded. Check which one is correct.",
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
    with pytest.raises(
        FileRefused, match=r"distinguished by 'Age'. Export the file again without"
    ) as refused:
        check_text(meta(*records, header=header))
    assert refused.value.code == "unexpected_breakdown"


@pytest.mark.parametrize("figures", [("5,1.50", "5,1.50"), ("5,1.50", "6,2")])
@pytest.mark.parametrize("column", ["Placement", "Gerätetyp", "Stunde", "Unlisted"])
def test_rows_distinguished_by_a_column_that_no_field_uses_refuse_the_file(
    column: str, figures: tuple[str, str]
) -> None:
    header = f"Day,Campaign name,{column},Impressions,Amount spent (USD)"
    parts = ["one", "two"] if column != "Stunde" else ["14", "15"]
    records = [f"2025-07-01,Spring,{part},{figure}" for part, figure in zip(parts, figures, strict=True)]
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
        "Empty, because they cannot be added up: reach."
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


SUM = ReadOptions(sum_breakdowns=True)
DEVICES = "Day,Campaign ID,Campaign name,Impressions,Amount spent (USD),Impression device"
CASES = "Case Number,Plaintiff,Defendant,Judgment Amount,Filing Date"


def test_a_rejected_part_rejects_all_parts_of_its_sum() -> None:
    records = [
        "2025-02-01,88,S,5,2.00,mobile",
        "2025-02-01,88,S,5,3.0x,desktop",
        "2025-02-01,88,S,5,2.00,mobile",  # told twice: it goes with the others
        "2025-02-02,88,S,5,2.00,mobile",
        "2025-02-02,88,S,5,3.00,desktop",
    ]
    outcome = check_text(meta(*records, header=DEVICES), options=SUM)
    assert outcome.bins == Bins(header=1, accepted=1, duplicate=1, rejected=3)
    assert [(row["impressions"], row["spend"]) for row in outcome.metrics] == [(10, Decimal(5))]
    assert [(r["line"], r["code"]) for r in outcome.rejections] == [
        (2, "incomplete_breakdown"),
        (3, "bad_amount"),
        (4, "incomplete_breakdown"),
    ]
    assert outcome.rejections[0]["message"] == (
        "Expected every part of the sum to be valid, got an invalid part on line 3 (line 2). "
        "Fix that part and load all parts together."
    )
    assert "2 records were added up into 1" in outcome.warnings["breakdowns_summed"]


def test_a_rejected_part_is_found_by_its_key_although_it_names_its_campaign_in_other_words() -> None:
    records = [
        "2025-02-01,88,S,5,2.00,mobile",
        "2025-02-01,88,T,5,3.0x,desktop",
        "2025-02-01,89,S,1,1,mobile",
    ]
    outcome = check_text(meta(*records, header=DEVICES), options=SUM)
    assert [(r["line"], r["code"]) for r in outcome.rejections] == [
        (2, "conflicting_repeat"),
        (3, "bad_amount"),
    ]
    assert [row["line"] for row in outcome.metrics] == [4]


def test_a_breakdown_is_noticed_although_its_only_second_part_is_rejected() -> None:
    records = [
        "2025-03-01,89,S,5,2.00,mobile",
        "2025-03-02,89,S,5,2.00,mobile",
        "2025-03-01,89,S,5,3.0x,desktop",
    ]
    with pytest.raises(
        FileRefused, match=r"as on lines 2 and 4, distinguished by 'Impression device'"
    ) as refused:
        check_text(meta(*records, header=DEVICES))
    assert refused.value.code == "unexpected_breakdown"


@pytest.mark.parametrize("unread", ["2025-03-4x,89,S,5,3.00,tablet", '2025-03-01,89,S,5,"3.00,tablet'])
def test_a_sum_that_may_lack_a_record_refuses_the_file(unread: str) -> None:
    records = ["2025-03-01,89,S,5,2.00,mobile", "2025-03-01,89,S,5,3.00,desktop", unread]
    with pytest.raises(
        FileRefused, match=r"metric date and campaign of 1 of its records cannot be read \(line 4\)"
    ) as no:
        check_text(meta(*records, header=DEVICES), options=SUM)
    assert no.value.code == "incomplete_breakdown"


def test_a_rejected_record_and_an_accepted_one_of_the_same_key_are_a_conflict() -> None:
    text = meta("A-1,P,D,5.00,2024-01-01", "A-1,P,D,9x9,2024-01-01", "A-2,P,D,1,2024-01-01", header=CASES)
    outcome = check_text(text, None, pipeline=judgments.pipeline)
    assert (outcome.bins.accepted, outcome.bins.rejected) == (1, 2)
    assert [(r["code"], r["more"]) for r in outcome.rejections] == [
        ("conflicting_repeat", []),
        (
            "bad_amount",
            [
                "Expected one record for each case number, got another on line 2, which differs in Judgment Amount "
                "(line 3). None of them was loaded. Check which one is correct."
            ],
        ),
    ]
    assert (
        "got another on line 3, which differs in Judgment Amount (line 2)" in outcome.rejections[0]["message"]
    )


def test_rejected_records_of_other_keys_reject_nothing_else() -> None:
    text = meta("A-1,P,D,5.00,2024-01-01", "A-2,P,D,x,2024-01-01", "A-2,P,D,y,2024-01-01", header=CASES)
    outcome = check_text(text, None, pipeline=judgments.pipeline)
    assert (outcome.bins.accepted, outcome.codes) == (1, ["bad_amount"] * 2)


def test_cases_with_different_amounts_are_a_conflict_whatever_else_differs() -> None:
    records = ["A-1,P,D,5.00,2024-01-01,first", "A-1,P,D,6.00,2024-01-01,second", "A-2,P,D,1,2024-01-01,"]
    outcome = check_text(meta(*records, header=f"{CASES},Notes"), None, pipeline=judgments.pipeline)
    assert outcome.codes == ["conflicting_repeat"] * 2
    assert "differs in Judgment Amount, Notes" in outcome.rejections[0]["message"]


def test_cases_that_differ_only_in_a_column_that_no_field_uses_refuse_the_file() -> None:
    records = ["A-1,P,D,5.00,2024-01-01,first", "A-1,P,D,5.00,2024-01-01,second"]
    with pytest.raises(
        FileRefused, match=r"distinguished by 'Notes'. Export the file again without that breakdown\.$"
    ):
        check_text(meta(*records, header=f"{CASES},Notes"), None, pipeline=judgments.pipeline)


def test_records_that_name_their_campaign_differently_are_not_added_up() -> None:
    records = ["2025-02-01,88,A,5,2.00,mobile", "2025-02-01,88,B,5,3.00,desktop"]
    outcome = check_text(meta(*records, header=DEVICES), options=SUM)
    assert outcome.codes == ["conflicting_repeat"] * 2
    assert (
        "differs in Campaign name, Amount spent (USD), Impression device" in outcome.rejections[0]["message"]
    )


def test_two_records_of_one_part_are_not_added_up() -> None:
    records = [
        "2025-02-01,88,A,5,2.00,mobile",
        "2025-02-01,88,A,5,3.00,mobile",
        "2025-02-01,88,A,5,3.00,desktop",
    ]
    outcome = check_text(meta(*records, header=DEVICES), options=SUM)
    assert outcome.codes == ["conflicting_repeat"] * 3


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("Link clicks", ["2", "3", "2", "3"]),
        ("CTR", ["1.2", "1.3", "1.2", "1.3"]),
        ("X", ["21", "34", "55", "89"]),
    ],
)
def test_a_measure_that_no_field_uses_distinguishes_no_parts(column: str, values: list[str]) -> None:
    header = DEVICES.replace("Impression device", column)
    days = ["2025-02-01", "2025-02-01", "2025-02-02", "2025-02-02"]
    records = [
        f"{day},88,A,{at},2.00,{value}" for at, (day, value) in enumerate(zip(days, values, strict=True))
    ]
    assert check_text(meta(*records, header=header), options=SUM).codes == ["conflicting_repeat"] * 4


def test_hours_in_an_unknown_language_are_added_up() -> None:
    header = DEVICES.replace("Impression device", "Stunde")
    records = [f"2025-02-0{day},88,A,{day + hour},1,{hour}" for day in (1, 2) for hour in (14, 15)]
    outcome = check_text(meta(*records, header=header), options=SUM)
    assert [row["impressions"] for row in outcome.metrics] == [31, 33]


TILLS = Pipeline(
    "tills",
    [Entity("tills", ["till"], [Field("till", required=True), Field("sold", int, additive=True)])],
    min_valid=0,
)


@pytest.mark.parametrize(
    ("sold", "limit", "shown"),
    [
        (
            2_000_000_000,
            ColumnLimits("integer", least=-(2**31), most=2**31 - 1),
            "as its column is integer, got 4000000000",
        ),
        (5 * 10**18, None, "got 10000000000000000000 for lines 2, 3"),
    ],
)
def test_a_sum_that_its_column_cannot_hold_refuses_the_file(
    sold: int, limit: ColumnLimits | None, shown: str
) -> None:
    text = f"till,sold,who\n7,{sold},m\n7,{sold},d\n8,1,d\n"
    with pytest.raises(FileRefused) as refused:
        check_text(
            text, None, pipeline=TILLS, options=SUM, column_limits={"till.sold": limit} if limit else {}
        )
    assert refused.value.code == "sum_too_large"
    assert refused.value.message.startswith("sold: expected ")
    assert shown in refused.value.message


def test_a_sum_of_more_than_twelve_digits_is_no_trouble_to_a_whole_number() -> None:
    text = "till,sold,who\n7,900000000000,m\n7,900000000000,d\n"
    outcome = check_text(text, None, pipeline=TILLS, options=SUM)
    assert [row["sold"] for row in outcome.rows["till"]] == [1_800_000_000_000]


PRICES = Pipeline(
    "prices",
    [Entity("prices", ["sku"], [Field("sku", required=True), Field("price", Decimal)])],
    min_valid=0,
)


def test_a_conflict_in_json_on_one_line_is_a_conflict() -> None:
    text = '[{"sku": "a", "price": "5.00"}, {"sku": "a", "price": "6.00"}, {"sku": "b", "price": "1"}]'
    outcome = check_text(text, None, pipeline=PRICES, kind="json")
    assert (outcome.bins.accepted, outcome.codes) == (1, ["conflicting_repeat"] * 2)
    assert "got another on line 1, which differs in price (line 1)" in outcome.rejections[0]["message"]


def test_a_breakdown_in_json_on_one_line_is_refused() -> None:
    text = '[{"sku": "a", "price": "5.00", "shop": "x"}, {"sku": "a", "price": "5.00", "shop": "y"}]'
    with pytest.raises(FileRefused, match=r"as on line 1, distinguished by 'shop'"):
        check_text(text, None, pipeline=PRICES, kind="json")


def late(*records: dict[str, Any]) -> str:
    """A list of JSON records that have their last keys only behind the records whose keys make the header."""
    first = [{"till": f"t{no}", "sold": 1} for no in range(1_001)]
    return "\n".join(json.dumps(record) for record in [*first, *records])


def test_a_key_that_comes_late_distinguishes_the_parts_of_a_breakdown() -> None:
    text = late({"till": "x", "sold": 5, "Device": "mobile"}, {"till": "x", "sold": 5, "Device": "desktop"})
    with pytest.raises(FileRefused, match=r"on lines 1002 and 1003, distinguished by 'Device'") as refused:
        check_text(text, None, pipeline=TILLS, kind="json")
    assert refused.value.code == "unexpected_breakdown"
    outcome = check_text(text, None, pipeline=TILLS, kind="json", options=SUM)
    assert {row["till"]: row["sold"] for row in outcome.rows["till"]}["x"] == 10
    assert "distinguished by 'Device'" in outcome.warnings["breakdowns_summed"]


def test_a_conflict_names_the_keys_that_come_late() -> None:
    text = late({"till": "x", "sold": 5, 'a~1/"b': "m", "n": 1}, {"till": "x", "sold": 6, "n": 2, "": "-"})
    outcome = check_text(
        text.replace('"sold"', '"price"').replace('"till"', '"sku"'), None, pipeline=PRICES, kind="json"
    )
    assert outcome.codes == ["conflicting_repeat"] * 2
    assert 'which differs in price, a~1/"b, n, (no name) (line' in outcome.rejections[0]["message"]


def test_late_keys_in_another_order_are_the_same_record_and_are_listed_as_unused_columns() -> None:
    text = late(
        {"till": "x", "sold": 5, "a": "m", "b": {"c": 1}, "d": None},
        {"till": "x", "sold": 5, "b": {"c": 1}, "a": " m "},
    )
    outcome = check_text(text, None, pipeline=TILLS, kind="json")
    assert outcome.bins == Bins(accepted=1_002, duplicate=1)
    assert [(each.header, each.use) for each in outcome.column_report.columns][2:] == [
        ("a", "unused"),
        ("b", "unused"),
        ("d", "unused"),
    ]


@pytest.mark.parametrize("column", ["CTR", "Frequency"])
def test_records_that_differ_only_in_a_rate_are_never_added_up(column: str) -> None:
    """They may be one record twice: 1.5 and 1.50."""
    header = f"Day,Campaign ID,Campaign name,Impressions,Amount spent (USD),{column}"
    text = meta("2025-07-01,11,Spring,10,1.50,1.5", "2025-07-01,11,Spring,10,1.50,1.50", header=header)
    with pytest.raises(FileRefused) as refused:
        check_text(text)
    assert (refused.value.code, "--sum-breakdowns" in refused.value.message) == (
        "unexpected_breakdown",
        False,
    )
    summed = check_text(text, options=SUM)
    assert summed.codes == ["conflicting_repeat"] * 2
    assert column in summed.rejections[0]["message"]
