"""Checks that a Postgres answers at an address. Messages never repeat the address: it may contain a password."""

from __future__ import annotations

import re

import psycopg

from weighbridge.model.errors import ConfigError, WeighbridgeError
from weighbridge.postgres.pool import connect


async def reach(url: str) -> None:
    """Connect once; ConfigError where that cannot be done."""
    try:
        await (await connect(url)).close()
    except WeighbridgeError as error:
        raise ConfigError(f"DATABASE_URL: {_why_not(error.__cause__)}") from error
    except psycopg.ProgrammingError:
        # libpq quotes what it cannot read.
        raise ConfigError(
            "DATABASE_URL: expected postgresql://user@host/database, got something that is no such address."
        ) from None


def _why_not(error: object) -> str:
    """libpq's reason. Where an address is mistyped its parts are not what they seem to be, so none is shown."""
    answer = re.search(r"(?:FATAL|ERROR): +(.+)", str(error))
    if answer:
        return f"the server answered: {answer[1].rstrip('.')}."
    reason = re.search(r".* failed: (.+)", str(error))
    told = f" ({reason[1].rstrip('.')})" if reason else ""
    return f"no Postgres answers there{told}. Is it running, is the address right?"
