"""After headers.py: a pipeline and one file → the columns of the file, and their rules as SQL.

Each stage of a field is a column: `t3` is its text or NULL, `"campaign.name@1"` is the result of its first normaliser,
and so on. DuckDB computes only the stages that the outer query uses.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, reduce

from weighbridge.model.column_limits import ColumnLimits
from weighbridge.model.pipeline import ComputedDefault, Field, NamePath, Pipeline, named_in
from weighbridge.model.profile import Profile
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.rule import Normaliser
from weighbridge.rules import currencies, date_sql, normalise, number_sql, record_currency
from weighbridge.rules.headers import Layout, fold, synonyms

LAST_DAY = '"period end@day"'
_NEVER = r"[^\x{0}-\x{10FFFF}]"  # a regular expression that matches nothing
DUCK_TYPES: dict[str, str] = {
    "text": "VARCHAR",
    "numeric(18,6)": "DECIMAL(18,6)",
    "timestamptz": "TIMESTAMPTZ",
}


@dataclass(frozen=True)
class Locale:
    """Decimal mark and date order, decided once for the whole file."""

    decimal: str = ""  # '.' or ','; '' while undecided
    day_first: bool | None = None  # None while undecided, and if the year is first
    year_first: bool = False  # a two-digit year is first: 25/4/3
    indian: bool = False  # digits are grouped as in 12,34,567
    zeros: bool = False  # a whole number may have three zeros after the decimal mark: 2.000 is two
    # The other attributes change no value.
    against_default: bool = field(
        default=False, compare=False
    )  # the file contradicts the default of the pipeline
    whole: bool = field(default=False, compare=False)  # decided from all records, not from the first ones
    mark_shown: bool = field(default=False, compare=False)  # a number can be read in one way only
    order_shown: bool = field(default=False, compare=False)  # a date can be read in one order only
    plain_dates: bool = field(default=False, compare=False)  # all are written as 2025-01-31

    @property
    def undecided(self) -> bool:
        """May records that were not read yet change the decision?"""
        open_ = self.decimal == "" or (self.day_first is None and not self.year_first)
        return open_ or not self.whole


@dataclass(frozen=True)
class Column:
    """A field that the file has, and the rules for its cells."""

    name: str  # "daily_metric.spend"
    label: str  # its name in messages: "spend", "campaign.name"
    header: str  # its header in the file: "Amount spent (USD)"
    field: Field
    cells: tuple[int, ...]
    steps: tuple[Normaliser, ...]
    beside_people: bool = False  # in a shifted row, its cell may contain personal data
    currency: Column | None = None  # for an amount: the column of its currency

    @property
    def numeric(self) -> bool:
        return self.field.type in (int, Decimal)

    @property
    def text(self) -> str:
        return self.stage(0)

    @property
    def value(self) -> str:
        return self.stage(len(self.steps))

    def stage(self, level: int) -> str:
        """The column of a stage: 0 is the text, then the result of each rule."""
        return quoted(f"{self.name}@{level}") if level or len(self.cells) > 1 else f"t{self.cells[0]}"

    @property
    def drops_currency(self) -> str | None:
        """SQL: does the record state no currency for this amount? None if this is not an amount."""
        if self.currency:
            code = composed(self.currency.steps, self.currency.text, Locale())
            return f"coalesce(length({code}) <> 3, true)"
        return "true" if any(_one_of((normalise.money,), step) for step in self.steps) else None

    def needs(self, placeholder: str) -> bool:
        """Do its rules use this placeholder, which depends on the locale of the file?"""
        return any(placeholder in step.expression for step in self.steps)


@dataclass(frozen=True)
class CheckPlan:
    """A pipeline applied to one file."""

    pipeline: Pipeline
    profile: Profile | None
    layout: Layout
    csv: bool
    today: date | None = None
    options: ReadOptions = DETECT_ALL
    column_limits: Mapping[str, ColumnLimits] = field(default_factory=dict)  # of production columns, by field
    exponents: bool = (
        False  # numbers may have exponents: the file is JSON, or has rejected rows of a JSON file
    )
    indian: bool = False  # the file has rejected rows of a file that groups digits as in 12,34,567

    @cached_property
    def columns(self) -> list[Column]:
        """In the order of the file."""
        found = [
            Column(
                name,
                self._label(name),
                self.layout.mapping[name],
                declared,
                cells,
                _steps(declared, exponents=self.exponents),
                self.pipeline.personal,
            )
            for name, declared in self.pipeline.fields.items()
            if (cells := self.layout.columns.get(name))
        ]
        by_name = {column.name: column for column in found}
        return sorted((self._in_currency(column, by_name) for column in found), key=lambda c: c.cells)

    @property
    def nulls(self) -> tuple[str, ...]:
        """Texts that mean "no value", in addition to the empty cell."""
        return (*self.pipeline.nulls, *(self.profile.nulls if self.profile else ()))

    @cached_property
    def grain_columns(self) -> list[Column]:
        """The columns of the grain: their rules run for each record."""
        return [c for c in self.columns if c.name.startswith(f"{self.pipeline.grain.name}.")]

    @cached_property
    def required_columns(self) -> list[Column]:
        """Those of the grain without which a record is rejected."""
        return [column for column in self.grain_columns if column.name in self.pipeline.required]

    @cached_property
    def grain_values(self) -> dict[str, str]:
        """SQL of the grain's fields: the value of the file, or a value derived from other fields."""
        found = {column.name: column.value for column in self.grain_columns} | self.grain_unusual_texts
        for name, declared in self.pipeline.fields.items():
            if isinstance(declared.otherwise, ComputedDefault):
                made = f"CAST({self.with_others(declared.otherwise.expression)} AS {duck_type(declared)})"
                found[name] = f"coalesce({found[name]}, {made})" if name in found else made
        return found

    @cached_property
    def grain_unusual_texts(self) -> dict[str, str]:
        """SQL of texts that may need a warning, by their column in `typed`."""
        return {
            unusual_name(c): expression for c in self.grain_columns if (expression := self.unusual_text(c))
        }

    def unusual_text(self, column: Column) -> str | None:
        """SQL: the cell if its value may depend on an assumption; NULL if its form is unambiguous.

        This runs on every record: it must be fast, and may return too many cells.
        """
        if column.needs("{day_first}"):
            usual = "____-__-__T%Z" if column.field.type is datetime else "____-__-__"
            return f"CASE WHEN {column.text} LIKE '{usual}' THEN NULL ELSE {column.text} END"
        x, conditions = column.text, [step.reduces for step in column.steps if step.reduces]
        assumes = self.pipeline.decimal and not self.options.decimal and self.csv
        if assumes and column.needs("{decimal}") and column.field.type is not int:
            conditions.append("contains({x}, ',') OR {x} LIKE '%.___'")
        if column.drops_currency:
            conditions.append(f"({column.drops_currency} AND {currencies.MAY_NAME_ONE})")
        found = " OR ".join(condition.replace("{x}", x) for condition in conditions)
        return f"CASE WHEN {found} THEN {x} END" if found else None

    def with_others(self, expression: str) -> str:
        """Replace the field names in an expression by their typed values, or NULL for fields that the file lacks."""
        values = {column.name: column.value for column in self.grain_columns}
        values |= {name: literal(text) for name, text in self.layout.constants.items()}
        for name in named_in(expression):
            null = f"NULL::{duck_type(self.pipeline.fields[name])}"
            expression = expression.replace(f"{{{name}}}", values.get(name, null))
        return expression

    @cached_property
    def period(self) -> tuple[Column, Column] | None:
        """If a period replaces the day: the columns of its first day, which is the field's column, and its last day."""
        daily = self.profile.daily if self.profile else None
        if daily is None or self.layout.period_end is None:
            return None
        first = next(column for column in self.grain_columns if column.name == daily.field)
        header = self.layout.header[self.layout.period_end]
        return first, replace(
            first, name="period end", header=header, cells=(self.layout.period_end,), steps=()
        )

    @cached_property
    def date_cells(self) -> list[int]:
        """The positions of dates and last days of periods; empty if another rule runs before the rule for dates."""
        found: list[int] = []
        for column in self.columns:
            levels = [level for level, step in enumerate(column.steps) if date_sql.DATE in step.expression]
            if levels and levels != [0]:
                return []
            found += column.cells if levels else []
        return found if self.layout.period_end is None else [*found, self.layout.period_end]

    @cached_property
    def dimension_columns(self) -> list[Column]:
        """The columns of the dimensions: their texts repeat, and their rules run once for each combination."""
        return [c for c in self.columns if c not in self.grain_columns]

    @property
    def known_headers(self) -> set[str]:
        """All headers of all fields, folded."""
        return {
            fold(header)
            for name, declared in self.pipeline.fields.items()
            for header in synonyms(name, declared, self.pipeline, self.profile)
        }

    @cached_property
    def positions(self) -> list[int]:
        """The positions of all columns that fields use."""
        return sorted({*self.grain_positions, *self.dimension_positions})

    @cached_property
    def grain_positions(self) -> list[int]:
        last = [self.layout.period_end] if self.layout.period_end is not None else []
        return sorted({*(p for column in self.grain_columns for p in column.cells), *last})

    @cached_property
    def dimension_positions(self) -> list[int]:
        return sorted({p for column in self.dimension_columns for p in column.cells})

    @cached_property
    def numeric(self) -> set[int]:
        return {p for column in self.columns if column.numeric for p in column.cells}

    @property
    def dimension_cells(self) -> list[str]:
        """The trimmed cells of the dimensions, and the folded text of names that make an id."""
        return [*(f"t{p}" for p in self.dimension_positions), *(f"k{p}" for p in self.folded)]

    @cached_property
    def folded(self) -> list[int]:
        """The positions of names whose folded text makes an external id."""
        paths = [
            declared.otherwise.names
            for name, declared in self.pipeline.fields.items()
            if name not in self.layout.columns and isinstance(declared.otherwise, NamePath)
        ]
        return sorted({p for path in paths for name in path for p in self.layout.columns.get(name, ())})

    def currency_field(self, amount: str) -> str | None:
        """The field that stores the currency of an amount."""
        return record_currency.currency_field(amount, self.pipeline)

    def _in_currency(self, column: Column, columns: Mapping[str, Column]) -> Column:
        """The column with rules that reject another currency than the record's, if that is known."""
        if column.field.type is str:
            return column
        known = record_currency.stated_currency(column.name, self.pipeline, self.layout)
        stores = columns.get(known.field) if known else None
        value = (
            composed(stores.steps, stores.text, Locale()) if stores else literal(known.code if known else "")
        )
        steps = tuple(record_currency.in_currency(step, known, value) for step in column.steps)
        return replace(column, steps=steps, currency=stores if steps != column.steps else None)

    def _label(self, name: str) -> str:
        return self.pipeline.fields[name].label or name.removeprefix(f"{self.pipeline.grain.name}.")


