"""Currencies as amounts have them: a code of ISO 4217 such as EUR, or a symbol.

A symbol may fit several codes: `$` is any dollar or peso. Any other word beside a number is no currency.
"""

from __future__ import annotations

_CODES = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF "
    "CHF CLF CLP CNH CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ "
    "GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR "
    "LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK "
    "PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS "
    "TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG ZWL "
)
_DOLLARS = (
    "ARS AUD BBD BMD BND BSD BZD CAD CLP COP CUP DOP FJD GYD HKD JMD KYD LRD MXN NAD NZD SBD SGD SRD TTD TWD UYU "
    "XCD "
)
CODES = frozenset(_CODES.split())
SYMBOLS = {
    "$": ("USD", *_DOLLARS.split()),
    **{f"{letters}$": (code,) for letters, code in (
        ("US", "USD"), ("U", "USD"), ("AU", "AUD"), ("A", "AUD"), ("CA", "CAD"), ("C", "CAD"), ("NZ", "NZD"),
        ("HK", "HKD"), ("SG", "SGD"), ("S", "SGD"), ("MX", "MXN"), ("R", "BRL"), ("NT", "TWD"),
    )},
    "€": ("EUR",),
    "£": ("GBP", "EGP", "FKP", "GIP", "LBP", "SHP"),
    "¥": ("JPY", "CNY", "CNH"),
    "₹": ("INR",),
    "₺": ("TRY",),
    "₩": ("KRW", "KPW"),
    "₽": ("RUB",),
    "kr": ("SEK", "NOK", "DKK", "ISK"),
    "zł": ("PLN",),
    "Kč": ("CZK",),
    "Ft": ("HUF",),
    "lei": ("RON", "MDL"),
}  # fmt: skip
# The ordinary currency of amounts that no field stores the currency of; an American file says nothing special by it.
ORDINARY = "USD"
# What stands beside a number. Not \p{L}: RE2 takes milliseconds to build that.
_LETTERS = "A-Za-złč$€£¥₹₺₩₽"
WORD = f"[{_LETTERS}]+"
# SQL, cheap: may the amount name a currency other than `$`? A letter, and all that is not ASCII, is beyond 9; a sign is
# between + and 0.
MAY_NAME_ONE = "({x} >= ':' OR {x}[-1] > '9' OR ({x} >= '+' AND {x} < '0'))"
_PAIRS = "|".join(f"{symbol}:{code}" for symbol, codes in SYMBOLS.items() for code in codes)
_KNOWN = "|".join([*sorted(CODES), *SYMBOLS])


def names(code: str = "") -> str:
    """A regular expression for all that an amount may have as its currency, or as this one.

    Three letters of any currency: a pattern of all codes takes long to build, so `known` looks at them.
    """
    if not code:
        return _either(["[A-Z]{3}", *SYMBOLS])
    return _either([code, *(symbol for symbol, codes in SYMBOLS.items() if code in codes)])


def symbols(code: str = "") -> str:
    """The same for symbols that are no words: only they may stand directly before a decimal mark."""
    found = [
        symbol for symbol, codes in SYMBOLS.items() if not symbol.isalpha() and (not code or code in codes)
    ]
    return _either(found) if found else "(?:)"


def meaning(word: str) -> str:
    """The code that a symbol most often stands for."""
    return SYMBOLS.get(word, (word,))[0]


def known(x: str) -> str:
    """SQL: is the word beside the amount a currency? Where there is one on each side, `$5.00 CAD`, do both fit?"""
    return f"contains('||{_KNOWN}|{_PAIRS}|', '|' || {words(x)} || '|')"


def agrees(x: str, code: str) -> str:
    """SQL: does the amount name no currency but this, which is SQL? What is no code of three letters says nothing."""
    named = words(x)
    fits = f"contains('|{_PAIRS}|', '|' || {named} || ':' || {code} || '|')"
    return (
        f"(({code}) IS NULL OR length({code}) <> 3 OR {named} IN ('', {code}) OR {fits}"
        f" OR suffix({named}, ':' || {code}))"
    )


def agrees_quickly(x: str, code: str) -> str:
    """The same for an amount that was read, faster: nearly all have no currency, or `$` before the number."""
    may = MAY_NAME_ONE.replace("{x}", x)
    dollars = f"coalesce(length({code}) <> 3 OR contains('{' '.join(SYMBOLS['$'])}', {code}), true)"
    # Of all that an amount may begin with, only $ is before the signs.
    return f"CASE WHEN {may} THEN {agrees(x, code)} WHEN {x} < '+' THEN {dollars} ELSE true END"


def words(x: str) -> str:
    """SQL: `$5.00 CAD` → `$:CAD`, `5.00 EUR` → `EUR`."""
    return f"trim(regexp_replace({x}, '[^{_LETTERS}]+', ':', 'g'), ':')"


def _either(words: list[str]) -> str:
    return f"(?:{'|'.join(word.replace('$', '[$]') for word in words)})"
