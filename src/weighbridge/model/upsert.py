"""What happens when a row is already there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upsert:
    """`update` is the new value of a column, over `{old}` and `{new}`; None leaves existing rows alone.

    `repeats` does the same for records of one file that have the same key: a DuckDB aggregate over `{x}`. Without it
    records that differ in their values contradict each other, and are rejected.
    """

    name: str
    update: str | None
    repeats: str | None = None

    def __repr__(self) -> str:
        return f"upsert.{self.name}"


replace = Upsert("replace", "{new}")
keep_known_values = Upsert("keep_known_values", "coalesce({new}, {old})")
insert_only = Upsert("insert_only", None)
# Whatever the order of files and records, the same is left of them. Texts compare byte by byte.
keep_greatest = Upsert("keep_greatest", "greatest({new}, {old})", repeats="max({x})")
