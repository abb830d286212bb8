"""Every column of the file and every expected field is accounted for."""

from __future__ import annotations

import pytest

from rules.checking import check_text, meta
from weighbridge.model.columns import ColumnReport, ColumnUse, MissingField
from weighbridge.model.errors import FileRefused
from weighbridge.pipelines import judgments

CASES = "Case Number,Plaintiff(s),Judgment Amt,Remark\n1,Ann,$5.00,x\n"


def test_each_column_is_mapped_kept_or_unused_and_each_missing_field_is_named() -> None:
    header = "Reporting starts,Reporting ends,Campaign name,Campaign ID,Impressions,Spent,CTR"
    outcome = check_text(meta("2025-07-01,2025-07-01,Spring,11,5,1.5,2%", header=header))
    assert [(each.header, each.use, each.fields) for each in outcome.column_report.columns] == [
        ("Reporting starts", "mapped", ("daily_metric.metric_date",)),
        ("Reporting ends", "kept", ()),
        ("Campaign name", "mapped", ("campaign.name",)),
        ("Campaign ID", "mapped", ("campaign.external_id",)),
        ("Impressions", "mapped", ("daily_metric.impressions",)),
        ("Spent", "unused", ()),
        ("CTR", "unused", ()),
    ]
    assert outcome.column_report.missing == (MissingField("daily_metric.spend", "Amount spent", "Spent"),)
    assert set(outcome.warnings) == {"unused_columns", "spend_column_not_found"}


def test_judgments_with_short_headers_are_read_and_not_only_their_numbers() -> None:
    outcome = check_text(CASES, None, pipeline=judgments.pipeline)
    [row] = outcome.rows["judgment"]
    assert (row["plaintiff_name"], row["judgment_amount"]) == ("Ann", 5)
    assert {each.field for each in outcome.column_report.missing} == {
        "judgment.defendant_name",
        "judgment.filing_date",
    }


def test_a_file_with_fewer_than_half_of_the_expected_fields_is_refused_with_its_columns_and_guesses() -> None:
    with pytest.raises(FileRefused) as refused:
        check_text("Case Number,Plantif,Sum\n1,Ann,5\n", None, pipeline=judgments.pipeline)
    assert refused.value.code == "unknown_columns"
    assert refused.value.message.startswith(
        "Only 1 of 5 expected fields were found. Missing: judgment.plaintiff_name "
    )
    assert "perhaps 'Plantif'" in refused.value.message
    assert "The file has 'Case Number', 'Plantif', 'Sum'." in refused.value.message
    assert refused.value.column_report is not None
    assert [each.use for each in refused.value.column_report.columns] == ["mapped", "unused", "unused"]


def test_a_report_survives_being_stored() -> None:
    outcome = check_text(CASES, None, pipeline=judgments.pipeline)
    assert ColumnReport.of(outcome.column_report.as_dict()) == outcome.column_report
    assert ColumnReport.of({}).filled_of("judgment") is None
    assert outcome.column_report.filled_of("judgment") == {
        "case_number",
        "plaintiff_name",
        "judgment_amount",
        "plaintiff_id",
    }
    assert ColumnUse("x", "unused").fields == ()
