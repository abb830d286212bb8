"""Columns of numbers → columns of cells → the bytes of a CSV file."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.testing._facts import Ints


def constant(text: str, rows: int) -> pa.StringArray:
    return pa.repeat(pa.scalar(text), rows)


def chosen(names: Sequence[str], index: Ints) -> pa.StringArray:
    """`names[i]` for each i."""
    return pa.array(names, pa.string()).take(pa.array(index))


def alternating(even: pa.StringArray, odd: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pa.array(np.arange(len(even)) % 2 == 0), even, odd)


def whole(values: Ints, thousands: str = "") -> pa.StringArray:
    if not thousands:
        return pa.array(values).cast(pa.string())
    return pa.array([f"{value:,}".replace(",", thousands) for value in values.tolist()], pa.string())


def hundredths(values: Ints, thousands: str = "", mark: str = ".") -> pa.StringArray:
    """123456 → 1234.56"""
    fraction = pc.utf8_lpad(pa.array(values % 100).cast(pa.string()), width=2, padding="0")
    return pc.binary_join_element_wise(whole(values // 100, thousands), fraction, mark)


@dataclass(frozen=True)
class Ratio:
    """How a quotient is written: with two decimals, or as null where there is nothing to divide by."""

    scale: float
    null: str
    mark: str
    suffix: str = ""


def ratio(part: Ints, of: Ints, style: Ratio) -> pa.StringArray:
    quotient = np.rint(part * style.scale * 100 / np.maximum(of, 1)).astype(np.int64)
    written = pc.binary_join_element_wise(hundredths(quotient, mark=style.mark), style.suffix, "")
    return pc.if_else(pa.array(of > 0), written, style.null)


def blank_where(cells: pa.StringArray, empty: npt.NDArray[np.bool_], null: str) -> pa.StringArray:
    return pc.if_else(pa.array(empty), null, cells)


def iso_days(first: np.datetime64, offsets: Ints) -> pa.StringArray:
    return pa.array((first + offsets).astype("datetime64[D]")).cast(pa.string())


def us_days(first: np.datetime64, offsets: Ints) -> pa.StringArray:
    """7/4/2025"""
    days = pa.array((first + offsets).astype("datetime64[D]"))
    parts = [part(days).cast(pa.string()) for part in (pc.month, pc.day, pc.year)]
    return pc.binary_join_element_wise(*parts, "/")


def joined(columns: Sequence[pa.StringArray], delimiter: str, line_end: str) -> pa.StringArray:
    """One string per record, cells quoted where they must be, with its line end."""
    lines = pc.binary_join_element_wise(*(_quoted(cells, delimiter) for cells in columns), delimiter)
    return pc.binary_join_element_wise(lines, "", line_end)


def _quoted(cells: pa.StringArray, delimiter: str) -> pa.StringArray:
    special = pc.match_substring_regex(cells, f'["\r\n{delimiter}]')
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), cells)


def encoded(lines: pa.StringArray, encoding: str) -> bytes:
    """All lines, one after another; the byte order mark is the caller's (see BOMS)."""
    return "".join(lines.to_pylist()).encode(_CODECS.get(encoding, encoding))


BOMS = {"utf-8-sig": codecs.BOM_UTF8, "utf-16": codecs.BOM_UTF16_LE}
_CODECS = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}
