"""The end of a day: what was sold against what became of it, by queue, ledger, counters and providers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.deliver.participants import CANARY, PROVIDERS, Fakes, Participants

ENDED = {"COMPLETED", "FAILED"}
# What is tried again and again. The last trouble of such a row may have been another, and then it says that one.
TRIED = {"INTERNAL_ERROR", "CLICK_NOT_FOUND"}
# Whose beginning and end are both told in the course of the day.
WITHDRAWN = ("circuit_open", "credentials_refused", "conversions_expiring")


def check_everything(
    participants: Participants, fakes: Fakes, destined: dict[tuple[str, str], str]
) -> Counter[str]:
    """Raises AssertionError where something is not as it must be. `destined`: what had to fail, and its code."""
    rows = _rows(participants)
    assert {state for states in rows.values() for state, *_ in states.values()} <= ENDED, _waiting(
        participants
    )
    counts: Counter[str] = Counter()
    for provider in PROVIDERS:
        _as_sold(provider, participants.sold[provider], rows[provider])
        _as_destined(provider, rows[provider], destined)
        _as_the_provider_has_it(provider, rows[provider], fakes)
        counts.update(row[0] for row in rows[provider].values())
        counts["duplicate"] += sum(row[3] for row in rows[provider].values())
    counts["sent again"] = sum(seen > 1 for fake in fakes.all.values() for seen in fake.seen.values())
    _ledger(participants)
    _counters(participants)
    _nothing_is_held(participants)
    counts.update(_alerts(participants))
    _no_canary(participants)
    return counts


def _rows(participants: Participants) -> dict[str, dict[str, tuple[Any, ...]]]:
    """By provider and order id: status, code, last_error, duplicate, attempt_count, confirmation, request id."""
    found: dict[str, dict[str, tuple[Any, ...]]] = {provider: {} for provider in PROVIDERS}
    for provider, order, *row in participants.query(
        "SELECT provider_key, order_id, status, provider_error_code, last_error, duplicate, attempt_count,"
        " confirmation, provider_request_id FROM offline_conversion_queue"
    ):
        assert order not in found[provider], f"{provider}: {order} is there twice"
        found[provider][order] = tuple(row)
    return found


def _waiting(participants: Participants) -> str:
    left = participants.query(
        "SELECT q.provider_key, q.status, q.last_error, h.state, q.next_retry_at - weighbridge.now(), count(*)"
        " FROM offline_conversion_queue q LEFT JOIN provider_health_state h USING (site_id, provider_key)"
        " WHERE q.status NOT IN ('COMPLETED', 'FAILED') GROUP BY 1, 2, 3, 4, 5 LIMIT 20"
    )
    return f"these wait for ever: {left}"


def _as_sold(provider: str, sold: set[str], rows: dict[str, tuple[Any, ...]]) -> None:
    assert not sold - rows.keys(), f"{provider}: lost {sorted(sold - rows.keys())[:5]}"
    assert not rows.keys() - sold, f"{provider}: never sold {sorted(rows.keys() - sold)[:5]}"
    for order, (status, code, error, _, _, _, request_id) in rows.items():
        if status == "COMPLETED":
            assert (code, error) == (None, None), f"{provider}: {order} {code} {error}"
            assert request_id, f"{provider}: {order} has no proof"
        else:
            assert code, f"{provider}: {order} failed without a code"
            assert error, f"{provider}: {order} failed without a reason"


def _as_destined(
    provider: str, rows: dict[str, tuple[Any, ...]], destined: dict[tuple[str, str], str]
) -> None:
    """What nobody could deliver failed for that, and nothing else did."""
    for order, (status, code, error, *_) in rows.items():
        expected = destined.get((provider, order))
        told = f"{provider}: {order} {status} {code}: {error}"
        if expected is None:
            assert status == "COMPLETED" or code == "EXPIRED", told
        elif expected in TRIED:
            assert status == "FAILED", told
            assert code == expected or "Failed attempts:" in error, told
        else:
            assert (status, code) == ("FAILED", expected), told


def _as_the_provider_has_it(provider: str, rows: dict[str, tuple[Any, ...]], fakes: Fakes) -> None:
    fake = fakes.all[provider]
    twice = {order: times for order, times in fake.accepted.items() if times != 1}
    assert not twice, f"{provider}: accepted more than once: {twice}"
    completed = {order for order, row in rows.items() if row[0] == "COMPLETED"}
    missing = completed - fake.accepted.keys()
    assert not missing, f"{provider}: completed, but not there: {sorted(missing)[:5]}"
    for order in fake.accepted.keys() - completed:
        # Taken in a call whose end nobody heard, and expired before it could be asked again.
        assert rows[order][1] == "EXPIRED", f"{provider}: {order} is there, and {rows[order]}"
        assert rows[order][4] > 0
    for order, row in rows.items():
        assert not row[3] or fake.seen[order] > 1, f"{provider}: {order} came once, and is called a duplicate"
        if provider == "google_datamanager" and row[0] == "COMPLETED":
            assert row[5] in ("CONFIRMED", "PARTIAL", "REFUSED"), f"{order}: {row[5]}"


def _ledger(participants: Participants) -> None:
    """Every STARTED has one FINISHED, which accounts for each of its rows."""
    wrong = participants.query(
        "SELECT s.batch_id, s.claimed_count, f.completed_count, f.failed_count, f.retry_count"
        " FROM (SELECT * FROM provider_upload_attempts WHERE phase = 'STARTED') s"
        " FULL JOIN (SELECT * FROM provider_upload_attempts WHERE phase = 'FINISHED') f USING (batch_id)"
        " WHERE s.claimed_count IS DISTINCT FROM f.completed_count + f.failed_count + f.retry_count"
    )
    assert not wrong, f"calls that the ledger does not account for: {wrong[:5]}"
    assert participants.number(
        "SELECT sum(attempt_count) FROM offline_conversion_queue"
    ) == participants.number("SELECT sum(claimed_count) FROM provider_upload_attempts")
    assert participants.number(
        "SELECT count(*) FROM offline_conversion_queue WHERE status = 'COMPLETED'"
    ) == participants.number("SELECT sum(completed_count) FROM provider_upload_attempts")


def _counters(participants: Participants) -> None:
    """Those of a group are the sums of its ledger; what expired where it waited was in no call."""
    wrong = participants.query(
        "WITH ledger AS (SELECT site_id, provider_key, count(*) AS calls, sum(completed_count) AS completed,"
        "                       sum(failed_count) AS failed, sum(retry_count) AS retry"
        "                FROM provider_upload_attempts WHERE phase = 'FINISHED' GROUP BY 1, 2),"
        " gone AS (SELECT site_id, provider_key, count(*) AS rows FROM offline_conversion_queue"
        "          WHERE provider_error_code = 'EXPIRED' GROUP BY 1, 2)"
        " SELECT site_id, provider_key, m.attempts_total, l.calls, m.completed_total, l.completed, m.failed_total,"
        "        l.failed, g.rows, m.retry_total, l.retry"
        " FROM provider_upload_metrics m FULL JOIN ledger l USING (site_id, provider_key)"
        " LEFT JOIN gone g USING (site_id, provider_key)"
        " WHERE (m.attempts_total, m.completed_total, m.failed_total, m.retry_total) IS DISTINCT FROM"
        "       (coalesce(l.calls, 0), coalesce(l.completed, 0), coalesce(l.failed, 0) + coalesce(g.rows, 0),"
        "        coalesce(l.retry, 0))"
    )
    assert not wrong, f"counters that the ledger does not explain: {wrong[:5]}"


def _nothing_is_held(participants: Participants) -> None:
    assert not participants.query("SELECT FROM weighbridge.attempts WHERE closed_at IS NULL")
    assert not participants.query("SELECT FROM weighbridge.slots WHERE until > weighbridge.now()")
    assert not participants.query("SELECT FROM weighbridge.confirmations WHERE state = 'AWAITED'")
    breakers = participants.query("SELECT DISTINCT state FROM provider_health_state")
    assert breakers == [("CLOSED",)], breakers


def _alerts(participants: Participants) -> Counter[str]:
    told = dict(
        participants.query(
            "SELECT condition, ARRAY[count(*), count(closed_at)] FROM weighbridge.alerts GROUP BY 1"
        )
    )
    for condition in WITHDRAWN:
        raised, withdrawn = told.get(condition, (0, 0))
        assert raised == withdrawn > 0, f"{condition}: {raised} raised, {withdrawn} withdrawn"
    return Counter({f"alerts {condition}": raised for condition, (raised, _) in told.items()})


def _no_canary(participants: Participants) -> None:
    """Providers repeat what they were sent; nothing of that is kept."""
    for table, column in (
        ("offline_conversion_queue", "last_error"),
        ("provider_upload_attempts", "error_code"),
        ("weighbridge.alerts", "message"),
        ("weighbridge.confirmations", "reasons::text"),
        ("weighbridge.events", "payload::text"),
    ):
        found = participants.query(
            f"SELECT {column} FROM {table} WHERE {column} ILIKE %s LIMIT 3", (f"%{CANARY}%",)
        )
        assert not found, f"{table}: {found}"
