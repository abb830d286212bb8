"""The composition root: reads the settings once and builds all parts from them."""

from __future__ import annotations

import asyncio
import errno
import os
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx

from weighbridge.delivery import providers
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.providers import connections
from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.slots.base import SlotLimits, Slots
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.delivery.upload_webhooks import announcing
from weighbridge.delivery.vault import Vault
from weighbridge.engine.announce import alerting, consumers
from weighbridge.engine.context import Consumer
from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.find_declarations import imported
from weighbridge.model.limits import Allowance, Limits
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.retry import CONVERSION
from weighbridge.observe.alerts import Alerts
from weighbridge.pipelines import find
from weighbridge.postgres import address, readiness
from weighbridge.postgres.transactions import Database
from weighbridge.settings import Settings
from weighbridge.storage import queue as storage_queue
from weighbridge.storage.store import open_store
from weighbridge.storage.waiting_files import Spool


@dataclass(frozen=True)
class App:
    settings: Settings
    db: Database
    ctx: Context


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database alone, whatever its schema. Raises ConfigError if it does not answer."""
    url = await database_url(settings)
    db = Database(url, size=4 + 2 * settings.worker_slots, statement_timeout_ms=_milliseconds(settings))
    await db.open()
    try:
        yield db
    finally:
        await db.close()


@asynccontextmanager
async def open_app(settings: Settings, *, check: bool = True, serves: bool = False) -> AsyncIterator[App]:
    """All parts, built and connected. An embedded database is migrated; any other is only checked.

    With `serves`, this process consumes alerts even without an address, and logs them; a command leaves them to others.

    Raises ConfigError if a setting, a pipeline or the database cannot be used.
    """
    pipelines = find(settings.pipelines)
    platforms = providers.find(
        settings.providers, urls=provider_urls(settings), allow_private=settings.webhook_private
    )
    vault = Vault.open(settings.vault_key.get_secret_value()) if settings.vault_key else None
    hook = resolve(settings.alert_hook, "WEIGHBRIDGE_ALERT_HOOK") if settings.alert_hook else None
    blobs = open_store(settings.blob_url, settings.home, timedelta(seconds=settings.store_seconds))
    scratch = _make_home(settings)
    async with open_database(settings) as db:
        spool = Spool(settings.queue_folder, UUID(int=0))  # without the check, no file is received
        if check:
            await _ready(db, list(pipelines.values()), embedded=not settings.database_url)
            async with db.tx() as tx:
                spool = Spool(settings.queue_folder, await storage_queue.identity(tx))
                await delivery_queue.register_providers(tx, _known(platforms))
            # Here, so that an unusable folder is reported as a setting.
            await asyncio.to_thread(lambda: spool.id)
        async with _open_outbound(settings, db, platforms, vault) as outbound:
            ctx = Context(
                db=db,
                blobs=blobs,
                spool=spool,
                pipelines=pipelines,
                scratch=scratch,
                limits=_limits(settings),
                consumers=_consumers(settings, hook, db, outbound, serves=serves),
                outbound=outbound,
            )
            yield App(settings, db, ctx)


@asynccontextmanager
async def _open_outbound(
    settings: Settings, db: Database, platforms: Mapping[str, Provider], vault: Vault | None
) -> AsyncIterator[Outbound | None]:
    """Parts for deliveries; None without the key that decrypts credentials."""
    if vault is None:
        yield None
        return
    limits = SlotLimits(
        settings.concurrency_per_site_provider,
        settings.concurrency_global_per_provider,
        timedelta(milliseconds=settings.semaphore_ttl_ms),
    )
    redis = settings.redis_url
    slots: Slots
    if redis:
        # Imported here: it takes a quarter of a command's start time.
        from weighbridge.delivery.slots.redis import RedisSlots

        slots = RedisSlots(redis.get_secret_value(), limits)
    else:
        slots = PostgresSlots(db, limits)
    timeout = httpx.Timeout(settings.provider_seconds, connect=min(settings.provider_seconds, 10))
    try:
        async with connections.client(timeout) as http:
            yield Outbound(
                providers=platforms,
                vault=vault,
                slots=slots,
                http=http,
                limits=limits,
                retries=replace(CONVERSION, tries=settings.deliver_retries),
                full_counts=settings.full_opens_circuit,
            )
    finally:
        await slots.close()


def _known(platforms: Mapping[str, Provider]) -> dict[str, tuple[tuple[str, ...], timedelta | None, bool]]:
    return {key: (each.clicks, each.window, each.window_from == "event") for key, each in platforms.items()}


def provider_urls(settings: Settings) -> dict[str, str]:
    """Parses WEIGHBRIDGE_PROVIDER_URLS."""
    found: dict[str, str] = {}
    for each in settings.provider_urls:
        name, _, url = each.partition("=")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"WEIGHBRIDGE_PROVIDER_URLS: expected provider=http://…, got {name!r} without an address."
            )
        found[name.strip()] = url
    return found


def _limits(settings: Settings) -> Limits:
    def megabytes(limit: int | None) -> int | None:
        return None if limit is None else limit * 2**20

    return Limits(
        max_upload_bytes=settings.max_upload_mb * 2**20,
        batch_rows=settings.batch_rows,
        stage_rows=settings.stage_rows,
        parse_memory_mb=settings.parse_memory_mb,
        staging_days=settings.staging_days,
        attempt_days=settings.attempt_days,
        event_days=settings.event_days,
        rejection_days=settings.rejection_days,
        audit_days=settings.audit_days,
        blob_days=settings.blob_days,
        storage_retries=settings.storage_retries,
        resumable=timedelta(hours=settings.resumable_hours),
        workspace=Allowance(megabytes(settings.workspace_month_mb), megabytes(settings.workspace_total_mb)),
        user=Allowance(megabytes(settings.user_month_mb), megabytes(settings.user_total_mb)),
    )


def _consumers(
    settings: Settings,
    hook: Callable[..., Any] | None,
    db: Database,
    outbound: Outbound | None,
    *,
    serves: bool,
) -> dict[str, Consumer]:
    alone = not settings.database_url  # no other process will deliver them
    takes_alerts = bool(settings.alert_urls) or serves or alone
    return {
        **consumers(hook),
        **(alerting(Alerts(settings.alert_urls), db) if takes_alerts else {}),
        **(announcing(outbound, db) if outbound else {}),
    }


async def database_url(settings: Settings) -> str:
    """The database from the settings, if it answers; without one, the embedded database, started or joined."""
    if not settings.database_url:
        return await asyncio.to_thread(_start_embedded, settings)
    await address.reach(settings.database_url)
    return settings.database_url


def _make_home(settings: Settings) -> Path:
    """The folder for scratch files inside `home`, readable by the service alone."""
    scratch = settings.home / "scratch"
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(mode=0o700, exist_ok=True)
        if not os.access(scratch, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise ConfigError(
            f"WEIGHBRIDGE_HOME: expected a folder where Weighbridge may write, got {settings.home} ({reason})."
        ) from error
    return scratch


def _start_embedded(settings: Settings) -> str:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR is not set")
        from weighbridge.postgres import embedded

    return embedded.start(settings.home)


def resolve(name: str, setting: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise ConfigError(f"{setting}: expected module:function, got {name!r}.")
    module = imported(module_name, setting)
    found = getattr(module, function_name, None)
    if not callable(found):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        hint = did_you_mean(function_name, known) or "."
        raise ConfigError(f"{setting}: {module_name} has no function {function_name!r}{hint}")
    return cast(Callable[..., Any], found)


async def _ready(db: Database, pipelines: list[Pipeline], *, embedded: bool) -> None:
    async with db.tx() as tx:
        missing = await readiness.missing(tx, pipelines)
        if missing and embedded:
            await readiness.make_ready(tx, pipelines)
            return
    if missing:
        raise ConfigError(f"The database lacks {', '.join(missing)}. Run: weighbridge db migrate")


def _milliseconds(settings: Settings) -> int:
    return int(settings.statement_timeout_seconds * 1000)
