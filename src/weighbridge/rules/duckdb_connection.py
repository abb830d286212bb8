"""Called by run_checks.py: a DuckDB connection for one check. All tables are temporary, so checks are isolated."""

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
    "arrow_lossless_conversion": "true",  # keep UUIDs as UUIDs
    # Joins run in the written order, because the small side is known. Lists of constants are not turned into joins.
    "disabled_optimizers": "join_order,in_clause",
}
_lock = threading.Lock()
_instances: dict[int, duckdb.DuckDBPyConnection] = {}  # by process: a forked child must not use its parent's


def own(scratch: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    """A separate database with these limits, which spills to `scratch`."""
    return _set_up(_open(scratch, memory_limit, threads))


def shared() -> duckdb.DuckDBPyConnection:
    """A connection to the database that small files share: opening one takes longer than checking a small file."""
    with _lock:
        if os.getpid() not in _instances:
            # DuckDB creates this folder only if it spills.
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
    # Functions belong to the database: every connection has them.
    connection.create_function("nfkc_normalize", _nfkc, ["VARCHAR"], "VARCHAR", type=PythonUDFType.ARROW)
    connection.create_function("fold_header", _folded, ["VARCHAR"], "VARCHAR", type=PythonUDFType.ARROW)
    return connection


def _folded(headers: Any) -> Any:
    return pa.array([None if each is None else fold(each) for each in headers.to_pylist()], pa.string())


def _nfkc(texts: Any) -> Any:
    """DuckDB has only NFC. ASCII text is equal in every form."""
    return texts if pc.all(pc.string_is_ascii(texts)).as_py() else pc.utf8_normalize(texts, form="NFKC")


def _set_up(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Settings that belong to one connection."""
    connection.execute("SET TimeZone = 'UTC'")  # a time without a zone means the same on every machine
    connection.execute("SET enable_progress_bar = false")  # stdout is for results
    return connection


@atexit.register
def _close() -> None:
    instance = _instances.pop(os.getpid(), None)
    if instance is not None:
        instance.close()
