"""Before times are read: the time zone that a file names above its header, for times without a zone."""

# ruff: noqa: S608 (the zone is a name from DuckDB's list, or consists of digits)

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.rules.check_plan import literal

# An abbreviation is ambiguous, although DuckDB accepts it: EST is in America and in Australia.
_ABBREVIATION = re.compile(r"(?!UTC|GMT)[A-Za-z]{3}(?:[0-9][A-Za-z]{3})?", re.IGNORECASE)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")


@contextmanager
def applied(db: Any, pipeline: Pipeline, preamble: Sequence[str]) -> Iterator[None]:
    """Set this time zone for the connection. Raises FileRefused: `unknown_time_zone`."""
    named = named_above(pipeline, preamble)
    if named is None:
        yield
        return
    zone = _OFFSET.sub(r"GMT\1\2:\3", named) if _OFFSET.fullmatch(named) else named
    known = db.execute(f"SELECT count(*) FROM pg_timezone_names() WHERE lower(name) = lower({literal(zone)})")
    if zone == named and (_ABBREVIATION.fullmatch(zone) or not known.fetchall()[0][0]):
        raise FileRefused(
            "unknown_time_zone",
            f"Expected a time zone such as Europe/Berlin or +0100 above the header, got {named[:60]!r}. "
            "Correct it, or write a zone after every time.",
        )
    db.execute(f"SET TimeZone = {literal(zone)}")
    yield
    db.execute("SET TimeZone = 'UTC'")  # Arrow, which receives the rows, does not know every zone


def named_above(pipeline: Pipeline, preamble: Sequence[str]) -> str | None:
    """The zone as it is written in the file, or None."""
    lines = preamble if pipeline.zone_above else ()
    return next((found[1] for line in lines if (found := re.search(pipeline.zone_above, line))), None)
