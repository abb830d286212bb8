"""Rows that add up the parts of a breakdown are totals: a sum does not have them twice."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rules.checking import Outcome, check_text, meta
from weighbridge.model.errors import FileRefused
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.upload import Bins
from weighbridge.pipelines import judgments

SUM = ReadOptions(sum_breakdowns=True)
HEADER = "Day,Campaign ID,Campaign name,Impressions,Reach,Amount spent (USD)"


def check(*parts: str, by: str = "Device") -> Outcome:
    """Parts of one day: `mobile 20 2.00` is a device, its impressions and its spend."""
    return check_days(("2025-02-01", parts), by=by)


def check_days(*days: tuple[str, tuple[str, ...]], by: str = "Device") -> Outcome:
    records = []
    for day, parts in days:
        for part in parts:
            *cells, impressions, spend = part.split(";")
            records.append(f"{day},11,S,{impressions},7,{spend},{','.join(cells)}")
    return check_text(meta(*records, header=f"{HEADER},{by}"), options=SUM)


def figures(outcome: Outcome) -> list[tuple[int, Decimal]]:
    return [(row["impressions"], row["spend"]) for row in outcome.metrics]


LABELS = ["Total", "All", "All devices", "Alle Geräte", "", "--", "Gesamt"]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("place", [0, 2])
def test_a_part_that_adds_up_the_others_is_a_row_of_totals(label: str, place: int) -> None:
    parts = ["mobile;20;2.00", "desktop;30;3.00"]
    parts.insert(place, f"{label};50;5.00")
    outcome = check(*parts)
    assert figures(outcome) == [(50, Decimal(5))]
    assert outcome.bins == Bins(header=1, accepted=1, duplicate=1, totals=1)
    line = place + 2
    assert outcome.warnings["breakdown_totals"] == (
        f"1 record was counted as totals of other records and not added up (first on line {line})."
    )
    assert outcome.warnings["breakdowns_summed"].startswith("2 records were added up into 1; ")


@pytest.mark.parametrize("label", LABELS)
def test_a_label_that_does_not_add_up_rejects_all_parts_of_its_key(label: str) -> None:
    outcome = check_days(
        ("2025-02-01", ("mobile;20;2.00", "desktop;30;3.00", f"{label};50;5.01", "mobile;20;2.00")),
        ("2025-02-02", ("mobile;21;2.00", "desktop;31;3.00")),
    )
    assert figures(outcome) == [(52, Decimal(5))]
    assert [(r["line"], r["code"]) for r in outcome.rejections] == [
        (line, "unclear_breakdown") for line in (2, 3, 4, 5)
    ]
    assert outcome.rejections[0]["message"] == (
        "Expected parts that can be added up, got a record on line 4 that may be their total (line 2). If it is a part "
        "without a name, give it a name. Otherwise correct the figures, or export the file again without the breakdown."
    )


def test_a_total_beside_a_single_part_is_a_row_of_totals() -> None:
    outcome = check("mobile;50;5.00", "Total;50;5.00")
    assert [(row["impressions"], row["spend"], row["reach"]) for row in outcome.metrics] == [
        (50, Decimal(5), 7)
    ]
    assert outcome.bins == Bins(header=1, accepted=1, totals=1)
    assert "breakdowns_summed" not in outcome.warnings
    assert "first on line 3" in outcome.warnings["breakdown_totals"]


def test_an_unnamed_row_beside_a_single_equal_part_is_totals_only_where_the_file_has_such_totals() -> None:
    one = ("2025-02-01", ("mobile;50;5.00", ";50;5.00"))
    assert check_days(one).codes == ["unclear_breakdown"] * 2
    outcome = check_days(one, ("2025-02-02", ("mobile;20;2.00", "desktop;30;3.00", ";50;5.00")))
    assert (figures(outcome), outcome.bins.totals) == ([(50, Decimal(5))] * 2, 2)


def test_an_unnamed_part_is_a_part_where_the_labelled_total_says_so() -> None:
    outcome = check("mobile;20;2.00", "desktop;30;3.00", ";1;0.10", "Total;51;5.10")
    assert (figures(outcome), outcome.bins.totals) == ([(51, Decimal("5.1"))], 1)


def test_a_label_without_figures_does_no_harm() -> None:
    outcome = check("mobile;20;2.00", "desktop;30;3.00", ";0;")
    assert figures(outcome) == [(50, Decimal(5))]


def test_a_part_that_is_another_part_in_each_key_is_no_total() -> None:
    outcome = check("mobile;20;2.00", "desktop;20;2.00", "tablet;20;2.00")
    assert figures(outcome) == [(60, Decimal(6))]


CROSSED = [
    *("mobile;18-24;11;1.00", "mobile;25-34;22;2.00", "desktop;18-24;44;4.00", "desktop;25-34;88;8.00"),
    *("mobile;All;33;3.00", "desktop;All;132;12.00", "All;18-24;55;5.00", "All;25-34;110;10.00"),
    "All;All;165;15.00",
]


@pytest.mark.parametrize("blank", [False, True])
def test_subtotals_of_two_columns_are_totals(blank: bool) -> None:
    parts = [part.replace("All", "") if blank else part for part in CROSSED]
    outcome = check(*reversed(parts), by="Device,Age")
    assert (figures(outcome), outcome.bins.totals) == ([(165, Decimal(15))], 5)


@pytest.mark.parametrize(
    "kept", [[0, 1, 2, 3, 8], [0, 1, 2, 3, 4, 5], [4, 5, 8], [0, 1, 2, 3, 6], [0, 1, 4, 2, 3]]
)
def test_some_subtotals_of_two_columns_are_totals(kept: list[int]) -> None:
    outcome = check(*(CROSSED[no] for no in kept), by="Device,Age")
    assert figures(outcome) == [(165, Decimal(15))]


def test_two_breakdowns_of_the_same_whole_below_each_other_are_not_added_up() -> None:
    outcome = check(*CROSSED[4:8], by="Device,Age")
    assert outcome.codes == ["unclear_breakdown"] * 4


def test_a_subtotal_of_two_columns_that_does_not_add_up_rejects_the_key() -> None:
    parts = [*CROSSED[:5], "desktop;All;133;12.00"]
    assert check(*parts, by="Device,Age").codes == ["unclear_breakdown"] * 6


def test_a_part_that_needs_no_second_name_is_a_part() -> None:
    outcome = check("mobile;iOS;11;1.00", "mobile;Android;22;2.00", "desktop;;44;4.00", by="Device,System")
    assert figures(outcome) == [(77, Decimal(7))]
    outcome = check(
        *("mobile;iOS;11;1.00", "mobile;Android;22;2.00", "desktop;;44;4.00", "Total;;77;7.00"),
        by="Device,System",
    )
    assert (figures(outcome), outcome.bins.totals) == ([(77, Decimal(7))], 1)


def test_totals_in_an_unknown_language_are_known_by_their_figures() -> None:
    outcome = check("mobile;2012;20.15", "desktop;3034;31.41", "Összesen;5046;51.56")
    assert (figures(outcome), outcome.bins.totals) == ([(5046, Decimal("51.56"))], 1)
    outcome = check_days(
        ("2025-02-01", ("mobile;2012;20.15", "desktop;3034;31.41", "Összesen;5046;51.56")),
        ("2025-02-02", ("mobile;21;3.00", "Összesen;21;3.00")),
    )
    assert figures(outcome) == [(5046, Decimal("51.56")), (21, Decimal(3))]


def test_subtotals_of_two_columns_in_an_unknown_language_are_known_by_their_figures() -> None:
    parts = [part.replace("All", "Összes") for part in CROSSED[:6]]
    assert figures(check(*parts, by="Device,Age")) == [(165, Decimal(15))]


def test_a_single_part_with_the_small_sum_of_the_others_may_be_either() -> None:
    outcome = check("mobile;1;0.10", "desktop;1;0.10", "tablet;2;0.20")
    assert outcome.codes == ["unclear_breakdown"] * 3


def test_a_small_sum_in_one_of_many_keys_is_chance() -> None:
    outcome = check_days(
        ("2025-02-01", ("mobile;1;0.10", "desktop;1;0.10", "tablet;2;0.20")),
        ("2025-02-02", ("mobile;1;0.10", "desktop;4;0.10", "tv;2;0.20")),
        ("2025-02-03", ("mobile;1;0.10", "desktop;3;0.10", "watch;1;0.20")),
    )
    assert [row["impressions"] for row in outcome.metrics] == [4, 7, 5]


def test_a_part_that_adds_up_the_others_on_one_day_only_is_a_part() -> None:
    outcome = check_days(
        ("2025-02-01", ("mobile;2012;20.15", "desktop;3034;31.41", "tablet;5046;51.56")),
        ("2025-02-02", ("mobile;2012;20.15", "desktop;3034;31.41", "tablet;46;1.56")),
    )
    assert [row["impressions"] for row in outcome.metrics] == [10092, 5092]


def test_a_rejected_part_rejects_the_totals_with_it() -> None:
    outcome = check("mobile;20;2.00", "desktop;30;3.0x", "Total;50;5.00")
    assert outcome.codes == ["incomplete_breakdown", "bad_amount", "incomplete_breakdown"]


def test_a_file_without_sums_is_refused_although_its_parts_are_to_be_added_up() -> None:
    header = "Case Number,Plaintiff,Defendant,Judgment Amount,Filing Date,Notes"
    records = ["A-1,P,D,5.00,2024-01-01,first", "A-1,P,D,5.00,2024-01-01,second"]
    with pytest.raises(FileRefused) as refused:
        check_text(meta(*records, header=header), None, pipeline=judgments.pipeline, options=SUM)
    assert refused.value.code == "unexpected_breakdown"
    assert refused.value.message.endswith("Export the file again without that breakdown.")


def test_a_file_whose_measures_cannot_be_added_up_is_refused() -> None:
    header = "Day,Campaign ID,Campaign name,Reach,Device"
    with pytest.raises(FileRefused) as refused:
        check_text(meta("2025-02-01,11,S,7,mobile", "2025-02-01,11,S,7,desktop", header=header), options=SUM)
    assert refused.value.code == "unexpected_breakdown"
