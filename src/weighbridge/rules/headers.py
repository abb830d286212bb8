"""First check: header cells → fields.

Case, spaces, punctuation, full-width letters, `(s)` and listed abbreviations do not matter. Columns with the same name
are copies: their cells must be equal in each record. If several different columns match a field, the order of the
headers in the profile decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache

from weighbridge.model.errors import FileRefused, did_you_mean
from weighbridge.model.pipeline import Computed, ComputedDefault, Field, InHeader, NamePath, Pipeline
from weighbridge.model.profile import Profile
from weighbridge.rules import header_currency

# A file is refused as another platform's export if that platform recognises this many columns more. It is the smallest
# difference between the platforms' own exports, and more than one custom column makes.
CLEARLY = 2
TRUSTED = 3  # with so many known cells, or half of its cells known, a row is certainly a header
ABBREVIATIONS = {
    "amt": "amount",
    "acct": "account",
    "addr": "address",
    "cnty": "county",
    "desc": "description",
    "dt": "date",
    "nbr": "number",
    "no": "number",
    "nr": "number",
    "num": "number",
    "pct": "percent",
    "qty": "quantity",
    "tel": "telephone",
    "judgement": "judgment",
    "jdgmt": "judgment",
    "jgmt": "judgment",
    "plf": "plaintiff",
    "pltf": "plaintiff",
    "dft": "defendant",
    "deft": "defendant",
}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+|%")


@dataclass(frozen=True)
class Layout:
    """The columns of one file that hold the fields of a pipeline."""

    header: tuple[str, ...]
    columns: Mapping[str, tuple[int, ...]]  # "campaign.name" → its position, then the positions of its copies
    constants: Mapping[str, str] = field(default_factory=dict)  # "daily_metric.currency" → "USD"
    period_end: int | None = None  # if a period replaces the day: the position of its last day
    currencies: Mapping[str, str] = field(
        default_factory=dict
    )  # "daily_metric.spend" → "USD", from its header
    symbols: Mapping[str, str] = field(default_factory=dict)  # the same for `$` and other shared symbols

    @property
    def mapping(self) -> dict[str, str]:
        return {name: self.header[positions[0]] for name, positions in self.columns.items()}


def field_counter(pipeline: Pipeline, profile: Profile | None) -> Callable[[Sequence[str]], int]:
    """A function that returns how many fields a row of cells names, if that row is the header."""
    named_by = _field_finder(pipeline, profile)
    return lambda cells: len({name for cell in cells for name in named_by(cell)})


def list_header(pipeline: Pipeline, profile: Profile | None) -> str:
    """The header to use for a list without one; empty if the pipeline does not accept lists."""
    if not pipeline.headerless:
        return ""
    name = f"{pipeline.grain.name}.{pipeline.headerless}"
    return synonyms(name, pipeline.fields[name], pipeline, profile)[0]


def match(header: Sequence[str], pipeline: Pipeline, profile: Profile | None) -> Layout:
    """Find each field's column, or refuse the file.

    Raises FileRefused: `other_platform`, `missing_column`, `unknown_columns`, `not_daily`, `several_currencies`.
    """
    _refuse_other_platform(header, pipeline, profile)
    layout = find_columns(header, pipeline, profile)
    _refuse_missing(layout, pipeline, profile)
    _refuse_mostly_unknown(layout, pipeline, profile)
    return layout


def find_columns(header: Sequence[str], pipeline: Pipeline, profile: Profile | None) -> Layout:
    """The column of each field that has one. Raises FileRefused: `several_currencies`."""
    cells = [_Cell(i, fold(text), header_currency.split(text)) for i, text in enumerate(header)]
    columns: dict[str, tuple[int, ...]] = {}
    currencies: dict[str, str] = {}
    symbols: dict[str, str] = {}
    for name, declared in pipeline.fields.items():
        found = _find(cells, synonyms(name, declared, pipeline, profile), declared.type is Decimal)
        if found:
            columns[name] = tuple(cell.position for cell in found)
            codes = {cell.named.code for cell in found if cell.named.code}
            signs = {cell.named.symbol for cell in found if cell.named.symbol}
            if len(codes | signs) > 1:
                got = " and ".join(repr(header[cell.position]) for cell in found)
                raise FileRefused(
                    "several_currencies",
                    f"{name}: expected one currency, got {got}. Export one currency per file.",
                )
            currencies.update((name, code) for code in codes)
            symbols.update((name, sign) for sign in signs)
    ends = _period(cells, columns, profile)
    constants = {
        name: currencies[declared.otherwise.of]
        for name, declared in pipeline.fields.items()
        if name not in columns
        and isinstance(declared.otherwise, InHeader)
        and declared.otherwise.of in currencies
    }
    return Layout(tuple(header), columns, constants, ends, currencies, symbols)


def missing_required(layout: Layout, pipeline: Pipeline) -> dict[str, Field]:
    """The required fields that have no column in the file and cannot be computed from other columns."""
    return {
        name: declared
        for name, declared in pipeline.fields.items()
        if name in pipeline.required and name not in layout.columns and not _has_otherwise(declared, layout)
    }


@lru_cache(maxsize=20_000)  # every file needs for every known header
def fold(cell: str) -> str:
    """`Campaign Name ` → `campaignname`; `Plaintiff(s)` → `plaintiff`; `CaseNo.`, `Case #` → `casenumber`."""
    text = (
        _CAMEL.sub(" ", unicodedata.normalize("NFKC", cell)).lower().replace("(s)", "").replace("#", " no ")
    )
    return "".join(ABBREVIATIONS.get(word, word) for word in _WORD.findall(text))


def synonyms(name: str, declared: Field, pipeline: Pipeline, profile: Profile | None) -> tuple[str, ...]:
    """All headers of a field: those of the profile, then its own; if there are none, its name."""
    if isinstance(declared.otherwise, Computed):
        return ()
    given = (*(profile.headers.get(name, ()) if profile else ()), *declared.header)
    return given or (
        (declared.name,) if name.startswith(f"{pipeline.grain.name}.") else (name.replace(".", " "),)
    )


def _field_finder(pipeline: Pipeline, profile: Profile | None) -> Callable[[str], Collection[str]]:
    """A function that returns the fields of a header cell. The first and last day of a period count as fields."""
    known: dict[str, set[str]] = {}
    for name, declared in pipeline.fields.items():
        for synonym in synonyms(name, declared, pipeline, profile):
            known.setdefault(fold(synonym), set()).add(name)
    for end in (profile.daily.starts, profile.daily.ends) if profile and profile.daily else ():
        for synonym in end:
            known.setdefault(fold(synonym), set()).add(end[0])
    return lambda cell: known.get(
        fold(cell), known.get(fold(header_currency.split(cell).without_currency), ())
    )


def _refuse_other_platform(header: Sequence[str], pipeline: Pipeline, profile: Profile | None) -> None:
    """Under the wrong platform, a file may be loaded with half of its columns unused."""
    if profile is None:
        return
    scores = {p.name: field_counter(pipeline, p)(header) for p in pipeline.profiles}
    best = max(scores, key=lambda name: scores[name])
    ours = _field_finder(pipeline, profile)
    if scores[best] < scores[profile.name] + CLEARLY:
        knowing = (
            p.name
            for p in pipeline.profiles
            if _knows_more(header, _field_finder(pipeline, p), ours, profile)
        )
        best = next(knowing, "")
        if not best:
            return
    theirs = _field_finder(pipeline, pipeline.profile(best))
    telling = [cell for cell in header if theirs(cell) and not ours(cell)]
    raise FileRefused(
        "other_platform",
        f"The header looks like an export of {best}, not of {profile.name}: it has {listed(telling, 3)}. "
        "Check the platform of the upload.",
    )


def _knows_more(
    header: Sequence[str],
    theirs: Callable[[str], Collection[str]],
    ours: Callable[[str], Collection[str]],
    profile: Profile,
) -> bool:
    """Does another platform recognise all columns that this one recognises, and also an expected field that is missing
    here?
    """
    found = {name for cell in header for name in ours(cell)}
    lost = set(profile.expects) - found
    return any(lost & set(theirs(cell)) for cell in header) and all(
        theirs(cell) for cell in header if ours(cell)
    )


@dataclass(frozen=True)
class _Cell:
    position: int
    folded: str
    named: header_currency.HeaderParts


def _find(cells: list[_Cell], names: Sequence[str], amount: bool) -> list[_Cell]:
    for name in map(fold, names):
        if found := [cell for cell in cells if cell.folded == name != ""]:
            return found
        if amount and (found := [cell for cell in cells if _names_amount(cell, name)]):
            return found
    return []


def _names_amount(cell: _Cell, name: str) -> bool:
    return bool(cell.named.code or cell.named.symbol) and fold(cell.named.without_currency) == name


def _period(cells: list[_Cell], columns: dict[str, tuple[int, ...]], profile: Profile | None) -> int | None:
    """Use the first day of a period for a missing day. Each record is checked later to be a period of one day."""
    daily = profile.daily if profile else None
    if daily is None or daily.field in columns:
        return None
    starts, ends = _find(cells, daily.starts, False), _find(cells, daily.ends, False)
    if not starts or not ends:
        return None
    columns[daily.field] = (starts[0].position,)
    return ends[0].position


def _refuse_missing(layout: Layout, pipeline: Pipeline, profile: Profile | None) -> None:
    missing = missing_required(layout, pipeline)
    if not missing:
        return
    daily = profile.daily if profile else None
    if profile and daily and list(missing) == [daily.field]:
        raise not_daily(layout, pipeline, profile)
    sentences, header = [], layout.header if _trusted(layout, pipeline) else ()
    for name, declared in missing.items():
        names = synonyms(name, declared, pipeline, profile)
        if isinstance(declared.otherwise, NamePath):
            last = declared.otherwise.names[-1]
            names = (*names[:1], *synonyms(last, pipeline.fields[last], pipeline, profile)[:1])
        guess = next((g for g in (did_you_mean(n, header) for n in names) if g), "")
        expected = " or ".join(repr(n) for n in names[:3])
        sentences.append(f"{declared.label or name}: expected a column {expected}{guess or '.'}")
    seen = listed(header) or "few known columns; its first line should be the header"
    raise FileRefused("missing_column", f"{' '.join(sentences)} The file has {seen}.")


def missing_expected(layout: Layout, pipeline: Pipeline, profile: Profile | None) -> list[str]:
    """The expected fields that the file does not have."""
    found = {*layout.columns, *layout.constants}
    return [
        name
        for name in pipeline.expected(profile)
        if name not in found and not _has_substitute(name, found, pipeline)
    ]


def _has_substitute(name: str, found: set[str], pipeline: Pipeline) -> bool:
    others = pipeline.instead.get(name, ())
    return bool(others) and found.issuperset(others)


def nearest(name: str, layout: Layout, pipeline: Pipeline, profile: Profile | None) -> str:
    """The unused column whose header is closest to this field; empty if none is close."""
    used = {position for positions in layout.columns.values() for position in positions}
    free = {fold(cell): cell for place, cell in enumerate(layout.header) if place not in used and fold(cell)}
    for synonym in synonyms(name, pipeline.fields[name], pipeline, profile):
        if close := get_close_matches(fold(synonym), free, n=1, cutoff=0.6):
            return free[close[0]]
    return ""


def _refuse_mostly_unknown(layout: Layout, pipeline: Pipeline, profile: Profile | None) -> None:
    """Refuse a file with fewer than half of the expected fields: it is most likely another kind of file."""
    expected = {*pipeline.expected(profile), *pipeline.required}
    lost = missing_expected(layout, pipeline, profile)
    if pipeline.headerless and len(layout.header) == 1:
        return
    if 2 * (len(expected) - len(lost)) >= len(expected):
        return
    shown = _trusted(layout, pipeline)
    sentences = []
    for name in lost:
        guess = nearest(name, layout, pipeline, profile) if shown else ""
        header = synonyms(name, pipeline.fields[name], pipeline, profile)[0]
        sentences.append(f"{name} ({header!r}{f', perhaps {guess!r}' if guess else ''})")
    seen = listed(layout.header) if shown else f"{len(layout.header)} columns"
    raise FileRefused(
        "unknown_columns",
        f"Only {len(expected) - len(lost)} of {len(expected)} expected fields were found. "
        f"Missing: {', '.join(sentences)}. The file has {seen}. Rename its columns, or choose another pipeline.",
    )


def refuse_without_measures(layout: Layout, pipeline: Pipeline, profile: Profile | None) -> None:
    """Refuse a file without any measure: its rows would be empty. Raises FileRefused: `missing_column`."""
    measures = pipeline.measures
    if not measures or any(name in layout.columns for name in measures):
        return
    sentences = []
    for name, declared in measures.items():
        guess = nearest(name, layout, pipeline, profile)
        header = synonyms(name, declared, pipeline, profile)[0]
        sentences.append(
            f"{declared.label or declared.name} ({header!r}{f', perhaps {guess!r}' if guess else ''})"
        )
    raise FileRefused(
        "missing_column",
        f"No measure was found: expected at least one of {', '.join(sentences)}. "
        f"The file has {listed(layout.header)}.",
    )


def not_daily(layout: Layout, pipeline: Pipeline, profile: Profile) -> FileRefused:
    """The refusal of a file without a day column."""
    daily = profile.daily
    assert daily is not None
    longer = [c for c in layout.header if fold(c) in {fold(w) for w in daily.longer}]
    name = synonyms(daily.field, pipeline.fields[daily.field], pipeline, profile)[0]
    got = f"{listed(longer)} only" if longer else f"{listed(layout.header)}"
    return FileRefused(
        "not_daily", f"The report is not daily: expected a column {name!r}, got {got}. {daily.hint}"
    )


def _has_otherwise(declared: Field, layout: Layout) -> bool:
    match declared.otherwise:
        case NamePath():
            return declared.otherwise.names[-1] in layout.columns
        case ComputedDefault():
            return any(name in layout.columns for name in declared.otherwise.fields)
        case _:
            return False


def _trusted(layout: Layout, pipeline: Pipeline) -> bool:
    """May a message show its cells? If few of them are known, the row may be a record with personal data."""
    known = len({position for positions in layout.columns.values() for position in positions})
    words = not any(map(has_figures, layout.header))  # a record has a figure somewhere
    return not pipeline.personal or words or known >= TRUSTED or known * 2 >= len(layout.header) > 0


def has_figures(cell: str) -> bool:
    return "@" in cell or any(map(str.isdigit, cell))


def listed(cells: Sequence[str], most: int = 20) -> str:
    """`'Day', 'Cost' and 3 more`."""
    shown = ", ".join(repr(cell if len(cell) <= 60 else cell[:59] + "…") for cell in cells[:most])
    return shown + (f" and {len(cells) - most} more" if len(cells) > most else "")
