"""`weighbridge deliver`: one run, a dry run that changes nothing, and a clean stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any
from uuid import UUID

import pytest

from weighbridge.testing.fake_providers import FakeGoogleAds, Fault

from .conftest import Command
from .outbound import Query, Sell, delivering, google, sell, shop  # noqa: F401

# ruff: noqa: F811

TABLES = (
    *(
        "offline_conversion_queue",
        "provider_upload_attempts",
        "provider_upload_metrics",
        "provider_health_state",
    ),
    *("provider_credentials", "weighbridge.attempts", "weighbridge.providers", "weighbridge.slots"),
    *("weighbridge.audit_log", "weighbridge.events", "weighbridge.confirmations"),
)


def traces(query: Query) -> list[list[tuple[Any, ...]]]:
    """Everything that a run could leave."""
    return [query(f"SELECT t::text FROM {table} t ORDER BY 1") for table in TABLES]


def test_one_run_sends_queued_conversions_and_prints_the_result(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds
) -> None:
    sell(UUID(shop), 3)
    google.refuse("order-2", "INVALID_GCLID")
    done = delivering("deliver", "--once", "--json")
    assert done.code == 0
    assert done.json == {
        "ok": True, "processed": 3, "completed": 2, "failed": 1, "retry": 0, "calls": 1, "full": 0, "parked": 0,
        "skipped": {},
    }  # fmt: skip
    assert google.accepted == {"order-1": 1, "order-3": 1}
    assert delivering("deliver", "--once").out == "Nothing was sent.\n"


def test_one_run_claims_fifty_rows_by_default(delivering: Command, shop: str, sell: Sell) -> None:
    sell(UUID(shop), 60)
    assert delivering("deliver", "--once", "--json").json["processed"] == 50
    shown = delivering("deliver", "--once", "--limit", "4").out
    assert shown == "4 conversions in 1 call: 4 delivered, 0 failed, 0 to retry.\n"


def test_the_reasons_for_skipped_groups_are_printed(delivering: Command, shop: str, sell: Sell) -> None:
    bare = delivering("sites", "create", "Bare", "--provider", "google_ads", "--json").json["site_id"]
    sell(UUID(bare))
    done = delivering("deliver", "--once")
    assert "1 group skipped: no credentials" in done.out
    assert delivering("deliver", "--once", "--json").json["skipped"] == {"no_credentials": 1}


def test_rows_for_a_provider_that_was_removed_from_its_site_have_a_message(
    delivering: Command, shop: str, sell: Sell
) -> None:
    sell(UUID(shop))
    assert delivering("sites", "change", "Shop", "--provider", "webhook").code == 0
    shown = delivering("deliver", "--once").out
    assert (
        shown == "Nothing was sent.\n"
        "1 group skipped: the site no longer uses the provider: weighbridge sites change.\n"
    )


def test_a_run_that_sends_nothing_prints_when_the_next_row_is_due(
    delivering: Command, shop: str, sell: Sell, query: Query
) -> None:
    other = delivering("sites", "create", "Other", "--provider", "google_ads", "--json").json["site_id"]
    sell(UUID(other), 1)
    sell(UUID(shop), 3)
    query("UPDATE offline_conversion_queue SET status = 'RETRY', next_retry_at = '2199-01-02 03:04:05+00'")
    query("UPDATE offline_conversion_queue SET next_retry_at = '2199-01-03' WHERE order_id = 'order-1'")
    lines = delivering("deliver", "--once").out.splitlines()
    assert lines[0] == "Nothing was sent."
    assert lines[1].startswith("The next retry is due at 2199-01-02 03:04:05")


def test_without_a_free_slot_no_call_is_made(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds, query: Query
) -> None:
    sell(UUID(shop), 3)
    query(
        "INSERT INTO weighbridge.slots (key, slot, token, until)"
        " SELECT %s, n, gen_random_uuid(), now() + interval '1 hour' FROM generate_series(1, 100) n",
        (f"conc:{shop}:google_ads",),
    )
    lines = delivering("deliver", "--once").out.splitlines()
    assert lines == [
        "3 conversions in no call: 0 delivered, 0 failed, 3 to retry.",
        "1 batch found no free slot.",
    ]
    assert google.calls == []


@pytest.mark.parametrize("options", [[], ["--once"], ["--dry-run"]])
def test_without_the_vault_key_no_run_starts(delivering: Command, options: list[str]) -> None:
    done = delivering("deliver", *options, WEIGHBRIDGE_VAULT_KEY="")
    assert (done.code, "Set WEIGHBRIDGE_VAULT_KEY" in done.err) == (1, True)


def test_an_unavailable_database_is_reported(delivering: Command) -> None:
    done = delivering("deliver", "--once", DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert (done.code, "no Postgres answers there" in done.err) == (1, True)


def test_what_stays_prints_no_json(delivering: Command) -> None:
    assert delivering("deliver", "--json").code == 2


# A dry run --------------------------------------------------------------------------------------------------


def test_a_dry_run_has_the_provider_check_and_leaves_no_trace(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds, query: Query
) -> None:
    sell(UUID(shop), 3)
    google.refuse("order-2", "INVALID_GCLID")
    before = traces(query)
    done = delivering("deliver", "--dry-run", "--json")
    assert traces(query) == before
    assert google.accepted == {}
    told = done.json
    assert (done.code, told["dry_run"], told["processed"]) == (1, True, 3)
    assert (told["completed"], told["failed"], told["retry"], told["calls"]) == (2, 1, 0, 1)
    [group] = told["groups"]
    said = {each["order_id"]: each["provider_error_code"] for each in group["conversions"]}
    assert said == {"order-1": None, "order-2": "INVALID_GCLID", "order-3": None}
    assert [each["status"] for each in group["conversions"]] == ["OK", "INVALID_GCLID", "OK"]
    sales = query("SELECT id::text FROM sales ORDER BY order_id")
    assert [(each["sale_id"],) for each in group["conversions"]] == sales
    assert (group["site_id"], group["provider"], group["skipped"]) == (shop, "google_ads", None)
    uploads = [call.body for call in google.calls if "uploadClickConversions" in call.path]
    assert [body["validateOnly"] for body in uploads] == [True]


def test_for_people_a_dry_run_names_the_rows_that_would_be_refused(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds
) -> None:
    sell(UUID(shop), 3)
    google.refuse("order-2", "INVALID_GCLID")
    lines = delivering("deliver", "--dry-run").out.splitlines()
    assert lines[0] == f"google_ads of {shop}: 2 valid, 1 refused."
    assert lines[1].startswith("  order-2: INVALID_GCLID: ")
    assert lines[-1] == "Dry run: no conversion was stored or changed."


def test_a_dry_run_reports_a_connection_error_that_no_circuit_counts(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds, query: Query
) -> None:
    sell(UUID(shop), 2)
    google.script(Fault.status(503))
    done = delivering("deliver", "--dry-run", "--json")
    assert (done.code, done.json["retry"], done.json["calls"]) == (0, 2, 1)
    assert {each["status"] for each in done.json["groups"][0]["conversions"]} == {"RETRY"}
    assert query("SELECT count(*) FROM provider_health_state") == [(0,)]


def test_a_dry_run_sends_in_the_batches_of_a_run(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds
) -> None:
    sell(UUID(shop), 2100)
    told = delivering("deliver", "--dry-run", "--limit", "5000", "--json").json
    assert (told["completed"], told["calls"]) == (2100, 2)


def test_a_dry_run_passes_over_what_a_run_would_and_counts_what_has_expired(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds, query: Query, clock: Any
) -> None:
    bare = delivering("sites", "create", "Bare", "--provider", "google_ads", "--json").json["site_id"]
    sell(UUID(bare))
    sell(UUID(shop), 7)
    query(
        "UPDATE offline_conversion_queue SET expires_at = now() - interval '1 hour' WHERE order_id = 'order-3'"
    )
    query(
        "INSERT INTO provider_health_state (site_id, provider_key, workspace_id, state, failure_count, next_probe_at)"
        " SELECT id, 'google_ads', workspace_id, 'OPEN', 5, now() + interval '5 minutes' FROM sites WHERE name = 'Shop'"
    )
    open_ = delivering("deliver", "--dry-run", "--json").json
    assert (open_["skipped"], open_["processed"]) == ({"no_credentials": 1, "circuit_open": 1}, 0)
    assert "No conversions to send." in delivering("deliver", "--dry-run").out
    clock.forward(minutes=6)
    probed = delivering("deliver", "--dry-run", "--json").json
    assert (probed["processed"], probed["completed"], probed["failed"]) == (5, 4, 1)
    assert query("SELECT state, probe_until FROM provider_health_state") == [("OPEN", None)]


# Until it is stopped ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--once"], 128 + signal.SIGTERM)])
def test_calls_in_flight_are_completed_when_the_command_is_stopped(
    delivering: Command,
    shop: str,
    sell: Sell,
    query: Query,
    options: list[str],
    code: int,
    google: FakeGoogleAds,
) -> None:
    sell(UUID(shop), 2)
    google.script(Fault.slow(0.3))
    stopping = threading.Thread(target=stop_during, args=(google,))
    stopping.start()
    # Whether workers deliver by themselves says nothing about this one, which was asked to.
    done = delivering("deliver", *options, WEIGHBRIDGE_DELIVER="false")
    stopping.join()
    assert done.code == code
    assert query("SELECT status, count(*) FROM offline_conversion_queue GROUP BY 1") == [("COMPLETED", 2)]
    assert google.accepted == {"order-1": 1, "order-2": 1}
    assert query("SELECT count(*) FROM weighbridge.slots") == [(0,)]


def stop_during(google: FakeGoogleAds) -> None:
    """SIGTERM to this process, while a call is under way."""
    give_up = time.monotonic() + 20
    while not any("uploadClick" in call.path for call in list(google.calls)):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
