"""What an upsert does when a row already exists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upsert:
    """`update` is the new value of a column, over `{old}` and `{new}`; None never changes existing rows.

    `repeats` does the same for records of one file with the same key: a DuckDB aggregate over `{x}`. Without it,
    records with the same key and different values contradict each other and are rejected.
    """

    name: str
    update: str | None
    repeats: str | None = None

    def __repr__(self) -> str:
        return f"upsert.{self.name}"


replace = Upsert("replace", "{new}")
keep_known_values = Upsert("keep_known_values", "coalesce({new}, {old})")
insert_only = Upsert("insert_only", None)
# The result does not depend on the order of files and records. Texts compare byte by byte.
keep_greatest = Upsert("keep_greatest", "greatest({new}, {old})", repeats="max({x})")
