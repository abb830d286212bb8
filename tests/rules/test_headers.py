"""Header cells → fields."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from rules.checking import check_text, meta
from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Entity, Field, Pipeline, Ref
from weighbridge.pipelines import ads, judgments
from weighbridge.rules import n
from weighbridge.rules.headers import field_counter, fold, match
from weighbridge.rules.unknown_header import UnknownColumns, no_column_known

META, GOOGLE, TIKTOK = (ads.pipeline.profile(name) for name in ("meta", "google", "tiktok"))
notes = Pipeline(
    "notes",
    [
        Entity(
            "notes",
            key=["number"],
            fields=[Field("number", header=["File #"], required=True), Field("due_day", date)],
        )
    ],
)


@pytest.mark.parametrize(
    ("cell", "folded"),
    [
        ("Campaign Name ", "campaignname"),
        ("\ufeffDay", "day"),
        ("Impr.", "impr"),
        ("Clicks（Destination）", "clicksdestination"),
        ("Clicks (Destination)", "clicksdestination"),
        ("Nom de l’ensemble", "nomdelensemble"),
        ("campaign_name", "campaignname"),
        ("  Amount\u00a0 spent ", "amountspent"),
        ("File #", "filenumber"),
        ("Ａｄ　ＩＤ", "adid"),
        ("Plaintiff(s)", "plaintiff"),
        ("Judgment Amt.", "judgmentamount"),
        ("JudgementAmt", "judgmentamount"),
        ("CaseNo", "casenumber"),
        ("case-number:", "casenumber"),
        ("KD %", "kd%"),
    ],
)
def test_what_does_not_matter_is_folded_away(cell: str, folded: str) -> None:
    assert fold(cell) == folded


def test_the_currency_in_a_header_is_that_of_the_whole_file() -> None:
    layout = match(["Day", "Campaign name", "Montant dépensé (EUR)"], ads.pipeline, META)
    assert layout.mapping["daily_metric.spend"] == "Montant dépensé (EUR)"
    assert layout.constants == {"daily_metric.currency": "EUR"}


def test_a_currency_column_goes_before_the_header() -> None:
    layout = match(["Day", "Campaign name", "Amount spent (EUR)", "Currency"], ads.pipeline, META)
    assert layout.mapping["daily_metric.currency"] == "Currency"
    assert layout.constants == {}


def test_amounts_without_a_currency_are_read_with_a_warning() -> None:
    text = meta("2025-07-01,Spring,11,5,1.5", header="Day,Campaign name,Campaign ID,Impressions,Amount spent")
    outcome = check_text(text)
    assert outcome.metrics[0]["currency"] is None
    assert outcome.warnings == {
        "currency_not_named": "daily_metric.currency: the file does not state it; 'Amount spent' was read without it. "
        "Rows that are already in production keep their currency."
    }


def test_two_currencies_in_one_file_are_refused() -> None:
    header = ["Day", "Campaign name", "Amount spent (EUR)", "Amount spent (USD)"]
    with pytest.raises(FileRefused, match=r"one currency, got 'Amount spent.*EUR.*USD") as refused:
        match(header, ads.pipeline, META)
    assert refused.value.code == "several_currencies"


def test_the_profiles_order_decides_between_different_columns() -> None:
    layout = match(["Day", "Campaign name", "Link clicks", "Clicks (all)"], ads.pipeline, META)
    assert layout.mapping["daily_metric.clicks"] == "Clicks (all)"


def test_a_field_without_headers_goes_by_its_name() -> None:
    layout = match(["FILE NO.", "Due day"], notes, None)
    assert layout.mapping == {"note.number": "FILE NO.", "note.due_day": "Due day"}


def test_a_missing_column_is_named_with_the_nearest_guess_and_all_that_was_seen() -> None:
    with pytest.raises(FileRefused) as refused:
        match(["Day", "Campain name", "Impressions"], ads.pipeline, META)
    assert refused.value.code == "missing_column"
    assert refused.value.message == (
        "campaign.external_id: expected a column 'Campaign ID' or 'Campaign name'; did you mean 'Campain name'? "
        "The file has 'Day', 'Campain name', 'Impressions'."
    )


def test_a_file_of_another_platform_is_recognised_as_such() -> None:
    header = ["Day", "Campaign", "Campaign type", "Currency code", "Cost", "Impr.", "Clicks", "Conv. value"]
    with pytest.raises(FileRefused) as refused:
        match(header, ads.pipeline, META)
    assert (refused.value.code, refused.value.message) == (
        "other_platform",
        "The header looks like an export of google, not of meta: it has 'Campaign', 'Campaign type', "
        "'Currency code' and 3 more. Check the platform of the upload.",
    )


def test_a_single_column_of_another_platform_is_no_doubt() -> None:
    header = ["Day", "Campaign name", "Impressions", "Amount spent", "Campaign type"]
    assert "campaign.objective" not in match(header, ads.pipeline, META).mapping


@pytest.mark.parametrize(
    ("header", "platform", "right"),
    [
        ("Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR)", "google", "meta"),
        ("Day,Campaign name,Campaign ID,Impressions,Amount spent (EUR)", "tiktok", "meta"),
        ("Day,Campaign name,Campaign ID,Impressions,Cost", "meta", "google"),
    ],
)
def test_a_spend_column_that_only_another_platform_knows_tells_whose_file_it_is(
    header: str, platform: str, right: str
) -> None:
    with pytest.raises(FileRefused, match=f"looks like an export of {right}, not of {platform}:") as refused:
        match(header.split(","), ads.pipeline, ads.pipeline.profile(platform))
    assert refused.value.code == "other_platform"


def test_a_column_that_every_export_has_is_missed_with_a_warning() -> None:
    header = "Day,Campaign name,Campaign ID,Impressions,Spent,Bid,Reporting starts,Results,Purchases"
    outcome = check_text(meta("2025-07-01,Spring,11,5,1.5,0,2025-07-01,1,1", header=header))
    assert outcome.metrics[0]["spend"] is None
    assert outcome.warnings == {
        "spend_column_not_found": "daily_metric.spend: expected a column such as 'Amount spent', got none; did you "
        "mean 'Spent'? Stored values do not change.",
        "unused_columns": "No field uses these columns, so they were not loaded: 'Spent', 'Bid', 'Results'.",
    }


def test_a_column_that_nothing_resembles_is_missed_without_a_guess() -> None:
    outcome = check_text(meta("2025-07-01,11,1.5", header="Day,Campaign ID,Amount spent (USD)"))
    assert outcome.warnings == {
        "campaign_name_column_not_found": "campaign.name: expected a column such as 'Campaign name', got none. "
        "Stored values do not change.",
        "impressions_column_not_found": "daily_metric.impressions: expected a column such as 'Impressions', "
        "got none. Stored values do not change.",
    }


@pytest.mark.parametrize(
    ("profile", "cells", "known"),
    [
        (META, ["Reporting starts", "Reporting ends", "Campaign name", "Amount spent (USD)", "Bid"], 4),
        (GOOGLE, ["Day", "Campaign", "Campaign ID", "Currency code", "Cost", "Impr.", "Clicks"], 7),
        (TIKTOK, ["Campaign name", "By Day", "Cost", "Impression", "Clicks（Destination）"], 5),
        (GOOGLE, ["Campaign report"], 0),
        (GOOGLE, ["July 8, 2025 - July 31, 2025"], 0),
        (META, ["2025-07-01", "Spring", "17"], 0),
    ],
)
def test_a_header_row_is_known_by_its_fields(profile: object, cells: list[str], known: int) -> None:
    assert field_counter(ads.pipeline, profile)(cells) == known  # type: ignore[arg-type]


def test_copies_of_a_column_that_agree_are_one() -> None:
    header = "Day,Campaign name,Impressions,Campaign name"
    outcome = check_text(meta("2025-07-01,Spring,5,Spring", "2025-07-02,Spring,6,", header=header))
    assert outcome.bins.accepted == 2
    assert [row["name"] for row in outcome.rows["campaign"]] == ["Spring"]


def test_copies_of_a_column_that_disagree_reject_the_record() -> None:
    header = "Day,Campaign name,Impressions,Campaign name"
    outcome = check_text(meta("2025-07-01,Spring,5,Spring", "2025-07-02,Spring,6,Autumn", header=header))
    assert (outcome.bins.accepted, outcome.codes) == (1, ["columns_disagree"])
    assert outcome.rejections[0]["column_name"] == "Campaign name"


def test_the_declaration_of_the_style_guide_works() -> None:
    judgment = Entity(
        table="judgments",
        key=["case_number"],
        fields=[
            Field(
                "case_number",
                str,
                header=["Case Number", "File #"],
                normalise=[n.strip, n.upper],
                required=True,
            ),
            Field("judgment_amount", Decimal, header=["Amount"], normalise=[n.money]),
            Field("filing_date", date, header=["Entry Date"], normalise=[n.date]),
        ],
    )
    pipeline = Pipeline(name="judgments", accepts=["csv", "json"], entities=[judgment], min_valid=0.9)
    text = 'File #,Amount,Entry Date\n ab-1 ,"$1,234.56",7/31/2025\nab-2,"12,x",7/1/2025\n'
    outcome = check_text(text, None, pipeline=pipeline)
    [row] = outcome.rows["judgment"]
    assert (row["case_number"], row["judgment_amount"], row["filing_date"]) == (
        "AB-1",
        Decimal("1234.56"),
        date(2025, 7, 31),
    )
    assert outcome.rejections[0]["message"] == (
        "judgment_amount: expected an amount, got '12,x' (line 3). Use 1234.56 or $1,234.56."
    )


def test_a_key_is_required_whether_it_says_so_or_not() -> None:
    entity = Entity(
        "orders", key=["number"], fields=[Field("number"), Field("total", int), Field("at", datetime)]
    )
    pipeline = Pipeline("orders", [entity])
    with pytest.raises(FileRefused, match=r"order.number: expected a column 'number'"):
        check_text("total,at\n5,\n", None, pipeline=pipeline)
    text = "number,total,at\n7,5,2025-07-31T14:30:00+02:00\n8,5,2025-07-31 14:30\n,5,\n9,5,later\n"
    outcome = check_text(text, None, pipeline=pipeline)
    assert [row["at"].isoformat() for row in outcome.rows["order"]] == [
        "2025-07-31T12:30:00+00:00",
        "2025-07-31T14:30:00+00:00",
    ]
    assert outcome.codes == ["missing_value", "bad_timestamp"]


def test_a_file_without_any_of_the_key_is_refused() -> None:
    shop = Entity("shops", key=["code"], fields=[Field("code")])
    sale = Entity("sales", key=["shop_id"], refs=[Ref("shop_id", "shop")], fields=[Field("total", int)])
    with pytest.raises(FileRefused, match="Expected a column for shop_id, got 'total'"):
        check_text("total\n5\n", None, pipeline=Pipeline("sales", [shop, sale]))


def test_a_file_of_which_no_column_is_known_lists_them_with_the_nearest_guess() -> None:
    refused = no_column_known(UnknownColumns(["Case Nmber", "Who"], 3, ["Ann"]), judgments.pipeline, None)
    assert (refused.code, refused.message) == (
        "no_header",
        "No column of the file is known: expected 'Case Number'; did you mean 'Case Nmber'? "
        "Columns found in line 3: 'Case Nmber', 'Who'.",
    )


def test_many_unknown_columns_are_listed_in_part() -> None:
    header = ["Campain Nme", *(f"x{number}" for number in range(1, 45))]
    assert "'x39' and 5 more." in no_column_known(UnknownColumns(header, 1, []), ads.pipeline, META).message


@pytest.mark.parametrize("pipeline", [ads.pipeline, judgments.pipeline])
@pytest.mark.parametrize(("line", "where"), [(1, "line 1"), (0, "the records")])
def test_words_over_figures_are_a_header_and_listed(pipeline: Pipeline, line: int, where: str) -> None:
    found = UnknownColumns(["Matter", "Client", "Owed"], line, ["CV-1", "Ann Canary", "100"])
    message = no_column_known(found, pipeline, None).message
    assert f"Columns found in {where}: 'Matter', 'Client', 'Owed'." in message
    assert "Ann" not in message


@pytest.mark.parametrize("pipeline", [ads.pipeline, judgments.pipeline])
@pytest.mark.parametrize("line", [1, 0])
@pytest.mark.parametrize(
    ("cells", "below"),
    [
        (["Ann Canary", "Bob Debtor"], ["Eve Canary", "Joe Debtor"]),
        (["2024-CV-1", "Ann Canary", "$1,234.56"], ["2024-CV-2", "Eve Canary", "$5"]),
        (["Ann Canary", "ann@example.org"], ["Eve Canary", "eve@example.org"]),
        (["Ann Canary", "1/31/2024"], []),
    ],
)
def test_a_record_where_the_header_should_be_is_not_repeated(
    pipeline: Pipeline, line: int, cells: list[str], below: list[str]
) -> None:
    refused = no_column_known(UnknownColumns(cells, line, below), pipeline, None)
    assert not any(cell in refused.message for cell in cells + below)
    assert f"{len(cells)} {'cells' if line else 'keys'}." in refused.message
