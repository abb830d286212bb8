"""Which lines there are, what they carry, and what no line can carry whoever writes it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import warnings
from typing import Any

import psycopg
import pytest
import structlog

from tests.engine.conftest import Put, Run, meta_file, meta_line
from tests.engine.steps import claim
from tests.observe.conftest import Lines
from weighbridge.delivery.context import Context
from weighbridge.engine import recover
from weighbridge.model.errors import ConfigError
from weighbridge.observe import journal, logs
from weighbridge.observe.alerts import Alerts
from weighbridge.observe.redact import quote_input, redacted, scrubbed, unquoted
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive

NAME, EMAIL, PHONE, SSN = "Ann Canary", "ann.canary@example.org", "(555) 010-4477", "078-05-1120"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
ADDRESS = "postgresql://ann:hun%40ter2@db.example.org:5432/prod"


# Events -------------------------------------------------------------------------------------------------------


async def test_a_job_is_logged_when_it_starts_and_when_it_is_done(put: Put, run: Run, lines: Lines) -> None:
    upload = await run(await put(meta_file(days=2, ads=3), source_batch_id="march"), name="worker-1")
    [started], [completed] = lines("Job started"), lines("Job completed")
    assert (started["level"], started["source_batch_id"], started["worker_id"]) == (
        "INFO",
        "march",
        "worker-1",
    )
    assert started["file_hash"] == upload.content_sha256.hex()
    assert (completed["level"], completed["source_batch_id"]) == ("INFO", "march")
    assert (completed["record_count"], completed["inserted"], completed["updated"]) == (6, 6, 0)
    assert completed["duration_ms"] >= 0


async def test_a_failed_job_is_logged_with_its_code_and_a_short_message(
    put: Put, run: Run, lines: Lines
) -> None:
    await run(await put(b"Who,What\nAnn,1\n", source_batch_id="march"))
    [failed] = lines("Job failed")
    assert (failed["level"], failed["source_batch_id"], failed["error_type"]) == (
        "ERROR",
        "march",
        "no_header",
    )
    assert failed["error_message"].startswith("No column of the file is known")
    journal.job_failed("march", "x", "word " * 200)
    assert len(lines("Job failed")[1]["error_message"]) <= journal.MESSAGE


async def test_refused_rows_are_logged_by_line_and_code_up_to_a_limit(
    put: Put, run: Run, lines: Lines
) -> None:
    bad = tuple(meta_line("2026-01-01", 100 + ad, impressions="x") for ad in range(30))
    await run(await put(meta_file(extra=bad), source_batch_id="march"))
    rows = lines("Row-level error")
    assert [row["row_number"] for row in rows] == list(range(14, 14 + journal.ROW_ERRORS))
    assert {(row["level"], row["source_batch_id"], row["error_type"]) for row in rows} == {
        ("WARNING", "march", rows[0]["error_type"])
    }
    [rest] = lines("Row-level errors")
    assert (rest["rows"], rest["logged"]) == (30, journal.ROW_ERRORS)


async def test_a_duplicate_is_logged_with_its_reason(
    ctx: Context, run: Run, workspace: Any, lines: Lines, tmp_path: Any
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(meta_file())
    wish = Request(workspace, "meta", source_batch_id="march")
    await run((await receive(ctx, wish, file)).upload_id)
    assert (await receive(ctx, wish, file)).reason == "duplicate_completed"
    [skipped] = lines("Duplicate skipped")
    assert (skipped["level"], skipped["source_batch_id"], skipped["reason"]) == (
        "INFO", "march", "duplicate_completed",
    )  # fmt: skip
    assert skipped["message"] == "Skipping duplicate"


async def test_a_takeover_is_logged_with_the_hours_and_the_original_start(
    ctx: Context, put: Put, run: Run, lines: Lines, clock: Any, query: Any
) -> None:
    upload_id = await put(meta_file(), source_batch_id="march")
    await claim(ctx)
    [(opened,)] = query("SELECT opened_at FROM weighbridge.attempts")
    clock.forward(hours=3)
    await run(upload_id)
    [taken] = lines("Stale takeover")
    assert (taken["level"], taken["source_batch_id"], taken["stale_hours"]) == ("WARNING", "march", 3.0)
    assert taken["original_started_at"] == opened.isoformat()


# Redaction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"key {TOKEN} sent", "key [JWT_REDACTED] sent"),
        (f"at {ADDRESS} now", "at postgresql://[REDACTED]@db.example.org:5432/prod now"),
        ("postgres://a:p@ss@h/d", "postgres://[REDACTED]@h/d"),
        (f"ssn {SSN}.", "ssn [SSN_REDACTED]."),
        (f"to {EMAIL}, please", "to [EMAIL_REDACTED], please"),
        (f"call {PHONE}", "call [PHONE_REDACTED]"),
        ("call 555-010-4477 or 555.010.4477", "call [PHONE_REDACTED] or [PHONE_REDACTED]"),
        ("call +44 20 7946 0958 or 15550104477", "call [PHONE_REDACTED] or [PHONE_REDACTED]"),
        (
            "(555)010-4477 555 0104477 tel:5550104477",
            "[PHONE_REDACTED] [PHONE_REDACTED] tel:[PHONE_REDACTED]",
        ),
        ("ssn 078 05 1120", "ssn [SSN_REDACTED]"),
        ("Basic dXNlcjpwYXNz and", "Basic [REDACTED] and"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: [REDACTED] [REDACTED]"),
        ("password=hunter2 host=db", "password=[REDACTED] host=db"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "[REDACTED]", "n": 1}'),
        ("key wb_AbC-123_x", "key [KEY_REDACTED]"),
        ("POST https://discord.com/api/webhooks/1/abc failed", "POST https://discord.com/[REDACTED] failed"),
    ],
)
def test_what_identifies_or_opens_is_replaced(text: str, cleaned: str) -> None:
    assert redacted(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b",
        "2026-11-15T06:58:53.610208+00:00",
        "simplicity-2026-01-07.csv",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "Only 50.0% of 4 rows are valid, expected at least 90%.",
        "loop.py:145 _work",
        "vm:30348:389a96",
        "127.0.0.1:8080",
        "12,345,678 rows in 1234567 ms",
        "1700000000",
        "2026010714",
        "basic export",
    ],
)
def test_ids_times_counts_and_names_of_batches_stay(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            "amount: expected a number, got 'Ann Canary' (line 3).",
            "amount: expected a number, got '…' (line 3).",
        ),
        ("""the file's 'Ann O\\'Hara' and "Ann O'Hara" """, "the file's '…' and '…' "),
        ("the users' files don't say", "the users' files don't say"),
        (f"has {['Ann', 'Bob']!r}", "has ['…', '…']"),
    ],
)
def test_the_words_of_others_are_in_quotes_and_go_with_them(text: str, cleaned: str) -> None:
    assert unquoted(text) == cleaned


@pytest.mark.parametrize("piece", ["a.", "eyJ", "a", "secret", "'", "http://", "5 "])
def test_no_text_takes_long_to_clean(piece: str) -> None:
    began = time.perf_counter()
    quote_input(piece * 100_000)
    scrubbed(piece * 100_000)
    assert time.perf_counter() - began < 1


def test_what_libraries_say_of_addresses_is_not_logged_at_all(lines: Lines) -> None:
    for url in ("pagerduty://hunter2", "slack://hunter2", "nonsense-hunter2"):
        with pytest.raises(ConfigError):
            Alerts([url]).addresses  # noqa: B018
    assert "hunter2" not in lines.text


def test_values_are_cleaned_at_any_depth() -> None:
    found = scrubbed({"a": [{"b": (EMAIL, 7)}, ValueError(NAME)], "db_password": "x", "token": 3, "n": None})
    assert found == {
        "a": [{"b": ["[EMAIL_REDACTED]", 7]}, "ValueError"],
        "db_password": "[REDACTED]", "token": "[REDACTED]", "n": None,
    }  # fmt: skip


def test_no_line_carries_what_must_not_be_logged_whoever_writes_it(lines: Lines, database_url: str) -> None:
    """Ours, libraries', of exceptions with values in them, and of what nobody caught."""
    secret = f"{EMAIL} {PHONE} {SSN} {TOKEN} {ADDRESS}"
    structlog.get_logger().warning("ours", said=secret, quoted=f"got {NAME!r}", password=NAME)
    library = logging.getLogger("psycopg.pool")
    library.warning("error connecting in %r: %s", "pool-1", ConnectionError(f"{NAME} {secret}"))
    library.error(f"Task exception\nfuture: {NAME} {secret}")
    library.warning("%(who)s is %(age)d", {"who": NAME, "age": 41})
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TEMP TABLE people (name text UNIQUE)")
        connection.execute("INSERT INTO people VALUES (%s)", (NAME,))
        with pytest.raises(psycopg.Error, match=NAME) as raised:
            connection.execute("INSERT INTO people VALUES (%s)", (NAME,))
    structlog.get_logger().error("Bug", exc_info=raised.value)
    library.error("lost", exc_info=raised.value)
    thread = threading.Thread(target=lambda: int(NAME))
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(f"{NAME} {secret}"), None)
    warnings.warn(f"{NAME} {secret}", UserWarning, stacklevel=1)

    async def forgotten() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "nobody waited", "exception": ValueError(NAME), "future": secret}
        )

    asyncio.run(forgotten())
    for canary in (NAME, EMAIL, PHONE, SSN, TOKEN, "hun%40ter2"):
        assert canary not in lines.text
    events = [line["event"] for line in lines()]
    assert events == [
        "ours", "error connecting in '…': ConnectionError", "Task exception", "… is 41",
        "Bug", "lost", "Bug", "Bug", "Warning", "nobody waited",
    ]  # fmt: skip
    assert [line.get("sqlstate") for line in lines("lost")] == ["23505"]


