"""Called by to_utf8.py: the words of a file that is not UTF-8 → its likeliest encoding, and how certain that is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weighbridge.formats.encoding_evidence import LATIN, CodecCosts, Words, in_codec, rank_codecs, text_cost
from weighbridge.formats.encoding_outliers import UNLIKELY, find_outlier

CERTAIN = 10.0  # difference of costs from which a second encoding is ruled out
FEW_WORDS, CERTAIN_BY_FEW = 2, 12.0  # the same if only so many words differ between the two
TIED = 1.5  # below this difference the two encodings are equally likely
CLEAR_MAJORITY = 2  # times as much text in one encoding as in the other
_MIXED = 8.0  # difference of costs from which a word is UTF-8 and not text in another encoding
_LOOKED_AT = 200  # words that are compared one by one

# A character in UTF-8 that was read as windows-1252 and written as UTF-8 again: 'Ã¼' for 'ü', 'â€™' for '’'.
_TWICE = re.compile(
    rb"\xc3[\x82-\xb4](?:\xc2[\x80-\xbf]|\xc5[\x92\x93\xa0\xa1\xb8\xbd\xbe]|\xc6\x92|\xcb[\x86\x9c]"
    rb"|\xe2(?:\x80[\x93-\xba]|\x82\xac|\x84\xa2))"
)
# The same in text, where it can be nothing else: three characters for one; or a capital with an accent before a sign
# that follows no word, or before any sign that is directly followed by a letter.
_SIGN = "[\xa1-\xaa\xac\xaf-\xb4\xb8-\xba\xbc-\xbf\u0192\u02c6\u02dc]"
_OTHER = (
    "[\x80-\xa0\xab\xad\xae\xb5-\xb7\xbb\u2013-\u203a\u20ac\u2122\u0152\u0153\u0160\u0161\u0178\u017d\u017e]"
)
_SURELY = re.compile(
    f"\xe2[\u20ac\u201a\u201e]|[\xc3-\xc5](?:{_SIGN}|{_OTHER}(?=[a-z]))|\xc2[\xa3\xa7\xa9\xb0]"
)
_WORD_END = re.compile(rb"[\x00-\x40\x5b-\x60\x7b-\x7f]|\Z")


@dataclass(frozen=True)
class Guess:
    """The likeliest encoding. `rival` is another encoding that remains possible and gives other letters."""

    codec: str
    rival: str | None = None
    tied: bool = False  # both are equally likely
    one_word: bool = False  # the rival is likelier for `word` only, so the file may mix the two
    word: bytes = b""  # a word that differs between the two
    mixed: bytes = b""  # a word in UTF-8, in a file with words that are not UTF-8


def guess(words: Words) -> Guess:
    """The encoding of a file that is not UTF-8, from its non-ASCII words."""
    broken, valid = list(words.broken), list(words.valid)
    if not broken:  # the bytes that are not UTF-8 are outside of all words
        return Guess("cp1252")
    readings = rank_codecs(broken)
    if valid:
        some = valid[:_LOOKED_AT]
        as_read = rank_codecs(some, (readings[0].codec,))[0].costs
        as_utf8 = np.array([text_cost(word.decode()) for word in some])
        if float((as_read - as_utf8).sum()) > _MIXED:
            clearest = some[int((as_read - as_utf8).argmax())]
            return Guess(readings[0].codec, mixed=clearest)
        broken += valid
        readings = rank_codecs(broken)
    return _majority_guess(broken, readings, words.counts) or _likeliest_guess(broken, readings)


def _majority_guess(
    words: Sequence[bytes], readings: list[CodecCosts], counts: Mapping[bytes, int]
) -> Guess | None:
    """The encoding of most of the text, if the words in it repeat and a second encoding has more different words.

    The costs count each word once. So one line with many different words in a second encoding may outweigh many lines
    that repeat the same words.
    """
    often = np.array([counts.get(word, 1) for word in words])
    latin = [each for each in readings if each.codec in LATIN]
    if readings[0].codec not in LATIN:
        return None
    most = min(latin, key=lambda each: float((often * each.costs).sum()))
    if most is readings[0]:
        return None
    rest = min(latin, key=lambda each: float(np.minimum(most.costs, each.costs).sum()))
    gains = most.costs - rest.costs  # positive for a word that is likelier in the second encoding
    for_most, for_rest = gains <= -UNLIKELY, gains >= UNLIKELY
    both = float(np.minimum(most.costs, rest.costs).sum())
    few = not for_rest.any() or for_most.sum() < max(FEW_WORDS, for_rest.sum() / 4)
    if few or readings[0].total - both < CERTAIN:
        return None
    text_of_most, text_of_rest = int(often[for_most].sum()), int(often[for_rest].sum())
    if not text_of_rest < text_of_most:
        return None
    clear = text_of_most >= CLEAR_MAJORITY * text_of_rest
    return Guess(most.codec, rest.codec, not clear, one_word=clear, word=words[int(gains.argmax())])


def _likeliest_guess(words: Sequence[bytes], readings: list[CodecCosts]) -> Guess:
    best, others = readings[0], readings[1:]
    text = [in_codec(word, best.codec) for word in words]
    outlier = find_outlier(words, readings)
    for other in others:
        margin = other.total - best.total
        if margin >= CERTAIN_BY_FEW:
            continue
        differing = [place for place, word in enumerate(words) if in_codec(word, other.codec) != text[place]]
        needed = CERTAIN_BY_FEW if len(differing) <= FEW_WORDS else CERTAIN
        if not differing or margin >= needed:
            continue
        # One word is enough evidence for the most common encoding only.
        lone = len(words) == 1 and best.codec != "cp1252"
        tied = lone or other.rank - best.rank < TIED
        if outlier and outlier.codec != other.codec and not tied:
            continue  # the warning is about the outlier instead
        gains = best.costs - other.costs  # positive for a word that is likelier in the other encoding
        explained = outlier is not None and outlier.codec == other.codec
        shown = (
            outlier.place if outlier and explained else min(differing, key=lambda place: float(gains[place]))
        )
        return Guess(best.codec, other.codec, tied, word=words[shown])
    if outlier:
        return Guess(best.codec, outlier.codec, one_word=True, word=words[outlier.place])
    return Guess(best.codec)


def reads_as_utf8(words: Words, codec: str) -> bool:
    """Are the words that are valid UTF-8 likelier UTF-8 than text in this codec?"""
    some = list(words.valid)[:_LOOKED_AT]
    as_named = sum(text_cost(in_codec(word, codec)) for word in some)
    return sum(text_cost(word.decode()) for word in some) + _MIXED < as_named


@dataclass
class DoubleEncoding:
    """Searches the UTF-8 of a file for text that was encoded twice."""

    found: int = 0
    sure: bool = False  # a single word proves it
    example: tuple[bytes, str] | None = None  # the word in the file, and the word that was meant
    _seen: dict[bytes, bool] = field(default_factory=dict)

    def inspect(self, chunk: bytes) -> None:
        if self.found >= _LOOKED_AT or len(self._seen) >= _LOOKED_AT:
            return
        place = 0
        while self.found < _LOOKED_AT and (match := _TWICE.search(chunk, place)):
            start = match.start()
            while start and start > match.start() - 40 and not _WORD_END.match(chunk, start - 1):
                start -= 1
            end = _WORD_END.search(chunk, match.end())
            place = end.start() if end else len(chunk)
            self._count(chunk[start : min(place, match.end() + 40)])

    def _count(self, word: bytes) -> None:
        if word not in self._seen:
            meant = _undone(word)
            self._seen[word] = meant is not None
            sure = meant is not None and _surely_twice(word.decode())
            if meant is not None and (self.example is None or (sure and not self.sure)):
                self.example = word, meant
            self.sure = self.sure or sure
        self.found += self._seen[word]


def _undone(word: bytes) -> str | None:
    """The word before it was encoded a second time; None if that is not more plausible."""
    try:
        text = word.decode()
        single = b"".join(_as_1252(character) for character in text).decode()
    except UnicodeError:
        return None
    return single if text_cost(single) + _MIXED < text_cost(text) else None


def _surely_twice(text: str) -> bool:
    """`MÃ¼nchen` and `donâ€™t` are words in no language. `IRMÃ”`, a word before a closing quote, may be one."""
    lone = len(text) == 2 and text[0] != "\xc2"  # a single letter
    return not lone and _SURELY.search(text) is not None


def _as_1252(character: str) -> bytes:
    """The byte in windows-1252. It leaves five bytes undefined; programs keep these as control characters."""
    return character.encode("latin-1" if "\x80" <= character < "\xa0" else "cp1252")
