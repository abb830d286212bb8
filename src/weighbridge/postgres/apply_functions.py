"""The SQL functions, triggers and views: one `functions.sql` per subject, the source of truth for their definitions.

`migrate` applies all of them in one transaction whenever one has changed or a migration was applied. Migrations only
create and alter tables. Table definitions call the functions of the first file, so it is also applied before them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import LiteralString

from psycopg import errors, sql

from weighbridge.model.errors import ConfigError
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Tx, fetch_all

SUBJECTS = ("postgres", "engine", "storage", "uploads", "projects", "delivery")  # in the order of layers
SCHEMAS = ("weighbridge", "ingest")  # wholly ours: a function that no file defines is dropped
_IN_PUBLIC = re.compile(r"^CREATE OR REPLACE (?:FUNCTION|VIEW) public\.(\w+)", re.MULTILINE)

# Named queries of this module would be in functions.sql, which has another meaning here.
_NOTE_APPLIED = """
INSERT INTO weighbridge_migrations.functions (digest) VALUES (%s)
ON CONFLICT (one) DO UPDATE SET digest = excluded.digest, applied_at = now()
"""
_FUNCTIONS = """
SELECT p.oid, p.ctid::text FROM pg_proc p
WHERE p.pronamespace = ANY (%s::regnamespace[])
  AND NOT EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e') -- of an extension
"""
_UNCHANGED = """
SELECT p.oid, format('%%I.%%I(%%s)', p.pronamespace::regnamespace, p.proname, pg_get_function_identity_arguments(p.oid))
FROM unnest(%(oids)s::oid[], %(ctids)s::text[]) AS before (oid, ctid)
JOIN pg_proc p ON p.oid = before.oid AND p.ctid::text = before.ctid
ORDER BY 2
"""
_TRIGGERS = """
SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgfoid = %s AND NOT tgisinternal AND tgparentid = 0
"""
_TAKEN = """
SELECT n.name FROM unnest(%s::text[]) AS n (name)
WHERE EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname = n.name)
   OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = n.name)
"""


@dataclass(frozen=True)
class Source:
    subject: str
    sql: LiteralString


@cache
def sources() -> tuple[Source, ...]:
    package = resources.files("weighbridge")
    # The files are part of the program, so their text is as literal as any string in it.
    return tuple(Source(each, package.joinpath(each, "functions.sql").read_text()) for each in SUBJECTS)


def digest() -> str:
    return sha256("\0".join(source.sql for source in sources()).encode()).hexdigest()


async def are_current(tx: Tx) -> bool:
    """Whether the files were last applied with their current text. Needs the ledger of `migrate`."""
    return await fetch_all(tx, "SELECT digest FROM weighbridge_migrations.functions") == [(digest(),)]


async def define_first(tx: Tx) -> None:
    """The functions that table definitions call, before the migrations."""
    await tx.execute("SET LOCAL check_function_bodies = off")  # they call each other across the files
    await tx.execute(sources()[0].sql)


async def apply(tx: Tx) -> None:
    """Create or replace everything that the files define, with its rights; drop functions that no file defines.

    CREATE OR REPLACE keeps rights, so the rights of our roles are revoked first: only the grants of the files remain.
    """
    await tx.execute("SET LOCAL check_function_bodies = off")  # they call each other across the files
    await tx.execute(
        sql.SQL("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {} FROM {}").format(
            _names(SCHEMAS), _names(roles.NAMES)
        )
    )
    before = await fetch_all(tx, _FUNCTIONS, (list(SCHEMAS),))
    for source in sources():
        await tx.execute(source.sql)
    await _drop_undefined(tx, before)
    await tx.execute(_NOTE_APPLIED, (digest(),))


async def refuse_names_in_use(tx: Tx) -> None:
    """CREATE OR REPLACE would overwrite functions and views of the schema public that are not ours."""
    ours = [name for source in sources() for name in _IN_PUBLIC.findall(source.sql)]
    taken = [name for (name,) in await fetch_all(tx, _TAKEN, (ours,))]
    if taken:
        raise ConfigError(
            "The SQL functions cannot be applied: names in the schema public are in use, and not by Weighbridge: "
            f"{', '.join(taken)}. Rename the existing objects, then run the command again. Nothing was changed."
        )


async def _drop_undefined(tx: Tx, before: list[tuple[int, str]]) -> None:
    """A function that a file defines has a new row in pg_proc; one with an unchanged row is no longer defined."""
    params = {"oids": [oid for oid, _ in before], "ctids": [ctid for _, ctid in before]}
    for oid, name in await fetch_all(tx, _UNCHANGED, params):
        for trigger, table in await fetch_all(tx, _TRIGGERS, (oid,)):
            await tx.execute(sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(trigger), sql.SQL(table)))
        try:
            await tx.execute(sql.SQL("DROP ROUTINE {}").format(sql.SQL(name)))
        except errors.DependentObjectsStillExist as error:
            raise ConfigError(
                f"{name} is not part of this version of Weighbridge and cannot be dropped: "
                f"{error.diag.message_detail}. Drop the objects that depend on it, then run the command again. "
                "Nothing was changed."
            ) from error


def _names(names: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
