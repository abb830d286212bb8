"""Called by json_records.py: counts the records of a file from its bytes, independently of the JSON decoder."""

from __future__ import annotations

import re

import numpy as np

from weighbridge.formats.json_file import open_bytes
from weighbridge.formats.json_layout import JsonLayout, JsonShape
from weighbridge.formats.scan import chunks, line_ends_of
from weighbridge.formats.to_utf8 import Utf8File

CHUNK = 1 << 20
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STEP = np.zeros(256, np.int8)  # byte → change of the nesting depth
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_MARK = _STEP != 0
_MARK[ord(",")] = True


def count_records(text: Utf8File, layout: JsonLayout) -> int:
    """The number of lines, or of values in the list of records, which has at least one."""
    if layout.shape is JsonShape.LINES:
        return _count_lines(text)
    counter = _Counter(layout)
    with open_bytes(text) as file:
        held = b""
        while chunk := file.read(CHUNK):
            chunk = held + chunk
            unescaped = _ESCAPE.sub(b"", chunk)  # an escaped \\" does not end a string
            held = b"\\" if unescaped.endswith(b"\\") else b""
            counter.feed(unescaped[: len(unescaped) - len(held)])
    return counter.records


class _Counter:
    """Follows the depth of brackets outside strings."""

    def __init__(self, layout: JsonLayout) -> None:
        self._layout = layout
        self._level = {JsonShape.ARRAY: 1, JsonShape.MEMBER: 2}.get(layout.shape, 0)
        self._quoted = False
        self._depth = 0
        self._member = 0
        self.records = 0 if self._level == 0 else 1  # one more than commas: an empty list was refused

    def feed(self, unescaped: bytes) -> None:
        """The next bytes, without escaped characters."""
        data = np.frombuffer(unescaped, np.uint8)
        quotes = np.flatnonzero(data == ord('"'))
        marks = np.flatnonzero(_MARK[data])
        marks = marks[(np.searchsorted(quotes, marks) + self._quoted) % 2 == 0]
        steps = _STEP[data[marks]]
        depths = self._depth + np.cumsum(steps, dtype=np.int64)
        commas = steps == 0
        members = self._member + np.cumsum(commas & (depths == 1))
        if self._level == 0:
            self.records += int(np.count_nonzero((steps < 0) & (depths == 0)))
        else:
            here = (depths == self._level) & ((members == self._layout.member) | (self._level == 1))
            self.records += int(np.count_nonzero(commas & here))
        self._quoted = (len(quotes) + self._quoted) % 2 == 1
        if len(marks):
            self._depth, self._member = int(depths[-1]), int(members[-1])


def _count_lines(text: Utf8File) -> int:
    lines, last = 0, b"\n"
    with open_bytes(text) as file:
        for chunk in chunks(file):
            lines += len(line_ends_of(chunk, np.frombuffer(chunk, np.uint8)))
            last = chunk[-1:]
    return lines if last in b"\r\n" else lines + 1
