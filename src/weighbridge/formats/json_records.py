"""Third step of reading JSON: a stream of records → batches of text columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from weighbridge.formats import arrow_batch
from weighbridge.formats.dialect import CountFields, UnknownHeader, refuse_many_columns
from weighbridge.formats.invisible_characters import warning
from weighbridge.formats.json_count import count_records
from weighbridge.formats.json_layout import JsonLayout, find_records, stream
from weighbridge.formats.json_other_members import OtherMembers
from weighbridge.formats.json_values import Element, NotJson, Number, Repeated, without_invisible
from weighbridge.formats.to_utf8 import Utf8File
from weighbridge.model.errors import FileRefused

SAMPLE = 1000  # the keys of the first records are the header
_SURROGATE = re.compile("[\ud800-\udfff]")
BATCH_ROWS = 4096
BATCH_TEXT = 1 << 22


def open_json(text: Utf8File, count_fields: CountFields, *, head_only: bool = False) -> JsonSheet:
    """Find the records and the keys of the first ones; `batches()` reads the rows.

    `head_only`: the text has only the first bytes of a file, cut anywhere.
    """
    layout = find_records(text, count_fields, head_only=head_only)
    sample: list[Element] = []
    with suppress(FileRefused) if head_only else nullcontext():
        sample.extend(islice(stream(text, layout, OtherMembers()), SAMPLE))
    sample = without_invisible(sample)[0]
    if not any(element.text for element in sample):
        raise FileRefused("no_data", "The export is empty: it has no records.")
    header = tuple(dict.fromkeys(key for element in sample if _is_row(element) for key in element.value))
    if not count_fields(header):
        below = [str(v) for element in sample[:3] if _is_row(element) for v in element.value.values()]
        raise UnknownHeader(header, 0, below)
    refuse_many_columns(len(header))
    return JsonSheet(text, layout, header, count_fields)


@dataclass
class JsonSheet:
    """A JSON file. It has no header record, so `header_line` is 0 and `records` counts only rows.

    An object is one row. A missing key and `null` are NULL; numbers keep their text, nested values are JSON text. A key
    that first appears after the first thousand records is not in the header: it goes with its value into `surplus`, as
    a JSON object. A blank line among JSON lines is a row of empty cells. A record that cannot be a row has a `fault`,
    no cells, and its text in `surplus`: a line that is not JSON, a value that is not an object, an object with a key
    twice, and an object with text that Postgres cannot store (NUL, half a surrogate pair).
    """

    text: Utf8File
    layout: JsonLayout
    header: tuple[str, ...]
    count_fields: CountFields
    kind: str = "json"
    delimiter: None = None
    header_line: int = 0
    preamble: tuple[str, ...] = ()
    extra_cells: int = 0
    records: int = field(default=0, init=False)
    # Known after batches() has ended:
    fraction: str = field(default="", init=False)  # the first number with a decimal point
    invisible: int = field(default=0, init=False)  # invisible characters that were removed
    late: dict[str, None] = field(default_factory=dict, init=False)  # keys that first appear after the sample
    nested: dict[str, int] = field(
        default_factory=dict, init=False
    )  # key → first line with an object or list
    _other_members: OtherMembers = field(default_factory=OtherMembers, init=False)

    @property
    def encoding(self) -> str:
        return self.text.encoding

    @property
    def warnings(self) -> Mapping[str, str]:
        """Complete after batches() has ended."""
        found = dict(self.text.warnings)
        if self.late:
            found["late_columns"] = (
                f"The columns are the keys of the first {SAMPLE:,} records. Later records have other keys, which were "
                f"not loaded: {', '.join(repr(key) for key in islice(self.late, 5))}."
            )
        return found | self._other_members.warnings | warning(self.invisible)

    def batches(self) -> Iterator[Any]:
        """Rows in the order of the file, each with the line on which it begins."""
        first = 0
        self.fraction, self.late, self.nested, self._other_members, self.invisible = (
            "",
            {},
            {},
            OtherMembers(),
            0,
        )
        for portion in _portions(stream(self.text, self.layout, self._other_members)):
            elements, removed = without_invisible(portion)
            self.invisible += removed
            yield self._batch(elements, first)
            first += len(elements)
        self._other_members.refuse_records(self.header, self.count_fields)
        self.records = count_records(self.text, self.layout)

    def _batch(self, elements: list[Element], first: int) -> Any:
        width, known = len(self.header), frozenset(self.header)
        blank = dict.fromkeys(self.header, "")
        rows: list[dict[str, Any]] = []
        cells = np.full(len(elements), width, np.int64)
        surplus: list[str | None] = [None] * len(elements)
        faults: list[str | None] = [None] * len(elements)
        for position, element in enumerate(elements):
            if not element.text:
                rows.append(blank)
            elif fault := _fault(element):
                rows.append({})
                cells[position], surplus[position], faults[position] = 0, element.text, fault
            else:
                rows.append(element.value)
                self.fraction = self.fraction or _fraction(element.value)
                if not known.issuperset(element.value):
                    late = {key: value for key, value in element.value.items() if key not in known}
                    cells[position], surplus[position] = width + len(late), _written(late)
                    self.late |= dict.fromkeys(late)
        lines = np.array([element.line for element in elements], np.int64)
        columns = [self._column(key, [row.get(key) for row in rows], lines) for key in self.header]
        return arrow_batch.build(
            first + np.arange(len(elements)),
            lines,
            cells,
            columns,
            pa.array(surplus, pa.string()),
            pa.array(faults, pa.string()),
        )

    def _column(self, key: str, values: list[Any], lines: arrow_batch.Numbers) -> Any:
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowTypeError, pa.ArrowInvalid):  # a list, an object, true or false among them
            places = (place for place, value in enumerate(values) if isinstance(value, dict | list))
            if key not in self.nested and (first := next(places, None)) is not None:
                self.nested[key] = int(lines[first])
            return pa.array([_cell(value) for value in values], pa.string())


def _portions(elements: Iterator[Element]) -> Iterator[list[Element]]:
    portion: list[Element] = []
    size = 0
    for element in elements:
        portion.append(element)
        size += len(element.text)
        if len(portion) == BATCH_ROWS or size >= BATCH_TEXT:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _is_row(element: Element) -> bool:
    return bool(element.text) and not _fault(element)


def _fault(element: Element) -> str:
    """Why the record cannot be a row, a code of model.sheet.FAULTS; empty if it can."""
    match element.value:
        case NotJson():
            return "bad_json"
        case dict() if _repeats(element.value):
            return "duplicate_key"
        case dict() if "\\u" in element.text and not _storable(element.value):
            return "bad_text"
        case dict():
            return ""
        case _:
            return "not_a_record"


def _fraction(record: dict[str, Any]) -> str:
    """A number of the record with a decimal point, the only decimal mark in JSON; empty if there is none."""
    return next((value for value in record.values() if type(value) is Number and "." in value), "")


def _repeats(value: Any) -> bool:
    """Does the value, or a value inside it, have a key twice?"""
    match value:
        case Repeated():
            return True
        case dict():
            return any(_repeats(part) for part in value.values() if isinstance(part, dict | list))
        case list():
            return any(_repeats(part) for part in value if isinstance(part, dict | list))
        case _:
            return False


def _storable(value: Any) -> bool:
    """Can Postgres store it? Escapes may contain NUL and lone surrogates."""
    match value:
        case str():
            return "\0" not in value and not _SURROGATE.search(value)
        case dict():
            return all(_storable(part) for pair in value.items() for part in pair)
        case list():
            return all(map(_storable, value))
        case _:
            return True


def _cell(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _written(value)


def _written(value: Any) -> str:
    """JSON text, with numbers as they are written in the file."""
    match value:
        case Number():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{_written(str(k))}: {_written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_written, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
