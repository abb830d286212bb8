"""Completed uploads are announced to the webhooks of the workspace's sites."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from tests.deliver.conftest import Query
from weighbridge.app import App, open_app
from weighbridge.delivery.upload_webhooks import WEBHOOKS
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.engine.announce import announce
from weighbridge.settings import read
from weighbridge.testing import FakeWebhook, Fault
from weighbridge.testing._webhook import SECRET

EVENT = "IngestionCompleteEvent"
KEY = new_key()


@pytest.fixture
async def app(database_url: str, home: Any) -> AsyncIterator[App]:
    settings = read(home=home, DATABASE_URL=database_url, vault_key=KEY, webhook_private=True)
    async with open_app(settings) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[FakeWebhook]:
    with FakeWebhook() as server:
        yield server


@pytest.fixture
def wants(query: Query, workspace: UUID) -> Callable[..., UUID]:
    """A site with a webhook."""

    def made(fake: FakeWebhook, wanted: str | None = EVENT, workspace_id: UUID = workspace) -> UUID:
        [(site,)] = query(
            "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, %s, '{webhook}') RETURNING id",
            (workspace_id, str(uuid4())),
        )
        values = {"url": fake.url, "secret": SECRET} | ({"events": wanted} if wanted else {})
        sealed = Vault.open(KEY).seal(site, "webhook", values, 1)
        query(
            "SELECT weighbridge.set_credentials(%s, 'webhook', 1, %s, %s, %s, 'test')",
            (site, sealed.key_id, sealed.nonce, sealed.ciphertext),
        )
        return UUID(str(site))

    return made


@pytest.fixture
def landed(app: App, query: Query, workspace: UUID) -> Callable[[], Awaitable[None]]:
    """Complete an upload and send the events that are due."""

    async def told() -> None:
        query(
            'SELECT weighbridge.emit(%s, NULL, %s, \'{"status": "completed", "metrics": {}}\', %s)',
            (workspace, EVENT, list(app.ctx.consumers)),
        )
        await again()

    async def again() -> None:
        while await announce(app.ctx, "test", timedelta(seconds=60)):
            pass

    told.again = again  # type: ignore[attr-defined]
    return told


async def test_a_completed_upload_is_announced_with_a_signature_to_subscribed_webhooks(
    landed: Any, wants: Any, receiver: FakeWebhook
) -> None:
    wants(receiver)
    wants(receiver, None)
    wants(receiver, workspace_id=uuid4())
    await landed()
    [call] = receiver.calls
    body = Verifier(SECRET).verify(call.raw, dict(call.headers))
    assert (body["type"], body["data"]["status"]) == (EVENT, "completed")


async def test_a_webhook_that_received_the_event_does_not_get_it_again_because_another_failed(
    landed: Any, wants: Any, receiver: FakeWebhook, clock: Any, query: Query
) -> None:
    with FakeWebhook() as other:
        wants(receiver)
        wants(other)
        other.script(Fault.status(503), Fault.cut())
        await landed()
        assert query(
            "SELECT failures FROM weighbridge.event_deliveries WHERE consumer = %s", (WEBHOOKS,)
        ) == [(1,)]
        for _ in range(2):
            clock.forward(minutes=5)
            await landed.again()
        assert (len(receiver.calls), len(other.accepted)) == (1, 1)
    assert query("SELECT count(*) FROM weighbridge.event_deliveries WHERE delivered_at IS NULL") == [(0,)]


async def test_a_receiver_that_answers_410_gets_no_more_events(
    landed: Any, wants: Any, receiver: FakeWebhook, query: Query
) -> None:
    wants(receiver)
    receiver.script(Fault.status(410))
    await landed()
    await landed()
    assert len(receiver.calls) == 1
    assert query("SELECT refused_code FROM provider_credentials") == [("GONE",)]


async def test_without_the_vault_key_webhooks_are_no_consumer(app: App) -> None:
    assert WEBHOOKS in app.ctx.consumers
    settings = app.settings.model_copy(update={"vault_key": None})
    async with open_app(settings) as other:
        assert WEBHOOKS not in other.ctx.consumers
