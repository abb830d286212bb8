"""The schema as one text, for reading and for comparing two databases.

`python -m weighbridge.postgres.schema` prints it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from weighbridge.postgres import embedded
from weighbridge.postgres.migrate import migrate
from weighbridge.postgres.transactions import Database

_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)$\n?", re.MULTILINE)


def dump(url: str) -> str:
    """Tables, functions, rights and policies of a database, without comments and session settings.

    Staging tables and the views on them are omitted: they come from declarations, not migrations.
    """
    left_out = [f"--exclude-table={name}" for name in ("staging.*", "public.staging_rows", "intake.*")]
    done = subprocess.run(
        [embedded.PROGRAMS / "pg_dump", "--schema-only", "--no-owner", *left_out, url],
        check=True,
        capture_output=True,
        text=True,
    )
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", done.stdout)).strip() + "\n"


async def _migrated(url: str) -> None:
    db = Database(url, size=1)
    await db.open()
    async with db.tx() as tx:
        await migrate(tx)
    await db.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="weighbridge-schema-") as folder:
        made = embedded.start(Path(folder), "made")
        asyncio.run(_migrated(made))
        sys.stdout.write(dump(made))
