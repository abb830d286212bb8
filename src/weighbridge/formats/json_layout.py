"""Second step of reading JSON: the text → the position of the records, and a stream of the records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from typing import TextIO, assert_never

from weighbridge.formats.dialect import CountFields
from weighbridge.formats.json_file import open_text
from weighbridge.formats.json_other_members import WRAPPERS, OtherMembers
from weighbridge.formats.json_values import DECODER, OPEN_STRING, Element, NotJson, Window
from weighbridge.formats.record_syntax import LONGEST_RECORD
from weighbridge.formats.to_utf8 import Utf8File
from weighbridge.model.errors import FileRefused

FIRST_LINES = 20  # lines that are checked to decide whether each line is a record


class JsonShape(StrEnum):
    LINES = "lines"  # one value per line; a blank line is a blank record
    ARRAY = "array"  # [ {…}, {…} ]
    MEMBER = "member"  # { "paging": …, "data": [ {…}, {…} ] }
    VALUES = "values"  # one or more objects, each over several lines


@dataclass(frozen=True)
class JsonLayout:
    """Where the records are; `member` is the index of the list in the outer object, from 0."""

    shape: JsonShape
    member: int = 0


def find_records(text: Utf8File, count_fields: CountFields, *, head_only: bool = False) -> JsonLayout:
    """Find the records: a list, lines, an object with a list in it, or objects. `head_only`: the text is cut off."""
    with open_text(text) as file:
        first = Window(file).peek()
    if not first:
        raise FileRefused("empty_file", "The file is empty.")
    lines = _first_lines(text)
    if len(lines) > 1 and (_is_object(lines[0]) or (mostly_objects(lines) and not _goes_on(lines))):
        return JsonLayout(JsonShape.LINES)
    if first == "[":
        return JsonLayout(JsonShape.ARRAY)
    member = _list_of_records(text, count_fields, head_only)
    if member is not None:
        return JsonLayout(JsonShape.MEMBER, member)
    return JsonLayout(JsonShape.LINES if lines and _is_object(lines[0]) else JsonShape.VALUES)


def stream(text: Utf8File, layout: JsonLayout, others: OtherMembers) -> Iterator[Element]:
    """All records in order. The text of a blank one is ''. Refuses text that is not JSON, with its line.

    The other members of the outer object are added to `others`.
    """
    with open_text(text) as file:
        match layout.shape:
            case JsonShape.LINES:
                yield from _lines(file)
            case JsonShape.ARRAY:
                window = Window(file)
                yield from _elements(window)
                window.end()
            case JsonShape.MEMBER:
                window = Window(file)
                names: set[str] = set()
                for index, name in enumerate(_members(window)):
                    if name in names:
                        raise _twice(name)
                    names.add(name)
                    if index == layout.member:
                        others.records = name
                        yield from _elements(window)
                    else:
                        _pass_over(window, name, others)
                window.end()
            case JsonShape.VALUES:
                window = Window(file)
                while window.peek():
                    window.expect("{")
                    yield window.take()
            case _:
                assert_never(layout.shape)


def mostly_objects(lines: Sequence[str]) -> bool:
    """Are most of the lines complete objects? In other JSON, a comma is between two such lines."""
    return 2 * sum(map(_is_object, lines)) > len(lines)


def _first_lines(text: Utf8File) -> list[str]:
    """The first lines that are not blank, up to a line that is too long for a record."""
    with open_text(text) as file:
        whole = takewhile(lambda line: len(line) <= LONGEST_RECORD, _raw_lines(file))
        return list(islice((line.strip() for line in whole if line.strip()), FIRST_LINES))


def _is_object(line: str) -> bool:
    return isinstance(_value(line, ends=False), dict)


def _goes_on(lines: Sequence[str]) -> bool:
    """Does the value that begins on the first line end on a later line?"""
    try:
        _, end = DECODER.raw_decode("\n".join(lines))
    except (json.JSONDecodeError, RecursionError):
        return False
    return end > len(lines[0])


def _list_of_records(text: Utf8File, count_fields: CountFields, head_only: bool) -> int | None:
    """The index of the list of records in the outer object: a list with a usual name, or the only list with known
    columns; None if there is no list.
    """
    usual: list[int] = []
    lists: dict[int, str] = {}  # lists of objects
    known: dict[int, str] = {}
    with open_text(text) as file, suppress(FileRefused) if head_only else nullcontext():
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
                if count_fields(keys):
                    known[index] = name
                    if name in WRAPPERS:
                        return index
    if usual:
        return next((index for index in usual if index in lists), usual[0])
    if len(known or lists) > 1:
        names = " and ".join(f"'{name}'" for name in (known or lists).values())
        raise FileRefused(
            "malformed_file",
            f"The records may be in several lists: {names}. Name the list of records 'data'.",
        )
    return next(iter(known or lists), None)


def _members(window: Window) -> Iterator[str]:
    """The keys of an object. After each key, the caller must take its value from the window."""
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


def _pass_over(window: Window, name: str, others: OtherMembers) -> None:
    """Take the value of another member, a list element by element."""
    if window.peek() == "[":
        for element in _elements(window):
            if isinstance(element.value, dict):
                others.add_object(name, element.value)
    else:
        others.add_member(name, window.take().value)


def _twice(name: str) -> FileRefused:
    return FileRefused(
        "duplicate_key",
        f"The outer object has the key {name!r} twice, so one of the two values would be lost. Put all records into "
        "one list, and use each key once.",
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
    """The lines; a line that is too long is cut, to limit memory."""
    while line := file.readline(LONGEST_RECORD + 1):
        yield line


def _value(text: str, *, ends: bool) -> object:
    """The value of a line, or a NotJson with the reason. `ends`: the file ends with this line."""
    try:
        value, end = DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if ends and (error.msg.startswith(OPEN_STRING) or error.pos >= len(text)):
            return NotJson("the file ends in the middle of it")
        return NotJson(f"{error.msg[0].lower()}{error.msg[1:]}")
    except RecursionError:
        return NotJson("nested too deeply")
    return value if end == len(text) else NotJson("more than one value")
