"""Called by dialect.py: the lines above the header, which are not loaded, must be titles and not records.

A line with as many cells as the header, filled with text or numbers, is a record: the file is refused. A line of two
cells may be a record (`Ann,Rome`) or a title (`Report,Campaigns`), and a line with column names may be the first of two
header lines: such lines give a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from weighbridge.model.counts import counted
from weighbridge.model.errors import FileRefused

_SHOWN_LINES = 5
_SHOWN_TEXT = 80


@dataclass(frozen=True)
class Line:
    """A record above the header, and the physical line on which it begins."""

    number: int
    text: str
    cells: Sequence[str]

    @property
    def filled(self) -> list[str]:
        return [cell.strip() for cell in self.cells if cell.strip()]


def possible_records(
    above: Sequence[Line], header: Line, count_fields: Callable[[Sequence[str]], int]
) -> tuple[Line, ...]:
    """The lines above the header that may be records. Raises FileRefused for a line that certainly is one."""
    width = len(header.cells)
    lines = [line for line in above if line.filled]
    for line in lines:
        if _has_figures(line, width) or (
            line is lines[-1] and _has_words(line, width) and not count_fields(line.cells)
        ):
            raise FileRefused(
                "records_above_header",
                f"Line {line.number} looks like a record, and the header is below it, on line {header.number}. "
                "Expected the header first. If the line is a record, move the header above it or split the file; "
                "otherwise remove the line.",
            )
    least = 1 if width == 1 else 2
    return tuple(line for line in lines if len(line.filled) >= least and 2 * len(line.filled) > width)


def warning(lines: Sequence[Line], skipped: int, *, show_cell: bool) -> dict[str, str]:
    """The warning about these lines: code → sentence; empty without lines. `skipped`: all lines above the header."""
    if not lines:
        return {}
    numbers = [str(line.number) for line in islice(lines, _SHOWN_LINES)]
    rest = len(lines) - len(numbers)
    last = f"{rest} more" if rest else numbers.pop() if len(numbers) > 1 else ""
    listed = ", ".join(numbers) + (f" and {last}" if last else "")
    text = lines[0].text[:_SHOWN_TEXT] + "…" * (len(lines[0].text) > _SHOWN_TEXT)
    one = len(lines) == 1
    example = (f": {text!r}" if one else f", such as {text!r}") if show_cell else ""
    sentence = (
        f"{counted(skipped, 'line')} above the header {'was' if skipped == 1 else 'were'} not loaded. "
        f"{f'Line {listed} may be a record' if one else f'Lines {listed} may be records'}{example}. "
        f"If {'it is' if one else 'they are'}, move the header to the first line and load the file again."
    )
    return {"lines_above_header": sentence}


def _has_figures(line: Line, width: int) -> bool:
    figures = any(any(map(str.isdigit, cell)) for cell in line.filled)
    return len(line.cells) == width > 2 and 4 * len(line.filled) >= 3 * width and figures


def _has_words(line: Line, width: int) -> bool:
    """A different text in every cell. The first of two header lines repeats group names, or has empty cells."""
    return len(line.cells) == width > 2 and len(set(line.filled)) == width
