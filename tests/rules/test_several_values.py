"""One entity with several values, or under several parents, in one file: the later one is kept, and reported."""

from __future__ import annotations

import pytest

from rules.checking import check_text, meta
from weighbridge import Entity, Field, Pipeline, Ref
from weighbridge.pipelines import judgments
from weighbridge.rules import inconsistent_entities

AD_SETS = "Day,Campaign ID,Campaign name,Ad set ID,Ad set name,Impressions,Amount spent (USD)"
ADS = "Day,Campaign ID,Campaign name,Ad set ID,Ad set name,Ad ID,Ad name,Impressions,Amount spent (USD)"
CASES = "Case Number,Plaintiff,Email,Phone,Defendant,Judgment Amount,Filing Date"


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "large":
        monkeypatch.setattr(inconsistent_entities, "FEW_COMBINATIONS", 0)


@pytest.mark.usefixtures("size")
def test_an_ad_set_id_under_two_campaigns_is_reported() -> None:
    records = [
        "2025-07-01,11,Spring,21,Set,5,1",
        "2025-07-01,12,Autumn,22,Other,5,1",
        "2025-07-02,12,Autumn,21,Set,5,1",
    ]
    outcome = check_text(meta(*records, header=AD_SETS))
    assert outcome.bins.accepted == 3
    campaigns = {row["external_id"]: row["id"] for row in outcome.rows["campaign"]}
    assert outcome.rows["ad_set"][0]["campaign_id"] == campaigns["12"]
    assert outcome.warnings == {
        "several_parents": "'Ad set ID': 1 ad set is in several campaigns, as on lines 2 and 4. "
        "It belongs to the campaign of its latest day."
    }


@pytest.mark.usefixtures("size")
def test_several_ads_under_two_ad_sets_are_counted() -> None:
    records = [
        f"2025-07-0{day},11,Spring,2{day},Set {day},3{ad},Ad {ad},5,1" for day in (1, 2) for ad in (1, 2)
    ]
    warnings = check_text(meta(*records, header=ADS)).warnings
    assert warnings == {
        "several_parents": "'Ad ID': 2 ads are in several ad sets, as on lines 2 and 4. "
        "Each belongs to the ad set of its latest day."
    }


@pytest.mark.usefixtures("size")
def test_the_same_campaign_on_every_line_is_no_warning() -> None:
    records = [f"2025-07-0{day},11,Spring,2{no},Set {no},5,1" for day in (1, 2) for no in (1, 2)]
    assert check_text(meta(*records, header=AD_SETS)).warnings == {}


def check_cases(*records: str) -> dict[str, str]:
    return check_text(meta(*records, header=CASES), None, pipeline=judgments.pipeline).warnings


@pytest.mark.usefixtures("size")
def test_two_plaintiffs_with_one_address_are_reported_without_their_names() -> None:
    warnings = check_cases(
        "A-1,Ann Archer,ann@example.com,,D,5,2024-01-01",
        "A-2,Bob,bob@example.com,,D,5,2024-01-01",
        "A-3,Zoe Young,ANN@example.com,,D,5,2024-01-01",
    )
    assert warnings == {
        "several_values": "'Plaintiff': 1 plaintiff has several values, as on lines 2 and 4. Records with the same "
        "dedupe key are one plaintiff, and the later value was kept."
    }


def test_two_phone_numbers_of_one_address_are_reported() -> None:
    warnings = check_cases(
        "A-1,Ann,ann@example.com,212 555 0101,D,5,2024-01-01",
        "A-2,Ann,ann@example.com,(212) 555-0101,D,5,2024-01-01",
        "A-3,Bob,bob@example.com,212 555 0102,D,5,2024-01-01",
        "A-4,Bob,bob@example.com,212 555 0103,D,5,2024-01-01",
    )
    assert warnings["several_values"].startswith(
        "'Phone': 1 plaintiff has several values, as on lines 4 and 5."
    )


def test_a_name_in_other_letters_is_the_same_name() -> None:
    same = ["A-1,Acme Inc.,,,D,5,2024-01-01", 'A-2,"ACME, Inc",,,D,5,2024-01-01', "A-3,Bob,,,D,5,2024-01-01"]
    assert check_cases(*same) == {}


def test_plaintiffs_of_rejected_records_are_not_reported() -> None:
    warnings = check_cases(
        "A-1,Ann,ann@example.com,,D,5,2024-01-01",
        "A-1,Zoe,ann@example.com,,D,6,2024-01-01",
        "A-2,Bob,bob@example.com,,D,5,2024-01-01",
    )
    assert warnings == {}


@pytest.mark.usefixtures("size")
def test_an_entity_of_a_users_own_is_reported_too() -> None:
    shop = Entity("shops", key=["code"], fields=[Field("code", int), Field("city"), Field("rank", int)])
    sale = Entity("sales", key=["number"], refs=[Ref("shop_id", "shop")], fields=[Field("number", int)])
    pipeline = Pipeline("sales", [shop, sale])
    text = "shop code,shop city,shop rank,number\n7,Rome,1,1\n7,Oslo,2,2\n8,Rome,1,3\n8,Oslo,1,4\n"
    outcome = check_text(text, None, pipeline=pipeline)
    assert outcome.warnings == {
        "several_values": "'shop city' and 'shop rank': 2 shops have several values, as on lines 2 and 3. "
        "Records with the same code are one shop, and the later value was kept."
    }