def stages(columns: list[Column], plan: CheckPlan, locale: Locale, source: str) -> str:
    """A subquery with all stages of the given columns, over a source with their trimmed cells."""
    sql = texts(columns, source)
    for level in range(max((len(c.steps) for c in columns), default=0)):
        made = [
            f"{filled(c.steps[level].expression, c.stage(level), locale, plan.today)} AS {c.stage(level + 1)}"
            for c in columns
            if level < len(c.steps)
        ]
        sql = f"(SELECT *, {', '.join(made)} FROM {sql})"
    if plan.period and plan.period[0] in columns:
        first, last = plan.period
        read = composed(first.steps, last.text, locale, plan.today)
        # Nearly always the two texts are equal, and the second one need not be parsed.
        day = f"CASE WHEN {last.text} = {first.text} THEN {first.value} ELSE {read} END"
        sql = f"(SELECT *, {day} AS {LAST_DAY} FROM {sql})"
    return sql


def texts(columns: list[Column], source: str) -> str:
    """A source with the text of columns that have copies, and (`!`) whether a copy differs from the first column."""
    found = []
    for column in columns:
        if len(column.cells) > 1:
            first, *copies = (f"t{p}" for p in column.cells)
            found.append(f"coalesce({', '.join([first, *copies])}) AS {column.text}")
            found += [
                f"coalesce({first} <> {copy}, false) AS {quoted(f'{column.name}!{i}')}"
                for i, copy in enumerate(copies)
            ]
    return f"(SELECT *, {', '.join(found)} FROM {source})" if found else source


