"""The refusal of a file without a known column. A message shows cells only if they cannot be personal data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from weighbridge.model.counts import counted
from weighbridge.model.errors import FileRefused, did_you_mean
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.profile import Profile
from weighbridge.rules.headers import fold, has_figures, listed, synonyms


@dataclass(frozen=True)
class UnknownColumns:
    """The likeliest header of a file without a known column; in a JSON file `line` is 0."""

    columns: Sequence[str]
    line: int
    below: Sequence[str]  # the cells of the first records after it


def no_column_known(found: UnknownColumns, pipeline: Pipeline, profile: Profile | None) -> FileRefused:
    """The refusal of such a file. The message shows the row only if it cannot be a record with personal data."""
    names = [
        name
        for field_name in pipeline.required
        for name in synonyms(field_name, pipeline.fields[field_name], pipeline, profile)
    ]
    guess = next((g for g in (did_you_mean(name, found.columns) for name in names) if g), "")
    near = _misspelt(names, found.columns) if pipeline.personal else bool(guess)
    shown = _unlike_what_is_below(found) or (near and not any(map(is_value, found.columns)))
    guess = guess if shown else ""
    where = f"line {found.line}" if found.line else "the records"
    if not found.columns:
        got = "No record has named values."
    elif shown:
        got = f"Columns found in {where}: {listed(found.columns, 40)}."
    elif found.line:
        got = f"Line {found.line}, where the header should be, has {counted(len(found.columns), 'cell')}."
    else:
        got = f"The records have {counted(len(found.columns), 'key')}."
    expected = f"expected {names[0]!r}{guess or '.'}" if names else "expected a header."
    return FileRefused("no_header", f"No column of the file is known: {expected} {got}")


def _unlike_what_is_below(found: UnknownColumns) -> bool:
    """Certainly a header: no digits in it, and digits below it."""
    return not any(map(has_figures, found.columns)) and any(map(has_figures, found.below))


def is_value(cell: str) -> bool:
    """Certainly not the name of a column: an amount, a date, an address."""
    return "@" in cell or (any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell)))


def _misspelt(names: Sequence[str], columns: Sequence[str]) -> bool:
    """Almost equal to the name of a column. The limit is high because `Casey Jones` is close to `Case Number`, too."""
    return bool(names) and bool(get_close_matches(fold(names[0]), map(fold, columns), 1, 0.8))
