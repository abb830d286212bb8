"""`weighbridge doctor`: is everything in order here, and if not, what mends it (S3 §7)?"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.doctor.check import Check, Status, failed, ok, skipped, verdict
from weighbridge.cli.running import AsJson, out, print_json, read_settings, run

if TYPE_CHECKING:
    from weighbridge.cli.doctor.database import Question
    from weighbridge.model.pipeline import Pipeline
    from weighbridge.postgres.pool import Database
    from weighbridge.settings import Settings

PATIENCE = 10  # seconds for a database of one's own to answer
_MARKS = {
    Status.OK: "[green]✓[/]",
    Status.WARNING: "[yellow]![/]",
    Status.FAILED: "[red]✗[/]",
    Status.SKIPPED: "[dim]–[/]",
}
_INDENT = 22  # a mark, and the longest name


def doctor(
    no_send: Annotated[
        bool, typer.Option("--no-send", help="Send no test message to the addresses for alerts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check settings, database, rights, alerts, clocks and disks, and say how to mend what is wrong."""

    async def work() -> list[Check]:
        from weighbridge.observe.redact import redacted

        checks = []
        async for check in examination(send=not no_send):
            # A setting that is told because it is wrong may be an address with a password.
            checks.append(replace(check, found=redacted(check.found)))
            if not as_json:
                _show(checks[-1])
        return checks

    checks = run(work)
    status = verdict(checks)
    if as_json:
        print_json({"status": status, "checks": [asdict(check) for check in checks]})
    else:
        _sum_up(checks)
    if status == Status.FAILED:
        raise typer.Exit(1)


async def examination(*, send: bool) -> AsyncIterator[Check]:
    """One check after the other. What cannot be asked is skipped; nothing raises."""
    from weighbridge.model.errors import ConfigError

    try:
        settings = read_settings("critical")  # what went wrong is told by the checks
    except ConfigError as error:
        yield failed("settings", str(error), "Correct it in the environment or in weighbridge.toml.")
        return
    yield ok("settings", "They can be read.")
    pipelines, check = _pipelines(settings)
    yield check
    for part in (
        _files(settings),
        _database(settings, pipelines),
        _surroundings(settings, send=send),
    ):
        async for check in part:
            yield check
    hint = "A file of one row, all the way and once more, is a command of its own."
    yield skipped("golden path", hint, "weighbridge verify golden-path --env dev")


def _pipelines(settings: Settings) -> tuple[list[Pipeline], Check]:
    """The modules that the settings name: without them at least the built-in pipelines can be asked about."""
    from weighbridge.app import resolve
    from weighbridge.model.errors import ConfigError
    from weighbridge.pipelines import BUILT_IN, find

    try:
        found = find(settings.pipelines)
        if settings.alert_hook:
            resolve(settings.alert_hook, "WEIGHBRIDGE_ALERT_HOOK")
    except ConfigError as error:
        return list(BUILT_IN.values()), failed("pipelines", str(error), "Correct the module, or its name.")
    return list(found.values()), ok("pipelines", f"{', '.join(found)}.")


async def _database(settings: Settings, pipelines: list[Pipeline]) -> AsyncIterator[Check]:
    from weighbridge.cli.doctor.database import FIRST, THEN
    from weighbridge.cli.doctor.delivery import questions
    from weighbridge.postgres.pool import Database

    then = THEN | questions(settings)
    check, url = await _reached(settings)
    yield check
    if url is None:
        for name in (*FIRST, *then):
            yield skipped(name, "Not asked: the database does not answer.")
        return
    db = Database(url, size=1)
    await db.open()
    try:
        if not settings.database_url:
            await _bring_up(db, pipelines)
        for name, question in FIRST.items():
            check = await _asked(db, name, question, pipelines)
            yield check
        migrated = check.status == Status.OK  # the last of them asks for the migrations
        for name, question in then.items():
            yield (
                await _asked(db, name, question, pipelines)
                if migrated
                else skipped(name, "Not asked: the schema is not this version's.")
            )
    finally:
        await db.close()


async def _reached(settings: Settings) -> tuple[Check, str | None]:
    from weighbridge.app import database_url
    from weighbridge.model.errors import ConfigError

    try:
        # Making the embedded one may take its time; one's own is there or it is not.
        async with asyncio.timeout(PATIENCE if settings.database_url else None):
            url = await database_url(settings)
    except TimeoutError:
        found = f"DATABASE_URL: nothing came back within {PATIENCE} seconds."
        return failed("database", found, "Is the address right, and does a firewall let it through?"), None
    except ConfigError as error:
        return failed("database", str(error), "Start it, or correct its address."), None
    kind = "The one that DATABASE_URL names" if settings.database_url else "The embedded one"
    return ok("database", f"{kind} answers."), url


async def _bring_up(db: Database, pipelines: list[Pipeline]) -> None:
    """The embedded database, as every command does on its way."""
    from weighbridge.model.errors import WeighbridgeError
    from weighbridge.postgres import readiness

    with suppress(WeighbridgeError):  # a later version's: the check tells
        async with db.tx() as tx:
            if await readiness.missing(tx, pipelines):
                await readiness.make_ready(tx, pipelines)


async def _asked(db: Database, name: str, question: Question, pipelines: list[Pipeline]) -> Check:
    from weighbridge.model.errors import WeighbridgeError

    try:
        async with db.tx() as tx:
            return await question(tx, pipelines)
    except WeighbridgeError as error:
        return failed(name, f"It could not be asked: {error}", "Is the database well? Its log says more.")
    except Exception as error:  # whatever is wrong with the database, the other checks are worth having
        return failed(name, f"It could not be asked: {type(error).__name__}.", "Its log says more.")


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
    if check.mend:  # on one line: it may be a command to copy
        console.print(f"{indent}→ {check.mend}", markup=False, soft_wrap=True)


def _sum_up(checks: list[Check]) -> None:
    counts = {status: sum(check.status == status for check in checks) for status in Status}
    told = ", ".join(f"{count} {_plural(status, count)}" for status, count in counts.items() if count)
    out().print(f"\n{told}.")


def _plural(status: Status, count: int) -> str:
    return f"{status}s" if status == Status.WARNING and count != 1 else str(status)
