"""What an upsert does when a row already exists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upsert:
    """`update` is the new value of a column, over `{old}` and `{new}`; None never changes existing rows.

    `repeats` does the same for records of one file with the same key: a DuckDB aggregate over `{x}`. Without it,
    records with the same key and different values contradict each other and are rejected.

    `late` is the new value where the row of the file comes late: the existing row is of a file that arrived later. The
    default leaves the existing row as it is. `ordered`: the result depends on the order of files.
    """

    name: str
    update: str | None
    repeats: str | None = None
    late: str = "{old}"
    ordered: bool = True

    def __repr__(self) -> str:
        return f"upsert.{self.name}"


replace = Upsert("replace", "{new}")
keep_known_values = Upsert("keep_known_values", "coalesce({new}, {old})", late="coalesce({old}, {new})")
insert_only = Upsert("insert_only", None, late="{new}")
# The result does not depend on the order of files and records. Texts compare byte by byte.
keep_greatest = Upsert(
    "keep_greatest",
    "greatest({new}, {old})",
    repeats="max({x})",
    late="greatest({new}, {old})",
    ordered=False,
)
