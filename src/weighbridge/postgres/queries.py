"""Named queries: `-- name: claim_upload` in the `.sql` file beside the module that runs it."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(module: str) -> dict[str, LiteralString]:
    """The queries of a module, by name: those of `weighbridge/uploads/queue.sql` for `weighbridge.uploads.queue`."""
    package, _, file = module.rpartition(".")
    text = resources.files(package).joinpath(f"{file}.sql").read_text()
    parts = _NAME.split(text)
    # The files are part of the program, so their text is as literal as any string in it.
    return {
        name: cast(LiteralString, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
