"""Called by number_sql.py: the currencies of amounts, as an ISO 4217 code such as EUR or as a symbol.

A symbol may stand for several codes: `$` is any dollar or peso. Any other word next to a number is not a currency.
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
# If no field stores the currency, amounts in this currency need no warning.
ORDINARY = "USD"
# Letters of a currency next to a number. Not \p{L}: RE2 needs milliseconds to build that.
_LETTERS = "A-Za-złč$€£¥₹₺₩₽"
WORD = f"[{_LETTERS}]+"
# SQL, fast: may the amount have a currency other than `$`? Letters and all non-ASCII characters sort after 9; signs
# sort between + and 0.
MAY_NAME_ONE = "({x} >= ':' OR {x}[-1] > '9' OR ({x} >= '+' AND {x} < '0'))"
_PAIRS = "|".join(f"{symbol}:{code}" for symbol, codes in SYMBOLS.items() for code in codes)
_KNOWN = "|".join([*sorted(CODES), *SYMBOLS])


def names(code: str = "") -> str:
    """A regular expression for any currency of an amount, or only for this code and its symbols.

    For any currency it accepts any three letters, as a pattern of all codes is slow to build; `known` checks the code.
    """
    if not code:
        return _either(["[A-Z]{3}", *SYMBOLS])
    return _either([code, *(symbol for symbol, codes in SYMBOLS.items() if code in codes)])


def symbols(code: str = "") -> str:
    """The same for symbols that are not words: only these are allowed directly before a decimal mark."""
    found = [
        symbol for symbol, codes in SYMBOLS.items() if not symbol.isalpha() and (not code or code in codes)
    ]
    return _either(found) if found else "(?:)"


def meaning(word: str) -> str:
    """The code that a symbol most often stands for."""
    return SYMBOLS.get(word, (word,))[0]


def known(x: str) -> str:
    """SQL: is the word next to the amount a currency? With one on each side, as in `$5.00 CAD`: do both agree?"""
    return f"contains('||{_KNOWN}|{_PAIRS}|', '|' || {words(x)} || '|')"


def agrees(x: str, code: str) -> str:
    """SQL: does the amount have no other currency than `code` (SQL)? True if `code` is not three letters."""
    named = words(x)
    fits = f"contains('|{_PAIRS}|', '|' || {named} || ':' || {code} || '|')"
    return (
        f"(({code}) IS NULL OR length({code}) <> 3 OR {named} IN ('', {code}) OR {fits}"
        f" OR suffix({named}, ':' || {code}))"
    )


def agrees_quickly(x: str, code: str) -> str:
    """The same, faster, for an amount that was read: nearly all have no currency, or `$` before the number."""
    may = MAY_NAME_ONE.replace("{x}", x)
    dollars = f"coalesce(length({code}) <> 3 OR contains('{' '.join(SYMBOLS['$'])}', {code}), true)"
    # Of all possible first characters of an amount, only $ sorts before the signs.
    return f"CASE WHEN {may} THEN {agrees(x, code)} WHEN {x} < '+' THEN {dollars} ELSE true END"


def words(x: str) -> str:
    """SQL: `$5.00 CAD` → `$:CAD`, `5.00 EUR` → `EUR`."""
    return f"trim(regexp_replace({x}, '[^{_LETTERS}]+', ':', 'g'), ':')"


def _either(words: list[str]) -> str:
    return f"(?:{'|'.join(word.replace('$', '[$]') for word in words)})"
