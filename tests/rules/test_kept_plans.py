"""Small files use plans of earlier files with the same header. Nothing of an earlier file may show in a later one."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.rules.checking import Outcome, check_text
from weighbridge.model.errors import FileRefused
from weighbridge.rules import check_tables

HEADER = "Day,Campaign name,Ad set name,Ad name,Impressions,Clicks (all),Amount spent (USD)\n"
DAYS = "".join(
    f"2025-01-{day:02},Sale,Set {day % 3},Ad {day % 4},{100 * day},{day},{day}.50\n" for day in range(1, 9)
)
FILES = {
    "usual": HEADER + DAYS,
    "other values": HEADER + DAYS.replace("Sale", "Brand").replace("2025", "2024"),
    "one record": HEADER + "2025-02-01,Sale,Set 1,Ad 1,7,1,0.10\n",
    "row of totals": HEADER + DAYS + "Total,,,,3600,36,40.00\n",
    "rejected records": HEADER + DAYS + "2025-01-32,Sale,Set 1,Ad 1,1,1,1.00\n2025-01-20,Sale,Set 1,Ad 1,x,1,1.00\n",
    "copy of a record": HEADER + DAYS + DAYS.splitlines(keepends=True)[2],
    "contradiction": HEADER + DAYS + "2025-01-03,Sale,Set 0,Ad 3,1,1,1.00\n",
    "comma as decimal mark": HEADER + "2025-01-01,Sale,Set,Ad,1,1,\"1.234,50\"\n2025-01-02,Sale,Set,Ad,1,1,\"0,5\"\n",
    "day first": HEADER + "31/01/2025,Sale,Set 1,Ad 1,1,1,1.00\n30/01/2025,Sale,Set 1,Ad 1,1,1,1.00\n",
    "blank names": HEADER + "2025-02-01,,Set 1,Ad 1,7,1,0.10\n2025-02-02,Sale,,Ad 1,7,1,0.10\n",
    "only rejected records": HEADER + "never,Sale,Set 1,Ad 1,7,1,0.10\n",
}  # fmt: skip


def outcome(text: str) -> Outcome | str:
    try:
        found = check_text(text)
    except FileRefused as refusal:
        return f"{refusal.code}: {refusal.message}"
    return found


@pytest.fixture(autouse=True)
def no_plans() -> None:
    check_tables.forget_plans()


def test_a_file_has_the_same_outcome_before_and_after_other_files() -> None:
    alone = {}
    for name, text in FILES.items():
        check_tables.forget_plans()
        alone[name] = outcome(text)
    order = list(FILES) * 3
    random.Random(7).shuffle(order)
    for name in order:
        assert outcome(FILES[name]) == alone[name], name


def test_the_second_file_with_a_header_needs_no_new_plan() -> None:
    outcome(FILES["usual"])
    [layout] = check_tables._idle
    planned = list(layout.prepared)
    outcome(FILES["other values"])
    assert check_tables._idle == [layout]
    assert set(layout.prepared) == set(planned)


def test_an_idle_connection_has_no_data_of_its_last_file() -> None:
    outcome(FILES["usual"])
    [layout] = check_tables._idle
    assert [name for name, data in layout.data.items() if data.table is not None] == []


def test_headers_and_statements_are_kept_up_to_a_limit() -> None:
    for n in range(check_tables.KEPT_LAYOUTS + 3):
        outcome(FILES["one record"].replace("Clicks (all)", f"Column {n}"))
    assert len(check_tables._idle) == check_tables.KEPT_LAYOUTS
    for n in range(check_tables.KEPT_STATEMENTS + 3):
        check_tables._idle[-1].run(f"SELECT {n}").fetchall()
    assert len(check_tables._idle[-1].prepared) == check_tables.KEPT_STATEMENTS


def test_a_refused_file_leaves_no_connection_behind() -> None:
    assert isinstance(outcome(HEADER), str)
    assert check_tables._idle == []


def test_files_are_checked_at_the_same_time() -> None:
    alone = {name: outcome(text) for name, text in FILES.items()}
    with ThreadPoolExecutor(4) as threads:
        names = list(FILES) * 3
        for name, found in zip(names, threads.map(lambda name: outcome(FILES[name]), names), strict=True):
            assert found == alone[name], name
