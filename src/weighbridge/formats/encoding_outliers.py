"""Called by detect_encoding.py: finds a word that is in another encoding than the rest of the file.

A file in windows-1250 with one line in Mac Roman has 'OrlŽans' among many correct words. The total cost does not show
that, so each word is checked: its cost, its form, and whether all other words of the file begin with a capital.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from weighbridge.formats.encoding_evidence import LATIN, CodecCosts, in_codec
from weighbridge.formats.letter_statistics import CASELESS, CURRENCY, DASH, INVALID, LOWER, UPPER, kind_of

UNLIKELY = 6.0  # a word that is so much cheaper in another encoding is an outlier
MISSHAPEN = 3.0  # the same for a word of an impossible form
_FEW = 15  # words up to which these two hold; with more words the difference must be larger
_SHORTEST = 3  # letters of an outlier; 'à' alone is a sign in other encodings
_CAPITALISED = 6  # capitalised words from which all words of the file are expected to be capitalised
# An apostrophe inside a word that is neither a contraction (don’t) nor an elision (l’été, dell’arte, aujourd’hui).
_NO_ELISION = re.compile(
    r"(?i)[^\W\d_]{2}(?<!ll|qu|rd|re|st|nt|un|tr|is)’(?!(?:s|t|d|m|re|ve|ll|n|clock)\b)[^\W\d_]"
)
_LETTERS = (LOWER, UPPER, CASELESS)


@dataclass(frozen=True)
class Outlier:
    place: int  # index of the word
    codec: str  # the encoding in which it is plausible


def find_outlier(words: Sequence[bytes], readings: Sequence[CodecCosts]) -> Outlier | None:
    """The word that gains most from another encoding; `readings[0]` is the encoding of the file."""
    best, found = readings[0], None
    if best.codec not in LATIN or len(words) < 2:
        return None
    capitals = _begin_with_capitals([in_codec(word, best.codec) for word in words])
    # Among many words one is unusual by chance. Costs are logarithms, so this is one, too.
    chance = max(0.0, log(len(words) / _FEW))
    most = 0.0 if capitals else MISSHAPEN + chance - 0.1  # a smaller gain is no evidence
    for other in readings[1:]:
        if other.codec not in LATIN:
            continue
        gains = best.costs - other.costs
        for place in np.flatnonzero(gains > most).tolist():
            gain = float(gains[place])
            one, two = in_codec(words[place], best.codec), in_codec(words[place], other.codec)
            if gain > most and _is_odd(one, two, gain, chance, capitals=capitals):
                found, most = Outlier(place, other.codec), gain
    return found


def _is_odd(one: str, two: str, gain: float, chance: float, *, capitals: bool) -> bool:
    letters, meant = _letters(one), _letters(two)
    if one == two or meant < max(_SHORTEST, letters) or _misshapen(two):
        return False
    if (one[0].isupper() and not two[0].isupper()) or ("’" in one and not _NO_ELISION.search(one)):
        return False
    if gain - chance >= UNLIKELY or (gain - chance >= MISSHAPEN and _misshapen(one)):
        return True
    return capitals and kind_of(one[0]) == LOWER and kind_of(two[0]) == UPPER


def _letters(text: str) -> int:
    return sum(kind_of(each) in _LETTERS for each in text)


def _misshapen(text: str) -> bool:
    """A non-ASCII capital between lower-case letters, as in 'OrlŽans', or a sign between letters, as in 'K”ln'."""
    kinds = [kind_of(each) for each in text]
    if _NO_ELISION.search(text) or (kinds[0] == CURRENCY and kinds[1:2] == [LOWER]):
        return True
    for place in range(1, len(text) - 1):
        before, kind, after = kinds[place - 1 : place + 2]
        if text[place].isascii() or before not in _LETTERS or after not in _LETTERS:
            continue
        if (kind == UPPER and before == after == LOWER) or kind == INVALID:
            return True
        if kind not in (*_LETTERS, DASH) and unicodedata.category(text[place]) not in ("Pf", "Zs"):
            return True
    return False


def _begin_with_capitals(texts: Sequence[str]) -> bool:
    """Do all words but one begin with a capital?"""
    small = sum(text[:1].islower() for text in texts)
    return small == 1 and sum(text[:1].isupper() for text in texts) >= _CAPITALISED
