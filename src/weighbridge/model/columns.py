"""What became of each column of a file, and which expected fields it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ColumnUse:
    """One column of the file, in its order."""

    header: str
    use: str  # mapped: it fills fields; kept: it is read for another purpose, see `note`; unused
    fields: tuple[str, ...] = ()  # "campaign.name": the fields that it fills
    note: str = ""  # what a kept column is read for


@dataclass(frozen=True)
class MissingField:
    """A field that the pipeline expects, and no column of the file fills."""

    field: str
    header: str  # the header that it is best known by
    guess: str = ""  # a column of the file that is close to it


@dataclass(frozen=True)
class ColumnReport:
    """All columns of a file and what is missing."""

    columns: tuple[ColumnUse, ...] = ()
    missing: tuple[MissingField, ...] = ()
    filled: tuple[str, ...] = ()  # every column of production that the file has a value for: "judgment.court"

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ColumnReport:
        """From what `as_dict` gave."""
        return cls(
            tuple(
                ColumnUse(**{**each, "fields": tuple(each["fields"])}) for each in stored.get("columns", ())
            ),
            tuple(MissingField(**each) for each in stored.get("missing", ())),
            tuple(stored.get("filled", ())),
        )

    def filled_of(self, entity: str) -> frozenset[str] | None:
        """The columns of an entity that the file has; None where that is not known: of uploads from before."""
        lead = f"{entity}."
        found = frozenset(name.removeprefix(lead) for name in self.filled if name.startswith(lead))
        return found if self.filled else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


NO_COLUMNS = ColumnReport()
