"""Called by encoding_evidence.py: letter statistics of about 40 languages, to measure how plausible a text is.

A cost is a negative log probability: 0 is certain, and a text that costs 5 more is about 150 times less likely.
`letter_statistics.txt` has the cost of each pair of letters of a language with an alphabet, in halves, and the cost of
each common character of Chinese, Japanese and Korean. tests/formats/train_letters.py writes it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]

_DATA = Path(__file__).with_name("letter_statistics.txt")
_ASCII = "abcdefghijklmnopqrstuvwxyz"
_FOREIGN = 11.0  # a letter that the language does not have
_OTHER_SCRIPT = 10.0  # from a letter of the language to a Latin one, inside a word

# Kinds of characters. Letters have a kind for their case; other characters are grouped by where they occur in text.
EDGE, DIGIT, LOWER, UPPER, CASELESS, OPEN, CLOSE, APOSTROPHE, DASH, CURRENCY, SIGN, SPACE, RARE, INVALID = (
    range(14)
)
_LETTERS = (LOWER, UPPER, CASELESS)
_KINDS: Mapping[str, int] = {
    **dict.fromkeys("„«‹¿¡“‘", OPEN),
    **dict.fromkeys("”»›", CLOSE),
    "’": APOSTROPHE,
    **dict.fromkeys("–—•·…", DASH),
    **dict.fromkeys("€£¥¢", CURRENCY),
    **dict.fromkeys("°®™©²³ªº№", SIGN),
    "\xa0": SPACE,
}


@dataclass(frozen=True)
class Language:
    """The letters of one alphabet and the cost of each pair. Id 0: any character that is not a letter."""

    name: str
    ids: Mapping[str, int]
    pairs: Costs

    def id_of(self, character: str) -> int:
        """The last three ids are letters that the language does not have: a to z, other Latin ones, all others."""
        if kind_of(character) not in _LETTERS:
            return 0
        small = lower(character)
        place = 3 if small in _ASCII else 2 if unicodedata.name(small, "").startswith("LATIN") else 1
        return self.ids.get(small, len(self.pairs) - place)

    def reads(self, characters: set[str]) -> bool:
        """Do the characters of an encoding contain this alphabet, except for a few rare letters?"""
        own = [letter for letter in self.ids if not letter.isascii()]
        return sum(letter not in characters for letter in own) * 5 <= len(own)


@cache
def alphabets() -> tuple[Language, ...]:
    return tuple(_language(name, alphabet, rows) for name, alphabet, rows in _sections() if alphabet != "*")


@cache
def ideographs() -> Mapping[str, Mapping[str, int]]:
    """Language → character → cost, for the common characters of each language."""
    found = {}
    for name, alphabet, rows in _sections():
        if alphabet == "*":
            split = (row.split(" ", 1) for row in rows)
            found[name] = {character: int(cost) for cost, characters in split for character in characters}
    return found


def kind_of(character: str) -> int:
    known = _KINDS.get(character)
    if known is not None:
        return known
    category = unicodedata.category(character)
    if character.isdigit() and character.isascii():
        return DIGIT
    if category == "Ll":
        return LOWER
    if category == "Lu":
        return UPPER
    if category in ("Lo", "Mn", "Lm") and character != "ˇ":
        return CASELESS
    if category == "Cc" and not character.isascii():
        return INVALID
    if character == "\ufffd" or category in ("Co", "Cn"):
        return INVALID
    return EDGE if character.isascii() else RARE


def lower(character: str) -> str:
    small = "i" if character == "İ" else character.lower()
    return small if len(small) == 1 else character


@cache
def between() -> Costs:
    """The cost of one kind of character after another, in addition to the cost of the letters."""
    costs = np.zeros((14, 14), np.float32)
    costs[:, UPPER] += 1.0
    costs[UPPER, UPPER] = 0.3
    costs[LOWER, UPPER] = 6.0
    for kind, cost in (
        (OPEN, 6),
        (CLOSE, 6),
        (APOSTROPHE, 5),
        (DASH, 6),
        (CURRENCY, 6),
        (SIGN, 8),
        (SPACE, 4),
    ):
        costs[:, kind] += cost
    costs[:, RARE] += 10.0
    costs[:, INVALID] += 18.0
    for letter in _LETTERS:
        costs[letter, OPEN] += 5.0
        costs[CLOSE, letter] += 5.0
        costs[letter, CURRENCY] += 4.0
        costs[CURRENCY, letter] += 5.0
        costs[SIGN, letter] += 5.0
        costs[letter, RARE] += 3.0
        costs[RARE, letter] += 3.0
        costs[DIGIT, letter] += 5.0
        costs[letter, DIGIT] += 5.0
        costs[letter, DASH] += 3.0
        costs[DASH, letter] += 2.0
    costs[EDGE, CLOSE] += 4.0
    costs[EDGE, APOSTROPHE] += 3.0
    costs[DIGIT, SPACE] = costs[DIGIT, CURRENCY] = 2.0
    return costs


def _sections() -> Iterator[tuple[str, str, list[str]]]:
    """(language, alphabet, rows) of each section of the data."""
    name, alphabet, rows = "", "", list[str]()
    for line in _DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        first, _, rest = line.partition(" ")
        if first.isascii() and not first.isdigit() and rest:
            if name:
                yield name, alphabet, rows
            name, alphabet, rows = first, rest, []
        else:
            rows.append(line)
    yield name, alphabet, rows


def _language(name: str, alphabet: str, rows: list[str]) -> Language:
    size = len(alphabet) + 1
    pairs = np.zeros((size + 3, size + 3), np.float32)
    pairs[:size, :size] = [[int(cost, 36) / 2 for cost in row] for row in rows]
    pairs[0, 0] = 0.0
    latin, foreign, other = size, size + 1, size + 2
    pairs[1:size, latin] = pairs[latin, 1:size] = _OTHER_SCRIPT
    pairs[0, latin] = pairs[latin, latin] = pairs[latin, 0] = 3.0
    pairs[:, foreign] = _FOREIGN
    pairs[foreign, 1:size] = pairs[foreign, latin] = 3.0
    pairs[foreign, 0] = 2.0
    pairs[:, other] = _OTHER_SCRIPT + _FOREIGN
    pairs[other, :other] = 4.0
    pairs[other, other] = _FOREIGN
    return Language(name, {letter: place + 1 for place, letter in enumerate(alphabet)}, pairs)
