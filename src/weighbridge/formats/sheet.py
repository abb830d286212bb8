"""The door of `formats`: a stored file of a known kind → its Sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weighbridge.formats.delimited import open_delimited
from weighbridge.formats.encoding import as_utf8
from weighbridge.formats.json_records import open_json
from weighbridge.formats.lines import open_list
from weighbridge.model.reading import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Sheet


def open_sheet(
    path: Path,
    kind: str,
    *,
    wanted: Callable[[Sequence[str]], int],
    scratch: Path,
    headerless: str = "",
    cut: bool = False,
    options: ReadOptions = DETECT_ALL,
    show_cell: bool = True,
) -> Sheet:
    """Read the file's layout; its rows come with `batches()`, which may refuse the file as well.

    `kind` is what `sniff` said. `wanted` tells how many fields of the pipeline a row of cells names, were it the
    header. `headerless` is the header of a text file that has none and is a list, where the pipeline takes lists.
    A file that is not UTF-8 is rewritten as UTF-8 in the directory `scratch`, which the caller empties.
    `options` are what the sender says of how it is written; they override detection.
    A warning may show a cell of the file only if `show_cell`.
    `cut` says that it is only the beginning of one, which may end anywhere: good for its header alone.

    Raises FileRefused: `empty_file`, `no_data`, `no_header`, `bad_encoding`, `malformed_file`.
    """
    text = as_utf8(path, scratch, options.encoding, show_cell=show_cell)
    match kind:
        case "csv":
            listed = open_list(text, wanted, headerless) if headerless else None
            return listed or open_delimited(
                text, wanted, cut=cut, delimiter=options.delimiter, show_cell=show_cell
            )
        case "json":
            return open_json(text, wanted, cut=cut)
        case _:
            raise ValueError(f"kind: expected 'csv' or 'json', got {kind!r}")
