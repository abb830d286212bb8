"""Called by normalise.py: the SQL of `n.date` and `n.timestamp`.

    2025-01-31, 2025/1/31, 20250131, 2025-W05-5      unambiguous order
    31/01/2025, 31-1-25, 31.01.25                    the order is decided once for the file
    31-Jan-25, Jan 31, 2025, Fri, 31 January 2025    English month names, in any case

A date field also accepts a time of midnight and a zone, which are ignored: 2025-01-31T00:00:00+02:00. A two-digit year
is in 1969 to 2068. A weekday must match the date. Years are 1 to 9999.
"""

from __future__ import annotations

from weighbridge.model.rule import Reason

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"  # not 0000, which DuckDB reads as 1 BC
# The three parts of a date of digits.
_YEAR_LAST = "[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{4}"
_SHORT_YEAR = "[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2}"
_SHORT_YEAR_FIRST = "[0-9]{2}[/.-][0-9]{1,2}[/.-][0-9]{1,2}"
_EITHER_YEAR = f"[0-9]{{1,2}}[/.-][0-9]{{1,2}}[/.-](?:{_YEAR}|[0-9]{{2}})"
_YEAR_FIRST = f"{_YEAR}[/.-][0-9]{{1,2}}[/.-][0-9]{{1,2}}"
_EIGHT_DIGITS = "(?:19|20)[0-9]{6}|2100[0-9]{4}"
_WEEK = f"{_YEAR}-W[0-9]{{2}}-[1-7]"
# Words for month and weekday, which may be shortened to three letters, with single spaces between all parts.
_WORD = "([a-z]{3})[a-z]*"
_DAY = "([0-9]{1,2})(?:st|nd|rd|th)?"
_NAMED = f"^(?:[a-z]{{3,}} )?(?:{_DAY} {_WORD}|{_WORD} {_DAY}) ({_YEAR}|[0-9]{{2}})$"
_NAMED_YEAR_FIRST = f"^({_YEAR}) {_WORD} {_DAY}$"

_OFFSET = "[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?"
_REGION = "[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+"
# Other abbreviations mean several zones: CST is in America, in China and in Cuba, EST in America and in Australia.
ZONE = f"(?:[Zz]|(?:UTC|GMT|utc|gmt)(?:{_OFFSET})?|{_OFFSET}|{_REGION})"
_HALF = r"[AaPp][.]?[Mm]\b[.]?"  # not the beginning of America/New_York
_MIDNIGHT = r"(?:0?0:00(?::00(?:[.,]0+)?)?|12:00(?::00)? ?[Aa][Mm]\b)"
_MINUTES = ":[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,6}0*)?)?"
_ISO_TIME = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,6}0*)?)?"
    f"(?:Z|{_OFFSET})?"
)

# ISO 8601 without separators: 20250131T143000Z → 2025-01-31T14:30:00Z.
_BASIC_TIME = f"(?:{_EIGHT_DIGITS})T[0-9]{{4}}(?:[0-9]{{2}}(?:[.,][0-9]{{1,6}}0*)?)?"
_SEPARATED = r"""replace(regexp_replace(regexp_replace({x},
        '^([0-9]{4})([0-9]{2})([0-9]{2}T[0-9]{2})([0-9]{2})', '\1-\2-\3:\4'),
        '(T[0-9]{2}:[0-9]{2})([0-9]{2})', '\1:\2'), ',', '.')"""

# SQL over {d}. While the order is undecided, only two kinds of dates are read: those that are equal in both orders, and
# those with points, which are customary where the day is first.
_SLASHED = "replace(replace({d}, '-', '/'), '.', '/')"
_ORDERED = (
    "({day_first} IS NOT NULL OR NOT {year_first} AND contains({d}, '.')"
    f" OR ltrim(split_part({_SLASHED}, '/', 1), '0') = ltrim(split_part({_SLASHED}, '/', 2), '0'))"
)

