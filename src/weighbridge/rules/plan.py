"""A pipeline laid over one file: its columns, and the SQL of their rules, stage by stage.

The stages of a field stand side by side as columns: `t3` is its text or NULL, `"campaign.name@1"` what its
first normaliser made of that, and so on. DuckDB computes only those that the outer query asks for.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, reduce

from weighbridge.model.capacity import Capacity
from weighbridge.model.pipeline import Field, NamePath, OrMade, Pipeline, named_in
from weighbridge.model.profile import Profile
from weighbridge.model.reading import DETECT_ALL, ReadOptions
from weighbridge.model.rule import Normaliser
from weighbridge.rules import currencies, dates, normalise, numbers, record_currency
from weighbridge.rules.headers import Layout, fold, synonyms

LAST_DAY = '"period end@day"'
_NEVER = r"[^\x{0}-\x{10FFFF}]"  # the regular expression that fits nothing
DUCK_TYPES: dict[str, str] = {
    "text": "VARCHAR",
    "numeric(18,6)": "DECIMAL(18,6)",
    "timestamptz": "TIMESTAMPTZ",
}


@dataclass(frozen=True)
class Locale:
    """What is decided once for the whole file."""

    decimal: str = ""  # '.' or ','; '' while undecided
    day_first: bool | None = None  # None while undecided, and where the year comes first
    year_first: bool = False  # two digits of it: 25/4/3
    indian: bool = False  # digits are grouped as in 12,34,567
    zeros: bool = False  # a whole number may have three of them behind the mark: 2.000 is two
    # The rest changes no value.
    unusual: bool = field(default=False, compare=False)  # against what is usual in the pipeline
    whole: bool = field(default=False, compare=False)  # decided from all records, not from the first ones
    mark_shown: bool = field(default=False, compare=False)  # by a number that can be read one way only
    order_shown: bool = field(default=False, compare=False)  # by a date of one order only
    plain_dates: bool = field(default=False, compare=False)  # all are written as 2025-01-31

    @property
    def open(self) -> bool:
        """Could the records that were not looked at decide otherwise?"""
        undecided = self.decimal == "" or (self.day_first is None and not self.year_first)
        return undecided or not self.whole


@dataclass(frozen=True)
class Column:
    """A field that the file has, and the rules its cells go through."""

    name: str  # "daily_metric.spend"
    label: str  # as people read it: "spend", "campaign.name"
    header: str  # as the file has it: "Amount spent (USD)"
    field: Field
    cells: tuple[int, ...]
    steps: tuple[Normaliser, ...]
    beside_people: bool = False  # where a row is shifted, its cell may be a person's
    currency: Column | None = None  # of an amount: the column that has its currency

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
        """The text, and then what each rule made of it."""
        return quoted(f"{self.name}@{level}") if level or len(self.cells) > 1 else f"t{self.cells[0]}"

    @property
    def drops_currency(self) -> str | None:
        """SQL: does the record state no currency that its amount's can be compared with? None: this is no amount."""
        if self.currency:
            code = composed(self.currency.steps, self.currency.text, Locale())
            return f"coalesce(length({code}) <> 3, true)"
        return "true" if any(_one_of((normalise.money,), step) for step in self.steps) else None

    def asks(self, placeholder: str) -> bool:
        """Do its rules need what is decided once for the file?"""
        return any(placeholder in step.expression for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """A pipeline laid over one file."""

    pipeline: Pipeline
    profile: Profile | None
    layout: Layout
    csv: bool
    today: date | None = None
    options: ReadOptions = DETECT_ALL
    capacities: Mapping[str, Capacity] = field(default_factory=dict)  # of production columns, by field
    exponents: bool = False  # numbers may have them: the file is JSON, or has rows of such a file
    indian: bool = False  # it has rows of a file that groups digits as in 12,34,567

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
        """Cells that say "no value", besides the empty one."""
        return (*self.pipeline.nulls, *(self.profile.nulls if self.profile else ()))

    @cached_property
    def own_columns(self) -> list[Column]:
        """Those of the grain: their rules run once a record."""
        return [c for c in self.columns if c.name.startswith(f"{self.pipeline.grain.name}.")]

    @cached_property
    def own_values(self) -> dict[str, str]:
        """SQL of the grain's fields: what the file has, or else what is made of others."""
        found = {column.name: column.value for column in self.own_columns} | self.own_noted
        for name, declared in self.pipeline.fields.items():
            if isinstance(declared.otherwise, OrMade):
                made = f"CAST({self.with_others(declared.otherwise.expression)} AS {duck_type(declared)})"
                found[name] = f"coalesce({found[name]}, {made})" if name in found else made
        return found

    @cached_property
    def own_noted(self) -> dict[str, str]:
        """SQL of texts of the grain's columns that may need a warning, by the name that they have in `typed`."""
        return {noted(c): expression for c in self.own_columns if (expression := self.unusual(c))}

    def unusual(self, column: Column) -> str | None:
        """SQL: the cell, where its value may rest on an assumption; NULL where it is written as usual.

        This runs on every record: it must be cheap, and may be too wide.
        """
        if column.asks("{day_first}"):
            usual = "____-__-__T%Z" if column.field.type is datetime else "____-__-__"
            return f"CASE WHEN {column.text} LIKE '{usual}' THEN NULL ELSE {column.text} END"
        x, conditions = column.text, [step.reduces for step in column.steps if step.reduces]
        assumes = self.pipeline.decimal and not self.options.decimal and self.csv
        if assumes and column.asks("{decimal}") and column.field.type is not int:
            conditions.append("contains({x}, ',') OR {x} LIKE '%.___'")
        if column.drops_currency:
            conditions.append(f"({column.drops_currency} AND {currencies.MAY_NAME_ONE})")
        found = " OR ".join(condition.replace("{x}", x) for condition in conditions)
        return f"CASE WHEN {found} THEN {x} END" if found else None

    def with_others(self, expression: str) -> str:
        """An expression with the typed values of the fields that it names, NULL for those that the file lacks."""
        values = {column.name: column.value for column in self.own_columns}
        values |= {name: literal(text) for name, text in self.layout.constants.items()}
        for name in named_in(expression):
            null = f"NULL::{duck_type(self.pipeline.fields[name])}"
            expression = expression.replace(f"{{{name}}}", values.get(name, null))
        return expression

    @cached_property
    def period(self) -> tuple[Column, Column] | None:
        """Where a period stands in for the day: its first day, which is the field's column, and its last."""
        daily = self.profile.daily if self.profile else None
        if daily is None or self.layout.ends is None:
            return None
        first = next(column for column in self.own_columns if column.name == daily.field)
        header = self.layout.header[self.layout.ends]
        return first, replace(first, name="period end", header=header, cells=(self.layout.ends,), steps=())

    @cached_property
    def date_cells(self) -> list[int]:
        """Where cells go to the rule for dates as they are, last days included. None if another rule goes before it."""
        found: list[int] = []
        for column in self.columns:
            levels = [level for level, step in enumerate(column.steps) if dates.DATE in step.expression]
            if levels and levels != [0]:
                return []
            found += column.cells if levels else []
        return found if self.layout.ends is None else [*found, self.layout.ends]

    @cached_property
    def shared_columns(self) -> list[Column]:
        """Those of the dimensions: their texts repeat, and their rules run once for each combination."""
        return [c for c in self.columns if c not in self.own_columns]

    @property
    def known_headers(self) -> set[str]:
        """Every header that a field goes by, folded."""
        return {
            fold(header)
            for name, declared in self.pipeline.fields.items()
            for header in synonyms(name, declared, self.pipeline, self.profile)
        }

    @cached_property
    def positions(self) -> list[int]:
        """Where the columns of fields stand in the file."""
        return sorted({*self.own_positions, *self.shared_positions})

    @cached_property
    def own_positions(self) -> list[int]:
        last = [self.layout.ends] if self.layout.ends is not None else []
        return sorted({*(p for column in self.own_columns for p in column.cells), *last})

    @cached_property
    def shared_positions(self) -> list[int]:
        return sorted({p for column in self.shared_columns for p in column.cells})

    @cached_property
    def numeric(self) -> set[int]:
        return {p for column in self.columns if column.numeric for p in column.cells}

    @property
    def shared_cells(self) -> list[str]:
        """The cells of the shared columns, trimmed; of some names also folded."""
        return [*(f"t{p}" for p in self.shared_positions), *(f"k{p}" for p in self.folded)]

    @cached_property
    def folded(self) -> list[int]:
        """Where the names stand whose folded text makes an external id."""
        paths = [
            declared.otherwise.names
            for name, declared in self.pipeline.fields.items()
            if name not in self.layout.columns and isinstance(declared.otherwise, NamePath)
        ]
        return sorted({p for path in paths for name in path for p in self.layout.columns.get(name, ())})

    def storing(self, amount: str) -> str | None:
        """The field that stores the currency of an amount."""
        return record_currency.storing(amount, self.pipeline)

    def _in_currency(self, column: Column, columns: Mapping[str, Column]) -> Column:
        """The column with rules that reject another currency than the record's, where that is known."""
        if column.field.type is str:
            return column
        known = record_currency.stated(column.name, self.pipeline, self.layout)
        stores = columns.get(known.field) if known else None
        value = (
            composed(stores.steps, stores.text, Locale()) if stores else literal(known.code if known else "")
        )
        steps = tuple(record_currency.in_currency(step, known, value) for step in column.steps)
        return replace(column, steps=steps, currency=stores if steps != column.steps else None)

    def _label(self, name: str) -> str:
        return self.pipeline.fields[name].label or name.removeprefix(f"{self.pipeline.grain.name}.")


def stages(columns: list[Column], plan: Plan, locale: Locale, source: str) -> str:
    """A subquery with every stage of the given columns, over a source that has their trimmed cells."""
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
        # Nearly always the two are the same text: the second need not be read.
        day = f"CASE WHEN {last.text} = {first.text} THEN {first.value} ELSE {read} END"
        sql = f"(SELECT *, {day} AS {LAST_DAY} FROM {sql})"
    return sql


def texts(columns: list[Column], source: str) -> str:
    """A source with the text of columns that have copies, and (`!`) whether a copy contradicts the first."""
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
    """The expression of a rule, ready to run."""
    if locale.plain_dates:
        expression = expression.replace(dates.DATE, dates.PLAIN_DATE)
    parts = {
        "{by_two}": numbers.BY_TWO if locale.indian else _NEVER,
        "{by_three}": numbers.BY_EITHER if locale.indian else numbers.BY_THREE,
        "{zeros}": numbers.ANY_ZEROS if locale.zeros else numbers.ZEROS,
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


def noted(column: Column) -> str:
    """The name that a text has in `typed` while it may need a warning."""
    return f"{column.name}@noted"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duck_type(declared: Field) -> str:
    return DUCK_TYPES.get(declared.sql_type, declared.sql_type)


def _steps(declared: Field, *, exponents: bool) -> tuple[Normaliser, ...]:
    """The field's own rules; the ready-made one for its type if none of them can fail; then a cast."""
    steps = [step for i, step in enumerate(declared.normalise) if i or step is not normalise.strip]
    if declared.type is str:
        return tuple(steps)
    if not any(step.code for step in steps):
        steps.append(normalise.BY_TYPE[declared.type])
    if not _one_of(normalise.TYPED[declared.type], steps[-1]):
        steps.append(normalise.exact(declared.type, duck_type(declared)))
    return tuple(part for step in steps for part in (_with_exponents(step) if exponents else (step,)))


def _with_exponents(step: Normaliser) -> tuple[Normaliser, ...]:
    """A number may have an exponent in JSON. In CSV it is a sign that a spreadsheet has rounded it."""
    if not _one_of(normalise.NUMERIC, step):
        return (step,)
    return normalise.in_full, replace(step, reasons=(*step.reasons, numbers.EXPONENT))


def _one_of(rules: tuple[Normaliser, ...], step: Normaliser) -> bool:
    """An author may change the sentence of a ready-made rule."""
    return any(step.expression == rule.expression for rule in rules)
