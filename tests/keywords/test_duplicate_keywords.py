"""A keyword that a file has several times: one row, with the greatest of each value, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.workers import LONG
from weighbridge.model import upsert
from weighbridge.model.upload import Bins
from weighbridge.rules import record_source
from weighbridge.testing.exports import write_keywords

from .checking import check, check_bytes, rows

VALUES = ("keyword_normalized", "keyword", "tokens", "volume", "difficulty", "cpc")
HEADER = "Keyword,Volume,KD,CPC"

figures = st.none() | st.integers(0, 20)
records = st.lists(
    st.tuples(st.sampled_from(["Shoes", "shoes", "SHOES ", "é", "É", "boots"]), figures, figures, figures),
    min_size=1,
    max_size=8,
)


def file_of(records: Sequence[tuple[Any, ...]]) -> str:
    return "\n".join(
        [HEADER, *(",".join("" if v is None else str(v) for v in record) for record in records), ""]
    )


def test_the_greatest_of_each_value_is_kept_on_the_first_line() -> None:
    outcome = check(f"{HEADER}\nboots,1,1,1\nSHOES,10,,0.50\nshoes,,40,2.25\nShoes,9,,\n")
    assert outcome.bins == Bins(header=1, accepted=2, duplicate=2)
    assert rows(outcome, "line", *VALUES) == [
        (2, "boots", "boots", "boot", 1, 1, 1),
        (3, "shoes", "shoes", "shoe", 10, 40, Decimal("2.25")),
    ]


def test_the_order_of_the_records_does_not_matter() -> None:
    told = [("Éclairs", 5, None, 1), ("éclairs", None, 7, 3), ("ÉCLAIRS", 8, 2, None)]
    made = [rows(check(file_of(order)), *VALUES) for order in permutations(told)]
    assert made == [[("éclairs", "éclairs", "éclairs", 8, 7, 3)]] * 6


@settings(max_examples=300 if LONG else 20, deadline=None)
@given(records, st.randoms())
def test_any_order_gives_the_same_rows_and_bins(told: list[tuple[Any, ...]], chance: Any) -> None:
    shuffled = list(told)
    chance.shuffle(shuffled)
    one, other = check(file_of(told)), check(file_of(shuffled))
    assert (one.bins, sorted(rows(one, *VALUES))) == (other.bins, sorted(rows(other, *VALUES)))
    assert sorted(rows(one, *VALUES)) == _expected(told)


def _expected(told: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    made = []
    for key in {record[0].strip().lower() for record in told}:
        same = [record for record in told if record[0].strip().lower() == key]
        spelt = max((record[0].strip() for record in same), key=str.encode)
        greatest = [max((r[i] for r in same if r[i] is not None), default=None) for i in (1, 2, 3)]
        made.append((key, spelt, "shoe" if key == "shoes" else key.rstrip("s"), *greatest))
    return sorted(made)


def test_a_rejected_record_adds_nothing_to_the_others() -> None:
    outcome = check(f"{HEADER}\nshoes,5,1,1\nshoes,99,-1,1\n")
    assert outcome.bins == Bins(header=1, accepted=1, rejected=1)
    assert rows(outcome, "volume") == [(5,)]


def test_a_large_file_gives_the_same_rows_as_a_small_one(tmp_path: Path, monkeypatch: Any) -> None:
    """Read as a stream, in a database of its own, and twice: the same rows in the same order."""
    data = write_keywords(
        tmp_path / "file", 3000, "semrush", words=["red", "blue", "shoes", "box"]
    ).path.read_bytes()
    small = check_bytes(tmp_path, data)
    monkeypatch.setattr(record_source, "SMALL", 100)
    assert check_bytes(tmp_path, data).rows == check_bytes(tmp_path, data).rows == small.rows
    assert small.bins.duplicate > small.bins.accepted > 100


def test_the_other_policies_combine_nothing() -> None:
    assert [p.repeats for p in (upsert.replace, upsert.keep_known_values, upsert.insert_only)] == [None] * 3
    assert repr(upsert.keep_greatest) == "upsert.keep_greatest"