def filled(expression: str, x: str, locale: Locale, today: date | None = None) -> str:
    """The expression of a rule with all placeholders replaced."""
    if locale.plain_dates:
        expression = expression.replace(date_sql.DATE, date_sql.PLAIN_DATE)
    parts = {
        "{by_two}": number_sql.BY_TWO if locale.indian else _NEVER,
        "{by_three}": number_sql.BY_EITHER if locale.indian else number_sql.BY_THREE,
        "{zeros}": number_sql.ANY_ZEROS if locale.zeros else number_sql.ZEROS,
        "{x}": x,
        "{decimal}": literal(locale.decimal),
        "{mark}": {".": "[.]", ",": ","}.get(locale.decimal, _NEVER),
        "{group}": {".": ",", ",": "[.]"}.get(locale.decimal, _NEVER),
        "{day_first}": "NULL::BOOLEAN" if locale.day_first is None else str(locale.day_first).lower(),
        "{order}": "%m/%d" if locale.day_first is False else "%d/%m",
        "{year_first}": str(locale.year_first).lower(),
        "{today}": f"DATE '{today}'" if today else "DATE 'infinity'",
    }
    return reduce(lambda sql, part: sql.replace(part, parts[part]), parts, expression)


def composed(steps: tuple[Normaliser, ...], x: str, locale: Locale, today: date | None = None) -> str:
    """All rules of a chain as one expression."""
    return reduce(lambda sql, step: filled(step.expression, f"({sql})", locale, today), steps, x)


