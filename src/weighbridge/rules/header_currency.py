"""Called by headers.py: the currency in a header, as in `Amount spent (EUR)`, `Amount spent (€)` or `Price €`."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from weighbridge.rules.currencies import SYMBOLS

_CODE = re.compile(r"^(?P<name>.+?)\s*[(\[](?P<code>[A-Z]{3})[)\]]$")
# `$`, `¥`, `kr` and `lei` stand for several currencies that are in common use; `Ft` in a header may be feet.
_CODES = {
    **{symbol: codes[0] for symbol, codes in SYMBOLS.items() if len(codes) == 1 and symbol != "Ft"},
    "£": "GBP", "₩": "KRW", "₪": "ILS", "₫": "VND", "₴": "UAH", "₦": "NGN", "₸": "KZT", "₾": "GEL",
    "₼": "AZN", "฿": "THB", "₡": "CRC", "₲": "PYG", "₵": "GHS", "₮": "MNT", "₭": "LAK", "৳": "BDT",
}  # fmt: skip
_WORDS = "|".join(sorted((word for word in _CODES if word.isalpha()), key=len, reverse=True))
_LETTERS = "|".join(symbol[:-1] for symbol in SYMBOLS if symbol.endswith("$") and symbol != "$")
_SIGN = re.compile(
    r"\s*[(\[]?\s*(?:\bin\s+)?(?P<symbol>"
    rf"(?:\b(?:{_LETTERS}))?[$]|[¢-¥\u058f\u060b\u09f3\u0e3f\u20a0-\u20c0]|(?<![^\W\d_])(?:{_WORDS})(?=[)\] ]*$)"
    r")\s*[)\]]?"
)


@dataclass(frozen=True)
class HeaderParts:
    """A header without its currency, and the currency."""

    without_currency: str
    code: str | None = None
    symbol: str = ""  # a symbol that several currencies share


@lru_cache(maxsize=20_000)  # every file needs for every known header
def split(header: str) -> HeaderParts:
    """`Amount spent (€)` → `Amount spent`, EUR. A header with two different symbols has no currency."""
    text = unicodedata.normalize("NFKC", header).strip()
    if found := _CODE.match(text):
        return HeaderParts(found["name"], found["code"])
    if text.isascii() and "$" not in text:
        return HeaderParts(header)
    symbols = {found["symbol"] for found in _SIGN.finditer(text)}
    if len(symbols) != 1:
        return HeaderParts(header)
    [symbol] = symbols
    code = _CODES.get(symbol)
    return HeaderParts(_SIGN.sub(" ", text).strip(), code, "" if code else symbol)


def contradict(one: str, other: str) -> bool:
    """Do two codes or symbols mean different currencies?"""
    ones, others = SYMBOLS.get(one, (one,)), SYMBOLS.get(other, (other,))
    return not set(ones) & set(others)