# `5 January 2024` → `= 5 jan 2024`; the `=` shows that the pattern matched. Every word must be the beginning of the
# month's or the weekday's name of that date.
_BY_NAME = rf"""list_transform([trim(regexp_replace(lower({{d}}), '[-/., ]+', ' ', 'g'))], lambda words: list_transform(
        [CAST(try_strptime(regexp_replace(regexp_replace(words, '{_NAMED}', '= \1\4 \2\3 \5'),
            '{_NAMED_YEAR_FIRST}', '= \3 \2 \1'), ['= %d %b %y', '= %d %b %Y']) AS DATE)],
        lambda found: CASE WHEN len(list_filter(regexp_extract_all(words, '[a-z]{{3,}}'), lambda word:
            NOT contains(lower(strftime(found, ' %A %B')), ' ' || word))) = 0 THEN found END)[1])[1]"""

_DATE = f"""CASE
    WHEN {{year_first}} AND regexp_full_match({{d}}, '{_SHORT_YEAR_FIRST}')
        THEN CAST(try_strptime({_SLASHED}, '%y/%m/%d') AS DATE)
    WHEN regexp_full_match({{d}}, '{_EITHER_YEAR}') THEN CASE
        WHEN {{year_first}} AND regexp_full_match({{d}}, '{_SHORT_YEAR}') THEN NULL
        WHEN {_ORDERED} THEN CAST(try_strptime({_SLASHED}, ['{{order}}/%y', '{{order}}/%Y']) AS DATE) END
    WHEN regexp_full_match({{d}}, '{_YEAR_FIRST}') THEN TRY_CAST(replace({_SLASHED}, '/', '-') AS DATE)
    WHEN regexp_full_match({{d}}, '{_EIGHT_DIGITS}')
        THEN TRY_CAST({{d}}[1:4] || '-' || {{d}}[5:6] || '-' || {{d}}[7:8] AS DATE)
    WHEN regexp_full_match({{d}}, '{_WEEK}') THEN list_transform(
        [try_strptime({{d}}, '%G-W%V-%u')], lambda found: CASE WHEN strftime(found, '%G-W%V-%u') = {{d}}
            THEN CAST(found AS DATE) END)[1]
    ELSE {_BY_NAME} END"""

_WITHOUT_MIDNIGHT = (
    f"regexp_replace({{x}}, '(?:([0-9])(?:T|,? +){_MIDNIGHT}(?: ?{ZONE})?|(-[0-9]{{2}}-[0-9]{{2}})(?:Z|{_OFFSET}))$',"
    r" '\1\2')"
)

PLAIN = "____-__-__"  # a pattern of LIKE
# Equal to DATE if all cells have this form. DuckDB needs milliseconds to plan the other forms.
PLAIN_DATE = f"CASE WHEN {{x}} LIKE '{PLAIN}' AND {{x}} >= '0001' THEN TRY_CAST({{x}} AS DATE) END"
DATE = f"""CASE
    WHEN {{x}} LIKE '{PLAIN}' AND {{x}} >= '0001' THEN TRY_CAST({{x}} AS DATE)
    WHEN {{day_first}} IS NOT NULL AND regexp_full_match({{x}}, '{_YEAR_LAST}') AND NOT suffix({{x}}, '0000')
        THEN CAST(try_strptime({_SLASHED.replace("{d}", "{x}")}, '{{order}}/%Y') AS DATE)
    ELSE list_transform([{_WITHOUT_MIDNIGHT}], lambda written: {_DATE.replace("{d}", "written")})[1] END"""

_PARTS = (
    f"regexp_extract({{x}}, '^(.*?[0-9])(?:T|,? +)([0-9]{{1,2}})({_MINUTES}) ?({_HALF})? ?({ZONE})?$',"
    " ['day', 'hour', 'minutes', 'half', 'zone'])"
)
_HOUR = """CASE WHEN part.half = '' AND CAST(part.hour AS INTEGER) < 24 THEN CAST(part.hour AS INTEGER)
        WHEN part.half <> '' AND CAST(part.hour AS INTEGER) BETWEEN 1 AND 12
            THEN CAST(part.hour AS INTEGER) % 12 + CASE WHEN lower(part.half[1]) = 'p' THEN 12 ELSE 0 END END"""
