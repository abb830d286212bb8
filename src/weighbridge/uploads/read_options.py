"""Read options of a request (encoding, delimiter, …) → ReadOptions; RequestRefused for an invalid one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from weighbridge.model.encodings import ENCODINGS, codec_of, name_of
from weighbridge.model.errors import RequestRefused, did_you_mean
from weighbridge.model.read_as import ReadAs
from weighbridge.model.read_options import DATE_ORDERS, DETECT_ALL, ReadOptions
from weighbridge.observe.redact import quote_input

TEXTS = ("encoding", "delimiter", "decimal", "date_order")
OPTIONS = (*TEXTS, "sum_breakdowns")
DETECT = "detect"  # the value that means: detect it from the file, even if a retry replaces a stored option
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
DECIMALS = {"point": ".", "comma": ","}


def read_options(given: Mapping[str, Any], stored: ReadOptions = DETECT_ALL) -> ReadOptions:
    """The stored options, replaced by those that are given. An empty text or None leaves an option as it is."""
    texts = {name: given[name] for name in TEXTS if given.get(name)}
    chosen: dict[str, Any] = {
        name: "" if texts[name].strip().lower() == DETECT else _PARSED[name](texts[name]) for name in texts
    }
    if given.get("sum_breakdowns") is not None:
        chosen["sum_breakdowns"] = bool(given["sum_breakdowns"])
    return replace(stored, **chosen)


def in_words(options: ReadOptions) -> dict[str, str]:
    """The given options for display: a delimiter by its name, if it has one."""
    shown = {name: str(value) for name, value in options.as_dict().items()}
    if options.delimiter:
        shown["delimiter"] = delimiter_word(options.delimiter)
    if options.sum_breakdowns:
        shown["sum_breakdowns"] = "yes"
    return shown


def read_as_in_words(read_as: ReadAs) -> list[str]:
    """How a file was read, for display."""
    found = {
        "decimal mark": next((word for word, each in DECIMALS.items() if each == read_as.decimal), ""),
        "date order": read_as.date_order,
        "delimiter": delimiter_word(read_as.delimiter),
        "above the header": " / ".join(read_as.preamble),
    }
    lines = [f"{name}: {value}" for name, value in found.items() if value]
    lines += ["Indian grouping of digits"] * read_as.indian
    return lines + ["breakdowns added up"] * read_as.sum_breakdowns


def delimiter_word(character: str) -> str:
    return next((word for word, each in DELIMITERS.items() if each == character), character)


def _encoding(text: str) -> str:
    codec = codec_of(text.strip())
    if codec is None:
        raise _invalid("encoding", "an encoding such as utf-8, windows-1252 or utf-16", text, ENCODINGS)
    return name_of(codec)


def _delimiter(text: str) -> str:
    word = text.strip().lower()
    character = "\t" if word == "\\t" else DELIMITERS.get(word, text)
    words = ", ".join(DELIMITERS)
    if len(character) != 1:
        raise _invalid("delimiter", f"one character, or one of the words {words}", text, DELIMITERS)
    if not character.isascii() or character.isalnum() or character in "\"'\r\n\0":
        expected = (
            f"an ASCII character that is no letter, digit, quote or line end, or one of the words {words}"
        )
        raise _invalid("delimiter", expected, text)
    return character


def _decimal(text: str) -> str:
    word = text.strip().lower()
    if word not in (*DECIMALS, *DECIMALS.values()):
        raise _invalid(
            "decimal", "a point ('.') or a comma (','), or the word point or comma", text, DECIMALS
        )
    return DECIMALS.get(word, word)


def _date_order(text: str) -> str:
    word = text.strip().lower()
    if word not in DATE_ORDERS:
        raise _invalid("date_order", "dmy (3/4/2025 is 3 April), mdy (it is 4 March) or ymd", text)
    return word


_PARSED: dict[str, Callable[[str], str]] = {
    "encoding": _encoding,
    "delimiter": _delimiter,
    "decimal": _decimal,
    "date_order": _date_order,
}


def _invalid(name: str, expected: str, got: str, known: Iterable[str] = ()) -> RequestRefused:
    hint = did_you_mean(got.strip(), known) or "."
    return RequestRefused(422, "invalid_field", f"{name}: expected {expected}, got {quote_input(got)}{hint}")
