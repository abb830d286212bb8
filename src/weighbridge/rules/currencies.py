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
# What stands beside a number, whether it is a currency or not.
WORD = r"[\p{L}\p{Sc}]+"
# SQL, cheap: may the amount name a currency other than `$`? A letter, and all that is not ASCII, is beyond 9.
MAY_NAME_ONE = (
    f"{{x}} >= ':' OR {{x}}[-1] > '9' OR ({{x}} > '+' AND {{x}} < '0' AND regexp_matches({{x}}, '{WORD}'))"
)
_FITTING = "|" + "|".join(f"{symbol}:{code}" for symbol, codes in SYMBOLS.items() for code in codes) + "|"


def names(code: str = "") -> str:
    """A regular expression for all that an amount may have as its currency, or as this one."""
    if not code:
        return _either([*sorted(CODES), *SYMBOLS])
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


def agrees(x: str, code: str) -> str:
    """SQL: does the amount name no currency but this, which is SQL? What is no code of three letters says nothing."""
    other = f"word <> {code} AND NOT contains('{_FITTING}', '|' || word || ':' || {code} || '|')"
    differs = f"len(list_filter(regexp_extract_all({x}, '{WORD}'), lambda word: {other})) > 0"
    return f"(({code}) IS NULL OR length({code}) <> 3 OR NOT ({differs}))"


def once(x: str) -> str:
    """SQL: where the amount names its currency before and after the number, as in `$5.00 CAD`, do both fit?"""
    fits = f"contains('{_FITTING}', '|' || word[1] || ':' || word[2] || '|')"
    found = f"[regexp_extract_all({x}, '{WORD}')]"
    return f"list_transform({found}, lambda word: len(word) = 1 OR word[1] = word[2] OR {fits})[1]"


def _either(words: list[str]) -> str:
    return f"(?:{'|'.join(word.replace('$', '[$]') for word in words)})"
