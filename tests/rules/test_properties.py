"""What holds for every file: no record is lost, and the same file gives the same rows."""

from __future__ import annotations

import csv
import io
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rules.checking import Outcome, check_text
from weighbridge.model.errors import FileRefused
from weighbridge.rules import record_source

FAST = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HEADERS = {
    "meta": [
        "Day",
        "Campaign name",
        "Campaign ID",
        "Ad set name",
        "Impressions",
        "Amount spent (USD)",
        "Bid",
    ],
    "google": ["Day", "Campaign", "Ad group", "Ad group", "Impr.", "Cost", "Currency code"],
    "tiktok": [
        "Campaign name",
        "Date",
        "Ad Group Name",
        "Impression",
        "Cost",
        "CTR (Destination)",
        "Currency",
    ],
}

days = st.sampled_from(["2025-07-01", "2025-07-02", "7/31/2025", "7/1/2025", "31/7/2025", "2025-02-30", ""])
numbers = st.sampled_from(["0", "5", "1,234", "1.234", "1,234.5", "12,5", "-3", "--", "$5", "x", "1e9", ""])
texts = st.sampled_from(
    ["Spring", "spring ", "Autumn", "Total: Campaigns", "Total of 3 results", "'", '"', "-", ""]
)
ids = st.sampled_from(["11", "12", "1.20253E+17", "0", ""])
junk = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
cell = st.one_of(days, numbers, texts, ids, junk)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    """A file that may be sound, odd or hopeless."""
    platform = draw(st.sampled_from(sorted(HEADERS)))
    header = HEADERS[platform]
    likely: dict[str, st.SearchStrategy[str]] = {
        "Day": days, "Date": days, "Impressions": numbers, "Impr.": numbers, "Impression": numbers,
        "Amount spent (USD)": numbers, "Cost": numbers, "Campaign ID": ids,
    }  # fmt: skip
    sound = st.tuples(*(likely.get(name, texts) for name in header)).map(list)
    odd = st.lists(cell, min_size=0, max_size=len(header) + 2)
    records = draw(st.lists(st.one_of(sound, sound, odd), max_size=12))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *records])
    return platform, out.getvalue()


@FAST
@given(files())
@example(("meta", "Day,Campaign name,Impressions\n\n,,\n2025-07-01,A,5\n"))
def test_every_record_ends_in_one_bin_or_the_file_is_refused(file: tuple[str, str]) -> None:
    platform, text = file
    records = sum(1 for _ in csv.reader(io.StringIO(text)))
    outcome = outcome_of(text, platform)
    if isinstance(outcome, str):
        assert outcome not in ("rows_not_conserved", "malformed_file")
        return
    assert outcome.bins.records == records
    assert outcome.bins.accepted == len(outcome.metrics) == outcome.counts["daily_metric"]
    assert outcome.bins.rejected == len(outcome.rejections)
    seen = [row["row_index"] for row in (*outcome.metrics, *outcome.rejections)]
    assert len(seen) == len(set(seen))
    for rejection in outcome.rejections:
        assert rejection["code"]
        assert f"(line {rejection['line']})" in rejection["message"]
    for entity in ("campaign", "ad_set", "ad"):
        staged = {row["id"] for row in outcome.rows[entity]}
        named = {row[f"{entity}_id"] for row in outcome.metrics} - {None}
        assert staged == named


def without_places(outcome: Outcome) -> object:
    """What must not depend on the order of the records."""
    rows = {
        name: [{k: v for k, v in row.items() if k not in ("row_index", "line")} for row in rows]
        for name, rows in outcome.rows.items()
    }
    return outcome.bins, rows, outcome.affected_dates


@settings(parent=FAST, max_examples=6)
@given(files())
@example(("tiktok", 'Campaign name,Date,Impression,Cost\n,,5,"1,234"\nTotal: Campaigns,,5,"1,234"\n'))
@example(("tiktok", 'Campaign name,Date,Impression,Cost\nTotal: Campaigns,,5,"1,234"\n'))
def test_the_same_file_gives_the_same_rows_whichever_way_it_is_read(file: tuple[str, str]) -> None:
    platform, text = file
    small, large = outcome_of(text, platform), outcome_of(text, platform, small=False)
    assert small == outcome_of(text, platform)
    assert small == large


@settings(parent=FAST, max_examples=5)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_ids_and_seq_do_not_depend_on_the_order_of_the_records(seed: int, shuffle: random.Random) -> None:
    source = random.Random(seed)
    keys = {(source.randrange(1, 29), source.randrange(5), source.randrange(3)) for _ in range(30)}
    records = [f"2025-07-{day:02},C{c},S{c}.{s},{day * 7 + s},1.5" for day, c, s in sorted(keys)]
    header = "Day,Campaign name,Ad set name,Impressions,Amount spent (USD)"
    ordered = check_text("\n".join([header, *records, ""]))
    shuffle.shuffle(records)
    assert without_places(check_text("\n".join([header, *records, ""]))) == without_places(ordered)


def outcome_of(text: str, platform: str, *, small: bool = True) -> Outcome | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_source, "SMALL", record_source.SMALL if small else 1)
        try:
            return check_text(text, platform)
        except FileRefused as refused:
            return refused.code
