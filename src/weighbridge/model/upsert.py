"""What happens when a row is already there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upsert:
    """`update` is the new value of a column, over `{old}` and `{new}`; None leaves existing rows alone."""

    name: str
    update: str | None

    def __repr__(self) -> str:
        return f"upsert.{self.name}"


replace = Upsert("replace", "{new}")
keep_known_values = Upsert("keep_known_values", "coalesce({new}, {old})")
insert_only = Upsert("insert_only", None)
