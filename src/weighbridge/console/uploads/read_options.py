"""Read options: choices in forms, and labels on the page of an upload."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.model.encodings import ENCODINGS
from weighbridge.model.read_options import ABOUT, DETECT_ALL, ReadOptions
from weighbridge.uploads.read_options import DELIMITERS, DETECT, TEXTS, in_words

_LABELS = {
    "encoding": "Encoding",
    "delimiter": "Column delimiter",
    "decimal": "Decimal mark",
    "date_order": "Date order",
    "sum_breakdowns": "Add up breakdown rows",
}
_OFFERED: dict[str, dict[str, str]] = {
    "encoding": {name: name for name in ENCODINGS},
    "delimiter": {
        word: word.title() if sign.isspace() else f"{word.title()} ({sign})"
        for word, sign in DELIMITERS.items()
    },
    "decimal": {"point": "Point: 1,234.56", "comma": "Comma: 1.234,56"},
    "date_order": {
        "dmy": "Day first: 31/12/2025",
        "mdy": "Month first: 12/31/2025",
        "ymd": "Year first: 2025/12/31",
    },
}


@dataclass(frozen=True)
class Option:
    """One value of a choice."""

    value: str
    label: str
    chosen: bool


@dataclass(frozen=True)
class Choice:
    """One read option as a form offers it."""

    name: str
    label: str
    about: str
    options: tuple[Option, ...]


def choices(reading: ReadOptions = DETECT_ALL, *, detect: str = "") -> list[Choice]:
    """The read options with text values; `detect` is the form value for automatic detection."""
    return [_choice(name, getattr(reading, name), detect) for name in TEXTS]


def stored_choices(reading: ReadOptions) -> list[Choice]:
    """The same for a retry: detection is an explicit value because it may replace a stored option."""
    return choices(reading, detect=DETECT)


def facts(reading: ReadOptions) -> list[tuple[str, str]]:
    """The options that the user set, with their labels."""
    return [(_LABELS[name], value) for name, value in in_words(reading).items()]


def _choice(name: str, stored: str, detect: str) -> Choice:
    offered = _OFFERED[name]
    same = [value for value in offered if stored and _parsed(name, value) == stored]
    rare = [Option(stored, stored, chosen=True)] if stored and not same else []
    options = [Option(value, label, value in same[:1]) for value, label in offered.items()]
    return Choice(name, _LABELS[name], ABOUT[name], (Option(detect, "Detect", not stored), *options, *rare))


def _parsed(name: str, value: str) -> str | None:
    match name:
        case "encoding":
            return value  # stored under the same name
        case "delimiter":
            return DELIMITERS[value]
        case "decimal":
            return {"point": ".", "comma": ","}[value]
    return value
