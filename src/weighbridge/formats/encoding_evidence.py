"""Called by detect_encoding.py: the non-ASCII words of a file → the cost of each encoding.

Each encoding decodes the words to a text, and the letter statistics give the cost of that text
(letter_statistics.py): 'Łódź' is cheap in Polish, '£ód\\x9f' is expensive in every language. The cheapest encoding is
the likeliest one. The larger the difference to the next encoding that gives another text, the more certain it is.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from weighbridge.formats.letter_statistics import (
    CASELESS,
    DIGIT,
    EDGE,
    INVALID,
    LOWER,
    UPPER,
    Costs,
    Ids,
    alphabets,
    between,
    ideographs,
    kind_of,
)

_LONGEST = 256  # only so many bytes of a word are used
_REMEMBERED = 50_000  # distinct words in the cache
_SWITCH = 3.0  # cost of a word in another language than the rest of the file
_SINGLE_LETTER = 4.0  # cost of a word of one letter
_AFTER_CAPITALS = 5.0  # cost of a lower-case letter after two capitals

# Codec → its cost before any evidence. Codecs of equal cost: the most common one first.
SINGLE_BYTE = {
    "cp1252": 0.0,
    "cp1250": 0.5,
    "cp1251": 1.5,
    "iso8859-15": 1.5,
    "iso8859-2": 1.0,
    "mac-roman": 1.0,
    "cp1254": 1.0,
    "cp1253": 1.5,
    "cp1257": 1.0,
    "cp1255": 2.0,
    "cp1256": 2.0,
    "cp874": 2.0,
    "cp1258": 4.0,
    "koi8-r": 2.5,
    "koi8-u": 3.0,
    "iso8859-5": 3.5,
    "iso8859-7": 2.0,
    "iso8859-9": 2.0,
    "iso8859-13": 3.5,
    "mac-latin2": 4.0,
    "mac-iceland": 6.0,
    "mac-cyrillic": 5.0,
    "cp850": 3.0,
    "cp437": 3.5,
    "cp852": 3.0,
    "cp866": 4.0,
}
MULTI_BYTE = {
    "cp932": (1.5, ("ja",)),
    "gb18030": (1.5, ("zh_cn", "zh_tw")),
    "cp950": (1.5, ("zh_tw",)),
    "cp949": (1.5, ("ko",)),
    "euc_jp": (3.0, ("ja",)),
}

_MANY_LETTERS, _LACKING_LETTER = 6, 4.0
LATIN = {
    *("cp1252", "cp1250", "cp1254", "cp1257", "cp1258", "cp850", "cp437", "cp852"),
    *("iso8859-15", "iso8859-2", "iso8859-9", "iso8859-13", "mac-roman", "mac-latin2", "mac-iceland"),
}
ALL = frozenset(SINGLE_BYTE) | frozenset(MULTI_BYTE)

# Bytes that are never the second half of a character in any encoding: words end at them.
_CUTS = bytes(byte for byte in range(0x40) if not 0x30 <= byte <= 0x39)
_IS_CUT = np.array([byte in _CUTS for byte in range(256)])
# Digits before and after a word are no evidence. Digits directly after a non-ASCII byte may be part of a character.
_DIGITS = re.compile(rb"^[0-9]+(?=[A-Za-z])|(?<=[A-Za-z])[0-9]+$")


@dataclass
class Words:
    """A sample of the distinct non-ASCII words of a file; `valid` are UTF-8, `broken` are not.

    A checksum decides which words are kept, so the sample covers the whole file.
    """

    limit: int = 3000
    valid: dict[bytes, int] = field(default_factory=dict)
    broken: dict[bytes, int] = field(default_factory=dict)
    counts: dict[bytes, int] = field(default_factory=dict)  # occurrences of each word
    _seen: dict[bytes, bytes] = field(default_factory=dict)  # a word → the same without digits around it
    _held: bytes = b""  # the first bytes of a word that a chunk cuts

    def add(self, chunk: bytes) -> None:
        """Add the words of the next chunk of the file; b"" at its end."""
        text = self._held + (chunk or b" ")
        data = np.frombuffer(text, np.uint8)
        cuts = np.flatnonzero(_IS_CUT[data])
        if not len(cuts):
            self._held = text if len(text) <= 4 * _LONGEST else b""  # no text has a word of that length
            return
        self._held = text[cuts[-1] + 1 :]
        high = np.flatnonzero(data[: cuts[-1]] >= 0x80)
        ends = np.unique(np.searchsorted(cuts, high))
        starts = np.where(ends > 0, cuts[ends - 1] + 1, 0)
        found = Counter(
            text[start:end] for start, end in zip(starts.tolist(), cuts[ends].tolist(), strict=True)
        )
        for word, count in found.items():
            kept = self._seen.get(word)
            if kept is None:
                kept = self._keep(_DIGITS.sub(b"", word))
                if len(self._seen) < _REMEMBERED:
                    self._seen[word] = kept
            if kept in self.counts or len(self.counts) < _REMEMBERED:
                self.counts[kept] = self.counts.get(kept, 0) + count

    def _keep(self, word: bytes) -> bytes:
        """Put the word into the sample, cut to the maximum length. Returns the cut word."""
        try:
            text = word.decode()
            word, sample = text[:_LONGEST].encode(), self.valid
        except UnicodeDecodeError:
            word, sample = word[:_LONGEST], self.broken
        if word not in sample:
            sample[word] = zlib.crc32(word)
            if len(sample) >= 2 * self.limit:
                for each in sorted(sample, key=sample.__getitem__)[self.limit :]:
                    del sample[each]
        return word


@dataclass(frozen=True)
class CodecCosts:
    """The cost of each word, and of all words, in one encoding."""

    codec: str
    costs: Costs
    total: float
    handicap: float  # added for ranking where the file has too few different bytes to prove the encoding

    @property
    def rank(self) -> float:
        return self.total + self.handicap


def rank_codecs(words: Sequence[bytes], among: Container[str] = ALL) -> list[CodecCosts]:
    """The costs of the words in each of these encodings, the likeliest encoding first.

    A text in another alphabet has many different letters. If the file has only a few different non-ASCII bytes,
    encodings of Latin letters are ranked first; the others are not ruled out.
    """
    joined = b" " + b" ".join(words) + b" "
    data = np.frombuffer(joined, np.uint8)
    starts = np.concatenate(([0], np.cumsum([len(word) + 1 for word in words])[:-1])).astype(np.intp)
    readings = [_single(codec, prior, data, starts) for codec, prior in SINGLE_BYTE.items() if codec in among]
    readings += [
        _multi(codec, prior, languages, words)
        for codec, (prior, languages) in MULTI_BYTE.items()
        if codec in among
    ]
    few = _LACKING_LETTER * max(0, _MANY_LETTERS - len({byte for byte in joined if byte >= 0x80}))
    readings = [replace(each, handicap=0.0 if each.codec in LATIN else few) for each in readings]
    return sorted(readings, key=lambda reading: reading.rank)


def text_cost(text: str) -> float:
    """The cost of a text in the language in which it is cheapest."""
    marked = f" {text} "
    kinds = np.array([kind_of(character) for character in marked])
    least = min(
        float(language.pairs[ids[:-1], ids[1:]].sum())
        for language in alphabets()
        for ids in [np.array([language.id_of(character) for character in marked])]
    )
    alphabetic = least + float(between()[kinds[:-1], kinds[1:]].sum()) + float(_odd_forms(kinds).sum())
    return min(alphabetic, *(_ideographic(text, language) for language in ideographs()))


def _single(codec: str, prior: float, data: npt.NDArray[np.uint8], starts: Ids) -> CodecCosts:
    table = _table(codec)
    kinds = table.kinds[data]
    form = between()[kinds[:-1], kinds[1:]]
    form[1:] += _odd_forms(kinds)
    costs = []
    for ids, pairs in table.languages:
        of = ids[data]
        costs.append(np.add.reduceat(pairs[of[:-1], of[1:]] + form, starts))
    every = np.stack(costs)
    main = every.sum(axis=1).argmin()
    least = np.minimum(every[main], every.min(axis=0) + _SWITCH)
    return CodecCosts(codec, least, float(least.sum()) + prior, 0.0)


def _odd_forms(kinds: npt.NDArray[np.intp]) -> Costs:
    """The cost of unusual capitals and single letters, at each character but the first two."""
    after = (kinds[:-2] == UPPER) & (kinds[1:-1] == UPPER) & (kinds[2:] == LOWER)
    letter = (kinds[1:-1] == LOWER) | (kinds[1:-1] == UPPER) | (kinds[1:-1] == CASELESS)
    lone = (kinds[:-2] == EDGE) & letter & (kinds[2:] == EDGE)
    costs: Costs = after.astype(np.float32) * _AFTER_CAPITALS + lone.astype(np.float32) * _SINGLE_LETTER
    return costs


@dataclass(frozen=True)
class _Table:
    """The character kind of each byte in a single-byte encoding, and the letter ids in each language."""

    kinds: Ids
    languages: list[tuple[Ids, Costs]]


@cache
def _table(codec: str) -> _Table:
    characters = characters_of(codec)
    have = set(characters)
    languages = [language for language in alphabets() if language.reads(have)]
    return _Table(
        np.array([kind_of(character) for character in characters], np.intp),
        [
            (np.array([language.id_of(character) for character in characters], np.intp), language.pairs)
            for language in languages
        ],
    )


def in_codec(word: bytes, codec: str) -> str:
    """The word as text, with U+FFFD for undecodable bytes. A word that was cut may end inside a character."""
    if len(word) < _LONGEST:
        return word.decode(codec, "replace")
    return codecs.getincrementaldecoder(codec)("replace").decode(word)


def characters_of(codec: str) -> list[str]:
    """The character of each byte; U+FFFD for a byte without one."""
    return [bytes([byte]).decode(codec, "replace") for byte in range(256)]


def _multi(codec: str, prior: float, languages: Iterable[str], words: Sequence[bytes]) -> CodecCosts:
    texts = [in_codec(word, codec) for word in words]
    every = [np.array([_ideographic(text, each) for text in texts], np.float32) for each in languages]
    least = min(every, key=lambda costs: float(costs.sum()))
    return CodecCosts(codec, least, float(least.sum()) + prior, 0.0)


def _ideographic(text: str, language: str) -> float:
    common = ideographs()[language]
    cost, before = 0.0, " "
    for character in text:
        if character.isascii():
            cost += 3.0 if character.isalpha() else 1.0
        else:
            cost += common.get(character) or _uncommon(character, language)
        if before.isascii() != character.isascii() and (before.isalpha() or character.isalpha()):
            latin = before if before.isascii() else character
            cost += 6.0 if latin.isalpha() else 0.0
        before = character
    return cost


# Encodings that list the characters in everyday use first, and the last code of these.
_EVERYDAY = {
    "zh_cn": ("gb2312", 0xD7FA),
    "zh_tw": ("big5", 0xC67F),
    "ja": ("euc_jp", 0xCFD4),
    "ko": ("euc_kr", 0xC8FF),
}


@cache
def _uncommon(character: str, language: str) -> float:
    """The cost of a character that the statistics do not list."""
    code = ord(character)
    if 0x3040 <= code < 0x3100 or 0xFF61 <= code < 0xFFA0:
        return 8.0 if language == "ja" else 13.0
    if 0x3000 <= code < 0x3040 or 0xFF00 <= code < 0xFF61:
        return 6.0
    if 0x4E00 <= code < 0xA000 or 0xAC00 <= code < 0xD7A4:
        codec, last = _EVERYDAY[language]
        written = character.encode(codec, "replace")
        return 9.5 if len(written) == 2 and int.from_bytes(written) <= last else 14.0
    if kind_of(character) == INVALID:
        return 25.0
    return 14.0 if kind_of(character) not in (EDGE, DIGIT) else 10.0
