"""Outside of a check: applies normalisers to a few texts, with the same result as in a file."""

# ruff: noqa: S608 (the SQL is that of the rules)

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.rule import Normaliser


def apply_rules(texts: Sequence[str], rules: Sequence[Normaliser]) -> list[str | None]:
    """Each text after all rules. Blocking: DuckDB needs about 30 ms to plan the query."""
    # Imported here: every command imports the pipelines, few commands read files, and these imports take 0.3 s.
    import pyarrow as pa

    from weighbridge.rules import duckdb_connection
    from weighbridge.rules.check_plan import Locale, composed

    with duckdb_connection.shared() as db:
        place = pa.array(range(len(texts)), pa.int64())
        db.register("texts", pa.table({"place": place, "x": pa.array(texts, pa.string())}))
        sql = composed(tuple(rules), "x", Locale())
        return [made for (made,) in db.execute(f"SELECT {sql} FROM texts ORDER BY place").fetchall()]
