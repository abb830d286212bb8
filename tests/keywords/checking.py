"""What these tests share: a text in, what the pipeline makes of it out; and the same rules in plain Python."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from rules.checking import Outcome, check_file, check_text

from weighbridge.pipelines.keywords import pipeline
from weighbridge.pipelines.keywords.tokens import INVARIABLE, IRREGULAR, STOP_WORDS


def check(text: str) -> Outcome:
    return check_text(text, None, pipeline=pipeline)


def check_bytes(folder: Path, data: bytes) -> Outcome:
    (folder / "keywords").write_bytes(data)
    return check_file(folder / "keywords", None, pipeline=pipeline)


def rows(outcome: Outcome, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the accepted records, in the order of the file."""
    staged = sorted(outcome.rows["keyword"], key=lambda row: row["row_index"])
    return [tuple(row[column] for column in columns) for row in staged]


# The reference, character by character ----------------------------------------------------------------------


def identity(text: str) -> str:
    nfkc = unicodedata.normalize("NFKC", text)
    lower = "".join("i" if c == "\u0130" else c.lower() for c in nfkc)
    return " ".join(unicodedata.normalize("NFKC", lower).split())


def tokens(text: str) -> str:
    normalised = identity(text)
    bare = unicodedata.normalize("NFKC", "".join(c for c in normalised if c not in "'\u2018\u2019\u02bc`"))
    folded = [fold(word) for word in _words(bare)]
    telling = [word for word in folded if word not in STOP_WORDS] or folded
    return " ".join(sorted(set(telling), key=str.encode)) or normalised


def fold(word: str) -> str:
    return IRREGULAR.get(regular := _regular(word), regular)


def _words(text: str) -> list[str]:
    found, word = [], ""
    for i, c in enumerate(text):
        letter = unicodedata.category(c)[0] in "LMN"
        between = c in ".," and 0 < i < len(text) - 1 and _digit(text[i - 1]) and _digit(text[i + 1])
        if letter or (word and (c in "+#" or between)):
            word += c
        else:
            found.append(word)
            word = ""
    return [word for word in [*found, word] if word]


def _digit(c: str) -> bool:
    return unicodedata.category(c) == "Nd"


def _regular(word: str) -> str:
    if not (word.isascii() and word.isalpha()) or word in INVARIABLE:
        return word
    singular = word.removesuffix("s")  # of a plural in -es
    if singular.endswith("ie") and len(singular) >= 4:
        return singular[:-2] + "y"
    if word.endswith("es") and word[:-2] in INVARIABLE:
        return word[:-2]
    if singular.endswith("e"):
        if singular.endswith(("ouse", "ause", "aloe", "canoe", "shoe")) or singular in ("hoe", "toe"):
            return singular
        if any(singular.endswith(end + "e") and len(singular) > len(end) + 1 for end in _BEFORE_ES):
            return singular[:-1]
    for end in ("es", "e", "s", ""):
        stem = word.removesuffix(end)
        if word.endswith(end) and stem.endswith("zz") and len(stem) > 2:
            return stem.rstrip("z") + "z"
    return singular if len(word) >= 4 and not word.endswith(("ss", "us", "is")) else word


_BEFORE_ES = ("ch", "sh", "ss", "us", "x", "o")