def unusual_name(column: Column) -> str:
    """The column of `typed` with the texts that may need a warning."""
    return f"{column.name}@unusual"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duck_type(declared: Field) -> str:
    return DUCK_TYPES.get(declared.sql_type, declared.sql_type)


def _steps(declared: Field, *, exponents: bool) -> tuple[Normaliser, ...]:
    """The rules of the field; the ready-made rule for its type if none of them can fail; then a cast."""
    steps = [step for i, step in enumerate(declared.normalise) if i or step is not normalise.strip]
    if declared.type is str:
        return tuple(steps)
    if not any(step.code for step in steps):
        steps.append(normalise.BY_TYPE[declared.type])
    if not _one_of(normalise.TYPED[declared.type], steps[-1]):
        steps.append(normalise.exact(declared.type, duck_type(declared)))
    return tuple(part for step in steps for part in (_with_exponents(step) if exponents else (step,)))


def _with_exponents(step: Normaliser) -> tuple[Normaliser, ...]:
    """Allow exponents. In CSV they are not allowed: an exponent shows that a spreadsheet has rounded the number."""
    if not _one_of(normalise.NUMERIC, step):
        return (step,)
    return normalise.in_full, replace(step, reasons=(*step.reasons, number_sql.EXPONENT))


def _one_of(rules: tuple[Normaliser, ...], step: Normaliser) -> bool:
    """Is it one of these rules? Compared by expression, as an author may change the message of a ready-made rule."""
    return any(step.expression == rule.expression for rule in rules)
