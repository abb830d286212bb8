"""Inside the parse step: the bytes of a stored file → text columns with line numbers.

sniff       is it CSV or JSON at all?           detect.py
describe    what is it, if it is neither?       signatures.py
open_sheet  encoding → UTF-8                    encoding.py
            delimiter, quote, preamble, header  dialect.py
            records, lines, cells               scan.py → delimited.py, lines.py, json_records.py
without_added  the columns that a rejects file has of its own   rejects_file.py
"""

from __future__ import annotations

from weighbridge.formats.detect import describe, sniff, text_of
from weighbridge.formats.dialect import UnknownHeader
from weighbridge.formats.rejects_file import without_added
from weighbridge.formats.sheet import open_sheet

__all__ = ["UnknownHeader", "describe", "open_sheet", "sniff", "text_of", "without_added"]
