"""Called by json_layout.py: the members of the outer object other than the list of records, as in
`{"data": […], "paging": {…}}`.

They are not loaded. A next page and other lists of objects give a warning. A list with columns of the pipeline may
contain records, so the file is refused, unless the list has a name such as `summary`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from weighbridge.model.errors import FileRefused

WRAPPERS = frozenset({"data", "rows", "results", "items", "records"})
_NO_RECORDS = frozenset(
    {
        "summary",
        "summaries",
        "total",
        "totals",
        "errors",
        "warnings",
        "columns",
        "fields",
        "headers",
        "schema",
    }
)
_PAGES = frozenset(
    {
        "paging",
        "pagination",
        "next",
        "nextPageToken",
        "next_page_token",
        "next_page",
        "next_cursor",
        "has_more",
    }
)
_SHOWN = 5


@dataclass
class OtherMembers:
    """Complete after the whole file was read."""

    records: str = ""  # the name of the list of records
    pages: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, set[str]] = field(
        default_factory=dict
    )  # other lists of objects: name → all keys of the objects

    def add_object(self, name: str, value: Mapping[str, Any]) -> None:
        """Add an object of the list with this name."""
        self.lists.setdefault(name, set()).update(value)

    def add_member(self, name: str, value: Any) -> None:
        """Add a member that is not a list."""
        if name in _PAGES:
            self.pages[name] = value
        self._add_lists(name, value)

    def _add_lists(self, name: str, value: Any) -> None:
        match value:
            case dict():
                for key, part in value.items():
                    self._add_lists(f"{name}.{key}", part)
            case list():
                for part in value:
                    if isinstance(part, dict):
                        self.add_object(name, part)

    def refuse_records(self, header: Sequence[str], count_fields: Callable[[Sequence[str]], int]) -> None:
        """Refuse a second list that may contain records: it would not be loaded."""
        columns = count_fields(header)
        for path, keys in self.lists.items():
            known, name = count_fields(tuple(keys)), path.rpartition(".")[2]
            if name not in _NO_RECORDS and (2 * known > columns or (known and name in WRAPPERS)):
                raise FileRefused(
                    "several_tables",
                    f"The lists {self.records!r} and {path!r} both have columns of the pipeline, so both may contain "
                    "records. Put all records into one list, or load each list as a separate file.",
                )

    @property
    def warnings(self) -> dict[str, str]:
        found = {}
        if self.lists:
            names = ", ".join(repr(name) for name in islice(self.lists, _SHOWN))
            more = f" and {len(self.lists) - _SHOWN} more" if len(self.lists) > _SHOWN else ""
            found["lists_not_loaded"] = (
                f"Only the list {self.records!r} was loaded. Other lists of objects were not loaded: {names}{more}."
            )
        if page := _next_page(self.pages):
            found["more_pages"] = (
                f"The file is one page of a larger result: {page!r} refers to the next page. Load the other pages too."
            )
        return found


def _next_page(pages: Mapping[str, Any]) -> str:
    """The member that refers to the next page; empty for the last or only page."""
    for name, value in pages.items():
        if isinstance(value, dict):
            inner = _next_page({key: part for key, part in value.items() if key in _PAGES})
            if inner:
                return f"{name}.{inner}"
        elif value and value != "0":
            return name
    return ""
