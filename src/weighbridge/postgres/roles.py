"""The database roles, one for each kind of worker. They own nothing and cannot log in."""

from __future__ import annotations

from psycopg import errors, sql

from weighbridge.model.errors import ConfigError
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

INTAKE = "weighbridge_intake"
PARSE = "weighbridge_parse"
PROMOTE = "weighbridge_promote"
CLEAN = "weighbridge_clean"
ANNOUNCE = "weighbridge_announce"
GROUP = "weighbridge_group"
DELIVER = "weighbridge_deliver"
TENANT = "weighbridge_tenant"  # reads one workspace
NAMES = (INTAKE, PARSE, PROMOTE, CLEAN, ANNOUNCE, GROUP, DELIVER, TENANT)
_SQL = load(__name__)


async def ensure(tx: Tx) -> None:
    """Create the roles and let the login use them; ConfigError with the statements for an administrator."""
    await tx.execute("SELECT pg_advisory_xact_lock(hashtext('weighbridge.roles'))")
    try:
        async with tx.transaction():
            for name in await missing(tx):
                await tx.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
            for name in await closed(tx):
                await tx.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(name)))
    except errors.InsufficientPrivilege as error:
        raise ConfigError(await _missing_grants(tx)) from error
    if await closed(tx):
        raise ConfigError(await _missing_grants(tx))


async def missing(tx: Tx) -> list[str]:
    """Roles that do not exist."""
    return [name for (name,) in await fetch_all(tx, _SQL["missing_roles"], (list(NAMES),))]


async def closed(tx: Tx) -> list[str]:
    """Roles that this login cannot SET ROLE to."""
    return [name for (name,) in await fetch_all(tx, _SQL["closed_roles"], (list(NAMES),))]


async def _missing_grants(tx: Tx) -> str:
    """What is missing, as statements for an administrator."""
    [(login,)] = await fetch_all(tx, "SELECT quote_ident(current_user)")
    to_create, to_grant = await missing(tx), await closed(tx)
    statements = [f"CREATE ROLE {name} NOLOGIN;" for name in to_create]
    statements.append(f"GRANT {', '.join([*to_create, *to_grant])} TO {login};")
    return (
        f"The login {login} may not use the roles of Weighbridge's workers. "
        f"Have an administrator run: {' '.join(statements)}"
    )
