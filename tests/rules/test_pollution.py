"""Clean tables, damaged at random: every staged row is a true row. What is damaged is rejected, or the file is refused.

The kinds of damage are those of the Pollock benchmark and of files as people have them: separators, quotes, line ends,
headers, preambles, widths, encodings, pasted and cut files. `python -m bench.pollock` runs the benchmark's own files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.checking import Outcome, check_file
from tests.proof.workers import LONG
from weighbridge import Entity, Field, Pipeline, n
from weighbridge.formats import UnknownHeader
from weighbridge.model.errors import FileRefused

HEADER = ("Order No", "Customer", "Amount", "Day", "Note")
NAMES = ("order_no", "customer", "amount", "day", "note")
WORDS = [
    "Plain",
    "Ärger & Söhne",
    'the "best"',
    "a, b",
    "x; y",
    "tab\there",
    "two\nlines",
    "O'Neil",
    "",
    "5 % off",
]

Row = tuple[str, ...]


def pipeline(typed: bool) -> Pipeline:
    amount = Field("amount", Decimal, header=["Amount"]) if typed else Field("amount", header=["Amount"])
    day = Field("day", date, header=["Day"], normalise=[n.date]) if typed else Field("day", header=["Day"])
    fields = [
        Field("order_no", header=["Order No"], required=True),
        Field("customer", header=["Customer"]),
        amount,
        day,
        Field("note", header=["Note"]),
    ]
    return Pipeline("polluted", [Entity("polluted", ["order_no"], fields)], min_valid=0)


@dataclass(frozen=True)
class Written:
    """A file as its records: each the text of one, without its line end."""

    header: str
    records: tuple[str, ...]
    delimiter: str
    end: str
    before: tuple[str, ...] = ()
    behind: str = ""
    encoding: str = "utf-8"
    cut: bool = False  # its last record is not whole
    damaged: frozenset[int] = frozenset()  # records: two faults in one may make up for each other

    def data(self) -> bytes:
        lines = [*self.before, self.header, *self.records]
        text = self.end.join(lines) + ("" if self.cut else self.end) + self.behind
        return text.encode(self.encoding, "ignore")  # windows-1252 has no invisible characters


Damage = Callable[[Written, Random], Written]


def write(rows: list[Row], random: Random) -> Written:
    delimiter = random.choice([",", ";", "\t", "|"])
    quoting: Any = random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])

    def line(cells: Row) -> str:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerow(cells)
        return out.getvalue().removesuffix("\r\n")

    end = random.choice(["\n", "\r\n"])
    return Written(line(HEADER), tuple(map(line, rows)), delimiter, end)


def in_one_record(change: Callable[[str, Written, Random], str]) -> Damage:
    def damage(file: Written, random: Random) -> Written:
        place = random.choice(sorted({*range(len(file.records))} - file.damaged))
        changed = change(file.records[place], file, random)
        records = (*file.records[:place], changed, *file.records[place + 1 :])
        return replace(file, records=records, damaged=file.damaged | {place})

    return damage


def without_a(character: str, record: str, random: Random) -> str:
    places = [place for place, each in enumerate(record) if each == character]
    if not places:
        return record
    place = random.choice(places)
    return record[:place] + record[place + 1 :]


def with_a(character: str, record: str, random: Random) -> str:
    place = random.randint(0, len(record))
    return record[:place] + character + record[place:]


def broken_line(record: str, file: Written, random: Random) -> str:
    """Not in the first cell and not in the last: one of the two lines would look like a whole record."""
    first, last = record.find(file.delimiter) + 1, record.rfind(file.delimiter)
    if first >= last:  # a blank line, or one that lost its separators
        return record
    return record[:first] + with_a("\n", record[first:last], random) + record[last:]


def pasted(file: Written, random: Random) -> Written:
    return replace(file, records=(*file.records, file.header, *file.records[: random.randint(0, 5)]))


def other_table(file: Written, random: Random) -> Written:
    names = [HEADER[place] for place in (3, 0, 2, 1, 4)]
    rows = [file.delimiter.join(["2025-01-01", f"X{place}", "1", "Customer", "Note"]) for place in range(3)]
    return replace(file, records=(*file.records, file.delimiter.join(names), *rows))


def in_two_encodings(file: Written, random: Random) -> Written:
    return replace(file, encoding="mixed")


def cut(file: Written, random: Random) -> Written:
    *records, last = file.records
    return replace(file, records=(*records, last[: random.randint(0, len(last))]), cut=True)


DAMAGES: dict[str, Damage] = {
    "separator lost": in_one_record(lambda record, file, random: without_a(file.delimiter, record, random)),
    "separator added": in_one_record(lambda record, file, random: with_a(file.delimiter, record, random)),
    "separator at the end": in_one_record(lambda record, file, random: record + file.delimiter),
    "quote lost": in_one_record(lambda record, file, random: without_a('"', record, random)),
    "quote added": in_one_record(lambda record, file, random: with_a('"', record, random)),
    "quotes in two records": lambda file, random: DAMAGES["quote added"](
        DAMAGES["quote added"](file, random), random
    ),
    "line end added": in_one_record(broken_line),
    "record with another separator": in_one_record(
        lambda record, file, random: record.replace(file.delimiter, " ")
    ),
    "separator lost in the header": lambda file, random: replace(
        file, header=without_a(file.delimiter, file.header, random)
    ),
    "separator added in the header": lambda file, random: replace(
        file, header=with_a(file.delimiter, file.header, random)
    ),
    "quote added in the header": lambda file, random: replace(file, header=with_a('"', file.header, random)),
    "no header": lambda file, random: replace(file, header=file.records[0], records=file.records[1:]),
    "preamble": lambda file, random: replace(file, before=("Orders", "2025", "")),
    "totals": lambda file, random: replace(
        file, records=(*file.records, file.delimiter.join(["Total", "", "99.5", "", ""]))
    ),
    "blank records": lambda file, random: replace(
        file, records=(*file.records, "", file.delimiter * 4, "  ")
    ),
    "pasted twice": pasted,
    "another table": other_table,
    "end of file mark": lambda file, random: replace(file, behind="\x1a"),
    "invisible characters": in_one_record(lambda record, file, random: with_a("\u200b", record, random)),
    "windows-1252": lambda file, random: replace(file, encoding="cp1252"),
    "utf-16": lambda file, random: replace(file, encoding="utf-16"),
    "two encodings": in_two_encodings,
    "cut off": cut,
}


def clean_rows(random: Random) -> list[Row]:
    count = random.randint(5, 30)
    return [
        (
            f"A-{place:03}",
            random.choice(WORDS),
            f"{random.randint(0, 99999)}.{random.randint(0, 99):02}",
            (date(2025, 1, 1) + timedelta(random.randint(0, 300))).isoformat(),
            random.choice(WORDS).replace("\n", " "),  # see broken_line
        )
        for place in range(count)
    ]


def same(row: Row) -> Row:
    """As rows are compared: a character that was added inside quotes is part of the text, as the file says."""
    return tuple("".join(each for each in cell if each not in '",;|\t\n\u200b').strip() for cell in row)


def staged(outcome: Outcome) -> list[Row]:
    def text(value: Any) -> str:
        return "" if value is None else f"{value:.2f}" if isinstance(value, Decimal) else str(value)

    return [tuple(text(row[name]) for name in NAMES) for row in outcome.rows["polluted"]]


def data_of(file: Written) -> bytes:
    if file.encoding != "mixed":
        return file.data()
    lines = replace(file, encoding="utf-8").data().decode().splitlines(keepends=True)
    half = len(lines) // 2
    return "".join(lines[:half]).encode() + "".join(lines[half:]).encode("cp1252", "ignore")


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "text"])
@settings(
    max_examples=3000 if LONG else 150,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=list(HealthCheck),
)
@given(
    random=st.randoms(use_true_random=False),
    kinds=st.lists(st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=2),
)
def test_a_row_of_a_damaged_file_is_a_true_row_or_rejected(
    typed: bool, random: Random, kinds: list[str]
) -> None:
    rows = clean_rows(random)
    file = write(rows, random)
    for kind in kinds:
        file = DAMAGES[kind](file, random)
    true = {same(row) for row in rows}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export.csv"
        path.write_bytes(data_of(file))
        try:
            outcome = check_file(path, None, pipeline=pipeline(typed))
        except (FileRefused, UnknownHeader):
            return
    # A field whose column was not found is empty, with a warning.
    found = [place for place, name in enumerate(NAMES) if f"polluted.{name}" in outcome.column_report.filled]
    assert {each.field for each in outcome.column_report.missing} == {
        f"polluted.{name}" for place, name in enumerate(NAMES) if place not in found
    }
    true = {tuple(row[place] for place in found) for row in true}
    wrong = [row for row in staged(outcome) if tuple(same(row)[place] for place in found) not in true]
    if "cut off" in kinds:  # a text that is cut is a text: only the last record can be one
        wrong = [row for row in wrong if row[0] != rows[-1][0]]
    assert not wrong, f"{kinds}: {wrong}"