_ZONE_OF = f"""CASE WHEN upper(part.zone) IN ('Z', 'UTC', 'GMT') THEN '+00'
        WHEN regexp_full_match(part.zone, '(?:[A-Za-z]{{3}})?{_OFFSET}')
            THEN regexp_replace(part.zone, '^[A-Za-z]+', '')
        WHEN part.zone <> '' THEN ' ' || part.zone ELSE '' END"""
TIMESTAMP = rf"""CASE
    WHEN regexp_full_match({{x}}, '{_ISO_TIME}') AND {{x}} BETWEEN '0002' AND '9999' THEN TRY_CAST({{x}} AS TIMESTAMPTZ)
    WHEN {{x}} LIKE '________T%' AND regexp_full_match({{x}}, '{_BASIC_TIME}(?:Z|{_OFFSET})?')
        THEN list_transform([{_SEPARATED}], lambda found: CASE
            WHEN regexp_full_match(found, '{_ISO_TIME}') THEN TRY_CAST(found AS TIMESTAMPTZ) END)[1]
    WHEN contains({{x}}, ':') THEN list_transform([{_PARTS}], lambda part: CASE WHEN part.hour <> ''
        THEN list_transform([TRY_CAST(CAST({_DATE.replace("{d}", "part.day")} AS VARCHAR)
            || ' ' || lpad(CAST({_HOUR} AS VARCHAR), 2, '0')
            || replace(part.minutes, ',', '.') || {_ZONE_OF} AS TIMESTAMPTZ)], lambda found: CASE
            WHEN found >= TIMESTAMPTZ '0001-01-01 00:00:00+00' AND found < TIMESTAMPTZ '10000-01-01 00:00:00+00'
            THEN found END)[1] END)[1] END"""

SERIAL = Reason(
    "[1-9][0-9]{4}(?:[.,][0-9]+)?",
    code="spreadsheet_date",
    expected="a date",
    hint="This number is how spreadsheet programs store a date: format the column as a date and export again.",
)
FINER = Reason(
    ".*(?::[0-9]{2}|T[0-9]{6})[.,][0-9]{6}[0-9]*[1-9][0-9]*(?:[^0-9].*)?",
    code="too_many_digits",
    expected="a time with at most 6 decimal places of a second",
    hint="Times are not rounded: export this one with fewer decimal places.",
)

# For a cell that was read, with or without a time after the date.
_TIME_BEHIND = "(?:(?:T|,? +)[0-9]{1,2}:.*)?"
SHORT_YEAR_OF_DIGITS = f"(?:{_SHORT_YEAR}|{_SHORT_YEAR_FIRST}){_TIME_BEHIND}"
SHORT_YEAR_BY_NAME = (
    f"(?i)(?:{_WORD}[-/., ]+)?(?:{_DAY}[-/., ]+{_WORD}|{_WORD}[-/., ]+{_DAY})[-/., ]+[0-9]{{2}}{_TIME_BEHIND}"
)
WITHOUT_ZONE = f".*[0-9]{_MINUTES} ?(?:{_HALF})?|{_BASIC_TIME}"
REGION_BEHIND = f"{_REGION}$"
WITH_ZONE = f"(?:.*[0-9]{_MINUTES} ?(?:{_HALF})? ?|{_BASIC_TIME}){ZONE}"


def in_order(first: str, second: str) -> str:
    """A regular expression for dates of digits with these first two parts, with or without a time after them."""
    return f"{first}[/.-]{second}[/.-](?:[0-9]{{4}}|[0-9]{{2}}){_TIME_BEHIND}"
