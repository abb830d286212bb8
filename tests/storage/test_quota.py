"""FU-136: the quota is checked before the bytes are received, and concurrent uploads never exceed it."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.api.conftest import client, key, make_key  # noqa: F401 (fixtures)
from tests.cli.conftest import Command, environment, main  # noqa: F401 (fixtures)
from tests.storage.counting import CSV, increment, send, until_next_month
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.engine.announce import announce
from weighbridge.model.errors import QuotaExceeded
from weighbridge.model.limits import Allowance
from weighbridge.observe import metrics
from weighbridge.storage import quota, usage
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.uploads.check_request import Checked, Request, check

Limited = Callable[..., Context]
EVENTS = "SELECT payload FROM weighbridge.events WHERE type = 'quota.storage.exceeded' ORDER BY created_at"


@pytest.fixture
def limited(app: App) -> Limited:
    """`limited(workspace=Allowance(month=100))`: the application with such settings."""

    def limited(**allowances: Allowance) -> Context:
        object.__setattr__(app, "ctx", replace(app.ctx, limits=replace(app.ctx.limits, **allowances)))
        return app.ctx

    return limited


@pytest.fixture
def checked(ctx: Context, workspace: UUID) -> Checked:
    return check(ctx, Request(workspace_id=workspace, platform="meta"))


async def refusal(ctx: Context, checked: Checked, size: int, grant: UUID | None = None) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as refused:
        await quota.reserve(ctx, checked, size, grant or uuid4())
    return refused.value


def counted(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(name) or 0


# Before the bytes are accepted -------------------------------------------------------------------------------


async def test_a_file_that_fits_exactly_is_accepted_and_a_byte_more_is_refused(
    limited: Limited, checked: Checked
) -> None:
    ctx = limited(workspace=Allowance(month=1000))
    await quota.reserve(ctx, checked, 400, uuid4())
    refused = await refusal(ctx, checked, 601)
    assert (refused.status, refused.code, refused.used, refused.limit) == (
        413,
        "STORAGE_QUOTA_EXCEEDED",
        400,
        1000,
    )
    await quota.reserve(ctx, checked, 600, uuid4())


async def test_without_a_limit_nothing_is_reserved(ctx: Context, checked: Checked, query: Any) -> None:
    await quota.reserve(ctx, checked, 10**15, uuid4())
    assert query("SELECT FROM weighbridge.storage_reservations") == []


async def test_a_repeated_reservation_replaces_the_previous_one(
    limited: Limited, checked: Checked, query: Any
) -> None:
    ctx, grant = limited(workspace=Allowance(total=1000)), uuid4()
    for size in (900, 1000, 300):
        await quota.reserve(ctx, checked, size, grant)
    assert query("SELECT bytes FROM weighbridge.storage_reservations") == [(300,)]
    await quota.release(ctx, checked, grant)
    await quota.release(ctx, checked, grant)
    await quota.reserve(ctx, checked, 1000, uuid4())


async def test_an_abandoned_reservation_expires(
    limited: Limited, checked: Checked, clock: Any, query: Any
) -> None:
    ctx = limited(workspace=Allowance(total=1000))
    await quota.reserve(ctx, checked, 1000, uuid4(), lasts=timedelta(minutes=10))
    clock.forward(minutes=9)
    await refusal(ctx, checked, 1)
    clock.forward(minutes=2)
    await quota.reserve(ctx, checked, 900, uuid4())
    assert query("SELECT bytes FROM weighbridge.storage_reservations") == [(900,)]


async def test_files_that_wait_for_the_store_count_until_they_are_given_up(
    limited: Limited, checked: Checked, query: Any
) -> None:
    ctx = limited(user=Allowance(month=1000))
    query(
        "INSERT INTO upload_queue (temp_file_path, bucket, object_path, content_hash, byte_size, user_id, workspace_id,"
        " spool_id) VALUES ('x', 'b', 'x', repeat('a', 64), 700, %s, %s, gen_random_uuid())",
        (DEFAULT_USER, checked.workspace_id),
    )
    assert (await refusal(ctx, checked, 301)).used == 700
    query("UPDATE upload_queue SET retry_count = max_retries")
    await quota.reserve(ctx, checked, 1000, uuid4())


@pytest.mark.parametrize(
    ("allowances", "begins", "resets"),
    [
        ({"workspace": Allowance(month=2**20)},
         "Monthly storage quota reached: this workspace has used 1 KB of 1 MB this month", True),
        ({"user": Allowance(month=2**20)}, "Monthly storage quota reached: this user has used 1 KB of 1 MB this", True),
        ({"workspace": Allowance(total=2**20)}, "Storage quota reached: this workspace has 1 KB of 1 MB", False),
        ({"user": Allowance(total=2**20)}, "Storage quota reached: this user has 1 KB of 1 MB", False),
        # If both limits are exceeded, the error names the one that waiting does not change.
        ({"user": Allowance(2**20, 2**20)}, "Storage quota reached: this user has", False),
    ],
)  # fmt: skip
async def test_a_refusal_names_the_limit_the_usage_the_owner_and_the_reset_time(
    limited: Limited, checked: Checked, query: Any, allowances: Any, begins: str, resets: bool
) -> None:
    ctx = limited(**allowances)
    await increment(ctx.db, checked.workspace_id, DEFAULT_USER, 1024)
    refused = await refusal(ctx, checked, 2 * 2**20)
    assert refused.message.startswith(begins)
    assert "the file is 2 MB" in refused.message
    ((first,),) = query("SELECT weighbridge.next_month()")
    assert refused.resets_at == (first if resets else None)
    assert (f"It resets on {first.astimezone(UTC):%Y-%m-01} (UTC)." in refused.message) is resets


async def test_the_limit_of_a_user_does_not_affect_other_users(limited: Limited, checked: Checked) -> None:
    ctx = limited(user=Allowance(month=1000))
    await quota.reserve(ctx, checked, 1000, uuid4())
    await refusal(ctx, checked, 1)
    await quota.reserve(ctx, replace(checked, created_by=uuid4()), 1000, uuid4())
    await quota.reserve(ctx, replace(checked, workspace_id=uuid4()), 1000, uuid4())


async def test_the_monthly_usage_is_reset_and_the_total_is_not(
    limited: Limited, checked: Checked, query: Any, clock: Any
) -> None:
    ctx = limited(workspace=Allowance(month=1000, total=1500))
    await increment(ctx.db, checked.workspace_id, DEFAULT_USER, 1000)
    await refusal(ctx, checked, 1)
    clock.forward(until_next_month(query))
    assert (await refusal(ctx, checked, 501)).resets_at is None
    await quota.reserve(ctx, checked, 500, uuid4())


# Limits of a workspace or user -------------------------------------------------------------------------------


async def test_a_workspace_or_user_can_have_its_own_limits(limited: Limited, checked: Checked) -> None:
    ctx = limited(workspace=Allowance(month=1000), user=Allowance(total=1000))

    async def set_limit(user: UUID | None, **limits: int) -> None:
        async with ctx.db.tx(workspace_id=checked.workspace_id) as tx:
            await usage.set_limit(tx, usage.Limit(user, **limits), "test")

    await refusal(ctx, checked, 1001)
    await set_limit(None, month=usage.NO_LIMIT)
    assert (await refusal(ctx, checked, 1001)).limit == 1000  # the user's
    await set_limit(DEFAULT_USER, total=5000, month=3000)
    assert (await refusal(ctx, checked, 3001)).resets_at is not None
    await set_limit(DEFAULT_USER, month=usage.AS_SETTINGS_SAY)
    assert (await refusal(ctx, checked, 5001)).limit == 5000
    await quota.reserve(ctx, checked, 5000, uuid4())
    await set_limit(None, month=0)
    other = replace(checked, created_by=uuid4())
    assert (await refusal(ctx, other, 1)).limit == 0


def test_limits_are_set_and_shown_from_the_command_line(main: Command, workspace: UUID, query: Any) -> None:
    of = ("--workspace", workspace, "--json")
    user = uuid4()
    told = main("storage", "limit", "--month", "500MB", "--total", "1.5 GB", *of).json
    assert told["limits"] == {"month_bytes": 500 * 2**20, "total_bytes": 3 * 2**29}
    told = main("storage", "limit", "--user", user, "--total", "none", "--interpretations", "7", *of).json
    assert (told["limits"]["total_bytes"], told["interpretation_limit_month"]) == (None, 7)
    told = main("storage", "limit", "--month", "default", *of, WEIGHBRIDGE_WORKSPACE_MONTH_MB="3").json
    assert told["limits"] == {"month_bytes": 3 * 2**20, "total_bytes": 3 * 2**29}
    shown = main("storage", "usage", *of).json
    assert shown["limits"] == {"month_bytes": None, "total_bytes": 3 * 2**29}
    assert [each["user_id"] for each in shown["users"]] == [str(user)]
    assert query("SELECT count(*) FROM weighbridge.audit_log WHERE action = 'storage.limit'") == [(3,)]
    people = main("storage", "usage", "--workspace", workspace)
    assert "1.5 GB" in people.out
    assert str(user) in people.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--month", "5 cm"], "--month: expected an amount such as 500MB or 2GB, none or default, got '5 cm'."),
        (["--interpretations", "5"], "--interpretations requires --user: they are counted per user."),
        ([], "expected a limit: --month, --total or --interpretations."),
    ],
)  # fmt: skip
def test_an_invalid_limit_is_refused(main: Command, options: list[str], sentence: str) -> None:
    refused = main("storage", "limit", *options)
    assert refused.code == 2
    assert sentence in " ".join(re.sub("[│╭╮╰╯─]", " ", refused.err).split())


# No race -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(3))
async def test_concurrent_reservations_are_granted_exactly_up_to_the_limit(
    limited: Limited, checked: Checked, attempt: int, query: Any
) -> None:
    ctx = limited(workspace=Allowance(month=1000), user=Allowance(total=400))
    senders = [replace(checked, created_by=UUID(int=n % 4)) for n in range(20)]
    done = await asyncio.gather(
        *(quota.reserve(ctx, each, 100, uuid4()) for each in senders), return_exceptions=True
    )
    assert sum(each is None for each in done) == 10
    assert all(each is None or isinstance(each, QuotaExceeded) for each in done)
    assert (
        query(
            "SELECT max(n) FROM (SELECT count(*) FROM weighbridge.storage_reservations GROUP BY user_id) AS x (n)"
        )[0][0]
        <= 4
    )


async def test_concurrent_uploads_are_stored_exactly_up_to_the_limit(
    limited: Limited, workspace: UUID, query: Any
) -> None:
    """The whole intake: some uploads are counted while others reserve."""
    ctx = limited(workspace=Allowance(total=7 * len(CSV)))

    async def one(n: int) -> bool:
        try:
            await send(ctx, workspace, CSV.replace(b"10.50", b"10.%02d" % n), created_by=UUID(int=n % 3))
        except QuotaExceeded:
            return False
        return True

    assert sum(await asyncio.gather(*(one(n) for n in range(20)))) == 7
    assert query("SELECT sum(total_bytes), sum(total_sources) FROM storage_usage") == [(7 * len(CSV), 7)]
    assert query("SELECT FROM weighbridge.storage_reservations") == []


async def test_a_file_that_is_being_counted_is_always_either_reserved_or_used(
    limited: Limited, checked: Checked, query: Any
) -> None:
    ctx, grant = limited(workspace=Allowance(total=1000)), uuid4()
    await quota.reserve(ctx, checked, 1000, grant)
    async with ctx.db.tx("weighbridge_intake", checked.workspace_id) as tx:
        await quota.count(tx, uuid4(), None, 1000, "s3://b/x", grant)
        await refusal(
            ctx, checked, 1
        )  # not committed yet: still reserved; and neither transaction waits for the other
    await refusal(ctx, checked, 1)
    assert query("SELECT FROM weighbridge.storage_reservations") == []


# Events and figures ------------------------------------------------------------------------------------------


async def test_the_event_is_sent_once_a_month_for_each_limit(
    limited: Limited, checked: Checked, query: Any, clock: Any
) -> None:
    ctx = limited(workspace=Allowance(month=1000), user=Allowance(total=2000))
    before = counted("quota_storage_exceeded_total")
    await asyncio.gather(*(refusal(ctx, checked, 1001) for _ in range(10)))
    await refusal(ctx, checked, 2001)
    assert counted("quota_storage_exceeded_total") == before + 11
    first, second = (row[0] for row in query(EVENTS))
    assert {name: first[name] for name in ("workspace_id", "user_id", "limit_of", "span", "used", "limit")} == {
        "workspace_id": str(checked.workspace_id), "user_id": None, "limit_of": "workspace", "span": "month", "used": 0,
        "limit": 1000,
    }  # fmt: skip
    assert (second["user_id"], second["span"], second["resets_at"]) == (str(DEFAULT_USER), "total", None)
    assert query("SELECT consumer, count(*) FROM weighbridge.event_deliveries GROUP BY 1 ORDER BY 1") == [
        ("audit_log", 2),
        ("notifier", 2),
    ]
    clock.forward(until_next_month(query))
    await refusal(ctx, checked, 1001)
    assert len(query(EVENTS)) == 3


async def test_the_event_reaches_the_audit_log(limited: Limited, checked: Checked, query: Any) -> None:
    ctx = limited(workspace=Allowance(month=1000))
    await refusal(ctx, checked, 1001)
    await announce(ctx, "test", timedelta(seconds=60))
    assert query("SELECT workspace_id, action FROM weighbridge.audit_log") == [
        (checked.workspace_id, "quota.storage.exceeded")
    ]


async def test_a_file_over_the_quota_is_refused_over_http_before_it_is_read(
    limited: Limited,
    client: httpx.AsyncClient,
    key: dict[str, str],
    query: Any,
) -> None:
    limited(workspace=Allowance(month=len(CSV)))
    sent: list[int] = []

    async def body(content: bytes) -> AsyncIterator[bytes]:
        for place in range(0, len(content), 16):
            sent.append(place)
            yield content[place : place + 16]

    async def post(content: bytes) -> httpx.Response:
        headers = {**key, "Content-Length": str(len(content)), "Content-Type": "text/csv"}
        return await client.post("/api/uploads?platform=meta", headers=headers, content=body(content))

    assert (await post(CSV)).status_code == 201
    sent.clear()
    answer = await post(CSV.replace(b"10.50", b"11.50"))
    assert answer.status_code == 413, answer.text
    assert sent == []
    told = answer.json()
    resets = datetime.fromisoformat(told["resets_at"])
    assert told["error"] == "STORAGE_QUOTA_EXCEEDED"
    assert (told["used"], told["limit"]) == (len(CSV), len(CSV))
    assert told["message"].startswith("Monthly storage quota reached: this workspace has")
    wait = int(answer.headers["Retry-After"])
    assert abs((resets - datetime.now(UTC)).total_seconds() - wait) < 60
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_usage_over_http(
    limited: Limited,
    client: httpx.AsyncClient,
    key: dict[str, str],
    workspace: UUID,
    query: Any,
    clock: Any,
) -> None:
    ctx = limited(workspace=Allowance(month=10_000), user=Allowance(total=5000))
    user = uuid4()
    for owner in (workspace, uuid4()):
        await send(ctx, owner, created_by=user)
    await increment(ctx.db, workspace, DEFAULT_USER, 700)
    checked = check(ctx, Request(workspace_id=workspace, platform="meta"))
    await quota.reserve(ctx, checked, 30, uuid4())
    told = (await client.get("/api/usage", headers=key)).json()
    ((month, resets),) = query("SELECT weighbridge.billing_month(), weighbridge.next_month()")
    assert datetime.fromisoformat(told.pop("resets_at")) == resets
    first, second = told.pop("users")
    assert told == {
        "workspace_id": str(workspace), "billing_month": month, "total_bytes": 700 + len(CSV), "total_sources": 2,
        "month_bytes": 700 + len(CSV), "waiting_bytes": 0, "reserved_bytes": 30,
        "limits": {"month_bytes": 10_000, "total_bytes": None}, "more_users": 0,
    }  # fmt: skip
    one = (await client.get("/api/usage?limit=1", headers=key)).json()
    assert ([each["user_id"] for each in one["users"]], one["more_users"]) == ([str(DEFAULT_USER)], 1)
    assert datetime.fromisoformat(first.pop("last_calculated"))
    assert first == {
        "user_id": str(DEFAULT_USER), "total_bytes": 700, "total_sources": 1, "month_bytes": 700, "waiting_bytes": 0,
        "interpretation_count_month": 0, "interpretation_limit_month": 100, "reserved_bytes": 30,
        "limits": {"month_bytes": None, "total_bytes": 5000},
    }  # fmt: skip
    assert (second["user_id"], second["total_bytes"]) == (str(user), len(CSV))
    clock.forward(until_next_month(query))  # no call since then
    told = (await client.get("/api/usage", headers=key)).json()
    assert (told["month_bytes"], told["users"][0]["month_bytes"], told["total_bytes"]) == (
        0,
        0,
        700 + len(CSV),
    )
    assert told["billing_month"] != month


async def test_an_empty_workspace_has_figures_too(
    client: httpx.AsyncClient,
    key: dict[str, str],
) -> None:
    told = (await client.get("/api/usage", headers=key)).json()
    assert (told["total_bytes"], told["month_bytes"], told["users"]) == (0, 0, [])
