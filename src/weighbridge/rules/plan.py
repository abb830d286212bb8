"""A pipeline laid over one file: its columns, and the SQL of their rules, stage by stage.

The stages of a field stand side by side as columns: `"campaign.name@0"` is its text or NULL, `@1` what its first
normaliser made of that, and so on. DuckDB computes only those that the outer query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import reduce

from weighbridge.model.pipeline import Field, NamePath, Pipeline
from weighbridge.model.profile import Profile
from weighbridge.model.rule import Normaliser
from weighbridge.rules import normalise
from weighbridge.rules.headers import Layout

SPACE = " \t\r\n\u00a0\u2007\u202f\u200b\ufeff"
DUCK_TYPES: dict[str, str] = {"text": "VARCHAR", "numeric(18,6)": "DECIMAL(18,6)", "timestamptz": "TIMESTAMPTZ"}


@dataclass(frozen=True)
class Locale:
    """What is decided once for the whole file."""

    decimal: str = ""  # '.' or ','; '' while undecided
    day_first: bool | None = None  # None while undecided

    @property
    def open(self) -> bool:
        return self.decimal == "" or self.day_first is None


@dataclass(frozen=True)
class Column:
    """A field that the file has, and the rules its cells go through."""

    name: str  # "daily_metric.spend"
    label: str  # as people read it: "spend", "campaign.name"
    header: str  # as the file has it: "Amount spent (USD)"
    field: Field
    cells: tuple[int, ...]
    steps: tuple[Normaliser, ...]

    @property
    def text(self) -> str:
        return quoted(f"{self.name}@0")

    @property
    def value(self) -> str:
        return quoted(f"{self.name}@{len(self.steps)}")


@dataclass(frozen=True)
class Plan:
    """A pipeline laid over one file."""

    pipeline: Pipeline
    profile: Profile | None
    layout: Layout
    csv: bool
    today: date | None = None

    @property
    def columns(self) -> list[Column]:
        """In the order of the file."""
        found = [
            Column(name, self._label(name), self.layout.mapping[name], declared, cells, _steps(declared))
            for name, declared in self.pipeline.fields.items()
            if (cells := self.layout.columns.get(name))
        ]
        return sorted(found, key=lambda column: column.cells)

    @property
    def folded(self) -> list[str]:
        """The name columns whose folded text makes an external id."""
        names: list[str] = []
        for name, declared in self.pipeline.fields.items():
            if name not in self.layout.columns and isinstance(declared.otherwise, NamePath):
                names += [n for n in declared.otherwise.names if n in self.layout.columns and n not in names]
        return names

    def _label(self, name: str) -> str:
        return name.removeprefix(f"{self.pipeline.grain.name}.")


def stages(plan: Plan, locale: Locale, source: str, levels: int | None = None) -> str:
    """A subquery with every stage of every field, or with the first `levels` of them."""
    nulls = ", ".join(literal(null) for null in ("", *(plan.profile.nulls if plan.profile else ())))
    columns = plan.columns
    texts = []
    for column in columns:
        first, *copies = (f"CASE WHEN t{p} IN ({nulls}) THEN NULL ELSE t{p} END" for p in column.cells)
        texts.append(f"coalesce({', '.join([first, *copies])}) AS {column.text}")
        texts += [
            f"coalesce({first} <> {copy}, false) AS {quoted(f'{column.name}!{i}')}" for i, copy in enumerate(copies)
        ]
    for name in plan.folded:
        p = plan.layout.columns[name][0]
        texts.append(f"CASE WHEN t{p} IN ({nulls}) THEN NULL ELSE k{p} END AS {quoted(f'{name}~')}")
    sql = f"(SELECT *, {', '.join(texts)} FROM {source})"
    for level in range(max((len(c.steps) for c in columns), default=0) if levels is None else levels):
        made = [
            f"{filled(c.steps[level].expression, quoted(f'{c.name}@{level}'), locale, plan.today)}"
            f" AS {quoted(f'{c.name}@{level + 1}')}"
            for c in columns
            if level < len(c.steps)
        ]
        sql = f"(SELECT *, {', '.join(made)} FROM {sql})"
    return sql


def filled(expression: str, x: str, locale: Locale, today: date | None = None) -> str:
    """The expression of a rule, ready to run."""
    day_first = "NULL::BOOLEAN" if locale.day_first is None else str(locale.day_first).lower()
    parts = {
        "{x}": x,
        "{decimal}": literal(locale.decimal),
        "{day_first}": day_first,
        "{today}": f"DATE '{today}'" if today else "DATE 'infinity'",
    }
    return reduce(lambda sql, part: sql.replace(part, parts[part]), parts, expression)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duck_type(declared: Field) -> str:
    return DUCK_TYPES.get(declared.sql_type, declared.sql_type)


def _steps(declared: Field) -> tuple[Normaliser, ...]:
    """The field's own rules; where none of them makes its type, the ready-made one for the type."""
    steps = tuple(step for i, step in enumerate(declared.normalise) if i or step is not normalise.strip)
    if declared.type in normalise.BY_TYPE and not any(step.code for step in steps):
        return (*steps, normalise.BY_TYPE[declared.type])
    return steps
