"""The database roles, one for each kind of worker. They own nothing and cannot log in."""

from __future__ import annotations

from psycopg import errors, sql

from weighbridge.model.errors import ConfigError
from weighbridge.postgres.pool import Tx, fetch_all
from weighbridge.postgres.queries import load

NAMES = (
    "weighbridge_intake",
    "weighbridge_parse",
    "weighbridge_promote",
    "weighbridge_clean",
    "weighbridge_announce",
    "weighbridge_group",
    "weighbridge_deliver",
    "weighbridge_tenant",
)
_SQL = load(__name__)


async def ensure(tx: Tx) -> None:
    """Make the roles and let the login take them on; ConfigError with what an administrator has to run."""
    await tx.execute("SELECT pg_advisory_xact_lock(hashtext('weighbridge.roles'))")
    try:
        async with tx.transaction():
            for name in await _those(tx, "missing_roles"):
                await tx.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
            for name in await _those(tx, "closed_roles"):
                await tx.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(name)))
    except errors.InsufficientPrivilege as error:
        raise ConfigError(await _errand(tx)) from error
    closed = await _those(tx, "closed_roles")
    if closed:
        raise ConfigError(await _errand(tx))


async def _those(tx: Tx, query: str) -> list[str]:
    return [name for (name,) in await fetch_all(tx, _SQL[query], (list(NAMES),))]


async def _errand(tx: Tx) -> str:
    """What is missing, as statements for somebody who may."""
    [(login,)] = await fetch_all(tx, "SELECT quote_ident(current_user)")
    missing, closed = await _those(tx, "missing_roles"), await _those(tx, "closed_roles")
    statements = [f"CREATE ROLE {name} NOLOGIN;" for name in missing]
    statements.append(f"GRANT {', '.join([*missing, *closed])} TO {login};")
    return (
        f"The login {login} may not take on the roles that Weighbridge's workers act in. "
        f"Have an administrator run: {' '.join(statements)}"
    )
