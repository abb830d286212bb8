"""Removes from log lines and alerts everything that identifies people: secrets, addresses, numbers, quoted text.

A name has no pattern. Our own messages put the text of others in quotes, and everything in quotes is removed; of
libraries only their own text is logged (see logs.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

LONGEST = 4_000  # characters
SHORT = 30  # longest text whose result is cached; longer ones seldom repeat
_OPENS = r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|authorization|cookie|credentials?)"

# In this order: a URL before what looks like an e-mail address in it, a social security number before a phone number.
# Ten digits that begin with a one, or read as a day and hour, are a time, not a phone number. Quantifiers are bounded
# where a crafted text could otherwise take quadratic time.
SENSITIVE_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"eyJ[A-Za-z0-9_-]{1,2000}\.eyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), "[JWT_REDACTED]"),
    (re.compile(r"\bwb_[A-Za-z0-9_-]+|\b[a-z]{2}_(?:live|test)_\w+|\bAKIA[A-Z0-9]{16}\b"), "[KEY_REDACTED]"),
    (re.compile(r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]+"), r"\1 [REDACTED]"),
    (re.compile(r"\b([Bb]asic)\s+(?=[a-z+/]*[A-Z0-9=])[A-Za-z0-9+/]{4,}={0,2}"), r"\1 [REDACTED]"),
    # The last @ of a URL ends its password, which may contain one itself.
    (re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30})://[^\s'\"]*@"), r"\1://[REDACTED]@"),
    (
        re.compile(r"\b(https?://[^\s/'\"]+)/[^\s'\"]+"),
        r"\1/[REDACTED]",
    ),  # webhooks carry their secret in the path
    (
        re.compile(rf"(?i)\b(\w{{0,30}}{_OPENS})(\\?['\"]?\s*[=:]\s*\\?['\"]?)(?!\[)[^\s,;&'\"\\]+"),
        r"\1\2[REDACTED]",
    ),
    (re.compile(r"\b\d{3}[- ]\d{2}[- ]\d{4}\b"), "[SSN_REDACTED]"),
    (re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,}\b"), "[EMAIL_REDACTED]"),
    (re.compile(r"(?<![\w.])\+\d[\d ().-]{6,17}\d(?!\w)"), "[PHONE_REDACTED]"),
    (
        re.compile(r"(?<![A-Za-z0-9])(?:1[ .-])?(?:\(\d{3}\)[ .-]?|\d{3}[ .-])\d{3}[ .-]?\d{4}(?![\w-])"),
        "[PHONE_REDACTED]",
    ),
    (
        re.compile(r"(?<![A-Za-z0-9.])(?!20\d\d(?:0\d|1[0-2])[0-3]\d[0-2]\d)1?[2-9]\d{9}(?![A-Za-z0-9])"),
        "[PHONE_REDACTED]",
    ),
)
# The quotes that `repr` puts around the text of others. A quote after a letter is an apostrophe.
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.)*'|(?<!\w)"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_SECRET_NAME = re.compile(rf"(?i)^(?:\w*_)?{_OPENS}$")


def redacted(text: str) -> str:
    """The text, cut to a readable length, with every match of a pattern replaced."""
    text = text[:LONGEST]
    for pattern, instead in SENSITIVE_PATTERNS:
        text = pattern.sub(instead, text)
    return text


def unquoted(text: str) -> str:
    """One of our messages without the quoted text of others."""
    return _QUOTED.sub("'…'", text[:LONGEST])


def quote_input(text: str) -> str:
    """A sender's own text in quotes, short and redacted."""
    text = redacted(text[:200])
    return repr(text if len(text) <= 60 else text[:57] + "…")


@lru_cache(maxsize=1000)
def _short(text: str) -> str:
    """Cached: field names and our own words occur in every line."""
    return redacted(unquoted(text))


@lru_cache(maxsize=1000)
def _opens(name: str) -> bool:
    return bool(_SECRET_NAME.match(name))


def scrubbed(value: Any) -> Any:
    """The value of a log field, at any depth, without the text of others and without what identifies people."""
    match value:
        case str():
            return _short(value) if len(value) <= SHORT else redacted(unquoted(value))
        case UUID():
            return str(value)
        case Mapping():
            return {
                scrubbed(name): "[REDACTED]" if _opens(str(name)) else scrubbed(item)
                for name, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [scrubbed(each) for each in value]
        case None | bool() | int() | float():
            return value
        case BaseException():
            return type(value).__name__
        case _:
            return scrubbed(str(value))
