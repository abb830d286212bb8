"""Second in reading JSON: the text → where in it the records are, and the stream of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, TextIO, assert_never

from weighbridge.formats.encoding import Utf8File
from weighbridge.formats.json_text import DECODER, OPEN_STRING, Element, NotJson, Window
from weighbridge.formats.record_rules import LONGEST_RECORD
from weighbridge.model.errors import FileRefused

FIRST_LINES = 20  # lines that tell whether each is a record
_PAGES = frozenset(
    {
        "paging",
        "pagination",
        "next",
        "nextPageToken",
        "next_page_token",
        "next_page",
        "next_cursor",
        "has_more",
    }
)
WRAPPERS = frozenset({"data", "rows", "results", "items", "records"})


class Shape(StrEnum):
    LINES = "lines"  # one value a line; a blank line is a blank record
    ARRAY = "array"  # [ {…}, {…} ]
    MEMBER = "member"  # { "paging": …, "data": [ {…}, {…} ] }
    VALUES = "values"  # an object over several lines, and perhaps more of them after it


@dataclass(frozen=True)
class Place:
    """Where the records are; `member` counts the members of the outer object from 0."""

    shape: Shape
    member: int = 0


def find_records(text: Utf8File, *, cut: bool = False) -> Place:
    """A list, lines, an object with a list in it, or else plain objects. `cut`: only its beginning is here."""
    with open_text(text) as file:
        first = Window(file).peek()
    if not first:
        raise FileRefused("empty_file", "The file is empty.")
    if first == "[":
        return Place(Shape.ARRAY)
    object_on_a_line, more_lines = _first_line(text)
    if object_on_a_line and more_lines:
        return Place(Shape.LINES)
    try:
        member = _list_of_records(text, cut)
    except FileRefused:
        if not object_on_a_line and _mostly_objects(text):  # and its first line is broken
            return Place(Shape.LINES)
        raise
    if member is not None:
        return Place(Shape.MEMBER, member)
    return Place(Shape.LINES if object_on_a_line else Shape.VALUES)


def stream(text: Utf8File, place: Place, beside: dict[str, Any] | None = None) -> Iterator[Element]:
    """Every record in turn. The text of a blank one is ''. Refuses what is not JSON, by its line.

    `beside` gets what stands beside the list of records and is about its pages.
    """
    with open_text(text) as file:
        match place.shape:
            case Shape.LINES:
                yield from _lines(file)
            case Shape.ARRAY:
                window = Window(file)
                yield from _elements(window)
                window.end()
            case Shape.MEMBER:
                window = Window(file)
                for index, name in enumerate(_members(window)):
                    if index == place.member:
                        yield from _elements(window)
                    elif beside is not None and name in _PAGES:
                        beside[name] = window.take().value
                    else:
                        _pass_over(window)
                window.end()
            case Shape.VALUES:
                window = Window(file)
                while window.peek():
                    window.expect("{")
                    yield window.take()
            case _:
                assert_never(place.shape)


def next_page(beside: dict[str, Any]) -> str:
    """The member that names another page of the same answer; empty for a last or only page."""
    for name, value in beside.items():
        if isinstance(value, dict):
            inner = next_page({key: part for key, part in value.items() if key in _PAGES})
            if inner:
                return f"{name}.{inner}"
        elif value and value != "0":
            return name
    return ""


def open_text(text: Utf8File) -> TextIO:
    """With LF for every line end. JSON strings hold no raw line ends, so no value changes."""
    return text.path.open(encoding="utf-8-sig" if text.start else "utf-8", newline=None)


def _first_line(text: Utf8File) -> tuple[bool, bool]:
    """Whether the first line with anything on it is an object by itself, and whether another one follows."""
    with open_text(text) as file:
        lines = (line for line in _raw_lines(file) if line.strip())
        try:
            value, end = DECODER.raw_decode(first := next(lines).strip())
        except (json.JSONDecodeError, RecursionError):
            return False, False
        return isinstance(value, dict) and end == len(first), next(lines, None) is not None


def _mostly_objects(text: Utf8File) -> bool:
    """Is most of the first lines an object by itself?"""
    with open_text(text) as file:
        lines = [line.strip() for line in islice(_raw_lines(file), FIRST_LINES) if line.strip()]
    return 2 * sum(isinstance(_value(line, ends=False), dict) for line in lines) > len(lines)


def _list_of_records(text: Utf8File, cut: bool) -> int | None:
    """Which member of the outer object it is: one with a usual name, or the only list with objects in it."""
    lists: dict[int, str] = {}
    with open_text(text) as file, suppress(FileRefused) if cut else nullcontext():
        window = Window(file)
        for index, name in enumerate(_members(window)):
            if window.peek() != "[":
                window.take()
            elif name in WRAPPERS:
                return index
            else:
                for element in _elements(window):
                    if isinstance(element.value, dict):
                        lists[index] = name
    if len(lists) > 1:
        names = " and ".join(f"'{name}'" for name in lists.values())
        raise FileRefused("malformed_file", f"Which list holds the records, {names}? Call it 'data'.")
    return next(iter(lists), None)


def _members(window: Window) -> Iterator[str]:
    """The keys of an object. At each, the window stands before the value, which the caller must take."""
    window.skip("{")
    if window.peek() == "}":
        window.skip("}")
        return
    end = ","
    while end == ",":
        name = window.key()
        window.skip(":")
        yield name
        end = window.skip(",}")


def _pass_over(window: Window) -> None:
    """A value of any length, a list element by element."""
    if window.peek() == "[":
        for _ in _elements(window):
            pass
    else:
        window.take()


def _elements(window: Window) -> Iterator[Element]:
    window.skip("[")
    if window.peek() == "]":
        window.skip("]")
        return
    end = ","
    while end == ",":
        yield window.take()
        end = window.skip(",]")


def _lines(file: TextIO) -> Iterator[Element]:
    for number, line in enumerate(_raw_lines(file), start=1):
        if len(line) > LONGEST_RECORD:
            raise FileRefused(
                "malformed_file", f"Line {number} is longer than {LONGEST_RECORD:,} characters."
            )
        text = line.strip(" \t\n")
        yield Element(number, _value(text, ends=not line.endswith("\n")) if text else None, text)


def _raw_lines(file: TextIO) -> Iterator[str]:
    """Lines; of one that is too long only a part, to keep memory flat."""
    while line := file.readline(LONGEST_RECORD + 1):
        yield line


def _value(text: str, *, ends: bool) -> object:
    """The value of a line, or why it has none. `ends`: the file ends with it."""
    try:
        value, end = DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if ends and (error.msg.startswith(OPEN_STRING) or error.pos >= len(text)):
            return NotJson("the file ends in the middle of it")
        return NotJson(f"{error.msg[0].lower()}{error.msg[1:]}")
    except RecursionError:
        return NotJson("nested too deeply")
    return value if end == len(text) else NotJson("more than one value")
