"""Databases made before `0001_initial`: its tables were created by 22 migrations, which also defined the functions.

A database that has all of them has the same tables as a new one, and becomes version 1. Its functions are applied like
those of any other database.
"""

from __future__ import annotations

from weighbridge.model.errors import ConfigError
from weighbridge.postgres.transactions import Tx, fetch_all

_NAMES = (
    "engine",
    "ads",
    "resume",
    "judgments",
    "operations",
    "projects",
    "keywords",
    "storage",
    "usage",
    "resumable",
    "delivery",
    "slots",
    "browser",
    "preview",
    "faster_delivery",
    "states",
    "direct_delivery",
    "lighter_claims",
    "reading",
    "read_options",
    "fixes",
    "fixed_keys",
)
# Comments that the initial migration words differently.
_COMMENTS = """
COMMENT ON TABLE weighbridge.attempts IS
    'Attempts: the worker, its subject and its lease. A lease_token is never reused.';
COMMENT ON TABLE public.data_uploads IS
    'One row per received file. status is the only source of truth for its state.';
COMMENT ON TABLE public.upload_duplicates IS
    'Files that were received again. They are shown, and not counted.';
COMMENT ON TABLE public.upload_queue IS
    'Files that wait for the store. retry_count = max_retries: an operator must act.';
COMMENT ON TABLE public.offline_conversion_queue IS
    'One row per sale and provider. status is the only source of truth for its state.';
COMMENT ON COLUMN public.offline_conversion_queue.fresh IS
    'True: the row has the current data of its sale. False: the claim reads the sale again.';
COMMENT ON TABLE public.storage_usage IS
    'Bytes stored and files read again, per user. Only functions change the counters.';
COMMENT ON TABLE weighbridge.slots IS
    'Calls to providers that are in flight, by site and provider; empty where Redis counts them.'
"""


async def is_last(tx: Tx) -> bool:
    """Whether the ledger has all of these migrations and no other; ConfigError if it has only some of them."""
    applied = [
        name
        for (name,) in await fetch_all(tx, "SELECT name FROM weighbridge_migrations.applied ORDER BY version")
    ]
    if applied[:1] != [_NAMES[0]]:
        return False
    if applied == list(_NAMES):
        return True
    raise ConfigError(
        f"The database is at migration {len(applied):04}_{applied[-1]} of an earlier numbering. Migrate it with the "
        f"version of Weighbridge whose last migration is {len(_NAMES):04}_{_NAMES[-1]}, then with this one."
    )


async def adopt(tx: Tx, checksum: str) -> None:
    """Record the tables as those of version 1."""
    await tx.execute("DELETE FROM weighbridge_migrations.applied")
    await tx.execute(
        "INSERT INTO weighbridge_migrations.applied (version, name, checksum) VALUES (1, 'initial', %s)",
        (checksum,),
    )
    await tx.execute(_COMMENTS)
