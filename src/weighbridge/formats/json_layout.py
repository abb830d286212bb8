"""Second in reading JSON: the text → where in it the records are, and the stream of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from typing import TextIO, assert_never

from weighbridge.formats.dialect import Wanted
from weighbridge.formats.encoding import Utf8File
from weighbridge.formats.json_beside import WRAPPERS, Beside
from weighbridge.formats.json_file import open_text
from weighbridge.formats.json_text import DECODER, OPEN_STRING, Element, NotJson, Window
from weighbridge.formats.record_rules import LONGEST_RECORD
from weighbridge.model.errors import FileRefused

FIRST_LINES = 20  # lines that tell whether each is a record


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


def find_records(text: Utf8File, wanted: Wanted, *, cut: bool = False) -> Place:
    """A list, lines, an object with a list in it, or else plain objects. `cut`: only its beginning is here."""
    with open_text(text) as file:
        first = Window(file).peek()
    if not first:
        raise FileRefused("empty_file", "The file is empty.")
    lines = _first_lines(text)
    if len(lines) > 1 and (_is_object(lines[0]) or (mostly_objects(lines) and not _goes_on(lines))):
        return Place(Shape.LINES)
    if first == "[":
        return Place(Shape.ARRAY)
    member = _list_of_records(text, wanted, cut)
    if member is not None:
        return Place(Shape.MEMBER, member)
    return Place(Shape.LINES if lines and _is_object(lines[0]) else Shape.VALUES)


def stream(text: Utf8File, place: Place, beside: Beside) -> Iterator[Element]:
    """Every record in turn. The text of a blank one is ''. Refuses what is not JSON, by its line.

    `beside` gets the members of the outer object that are not the list of records.
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
                names: set[str] = set()
                for index, name in enumerate(_members(window)):
                    if name in names:
                        raise _twice(name)
                    names.add(name)
                    if index == place.member:
                        beside.records = name
                        yield from _elements(window)
                    else:
                        _pass_over(window, name, beside)
                window.end()
            case Shape.VALUES:
                window = Window(file)
                while window.peek():
                    window.expect("{")
                    yield window.take()
            case _:
                assert_never(place.shape)


def mostly_objects(lines: Sequence[str]) -> bool:
    """Is most of the lines an object by itself? In no other JSON two such lines follow each other, without a comma."""
    return 2 * sum(map(_is_object, lines)) > len(lines)


def _first_lines(text: Utf8File) -> list[str]:
    """The first lines with anything on them, up to one that is too long for a record."""
    with open_text(text) as file:
        whole = takewhile(lambda line: len(line) <= LONGEST_RECORD, _raw_lines(file))
        return list(islice((line.strip() for line in whole if line.strip()), FIRST_LINES))


def _is_object(line: str) -> bool:
    return isinstance(_value(line, ends=False), dict)


def _goes_on(lines: Sequence[str]) -> bool:
    """Does the value that begins on the first line end on a later one?"""
    try:
        _, end = DECODER.raw_decode("\n".join(lines))
    except (json.JSONDecodeError, RecursionError):
        return False
    return end > len(lines[0])


def _list_of_records(text: Utf8File, wanted: Wanted, cut: bool) -> int | None:
    """Which member of the outer object it is: a list with a usual name, else the only one that the pipeline knows."""
    usual: list[int] = []
    lists: dict[int, str] = {}  # with objects in them
    known: dict[int, str] = {}
    with open_text(text) as file, suppress(FileRefused) if cut else nullcontext():
        window = Window(file)
        for index, name in enumerate(_members(window)):
            if window.peek() != "[":
                window.take()
                continue
            if name in WRAPPERS:
                usual.append(index)
            seen: set[tuple[str, ...]] = set()
            for element in _elements(window):
                if not isinstance(element.value, dict):
                    continue
                lists[index] = name
                keys = tuple(element.value)
                if index in known or keys in seen:
                    continue
                seen.add(keys)
                if wanted(keys):
                    known[index] = name
                    if name in WRAPPERS:
                        return index
    if usual:
        return next((index for index in usual if index in lists), usual[0])
    if len(known or lists) > 1:
        names = " and ".join(f"'{name}'" for name in (known or lists).values())
        raise FileRefused("malformed_file", f"Which list holds the records, {names}? Call it 'data'.")
    return next(iter(known or lists), None)


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


def _pass_over(window: Window, name: str, beside: Beside) -> None:
    """A value of any length, a list element by element."""
    if window.peek() == "[":
        for element in _elements(window):
            if isinstance(element.value, dict):
                beside.add_object(name, element.value)
    else:
        beside.add_member(name, window.take().value)


def _twice(name: str) -> FileRefused:
    return FileRefused(
        "duplicate_key",
        f"The outer object has the name {name!r} twice, so one of the two values would be lost. Put all records into "
        "one list, and give each member a name of its own.",
    )


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
