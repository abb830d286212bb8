"""Under guess.py: one word that makes no sense in the encoding of the others, but does in another encoding.

A file in windows-1250 with one line in Mac Roman has 'OrlŽans' among many right words. The sum of all words does not
show that, so each word is judged alone: by its cost, by its form, and by how the other words of the file begin.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from weighbridge.formats.encoding_evidence import LATIN, Reading, in_codec
from weighbridge.formats.letters import CASELESS, CURRENCY, DASH, INVALID, LOWER, UPPER, kind_of

UNLIKELY = 6.0  # so much cheaper in another encoding, the word alone is evidence
MISSHAPEN = 3.0  # the same for a word of an impossible form
_FEW = 15  # words, for which these two hold
_SHORTEST = 3  # letters; 'à' alone is a sign in other encodings
_CAPITALISED = 6  # words, to say that all words of the file begin with a capital
# An apostrophe inside a word that is neither a contraction (don’t) nor an elision (l’été, dell’arte, aujourd’hui).
_NO_ELISION = re.compile(
    r"(?i)[^\W\d_]{2}(?<!ll|qu|rd|re|st|nt|un|tr|is)’(?!(?:s|t|d|m|re|ve|ll|n|clock)\b)[^\W\d_]"
)
_LETTERS = (LOWER, UPPER, CASELESS)


@dataclass(frozen=True)
class OddWord:
    place: int
    codec: str  # in which it makes sense


def odd_word(words: Sequence[bytes], readings: Sequence[Reading]) -> OddWord | None:
    """The word that another encoding explains best; `readings[0]` is the encoding of the file."""
    best, found = readings[0], None
    if best.codec not in LATIN or len(words) < 2:
        return None
    capitals = _begin_with_capitals([in_codec(word, best.codec) for word in words])
    # Among many words one is unusual by chance; costs are logarithms, and so is what that adds.
    chance = max(0.0, log(len(words) / _FEW))
    most = 0.0 if capitals else MISSHAPEN + chance - 0.1  # less says nothing
    for other in readings[1:]:
        if other.codec not in LATIN:
            continue
        gains = best.costs - other.costs
        for place in np.flatnonzero(gains > most).tolist():
            gain = float(gains[place])
            one, two = in_codec(words[place], best.codec), in_codec(words[place], other.codec)
            if gain > most and _is_odd(one, two, gain, chance, capitals=capitals):
                found, most = OddWord(place, other.codec), gain
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
    """A capital that is not ASCII between small letters, as in 'OrlŽans'; a sign between letters, as in 'K”ln'."""
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
