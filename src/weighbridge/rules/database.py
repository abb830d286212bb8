"""A DuckDB connection for one check. Its tables are temporary, so checks never see one another's."""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import PythonUDFType

from weighbridge.rules.headers import fold

_ALWAYS = {
    "arrow_lossless_conversion": "true",  # UUIDs leave as UUIDs
    # Joins run as they are written: the small side is known. A list of constants is no table to join.
    "disabled_optimizers": "join_order,in_clause",
}
_lock = threading.Lock()
_instances: dict[int, duckdb.DuckDBPyConnection] = {}  # by process: a forked child must not use its parent's


def own(scratch: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    """A database of its own, with its own limits, that spills to `scratch`."""
    return _set_up(_open(scratch, memory_limit, threads))


def shared() -> duckdb.DuckDBPyConnection:
    """A connection to the database that small files share: opening one takes longer than checking them."""
    with _lock:
        if os.getpid() not in _instances:
            # DuckDB makes this folder only when it has to.
            scratch = Path(tempfile.gettempdir()) / f"weighbridge-{os.getpid()}"
            _instances[os.getpid()] = _open(scratch, "200MB", threads=1)
        return _set_up(_instances[os.getpid()].cursor())


def _open(scratch: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    limits: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": memory_limit,
        "temp_directory": str(scratch),
    }
    connection = duckdb.connect(config=limits | _ALWAYS)
    # Of the whole database: every connection to it has the function.
    connection.create_function("nfkc_normalize", _nfkc, ["VARCHAR"], "VARCHAR", type=PythonUDFType.ARROW)
    connection.create_function("fold_header", _folded, ["VARCHAR"], "VARCHAR", type=PythonUDFType.ARROW)
    return connection


def _folded(headers: Any) -> Any:
    return pa.array([None if each is None else fold(each) for each in headers.to_pylist()], pa.string())


def _nfkc(texts: Any) -> Any:
    """DuckDB has NFC only. ASCII is what it is in any form."""
    return texts if pc.all(pc.string_is_ascii(texts)).as_py() else pc.utf8_normalize(texts, form="NFKC")


def _set_up(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """What can be set only for one connection."""
    connection.execute("SET TimeZone = 'UTC'")  # a time without a zone means the same on every machine
    connection.execute("SET enable_progress_bar = false")  # stdout is for results
    return connection


@atexit.register
def _close() -> None:
    instance = _instances.pop(os.getpid(), None)
    if instance is not None:
        instance.close()
