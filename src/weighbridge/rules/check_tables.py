"""Called by run_checks.py: the tables of one check, in DuckDB. All are temporary, so checks are isolated.

A large file has a database of its own, with real tables (Tables). For a small file, DuckDB would plan its statements
five times as long as run them, so plans are kept from one file to the next (KeptPlans). DuckDB plans a prepared
statement again if it reads a table that has changed, but not if it reads Arrow data: so the tables of a small file are
Arrow tables, and its connection is used again for the next file with the same header.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from weighbridge.rules import duckdb_connection
from weighbridge.rules.check_plan import literal

KEPT_LAYOUTS = 12  # idle connections with plans, each for one header
KEPT_STATEMENTS = 100  # of each connection; the check of a usual file has thirty

# The copy that it warns of has few rows, and costs less than the way that it recommends.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result makes an extra copy", UserWarning)


class Tables:
    """The tables of a large file, or of a small one whose rows are changed after they were made."""

    def __init__(self, connection: duckdb.DuckDBPyConnection | None, values: Mapping[str, str]) -> None:
        self._connection = connection
        self._values = values

    def value(self, name: str) -> str:
        """SQL: a text that is the same for all records, such as the id of the upload."""
        return literal(self._values[name])

    def make(self, name: str, select: str) -> None:
        """Make a table, or make it again, from a query."""
        self.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {select}")

    def register(self, name: str, data: Any) -> None:
        """Make Arrow data readable under a name."""
        self._opened.register(name, data)

    def unregister(self, name: str) -> None:
        self._opened.unregister(name)

    def drop(self, name: str) -> None:
        self.execute(f"DROP TABLE {name}")

    def execute(self, sql: str) -> Any:
        return self._opened.execute(sql)

    def batches(self, select: str, rows: int) -> Iterator[Any]:
        """The result as Arrow batches of at most this many rows. One at a time: DuckDB streams one per connection."""
        yield from self._opened.sql(select).to_arrow_reader(rows)

    def numbered(self, table: str) -> str:
        """SQL: the table with a column `rowid`, the position of each row in it, from 0."""
        return table

    def close(self) -> None:
        self.discard()

    def discard(self) -> None:
        """Close after a failure: nothing is used again."""
        if self._connection is not None:
            self._connection.close()

    @property
    def _opened(self) -> duckdb.DuckDBPyConnection:
        assert self._connection is not None
        return self._connection


class KeptPlans(Tables):
    """The tables of a small file, as Arrow tables, with the plans of earlier files.

    The first statement that is not a query moves them to another connection, where they are real tables until the
    end of the check: UPDATE and SET are for unusual files.
    """

    def __init__(self, layout: Hashable, values: Mapping[str, str]) -> None:
        super().__init__(None, values)
        self._layout: _Layout | None = _borrow(layout)
        self.register("scope", pa.table({name: [value] for name, value in values.items()}))

    def value(self, name: str) -> str:
        return f"(SELECT {name} FROM scope)"  # noqa: S608

    def make(self, name: str, select: str) -> None:
        made = self._layout and self._layout.run(select).to_arrow_table()
        if self._layout is None or not self._layout.show(name, made, made=True):
            self._move()
            super().make(name, select)

    def register(self, name: str, data: Any) -> None:
        table = data.read_all() if isinstance(data, pa.RecordBatchReader) else data
        if self._layout is None or not self._layout.show(name, table):
            self._move()
            super().register(name, table)

    def unregister(self, name: str) -> None:
        if self._layout is not None:
            self._layout.data[name].table = None
        else:
            super().unregister(name)

    def drop(self, name: str) -> None:
        if self._layout is not None:
            self._layout.data[name].table = None
        else:
            super().drop(name)

    def execute(self, sql: str) -> Any:
        if self._layout is not None and sql.lstrip().startswith("SELECT"):
            return self._layout.run(sql)
        self._move()
        return super().execute(sql)

    def batches(self, select: str, rows: int) -> Iterator[Any]:
        yield from self.execute(select).to_arrow_table().to_batches(max_chunksize=rows)

    def numbered(self, table: str) -> str:
        if self._layout is None:
            return table
        return f"(SELECT *, row_number() OVER () - 1 AS rowid FROM {table})"  # noqa: S608

    def close(self) -> None:
        if self._layout is not None:
            _give_back(self._layout)
            self._layout = None
        super().close()

    def discard(self) -> None:
        if self._layout is not None:
            self._layout.connection.close()
            self._layout = None
        super().discard()

    def _move(self) -> None:
        if self._layout is None:
            return
        self._connection = duckdb_connection.shared()
        for name, data in self._layout.data.items():
            if data.table is not None and data.made:
                self._connection.register("moved", data.table)
                self._connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM moved")  # noqa: S608
                self._connection.unregister("moved")
            elif data.table is not None:
                self._connection.register(name, data.table)
        _give_back(self._layout)
        self._layout = None


class _Data:
    """What a name shows at the moment. DuckDB asks for it whenever a statement runs."""

    def __init__(self, table: Any, *, made: bool) -> None:
        self.schema = table.schema
        self.table = table
        self.made = made  # by a query; otherwise it is registered

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        assert self.table is not None, "this table was not made"
        return self.table.__arrow_c_stream__(requested_schema)


class _Layout:
    """A connection for files with the same header. Its prepared statements read the data that a name shows."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.connection = duckdb_connection.shared()
        self.data: dict[str, _Data] = {}
        self.prepared: OrderedDict[str, str] = OrderedDict()  # statement → its name
        self._count = 0

    def show(self, name: str, table: Any, *, made: bool = False) -> bool:
        """False: the statements that read this name were planned for other columns."""
        if name not in self.data:
            self.data[name] = _Data(table, made=made)
            self.connection.register(name.strip('"'), self.data[name])
        elif self.data[name].schema != table.schema:
            return False
        self.data[name].table = table
        return True

    def run(self, select: str) -> Any:
        if select not in self.prepared:
            self._count += 1
            name = f"kept_{self._count}"
            self.connection.execute(f"PREPARE {name} AS {select}")
            self.prepared[select] = name
            if len(self.prepared) > KEPT_STATEMENTS:
                self.connection.execute(f"DEALLOCATE {self.prepared.popitem(last=False)[1]}")
        self.prepared.move_to_end(select)
        return self.connection.execute(f"EXECUTE {self.prepared[select]}")

    def clear(self) -> None:
        for data in self.data.values():
            data.table = None


_lock = threading.Lock()
_idle: list[_Layout] = []  # the one that was used last is at the end


def _borrow(key: Hashable) -> _Layout:
    key = (os.getpid(), key)  # a forked child must not use its parent's
    with _lock:
        for layout in reversed(_idle):
            if layout.key == key:
                _idle.remove(layout)
                return layout
    return _Layout(key)


def _give_back(layout: _Layout) -> None:
    layout.clear()
    with _lock:
        _idle.append(layout)
        oldest = _idle.pop(0) if len(_idle) > KEPT_LAYOUTS else None
    if oldest is not None:
        oldest.connection.close()


@atexit.register
def forget_plans() -> None:
    """Close the idle connections."""
    with _lock:
        for layout in _idle:
            layout.connection.close()
        _idle.clear()
