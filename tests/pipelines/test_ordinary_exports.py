"""Warnings of ordinary exports: what is doubtful in them is reported, and nothing else."""

from __future__ import annotations

import pytest
from rules.checking import check_text, meta

from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.pipelines import conversions, keywords

SEARCH_CONSOLE = 'Top queries,Clicks,Impressions,CTR,Position\nbuy shoes,12,"1,234",0.97%,3.2\n'
PLANNER = (
    "Keyword,Currency,Avg. monthly searches,Competition,Competition (indexed value),Searches: Jan 2024\n"
    "buy shoes,USD,1000,High,90,880\n"
)
TEMPLATE = (
    "Google Click ID,Conversion Name,Conversion Time,Conversion Value,Conversion Currency\n"
    "Cj1-1,Sale,2026-01-31T02:30:00Z,5,EUR\n"
)


@pytest.mark.parametrize(
    ("text", "pipeline", "unused"),
    [
        (SEARCH_CONSOLE, keywords.pipeline, "'CTR', 'Position'"),
        (PLANNER, keywords.pipeline, "'Currency'"),
        (TEMPLATE, conversions.pipeline, "'Conversion Name'"),
    ],
)
def test_an_ordinary_file_has_one_warning_with_the_columns_that_no_field_uses(
    text: str, pipeline: Pipeline, unused: str
) -> None:
    warnings = check_text(text, None, pipeline=pipeline).warnings
    assert list(warnings) == ["unused_columns"]
    assert unused in warnings["unused_columns"]


def test_the_period_of_metas_report_is_no_warning_beside_the_day() -> None:
    header = "Day,Reporting starts,Reporting ends,Campaign name,Campaign ID,Impressions,Amount spent (EUR)"
    outcome = check_text(meta("2025-01-01,2025-01-01,2025-01-31,S,11,1,1", header=header))
    assert outcome.warnings == {}
    uses = {each.header: each.use for each in outcome.column_report.columns}
    assert (uses["Reporting starts"], uses["Reporting ends"]) == ("unused", "unused")


def test_a_keyword_list_without_volumes_is_still_reported() -> None:
    outcome = check_text("Keyword,Clicks\nbuy shoes,12\n", None, pipeline=keywords.pipeline)
    assert "volume_column_not_found" in outcome.warnings


def test_results_that_become_conversions_are_reported_with_what_they_count() -> None:
    header = "Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR),Results,Result indicator"
    records = ("2025-01-31,S,11,100,5.5,9,actions:link_click", "2025-02-01,T,12,100,5.5,3,reach")
    assert check_text(meta(*records, header=header)).warnings["results_as_conversions"] == (
        "The conversions were read from 'Results', which counts what each campaign is "
        "optimised for. The column 'Result indicator' has 'actions:link_click', 'reach'."
    )


def test_results_without_an_indicator_are_reported_too() -> None:
    header = "Tag,Kampagnenname,Kampagnen-ID,Impressionen,Ausgegebener Betrag (EUR),Ergebnisse"
    warnings = check_text(meta("2025-01-31,S,11,100,5.5,9", header=header)).warnings
    assert "The file does not name the counted results" in warnings["results_as_conversions"]


def test_purchases_are_conversions_without_a_warning() -> None:
    header = "Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR),Purchases,Result indicator"
    assert list(check_text(meta("2025-01-31,S,11,100,5.5,9,reach", header=header)).warnings) == [
        "unused_columns"
    ]


def test_a_file_without_a_single_figure_is_refused_with_guesses() -> None:
    header = "date,campaign.name,campaign.id,metrics.impressions,metrics.clicks,metrics.cost_micros"
    with pytest.raises(FileRefused, match="No measure was found") as refused:
        check_text(f"{header}\n2025-01-31,B,1,1234,56,12340000\n", "google")
    assert refused.value.code == "missing_column"
    assert "perhaps 'metrics.impressions'" in refused.value.message
