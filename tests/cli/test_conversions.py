"""`weighbridge conversions`: list, show and retry conversions."""

from __future__ import annotations

import io
import sys
from uuid import UUID, uuid4

import pytest

from weighbridge.testing.fake_providers import FakeGoogleAds

from .conftest import Command
from .outbound import Query, Sell, delivering, google, sell, shop  # noqa: F401
from .terminal import shown_on

# ruff: noqa: F811


@pytest.fixture
def sales(delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds) -> list[str]:
    """order-1 and order-3 are delivered, order-2 is refused."""
    google.refuse("order-2", "INVALID_GCLID")
    made = sell(UUID(shop), 3)
    assert delivering("deliver", "--once", "--json").json["failed"] == 1
    return [str(each) for each in made]


def test_conversions_are_listed_by_what_became_of_them(
    delivering: Command, shop: str, sales: list[str]
) -> None:
    def orders(*options: str) -> list[str]:
        listed = delivering("conversions", "list", *options, "--json").json
        return sorted(each["order_id"] for each in listed)

    assert orders() == ["order-1", "order-2", "order-3"]
    assert orders("--status", "failed") == ["order-2"]
    assert orders("--status", "COMPLETED", "--site", "Shop") == ["order-1", "order-3"]
    assert orders("--category", "VALIDATION", "--provider", "google_ads") == ["order-2"]
    assert orders("--category", "AUTH") == []
    assert orders("--workspace", str(uuid4())) == []
    assert len(orders("--limit", "2")) == 2
    [failed] = delivering("conversions", "list", "--status", "FAILED", "--json").json
    assert (failed["provider"], failed["provider_error_code"], failed["value"]) == (
        "google_ads",
        "INVALID_GCLID",
        "12.5",
    )
    shown = delivering("conversions", "list", "--status", "FAILED").out
    assert sales[1] in shown
    assert "VALIDATION" in shown


def test_one_is_shown_with_the_ledger_of_its_last_call(delivering: Command, sales: list[str]) -> None:
    told = delivering("conversions", "show", sales[0], "--json").json
    [delivery] = told["deliveries"]
    assert (told["order_id"], delivery["status"], delivery["attempts"]) == ("order-1", "COMPLETED", 1)
    assert delivery["provider_request_id"]
    started, finished = delivery["ledger"]
    assert (started["phase"], started["claimed_count"]) == ("STARTED", 3)
    assert (finished["phase"], finished["completed_count"], finished["failed_count"]) == ("FINISHED", 2, 1)
    shown = delivering("conversions", "show", sales[1]).out
    assert "2 delivered, 1 failed, 0 to retry (VALIDATION, INVALID_GCLID)" in shown
    unknown = delivering("conversions", "show", str(uuid4()))
    assert (unknown.code, "There is no sale" in unknown.err) == (1, True)


def test_one_is_found_by_its_order_id(
    delivering: Command, shop: str, sales: list[str], sell: Sell, query: Query
) -> None:
    [listed] = delivering("conversions", "list", "--order", "order-2", "--json").json
    assert (listed["sale_id"], listed["order_id"]) == (sales[1], "order-2")
    assert delivering("conversions", "list", "--order", "order", "--json").json == []
    assert delivering("conversions", "list", "--order", "order-2", "--status", "QUEUED", "--json").json == []
    told = delivering("conversions", "show", "order-2", "--json").json
    assert (told["sale_id"], told["order_id"]) == (sales[1], "order-2")
    unknown = delivering("conversions", "show", "order-9")
    assert (unknown.code, "There is no sale 'order-9'" in unknown.err) == (1, True)
    named = str(uuid4())  # an order id may look like a sale's
    query("UPDATE sales SET order_id = %s WHERE id = %s", (named, sales[0]))
    assert delivering("conversions", "show", named, "--json").json["sale_id"] == sales[0]


def test_an_order_of_several_sites_is_asked_for_with_its_site(
    delivering: Command, shop: str, sales: list[str], sell: Sell
) -> None:
    made = delivering("sites", "create", "Other", "--provider", "google_ads", "--json")
    other = made.json["site_id"]
    [sale] = sell(UUID(other), 1)
    assert len(delivering("conversions", "list", "--order", "order-1", "--json").json) == 2
    done = delivering("conversions", "show", "order-1")
    assert (done.code, f"Other ({other}), Shop ({shop}). Choose one with --site." in done.err) == (1, True)
    told = delivering("conversions", "show", "order-1", "--site", "Other", "--json").json
    assert told["sale_id"] == str(sale)


