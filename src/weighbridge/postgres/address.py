"""Checks that a Postgres answers at an address. Messages never repeat the address: it may contain a password."""

from __future__ import annotations

import re

import psycopg

from weighbridge.model.errors import ConfigError, WeighbridgeError
from weighbridge.postgres.connections import connect


async def reach(url: str) -> None:
    """Connect once; ConfigError if that fails."""
    try:
        await (await connect(url)).close()
    except WeighbridgeError as error:
        raise ConfigError(f"DATABASE_URL: {_why_not(error.__cause__)}") from error
    except psycopg.ProgrammingError:
        # libpq quotes what it cannot parse.
        raise ConfigError(
            "DATABASE_URL: expected postgresql://user@host/database, got something else."
        ) from None


def _why_not(error: object) -> str:
    """libpq's reason. If an address is mistyped, its parts may be in the wrong place, so none is shown."""
    answer = re.search(r"(?:FATAL|ERROR): +(.+)", str(error))
    if answer:
        return f"the server answered: {answer[1].rstrip('.')}."
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return "it did not answer in time. Check the address, the firewall and the server."
    reason = re.search(r".* failed: (.+)", str(error))
    detail = f" ({reason[1].rstrip('.')})" if reason else ""
    return f"no Postgres answers there{detail}. Check that it is running and that the address is correct."
