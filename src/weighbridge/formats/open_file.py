"""Entry point of `formats`: a stored CSV or JSON file → its Sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weighbridge.formats.delimited import open_delimited
from weighbridge.formats.headerless_list import open_list
from weighbridge.formats.json_records import open_json
from weighbridge.formats.to_utf8 import as_utf8
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Sheet


def open_sheet(
    path: Path,
    kind: str,
    *,
    count_fields: Callable[[Sequence[str]], int],
    scratch: Path,
    headerless: str = "",
    head_only: bool = False,
    options: ReadOptions = DETECT_ALL,
    show_cell: bool = True,
) -> Sheet:
    """Read the layout of the file. `batches()` of the result reads the rows, and may refuse the file as well.

    `kind` is the result of `sniff`. `count_fields` returns how many fields of the pipeline a row of cells names, if
    that row is the header. `headerless` is the header to use for a list without one; empty where the pipeline does not
    accept lists. A file that is not UTF-8 is copied as UTF-8 into the directory `scratch`, which the caller empties.
    `options` are the sender's read options; they override detection.
    A warning may show a cell of the file only if `show_cell`.
    `head_only`: the path has only the first bytes of a file, cut anywhere. Only its header can be used.

    Raises FileRefused: `empty_file`, `no_data`, `no_header`, `bad_encoding`, `malformed_file`.
    """
    text = as_utf8(path, scratch, options.encoding, show_cell=show_cell)
    match kind:
        case "csv":
            listed = open_list(text, count_fields, headerless) if headerless else None
            return listed or open_delimited(
                text, count_fields, head_only=head_only, delimiter=options.delimiter, show_cell=show_cell
            )
        case "json":
            return open_json(text, count_fields, head_only=head_only)
        case _:
            raise ValueError(f"kind: expected 'csv' or 'json', got {kind!r}")
