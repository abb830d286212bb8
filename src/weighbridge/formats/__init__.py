"""First half of the parse step: the bytes of a stored file → text columns with line numbers.

Before a file is stored
    csv_or_json            CSV, JSON or neither
    signatures             names the format of a file that is neither

Opening it
    open_file              calls the modules below; the only entry point
    to_utf8                any encoding → UTF-8; file_bytes reads the bytes
    detect_encoding        detects the encoding: encoding_evidence, encoding_outliers, letter_statistics
    encoding_messages      warnings and refusals about encodings

CSV
    dialect                delimiter, quote, preamble, header and width
    preamble               lines above the header: titles or records
    unnamed_columns        empty names at the end of the header
    headerless_list        a list without a header, one value per line
    delimited              records → batches of text columns; quoting: whether the file puts cells in quotes
    scan                   bytes → records: record_syntax, slow_scan, stray_line_ends, cells
    unreadable_records     lines that cannot be read → records without cells
    truncation             whether the file looks cut off

JSON
    json_layout            where the records are; json_other_members: the rest of the outer object
    json_records           records → batches of text columns
    json_values            text → JSON values with their lines; json_file opens the text
    json_count             counts the records independently of the reader

Both
    invisible_characters   removed from every cell
    arrow_batch            columns → one Arrow batch
    read_rejects_file      a fixed rejects file → the columns of the original file
"""

from __future__ import annotations

from weighbridge.formats.csv_or_json import describe, sniff, text_of
from weighbridge.formats.dialect import UnknownHeader
from weighbridge.formats.open_file import open_sheet
from weighbridge.formats.read_rejects_file import without_added_columns

__all__ = ["UnknownHeader", "describe", "open_sheet", "sniff", "text_of", "without_added_columns"]
