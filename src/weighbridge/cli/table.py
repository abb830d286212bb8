"""Listings on a terminal: rows whose ids are never cut, each with optional remarks on the lines below it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from weighbridge.cli.output import out

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_GAP = 2
_NARROWEST = 8  # width of the folded column; on narrower terminals the terminal wraps the line


@dataclass(frozen=True)
class Row:
    """Cells, in markup, and remarks below them, in plain text."""

    cells: Sequence[str]
    under: Sequence[str] = ()


def print_rows(
    titles: Sequence[str], rows: Sequence[Row], *, folded: str, right: Collection[str] = ()
) -> None:
    """Print columns as wide as their content; the column called `folded` takes the remaining width."""
    from rich.text import Text

    console = out()
    head = [Text(title, style="bold") for title in titles]
    cells = [[Text.from_markup(cell) for cell in row.cells] for row in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(head, *cells, strict=True)]
    fold_index = titles.index(folded)
    spare = console.width - sum(widths) - _GAP * (len(widths) - 1) + widths[fold_index]
    widths[fold_index] = max(_NARROWEST, min(widths[fold_index], spare))
    for line, under in zip([head, *cells], [(), *(row.under for row in rows)], strict=True):
        parts = [[cell] for cell in line]
        parts[fold_index] = list(line[fold_index].wrap(console, widths[fold_index], overflow="fold"))
        for each in zip_longest(*parts, fillvalue=Text()):
            console.print(_joined(each, widths, [title in right for title in titles]), soft_wrap=True)
        for sentence in under:
            for part in Text(sentence).wrap(console, console.width - _GAP, overflow="fold"):
                part.rstrip()
                console.print(Text(" " * _GAP) + part, soft_wrap=True)


def _joined(cells: Sequence[Text], widths: Sequence[int], right: Sequence[bool]) -> Text:
    from rich.text import Text

    line = Text()
    for cell, width, to_the_right in zip(cells, widths, right, strict=True):
        room = " " * (width - cell.cell_len)
        gap = " " * _GAP if line.plain else ""
        line = line + gap + (Text(room) + cell if to_the_right else cell + room)
    line.rstrip()
    return line


def plain_table() -> Table:
    """A table without lines, for short cells: rich folds or cuts what does not fit."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold")