def test_an_error_that_is_its_own_cause_is_told_all_the_same(lines: Lines) -> None:
    error = ValueError(NAME)
    error.__cause__ = error
    structlog.get_logger().error("Bug", exc_info=error)
    assert [line["error_type"] for line in lines("Bug")] == ["ValueError"]


def test_a_line_is_not_lost_where_a_library_gives_the_wrong_values() -> None:
    assert logs._filled("made in %d parts of %s", ("seven", NAME)) == "made in %d parts of %s"


def test_every_line_is_one_json_object_with_an_upper_case_level(lines: Lines) -> None:
    structlog.get_logger().error("two\nlines", text="a\nb")
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    assert [(line["level"], line["event"]) for line in lines()] == [
        ("ERROR", "two\nlines"), ("INFO", "Started server process [7]"),
    ]  # fmt: skip
    assert len(lines.text.splitlines()) == 2


async def test_the_error_of_a_lost_lease_is_a_line_of_its_own(
    ctx: Context, put: Put, lines: Lines, clock: Any
) -> None:
    from weighbridge.uploads.run_attempt import work

    await put(meta_file(), source_batch_id="march")
    attempt = await claim(ctx)
    clock.forward(hours=1)
    async with ctx.db.tx() as tx:
        await recover.recover(tx, 5)
    await work(attempt, ctx, promotes=True)
    [lost] = lines("Lease lost")
    assert (lost["level"], lost["source_batch_id"]) == ("WARNING", "march")
