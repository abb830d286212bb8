"""A DuckDB connection for one check. Its tables are temporary, so checks never see one another's."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

import duckdb

_ALWAYS = {
    "arrow_lossless_conversion": "true",  # UUIDs leave as UUIDs
    "disabled_optimizers": "join_order",  # joins run as they are written: the small side is known
}

_lock = threading.Lock()
_instances: dict[int, duckdb.DuckDBPyConnection] = {}


def own(scratch: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    """A database of its own, with its own limits, that spills to `scratch`."""
    return duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": memory_limit,
            "temp_directory": str(scratch),
            **_ALWAYS,
        }
    )


def shared() -> duckdb.DuckDBPyConnection:
    """A connection to the database that small files share: opening one takes longer than checking them."""
    with _lock:
        if os.getpid() not in _instances:  # a forked child must not use its parent's threads
            _instances[os.getpid()] = duckdb.connect(
                config={"threads": 1, "memory_limit": "200MB", **_ALWAYS}
            )
        return _instances[os.getpid()].cursor()


@atexit.register
def _close() -> None:
    for instance in _instances.values():
        instance.close()
