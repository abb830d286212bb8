"""Every record of a file ends in one bin, and the bins are the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rules.checking import HEADER, check_file, check_text, meta
from weighbridge.formats.delimited import DelimitedSheet
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins


def test_blank_records_are_counted_wherever_they_stand() -> None:
    outcome = check_text(meta("", "2025-07-01,11,Spring,5,1", ",,,,", " , ,\u00a0,,", ""))
    assert outcome.bins == Bins(header=1, blank=4, accepted=1)


def test_metas_totals_row_follows_the_header_and_names_nothing() -> None:
    outcome = check_text(meta(",,,9,2", "2025-07-01,11,Spring,5,1", "2025-07-02,11,Spring,4,1"))
    assert outcome.bins == Bins(header=1, totals=1, accepted=2)


def test_metas_totals_row_of_a_single_day_has_that_day() -> None:
    header = "Reporting starts,Reporting ends,Campaign name,Impressions"
    outcome = check_text(meta("2025-07-01,2025-07-01,,9", "2025-07-01,2025-07-01,Spring,9", header=header))
    assert outcome.bins == Bins(header=1, totals=1, accepted=1)


def test_metas_totals_row_that_was_moved_is_still_one() -> None:
    header = "Reporting starts,Reporting ends,Campaign name,Impressions"
    records = ["2025-07-01,2025-07-01,Spring,5", "2025-07-02,2025-07-02,Spring,4", "2025-07-01,2025-07-02,,9"]
    assert check_text(meta(*records, header=header)).bins == Bins(header=1, totals=1, accepted=2)


def test_a_nameless_record_with_a_day_is_no_totals_row() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", "2025-07-02,,,4,1"))
    assert (outcome.bins.totals, outcome.codes) == (0, ["missing_value"])


def test_rubbish_is_no_totals_row() -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", "end of file,,,,", "see above"))
    assert outcome.bins == Bins(header=1, accepted=1, rejected=2)


@pytest.mark.parametrize(
    ("label", "position"),
    [*(("Total: Campaigns", i) for i in range(5)), (" total: Ad groups ", 1), ("Gesamt: Konto", 2)],
)
def test_googles_totals_have_their_label_in_any_column(label: str, position: int) -> None:
    cells = [label if i == position else " --" for i in range(5)]
    text = f"Day,Campaign,Campaign ID,Cost,Impr.\n2025-07-01,Spring,11,1.50,5\n{','.join(cells)}\n"
    assert check_text(text, "google").bins == Bins(header=1, totals=1, accepted=1)


@pytest.mark.parametrize("record", ["Total: Campaigns", "Total: Campaigns,1,2,3,4,5,6,7"])
def test_a_totals_row_may_have_any_number_of_cells(record: str) -> None:
    text = f"Day,Campaign,Campaign ID,Cost,Impr.\n2025-07-01,Spring,11,1.50,5\n{record}\n"
    assert check_text(text, "google").bins == Bins(header=1, totals=1, accepted=1)


def test_tiktoks_totals_row_counts_the_results() -> None:
    text = "Campaign name,Date,Cost,Impression\nSpring,2025-07-01,1.50,5\nTotal of 1 results,-,1.50,5\n"
    assert check_text(text, "tiktok").bins == Bins(header=1, totals=1, accepted=1)


def test_a_campaign_may_be_called_total_something() -> None:
    outcome = check_text(meta("2025-07-01,11,Total: Football,5,1", "2025-07-02,11,Total: Football,x,1"))
    assert outcome.bins == Bins(header=1, accepted=1, rejected=1)


@pytest.mark.parametrize(
    ("record", "got"), [("2025-07-02,11,Spring,5", 4), ("2025-07-02,11,Spring,5,1,6", 6), ("2025-07-02", 1)]
)
def test_a_record_with_the_wrong_number_of_cells_is_rejected(record: str, got: int) -> None:
    outcome = check_text(meta("2025-07-01,11,Spring,5,1", record))
    [rejection] = outcome.rejections
    assert (rejection["code"], rejection["column_name"]) == ("wrong_cell_count", None)
    assert rejection["message"] == (
        f"Expected 5 cells as in the header, got {got} (line 3). Check its quotes and separators."
    )
    assert rejection["raw"] == record.split(",")


def test_empty_cells_beyond_the_last_column_do_no_harm_where_nearly_all_records_have_them() -> None:
    days = [f"2025-07-{day:02},11,Spring,5,1" for day in range(1, 21)]
    assert check_text(meta(*(f"{day},," for day in days))).bins == Bins(header=1, accepted=20)
    outcome = check_text(meta(*days[1:], "2025-07-01,11,,Spring,5,"))
    assert (outcome.bins, outcome.codes) == (Bins(header=1, accepted=19, rejected=1), ["wrong_cell_count"])


def test_empty_cells_beyond_a_header_that_lacks_a_name_refuse_the_file() -> None:
    text = meta(*(f"2025-07-{day:02},11,Spring,5," for day in range(1, 21)))
    with pytest.raises(FileRefused) as refused:
        check_text(text.replace("Impressions,Amount", "ImpressionsAmount"))
    assert refused.value.code == "header_too_short"
    assert "daily_metric.impressions, daily_metric.spend" in refused.value.message


def test_a_preamble_is_counted() -> None:
    text = 'Campaign report\n"July 1, 2025 - July 1, 2025"\nDay,Campaign,Cost\n2025-07-01,Spring,1.50\n'
    assert check_text(text, "google").bins == Bins(preamble=2, header=1, accepted=1)


def test_json_has_no_header_record() -> None:
    text = '{"date_start":"2025-07-01","date_stop":"2025-07-01","campaign_id":"11","impressions":5}\n7\n\n'
    outcome = check_text(text, kind="json")
    assert outcome.bins.header == 0
    assert (outcome.bins.accepted, outcome.codes) == (1, ["not_a_record"])
    assert outcome.rejections[0]["raw"][-1] == "7"


def test_a_file_without_a_single_data_record_is_refused() -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(meta(",,,9,2", ""))
    assert refused.value.code == "no_data"


def test_a_record_lost_on_the_way_refuses_the_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "export"
    path.write_text(meta("2025-07-01,11,Spring,5,1", "2025-07-02,11,Spring,4,1", header=HEADER))
    read = DelimitedSheet.batches

    def forgetful(sheet: DelimitedSheet) -> Iterator[Any]:
        for batch in read(sheet):
            yield batch.slice(1)

    monkeypatch.setattr(DelimitedSheet, "batches", forgetful)
    with pytest.raises(FileRefused, match="has 3 records, but 2 were accounted for") as refused:
        check_file(path, "meta")
    assert refused.value.code == "rows_not_conserved"


def test_a_record_with_a_bad_date_is_rejected_even_beside_a_totals_label() -> None:
    text = "Day,Campaign,Cost,Currency code\n2025-07-01,A,1.5,USD\n2025-07-32,A,1.5,Total: Campaigns\n"
    assert check_text(text, "google").codes == ["bad_date"]


NAMELESS = [
    ("2025-07-03,,,77,500", 0),  # of no other record's day
    ("2025-07-01,,,77,500", 0),  # of that day, and adds up nothing
    ("2025-07-01,,,5,1", 1),  # adds up its day
    (",,,14,3", 1),  # of all days
    (",,,77,500", 1),
]


@pytest.mark.parametrize(("record", "totals"), NAMELESS)
def test_the_first_record_without_names_is_totals_only_if_it_has_no_day_or_adds_up(
    record: str, totals: int
) -> None:
    others = ["2025-07-01,11,Spring,5,1", "2025-07-02,11,Spring,9,2"]
    outcome = check_text(meta(record, *others))
    assert outcome.bins == Bins(header=1, totals=totals, accepted=2, rejected=1 - totals)
    assert outcome.codes == ["missing_value"] * (1 - totals)


def test_totals_of_a_day_may_count_conversions_otherwise() -> None:
    header = "Day,Campaign ID,Campaign name,Impressions,Amount spent (USD),Purchases"
    others = ["2025-07-01,11,Spring,5,1.50,1", "2025-07-01,12,Summer,9,2.25,2"]
    outcome = check_text(meta("2025-07-01,,,14,3.75,2", *others, header=header))
    assert outcome.bins == Bins(header=1, totals=1, accepted=2)
