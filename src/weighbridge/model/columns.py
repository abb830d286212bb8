"""The use of each column of a file, and the expected fields that it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ColumnUse:
    """One column of the file, in its order."""

    header: str
    use: str  # mapped: fills fields; kept: has another purpose, see `note`; unused
    fields: tuple[str, ...] = ()  # "campaign.name": fields that the column fills
    note: str = ""  # purpose of a kept column


@dataclass(frozen=True)
class MissingField:
    """An expected field that no column of the file fills."""

    field: str
    header: str  # its usual header
    guess: str = ""  # a column of the file with a similar name


@dataclass(frozen=True)
class ColumnReport:
    """All columns of a file and what is missing."""

    columns: tuple[ColumnUse, ...] = ()
    missing: tuple[MissingField, ...] = ()
    filled: tuple[str, ...] = ()  # every production column that the file has: "judgment.court"

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ColumnReport:
        """From the result of `as_dict`."""
        return cls(
            tuple(
                ColumnUse(**{**each, "fields": tuple(each["fields"])}) for each in stored.get("columns", ())
            ),
            tuple(MissingField(**each) for each in stored.get("missing", ())),
            tuple(stored.get("filled", ())),
        )

    def filled_of(self, entity: str) -> frozenset[str] | None:
        """The columns of an entity that the file has; None if unknown: for uploads of older versions."""
        lead = f"{entity}."
        found = frozenset(name.removeprefix(lead) for name in self.filled if name.startswith(lead))
        return found if self.filled else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


NO_COLUMNS = ColumnReport()
