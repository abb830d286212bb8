"""Records that add up others of the same day are not loaded next to their parts."""

from __future__ import annotations

import pytest

from rules.checking import Outcome, check_text, meta
from weighbridge.model.upload import Bins

CAMPAIGNS = "Day,Campaign name,Impressions,Amount spent (EUR)"
AD_SETS = "Day,Campaign name,Campaign ID,Ad set name,Impressions,Amount spent (EUR)"
TWO = ("2025-01-31,S,100,5.5", "2025-01-31,T,10,1")
PARTS = ("2025-01-31,S,11,X,100,5", "2025-01-31,S,11,Y,100,5")


def campaigns(*records: str) -> Outcome:
    return check_text(meta(*TWO, *records, header=CAMPAIGNS))


def ad_sets(*records: str) -> Outcome:
    return check_text(meta(*PARTS, *records, header=AD_SETS))


@pytest.mark.parametrize(
    "label",
    [
        *("Total", "Gesamt", "Results from 2 campaigns", "Total: 2 results", "Razem", "Suma", "Sous-total"),
        *("Total général", "All", "合計"),
    ],
)
def test_daily_totals_in_the_place_of_a_campaign_are_counted_and_not_loaded(label: str) -> None:
    outcome = campaigns(f"2025-01-31,{label},110,6.5")
    assert outcome.bins == Bins(header=1, totals=1, accepted=2)
    assert {row["name"] for row in outcome.rows["campaign"]} == {"S", "T"}


def test_daily_totals_add_up_the_records_of_their_own_day() -> None:
    outcome = campaigns("2025-02-01,S,7,1", "2025-01-31,Total,110,6.5", "2025-02-01,Total,7,1")
    assert outcome.bins == Bins(header=1, totals=2, accepted=3)


def test_a_campaign_called_total_that_adds_up_nothing_is_rejected() -> None:
    outcome = campaigns("2025-01-31,Total,111,6.5")
    assert (outcome.bins.accepted, outcome.codes) == (2, ["looks_like_totals"])


def test_a_campaign_called_all_that_adds_up_nothing_is_a_campaign() -> None:
    assert campaigns("2025-01-31,All,111,6.5").bins == Bins(header=1, accepted=3)


def test_a_campaign_called_total_with_an_id_is_a_campaign() -> None:
    outcome = check_text(meta("2025-07-01,11,A,5,1", "2025-07-01,12,B,6,1", "2025-07-01,13,Total,11,2"))
    assert outcome.bins == Bins(header=1, accepted=3)


@pytest.mark.parametrize("no_id", ["", "--"])
def test_daily_totals_without_an_id_among_records_with_ids_are_totals(no_id: str) -> None:
    outcome = check_text(meta("2025-07-01,11,A,5,1", "2025-07-01,12,B,6,1", f"2025-07-01,{no_id},Total,11,2"))
    assert outcome.bins == Bins(header=1, totals=1, accepted=2)


@pytest.mark.parametrize("label", ["Suma", "Razem", "合計", "Итого", "Total général"])
def test_a_label_in_the_place_of_the_day_shows_totals_in_every_language(label: str) -> None:
    assert campaigns(f"{label},,110,6.5").bins == Bins(header=1, totals=1, accepted=2)


@pytest.mark.parametrize("name", ["", "All", "Total", "-"])
def test_a_record_of_the_campaign_that_adds_up_its_ad_sets_is_totals(name: str) -> None:
    outcome = ad_sets(f"2025-01-31,S,11,{name},200,10")
    assert outcome.bins == Bins(header=1, totals=1, accepted=2)
    assert sum(row["spend"] for row in outcome.metrics) == 10


def test_several_subtotals_of_the_same_parts_are_all_totals() -> None:
    outcome = ad_sets("2025-01-31,S,11,,200,10", "2025-01-31,S,11,All,200,10")
    assert outcome.bins == Bins(header=1, totals=2, accepted=2)


def test_subtotals_are_found_at_every_level() -> None:
    header = "Day,Campaign name,Campaign ID,Ad set name,Ad set ID,Ad name,Ad ID,Impressions"
    ads = ["S,11,X,21,A,31,1", "S,11,X,21,B,32,2", "S,11,Y,22,C,33,4", "S,11,Y,22,D,34,5"]
    sums = ["S,11,X,21,,,3", "S,11,Y,22,,,9", "S,11,,,,,12"]
    outcome = check_text(meta(*(f"2025-07-01,{record}" for record in ads + sums), header=header))
    assert outcome.bins == Bins(header=1, totals=3, accepted=4)


def test_a_subtotal_of_one_record_is_known_where_others_show_that_the_file_has_subtotals() -> None:
    alone = ("2025-01-31,T,12,Z,7,1", "2025-01-31,T,12,,7,1")
    assert ad_sets("2025-01-31,S,11,,200,10", *alone).bins == Bins(header=1, totals=2, accepted=3)


def test_a_record_that_is_equal_to_the_only_one_below_it_is_not_loaded_beside_it() -> None:
    one = ["2025-01-31,T,12,Z,7,1", "2025-01-31,T,12,,7,1"]
    outcome = check_text(meta(*one, header=AD_SETS))
    assert (outcome.bins.accepted, outcome.codes) == (1, ["looks_like_totals"])
    two = [*one, "2025-02-01,T,12,Z,8,2", "2025-02-01,T,12,,8,2"]
    assert check_text(meta(*two, header=AD_SETS)).bins == Bins(header=1, totals=2, accepted=2)
    # One that differs is a record of its own, and so may be the others.
    three = [*two, "2025-02-02,T,12,Z,8,2", "2025-02-02,T,12,,5,1"]
    assert check_text(meta(*three, header=AD_SETS)).codes == ["looks_like_totals"] * 2
    none = ["2025-01-31,T,12,Z,0,0", "2025-01-31,T,12,,0,0"]
    assert check_text(meta(*none, header=AD_SETS)).bins.accepted == 2


def test_a_campaign_without_ad_sets_is_loaded() -> None:
    outcome = ad_sets("2025-01-31,Performance Max,12,,200,10", "2025-01-31,S,11,,30,2")
    assert outcome.bins == Bins(header=1, accepted=4)