def test_a_list_fits_a_terminal_of_80_columns_and_cuts_nothing(
    environment: dict[str, str], sales: list[str], query: Query
) -> None:
    query(
        "UPDATE offline_conversion_queue SET provider_key = 'google_datamanager', order_id = repeat('o', 30)"
    )
    lines = shown_on(80, environment, "conversions", "list", "--status", "FAILED")
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["sale", "provider", "status", "order"]
    assert lines[1].split() == [sales[1], "google_datamanager", "FAILED", "o" * 14]
    assert "".join(line.split()[-1] for line in lines[1:4]) == "o" * 30
    assert lines[4].startswith("  INVALID_GCLID: ")
    assert " ".join(lines[4:]).endswith("(VALIDATION)")
    narrow = shown_on(40, environment, "conversions", "list", "--status", "FAILED")
    assert f"{sales[1]}  google_datamanager  FAILED" in narrow[1]  # which the terminal wraps itself


def test_a_failed_one_is_tried_again_by_its_id(
    delivering: Command, sales: list[str], google: FakeGoogleAds, query: Query
) -> None:
    done = delivering("conversions", "retry", sales[1], "--json")
    assert (done.code, [each["status"] for each in done.json]) == (0, ["QUEUED"])
    google.refuse("order-2")
    assert delivering("deliver", "--once", "--json").json["completed"] == 1
    assert google.accepted == {"order-1": 1, "order-2": 1, "order-3": 1}
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'deliveries.requeue'") == [
        ("command line",)
    ]


def test_what_cannot_be_tried_again_is_told_and_the_rest_is(
    delivering: Command, sales: list[str], query: Query
) -> None:
    stranger = str(uuid4())
    done = delivering("conversions", "retry", *sales[:2], stranger)
    assert (done.code, done.out) == (1, "1 conversion queued again.\n")
    assert f"{sales[0]}: google_ads: expected status FAILED, got COMPLETED." in done.err
    assert f"{stranger}: There is no such sale." in done.err
    query("UPDATE sales SET status = 'CANCELED' WHERE id = %s", (sales[1],))
    canceled = delivering("conversions", "retry", sales[1], "--json")
    assert (canceled.code, canceled.json[0]["error"]) == (1, "sale_canceled")


def test_all_that_fit_are_tried_again_after_a_question(
    delivering: Command, sales: list[str], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    kept = delivering("conversions", "retry", "--site", "Shop", "--code", "INVALID_GCLID")
    assert (kept.code, "Retry 1 conversion?" in kept.err) == (1, True)
    assert query("SELECT count(*) FROM offline_conversion_queue WHERE status = 'FAILED'") == [(1,)]
    none = delivering("conversions", "retry", "--category", "AUTH")
    assert (none.code, none.out) == (0, "No failed conversion matches.\n")
    done = delivering("conversions", "retry", "--provider", "google_ads", "--yes", "--json")
    assert (done.code, done.json) == (0, {"requeued": 1})


def test_every_workspace_has_its_failed_ones_tried_again(
    delivering: Command, sales: list[str], sell: Sell, query: Query
) -> None:
    other = delivering(
        *("sites", "create", "Shop", "--provider", "google_ads", "--workspace", str(uuid4()), "--json")
    ).json["site_id"]
    sell(UUID(other), 2)
    query("UPDATE offline_conversion_queue SET status = 'FAILED' WHERE site_id = %s", (other,))
    assert delivering("conversions", "retry", "--all", "--yes", "--json").json == {"requeued": 1}
    done = delivering("conversions", "retry", "--all", "--every-workspace", "--yes", "--json")
    assert done.json == {"requeued": 2}


def test_wrong_usage_is_2(main: Command) -> None:
    sale = str(uuid4())
    for arguments in (
        ["retry"],
        ["retry", sale, "--all"],
        ["retry", "--all", "--code", "X"],
        ["retry", "--all", "--every-workspace", "--workspace", sale],
        ["retry", "--category", "VALIDATON"],
        ["list", "--status", "COMPLETD"],
        ["list", "--provider", "gogle_ads"],
    ):
        done = main("conversions", *arguments)
        assert (done.code, done.out) == (2, ""), arguments
