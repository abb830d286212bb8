"""Called by json_layout.py: UTF-8 text → JSON values, each with its line and its original text.

Uses the decoder of the standard library over a moving window, because it returns the end of a value. ijson is as fast,
but gives neither lines nor the original text of a number (`1e5` becomes `1E+5`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TextIO

from weighbridge.formats.invisible_characters import in_json, visible_text
from weighbridge.formats.record_syntax import LONGEST_RECORD
from weighbridge.model.errors import FileRefused

CHUNK = 1 << 20
OPEN_STRING = "Unterminated string"  # the first words of that message of the decoder
_SPACE = re.compile(r"[ \t\n\r]*")


class Number(str):
    """A number as it is written in the file, with every digit of an id and every zero of an amount."""

    __slots__ = ()


class Repeated(dict[str, Any]):
    """An object with a key twice; only the last of the two values is kept here."""


class NotJson(str):
    """A line that is not JSON; the text is the reason."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(made)


DECODER = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_object
)


@dataclass(frozen=True, slots=True)
class Element:
    """A value, the physical line on which it begins, and its original text."""

    line: int
    value: Any
    text: str


def without_invisible(elements: list[Element]) -> tuple[list[Element], int]:
    """The elements without invisible characters in keys and strings, and the number of removed characters."""
    if not in_json("".join(element.text for element in elements)):  # one search is faster than many
        return elements, 0
    shown = [_visible(element.value) for element in elements]
    made = [replace(element, value=value) for element, (value, _) in zip(elements, shown, strict=True)]
    return made, sum(removed for _, removed in shown)


def _visible(value: Any) -> tuple[Any, int]:
    if isinstance(value, dict):
        parts = [(visible_text(key), _visible(part)) for key, part in value.items()]
        made = _object([(key, part) for (key, _), (part, _) in parts])
        removed = sum(in_key + in_part for (_, in_key), (_, in_part) in parts)
        return Repeated(made) if isinstance(value, Repeated) else made, removed
    if isinstance(value, list):
        shown = [_visible(part) for part in value]
        return [part for part, _ in shown], sum(removed for _, removed in shown)
    return visible_text(value) if type(value) is str else (value, 0)


class Window:
    """The part of the text that is in memory; it moves forward as values are taken."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._line, self._counted = 1, 0  # the line of the character `_counted`
        self._ended = False

    def peek(self) -> str:
        """The next character that is not white space; '' at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def expect(self, expected: str) -> str:
        """The next character, which must be one of these."""
        found = self.peek()
        if not found or found not in expected:
            self._refuse(f"expected {' or '.join(expected)}", self._at)
        return found

    def skip(self, expected: str) -> str:
        """Take one of the expected characters."""
        found = self.expect(expected)
        self._at += 1
        return found

    def key(self) -> str:
        """Take the name of a member."""
        if self.peek() != '"':
            self._refuse('expected a name in "', self._at)
        return str(self.take().value)

    def end(self) -> None:
        """Nothing more may follow."""
        if self.peek():
            self._refuse("expected the end of the file", self._at)

    def take(self) -> Element:
        """Take one whole value."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    self._refuse(error.msg, error.pos)
                if self._left > LONGEST_RECORD:
                    self._refuse_long(error)
            except RecursionError:
                self._refuse("nested too deeply", self._at)
            else:
                if end < len(self._text) or self._ended:  # otherwise a number may continue in the next chunk
                    return self._taken(value, end)
                self._check_length(end)
            self._read_on()

    @property
    def line(self) -> int:
        """The physical line of the next character."""
        return self._line_of(self._at)

    @property
    def _left(self) -> int:
        return len(self._text) - self._at

    def _taken(self, value: Any, end: int) -> Element:
        self._check_length(end)
        element = Element(self.line, value, self._text[self._at : end])
        self._at = end
        return element

    def _check_length(self, end: int) -> None:
        if end - self._at > LONGEST_RECORD:
            raise self._too_long()

    def _too_long(self) -> FileRefused:
        sentence = f"The record on line {self.line} is longer than {LONGEST_RECORD:,} characters."
        return FileRefused("malformed_file", sentence)

    def _line_of(self, position: int) -> int:
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def _read_on(self) -> None:
        self._line_of(self._at)
        more = self._file.read(CHUNK)
        self._ended = not more
        self._text = self._text[self._at :] + more
        self._at = self._counted = 0

    def _refuse_long(self, error: json.JSONDecodeError) -> NoReturn:
        """More text than a record may have without a complete value: it is invalid, or too long."""
        if not error.msg.startswith(OPEN_STRING) and self._text[error.pos :].strip():
            self._refuse(error.msg, error.pos)
        raise self._too_long()

    def _refuse(self, why: str, position: int) -> NoReturn:
        first_line = self.line
        ends = self._ended and (why.startswith(OPEN_STRING) or not self._text[position:].strip())
        raise not_json(why, self._line_of(position), first_line, ends=ends)


def not_json(why: str, line: int, first_line: int, *, ends: bool = False) -> FileRefused:
    """`ends`: the only error is that the text ends there."""
    if ends:
        sentence = f"The file ends inside the JSON value that begins on line {first_line}."
    else:
        sentence = f"Line {line} is not valid JSON: {why[0].lower()}{why[1:]}."
    return FileRefused("malformed_file", sentence)
