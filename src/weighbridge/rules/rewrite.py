"""Normalisers on a few texts outside of a file, with the same result as in one."""

# ruff: noqa: S608 (the SQL is that of the rules)

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.rule import Normaliser


def rewritten(texts: Sequence[str], rules: Sequence[Normaliser]) -> list[str | None]:
    """Each text after all the rules. Blocking: planning alone takes DuckDB some 30 ms."""
    # Here, for pipelines are part of every command, and few commands read files: these take a third of a second.
    import pyarrow as pa

    from weighbridge.rules import database
    from weighbridge.rules.plan import Locale, composed

    with database.shared() as db:
        place = pa.array(range(len(texts)), pa.int64())
        db.register("texts", pa.table({"place": place, "x": pa.array(texts, pa.string())}))
        sql = composed(tuple(rules), "x", Locale())
        return [made for (made,) in db.execute(f"SELECT {sql} FROM texts ORDER BY place").fetchall()]
