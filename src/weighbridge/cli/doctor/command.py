"""`weighbridge doctor`: check the installation and suggest fixes."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.application import read_settings, run
from weighbridge.cli.doctor.check import Check, CheckStatus, failed, ok, skipped, worst_status
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import out, print_json

if TYPE_CHECKING:
    from weighbridge.cli.doctor.database import Question
    from weighbridge.model.pipeline import Pipeline
    from weighbridge.postgres.transactions import Database
    from weighbridge.settings import Settings

DATABASE_TIMEOUT = 10  # seconds to wait for an external database
_MARKS = {
    CheckStatus.OK: "[green]✓[/]",
    CheckStatus.WARNING: "[yellow]![/]",
    CheckStatus.FAILED: "[red]✗[/]",
    CheckStatus.SKIPPED: "[dim]–[/]",
}
_INDENT = 22  # width of a mark and the longest name


def doctor(
    no_send: Annotated[
        bool, typer.Option("--no-send", help="Do not send a test message to the alert addresses.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check settings, database, permissions, alerts, clocks and disks, and suggest fixes."""

    async def work() -> list[Check]:
        from weighbridge.observe.redact import redacted

        checks = []
        async for check in examination(send=not no_send):
            # A wrong setting in a message may be a URL with a password.
            checks.append(replace(check, found=redacted(check.found)))
            if not as_json:
                _show(checks[-1])
        return checks

    checks = run(work)
    status = worst_status(checks)
    if as_json:
        print_json({"status": status, "checks": [check.as_json() for check in checks]})
    else:
        _sum_up(checks)
    if status == CheckStatus.FAILED:
        raise typer.Exit(1)


async def examination(*, send: bool) -> AsyncIterator[Check]:
    """Run all checks in order. Checks that cannot run are skipped; no check raises."""
    from weighbridge.model.errors import ConfigError

    try:
        settings = read_settings("critical")  # the checks report errors
    except ConfigError as error:
        yield failed("settings", str(error), "Correct it in the environment or in weighbridge.toml.")
        return
    yield ok("settings", "All settings are valid.")
    pipelines, check = _pipelines(settings)
    yield check
    for part in (
        _files(settings),
        _database(settings, pipelines),
        _surroundings(settings, send=send),
    ):
        async for check in part:
            yield check
    hint = "Not part of doctor: a separate command loads a test file twice."
    yield skipped("golden path", hint, "weighbridge verify golden-path --env dev")


def _pipelines(settings: Settings) -> tuple[list[Pipeline], Check]:
    """Import the modules named in the settings; if that fails, the built-in pipelines can still be checked."""
    from weighbridge.app import resolve
    from weighbridge.model.errors import ConfigError
    from weighbridge.pipelines import BUILT_IN, find

    try:
        found = find(settings.pipelines)
        if settings.alert_hook:
            resolve(settings.alert_hook, "WEIGHBRIDGE_ALERT_HOOK")
    except ConfigError as error:
        return list(BUILT_IN.values()), failed("pipelines", str(error), "Correct the module or its name.")
    return list(found.values()), ok("pipelines", f"{', '.join(found)}.")


async def _database(settings: Settings, pipelines: list[Pipeline]) -> AsyncIterator[Check]:
    from weighbridge.cli.doctor.database import FIRST, THEN
    from weighbridge.cli.doctor.delivery import questions
    from weighbridge.postgres.transactions import Database

    then = THEN | questions(settings)
    check, url = await _reached(settings)
    yield check
    if url is None:
        for name in (*FIRST, *then):
            yield skipped(name, "Not checked: the database does not respond.")
        return
    db = Database(url, size=1)
    await db.open()
    try:
        if not settings.database_url:
            await _bring_up(db, pipelines)
        for name, question in FIRST.items():
            check = await _ask(db, name, question, pipelines)
            yield check
        migrated = check.status == CheckStatus.OK  # the last of FIRST checks the migrations
        for name, question in then.items():
            yield (
                await _ask(db, name, question, pipelines)
                if migrated
                else skipped(name, "Not checked: the schema is not current.")
            )
    finally:
        await db.close()


async def _reached(settings: Settings) -> tuple[Check, str | None]:
    from weighbridge.app import database_url
    from weighbridge.model.errors import ConfigError

    try:
        # Creating the embedded database may take a while; an external one must respond quickly.
        async with asyncio.timeout(DATABASE_TIMEOUT if settings.database_url else None):
            url = await database_url(settings)
    except TimeoutError:
        found = f"DATABASE_URL: no response within {DATABASE_TIMEOUT} seconds."
        return failed("database", found, "Check the address and the firewall."), None
    except ConfigError as error:
        return failed("database", str(error), "Start the database, or correct DATABASE_URL."), None
    kind = "The database in DATABASE_URL" if settings.database_url else "The embedded database"
    return ok("database", f"{kind} responds."), url


async def _bring_up(db: Database, pipelines: list[Pipeline]) -> None:
    """Migrate the embedded database, as every command does."""
    from weighbridge.model.errors import WeighbridgeError
    from weighbridge.postgres import readiness

    with suppress(WeighbridgeError):  # of a later version: the check reports it
        async with db.tx() as tx:
            if await readiness.missing(tx, pipelines):
                await readiness.make_ready(tx, pipelines)


async def _ask(db: Database, name: str, question: Question, pipelines: list[Pipeline]) -> Check:
    from weighbridge.model.errors import WeighbridgeError

    try:
        async with db.tx() as tx:
            return await question(tx, pipelines)
    except WeighbridgeError as error:
        return failed(name, f"The check failed: {error}", "See the log of the database.")
    except Exception as error:  # one failing check must not prevent the others
        return failed(name, f"The check failed: {type(error).__name__}.", "See the log of the database.")


async def _files(settings: Settings) -> AsyncIterator[Check]:
    from weighbridge.cli.doctor import machine

    yield machine.home(settings)
    yield machine.queue_folder(settings)
    yield machine.disk_space(settings)
    yield await machine.file_store(settings)


async def _surroundings(settings: Settings, *, send: bool) -> AsyncIterator[Check]:
    from weighbridge.cli.doctor import delivery, machine

    yield await machine.webhook(settings, send=send)
    yield delivery.vault_key(settings)
    yield await delivery.slots(settings)
    yield machine.processing_timeout(settings)


def _show(check: Check) -> None:
    from rich.markup import escape

    console, indent = out(), " " * _INDENT
    found = textwrap.fill(check.found, console.width - _INDENT, subsequent_indent=indent)
    console.print(f"{_MARKS[check.status]} {check.name:<{_INDENT - 2}}{escape(found)}", soft_wrap=True)
    if check.fix:  # on one line: it may be a command to copy
        console.print(f"{indent}→ {check.fix}", markup=False, soft_wrap=True)


def _sum_up(checks: list[Check]) -> None:
    counts = {status: sum(check.status == status for check in checks) for status in CheckStatus}
    summary = ", ".join(f"{count} {_plural(status, count)}" for status, count in counts.items() if count)
    out().print(f"\n{summary}.")


def _plural(status: CheckStatus, count: int) -> str:
    return f"{status}s" if status == CheckStatus.WARNING and count != 1 else str(status)
