"""Named queries: `-- name: claim_upload` in sql/*.sql, found by that name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(file: str) -> dict[str, LiteralString]:
    """All queries of sql/<file>.sql by name."""
    text = resources.files(__package__).joinpath(f"sql/{file}.sql").read_text()
    parts = _NAME.split(text)
    # The files are part of the program, so their text is as literal as any string in it.
    return {
        name: cast(LiteralString, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
