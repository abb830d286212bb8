"""Checks of `weighbridge doctor` in the database: schema, permissions, clocks, unfinished work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from weighbridge.cli.doctor.check import Check, failed, ok, warning
from weighbridge.engine import outbox as events
from weighbridge.model.counts import counted
from weighbridge.model.errors import ConfigError
from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres import doctor, readiness
from weighbridge.postgres.doctor import GrowingTable, Skew
from weighbridge.postgres.transactions import Tx
from weighbridge.storage import queue as waiting_files
from weighbridge.uploads import figures

OLDEST = 15
SKEW_WARNING, SKEW_FAILED = 2.0, 30.0  # seconds
RETENTION_DAYS = 3  # each worker looks for old records once a day
LATE_MINUTES = 10  # a consumer has been tried five times by then
MIGRATE = "weighbridge db migrate"

# Faults that expose a table to other workspaces: a description and the statement that fixes it.
_OPEN = {
    "open": ("has no row-level security", "ALTER TABLE {} ENABLE ROW LEVEL SECURITY;"),
    "no_policy": (
        "has no policy",
        "CREATE POLICY workspace ON {} USING (workspace_id = (SELECT weighbridge.workspace()));",
    ),
    "wide_policy": (
        "has a policy that does not check the workspace",
        "\\d {0} lists the policies. Drop the one that does not contain weighbridge.workspace(): "
        "DROP POLICY name ON {0};",
    ),
    "owners_view": ("reads with its owner's permissions", "ALTER VIEW {} SET (security_invoker = true);"),
}

Question = Callable[[Tx, Sequence[Pipeline]], Awaitable[Check]]


async def version(tx: Tx, _: Sequence[Pipeline]) -> Check:
    found = doctor.version(tx)
    if found < OLDEST:
        fix = f"Upgrade to PostgreSQL {OLDEST} or newer and update DATABASE_URL."
        return failed("postgres version", f"PostgreSQL {found} is too old.", fix)
    return ok("postgres version", f"PostgreSQL {found}.")


async def migrations(tx: Tx, _: Sequence[Pipeline]) -> Check:
    try:
        missing = await doctor.missing_migrations(tx)
    except ConfigError as error:  # a migration was edited, or the schema is of a later version
        return failed("migrations", str(error), "Run the version of Weighbridge that migrated this database.")
    if missing:
        return failed("migrations", f"The database lacks {', '.join(missing)}.", MIGRATE)
    return ok("migrations", "All migrations are applied.")


async def tables(tx: Tx, pipelines: Sequence[Pipeline]) -> Check:
    missing = await readiness.missing_pipelines(tx, pipelines)
    if missing:
        return failed("tables", f"The database lacks the tables of {', '.join(missing)}.", MIGRATE)
    return ok("tables", "Every pipeline has its tables.")


async def constraints(tx: Tx, pipelines: Sequence[Pipeline]) -> Check:
    missing = await readiness.missing_pipelines(tx, pipelines)
    made = [pipeline for pipeline in pipelines if pipeline.name not in missing]
    keys, guards = await doctor.missing_keys(tx, made), await doctor.idle_triggers(tx)
    faults = [f"{key.table} has no unique key ({key.columns})" for key in keys]
    faults += [
        f"{each.name} on {each.table} is {'missing' if each.missing else 'disabled'}" for each in guards
    ]
    if not faults:
        return ok("constraints", "All unique keys and guard triggers exist and are enabled.")
    statements = [f"ALTER TABLE {key.table} ADD {key.definition};" for key in keys]
    statements += [
        f"ALTER TABLE {each.table} ENABLE TRIGGER {each.name};" for each in guards if not each.missing
    ]
    fixes = [f"in psql: {' '.join(statements)}"] if statements else []
    fixes += [f"run: {MIGRATE} --reapply"] if any(each.missing for each in guards) else []
    return failed("constraints", _sentence(faults), f"Stop the workers; {'; '.join(fixes)}")


async def roles(tx: Tx, pipelines: Sequence[Pipeline]) -> Check:
    if closed := await doctor.unusable_roles(tx):
        return failed("roles", f"The login cannot switch to the roles {', '.join(closed)}.", MIGRATE)
    if mighty := await doctor.privileged_roles(tx):
        strip = " ".join(f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS NOLOGIN;" for role in mighty)
        return failed(
            "roles", _sentence([f"{role} {why}" for role, why in mighty.items()]), f"In psql: {strip}"
        )
    if extra := await doctor.excess_rights(tx, pipelines):
        revoke = " ".join(f"REVOKE {each.rights} ON {each.table} FROM {each.role}, PUBLIC;" for each in extra)
        faults = [f"{each.role} may {each.rights} {each.table}" for each in extra]
        return failed("roles", _sentence(faults), f"In psql: {revoke}")
    if lacking := await doctor.missing_login_rights(tx):
        found = f"The login may not {' or '.join(lacking)} ingest.import_runs."
        return failed("roles", found, "Use the login that ran `weighbridge db migrate`: it owns the tables.")
    return ok("roles", "Each role has exactly the permissions it needs.")


async def row_level_security(tx: Tx, _: Sequence[Pipeline]) -> Check:
    tables = await doctor.tenant_tables(tx)
    faults = [(each.table, *_OPEN[each.fault]) for each in tables if each.fault]
    if faults:
        fix = " ".join(statement.format(table) for table, _, statement in faults)
        descriptions = [f"{table} {words}" for table, words, _ in faults]
        return failed("row-level security", _sentence(descriptions), f"In psql: {fix}")
    if not tables:
        return failed("row-level security", "weighbridge_tenant cannot read any table.", MIGRATE)
    count = len(tables)
    return ok(
        "row-level security",
        f"All {count} tables and views that tenants can read are restricted to their workspace.",
    )


async def clock_skew(tx: Tx, _: Sequence[Pipeline]) -> Check:
    return check_skew(await doctor.skew(tx))


def check_skew(skew: Skew) -> Check:
    """Judge the skew. The uncertainty of the round trip is subtracted."""
    apart = max(0.0, abs(skew.seconds) - skew.doubt)
    if apart <= SKEW_WARNING:
        return ok("clock skew", f"The clocks of the database and this machine differ by {apart:.1f} s.")
    direction = "ahead of" if skew.seconds > 0 else "behind"
    found = f"The database's clock is {apart:.1f} s {direction} this machine's."
    fix = "Turn on time synchronisation (chrony, systemd-timesyncd) on both machines."
    return (failed if apart > SKEW_FAILED else warning)("clock skew", found, fix)


async def shifted_clock(tx: Tx, _: Sequence[Pipeline]) -> Check:
    shift = await doctor.clock_shift(tx)
    if shift:
        fix = "In psql: UPDATE weighbridge.clock SET shift = '0';"
        return failed("test clock", f"A test shifted the database's clock by {shift:+,.0f} s.", fix)
    return ok("test clock", "The database's clock is not shifted.")


async def stale_runs(tx: Tx, _: Sequence[Pipeline]) -> Check:
    count = await figures.stale_runs(tx)
    if count:
        has = "has" if count == 1 else "have"
        found = f"{counted(count, 'run')} started over an hour ago and {has} no live lease."
        return failed("stale runs", found, "weighbridge recover")
    return ok("stale runs", "None.")


async def dead_letters(tx: Tx, _: Sequence[Pipeline]) -> Check:
    found = await figures.count_dead_letters(tx)
    if found.count:
        look = f"weighbridge uploads list --status failed --workspace {found.workspace_id}"
        message = f"{counted(found.count, 'failed upload')} to inspect, then retry or dismiss."
        return warning("dead letters", message, look)
    return ok("dead letters", "None.")


async def outbox(tx: Tx, _: Sequence[Pipeline]) -> Check:
    found = await events.undelivered(tx, LATE_MINUTES)
    if found.given_up:
        message = (
            f"{counted(found.given_up, 'event delivery', 'event deliveries')} failed and will not be retried."
        )
        return failed("outbox", message, "See docs/runbook.md#outbox.")
    if found.late:
        late = counted(found.late, "event delivery", "event deliveries")
        message = f"{late} waiting for over {LATE_MINUTES} minutes."
        return warning("outbox", message, "Is a worker running? weighbridge worker")
    return ok("outbox", "Nothing is overdue.")


async def storage_queue(tx: Tx, _: Sequence[Pipeline]) -> Check:
    found = await waiting_files.waiting_for_store(tx)
    if found.given_up:
        message = f"{counted(found.given_up, 'file')} could not be stored and will not be retried."
        return failed(
            "storage queue", message, "weighbridge storage list --failed; docs/runbook.md#storage-queue"
        )
    if found.overdue:
        message = f"{counted(found.overdue, 'file')} waiting for the file store, an hour overdue: no process retries."
        fix = "Start Weighbridge on the machine that holds the files: docs/runbook.md#storage-queue"
        return failed("storage queue", message, fix)
    if found.late:
        message = f"{counted(found.late, 'file')} could not be stored yet."
        return warning("storage queue", message, "Check the file store. Reasons: weighbridge storage list")
    return ok("storage queue", "Every file is stored.")


async def growth(tx: Tx, _: Sequence[Pipeline]) -> Check:
    """Which tables grow, and whether their old records are removed."""
    found = _sentence([_described(each) for each in await doctor.growing_tables(tx) if each.rows])
    days = await doctor.days_since_retention(tx)
    if days is not None and days > RETENTION_DAYS:
        message = f"Old records were last removed {days:,} days ago. {found}"
        return warning("growth", message, "Is a worker running? Immediately: weighbridge clean")
    return ok("growth", found if found != "." else "All tables are empty.")


def _described(table: GrowingTable) -> str:
    age = "" if table.oldest_days is None else f", oldest {counted(table.oldest_days, 'day')}"
    return f"{table.name} {table.rows:,} rows, {table.bytes / 2**20:,.1f} MB{age}"


def _sentence(faults: list[str]) -> str:
    return f"{'; '.join(faults)}."


FIRST: dict[str, Question] = {
    "postgres version": version,
    "clock skew": clock_skew,
    "migrations": migrations,
}
# Only for a database with all migrations.
THEN: dict[str, Question] = {
    "tables": tables,
    "constraints": constraints,
    "roles": roles,
    "row-level security": row_level_security,
    "test clock": shifted_clock,
    "stale runs": stale_runs,
    "dead letters": dead_letters,
    "outbox": outbox,
    "storage queue": storage_queue,
    "growth": growth,
}
