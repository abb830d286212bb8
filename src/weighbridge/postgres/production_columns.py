"""Columns of production tables that users created: can they hold the values of a pipeline, and how many digits?

Postgres rounds a number or a time to what its column holds, without an error. So a column must be able to hold every
value of its field (refused at `db migrate` otherwise), or be narrower in a way that can be checked record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from weighbridge.model.column_limits import ColumnLimits
from weighbridge.model.errors import ConfigError, Refused
from weighbridge.model.pipeline import SQL_TYPES, Computed, ComputedDefault, Entity, Field, Pipeline
from weighbridge.postgres.transactions import Tx, fetch_all

_WHOLE = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_PLACES = {Decimal: 6, datetime: 6}  # of the types that fields have in staging
_EXACT_IN_DOUBLE = 2**53
# A domain has its base type; typmod is -1 where there is no limit.
_COLUMNS = """
    SELECT c.relname, a.attname, b.typname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(frozen=True)
class _ProductionColumn:
    base: str  # Postgres's own name of the type: "int8", "bpchar"
    shown: str  # "bigint", "character(3)"
    modifier: int

    @property
    def length(self) -> int | None:
        return self.modifier - 4 if self.modifier >= 4 else None

    @property
    def precision_and_scale(self) -> tuple[int, int] | None:
        if self.modifier < 4:
            return None
        scale = (self.modifier - 4) & 0x7FF
        return (self.modifier - 4) >> 16, scale - 0x800 if scale >= 0x400 else scale


async def column_limits(tx: Tx, pipeline: Pipeline) -> dict[str, ColumnLimits]:
    """The limits of the production columns that hold less than their field's type, by "entity.field".

    Raises Refused: `unfit_column` where a column was changed after `db migrate` to a type that cannot hold the values.
    """
    try:
        return _fitting(pipeline, await _columns(tx, [pipeline]))
    except ConfigError as unfit:
        raise Refused("unfit_column", str(unfit)) from unfit


async def refuse_unfit(tx: Tx, pipelines: Sequence[Pipeline]) -> None:
    """Raise ConfigError for the first column whose type cannot hold the values of its field as they are."""
    columns = await _columns(tx, pipelines)
    for pipeline in pipelines:
        _fitting(pipeline, columns)
        for entity in pipeline.entities:
            for ref in entity.refs:
                column = columns.get((entity.table, ref.name))
                if column is not None and column.base != "uuid":
                    raise _unfit(pipeline, entity, ref.name, column, "an id", "uuid")


async def _columns(tx: Tx, pipelines: Sequence[Pipeline]) -> dict[tuple[str, str], _ProductionColumn]:
    """Columns of all their tables, by table and column; none for a table that does not exist yet."""
    tables = sorted({entity.table for pipeline in pipelines for entity in pipeline.entities})
    rows = await fetch_all(tx, _COLUMNS, (tables,))
    return {(table, name): _ProductionColumn(*rest) for table, name, *rest in rows}


def _fitting(
    pipeline: Pipeline, columns: Mapping[tuple[str, str], _ProductionColumn]
) -> dict[str, ColumnLimits]:
    found: dict[str, ColumnLimits] = {}
    for entity in pipeline.entities:
        for field in entity.fields:
            column = columns.get((entity.table, field.name))
            if column is not None and (limits := _limits(pipeline, entity, field, column)) is not None:
                found[f"{entity.name}.{field.name}"] = limits
    return found


def _limits(
    pipeline: Pipeline, entity: Entity, field: Field, column: _ProductionColumn
) -> ColumnLimits | None:
    """None for a column that holds every value of its field. Raises ConfigError for one that would change values."""
    made = isinstance(field.otherwise, Computed | ComputedDefault)
    fits = _FITS[field.type](column)
    # A made value is not a cell that could be rejected, so it must not be rounded.
    rounds = fits is not None and fits.places is not None and fits.places < _PLACES.get(field.type, 0)
    if fits is None or (made and (rounds or fits.digits)):
        kind = f"a field of type {field.type.__name__}"
        raise _unfit(pipeline, entity, field.name, column, kind, SQL_TYPES[field.type])
    return fits if fits != ColumnLimits(column.shown) else None


def _unfit(
    pipeline: Pipeline, entity: Entity, name: str, column: _ProductionColumn, kind: str, expected: str
) -> ConfigError:
    return ConfigError(
        f"Pipeline {pipeline.name}: column {entity.table}.{name} is {column.shown}, which cannot hold every value of "
        f"{kind} unchanged. Expected {expected}: ALTER TABLE {entity.table} ALTER COLUMN {name} TYPE {expected}, "
        "or change the type of the field."
    )


def _text(column: _ProductionColumn) -> ColumnLimits | None:
    if column.base in ("varchar", "bpchar"):
        return ColumnLimits(column.shown, max_length=column.length)
    return ColumnLimits(column.shown) if column.base in ("text", "citext") else None


def _whole(column: _ProductionColumn) -> ColumnLimits | None:
    if column.base in _WHOLE:
        limit = _WHOLE[column.base]
        return (
            ColumnLimits(column.shown, least=-limit, most=limit - 1)
            if column.base != "int8"
            else _all(column)
        )
    if column.base == "float8":
        return ColumnLimits(column.shown, least=-_EXACT_IN_DOUBLE, most=_EXACT_IN_DOUBLE)
    if column.base == "numeric":
        fits = _below(column)
        return fits and replace(fits, places=None)
    return _any(column, "text", "varchar")


def _number(column: _ProductionColumn) -> ColumnLimits | None:
    if column.base in _WHOLE:
        narrower = _whole(column)
        return narrower and replace(narrower, places=0)
    if column.base == "float8":
        return ColumnLimits(column.shown, digits=15)
    return _below(column) if column.base == "numeric" else _any(column, "text", "varchar")


def _below(column: _ProductionColumn) -> ColumnLimits | None:
    if column.precision_and_scale is None:
        return ColumnLimits(column.shown)
    precision, scale = column.precision_and_scale
    if scale < 0:
        return None
    below = Decimal(10) ** (precision - scale)
    places = scale if scale < _PLACES[Decimal] else None
    return ColumnLimits(column.shown, places=places, below=below if below < Decimal(10) ** 19 else None)


def _day(column: _ProductionColumn) -> ColumnLimits | None:
    # A timestamp stores midnight; with a time zone it would depend on the session.
    return _any(column, "date", "timestamp")


def _time(column: _ProductionColumn) -> ColumnLimits | None:
    if column.base != "timestamptz":
        return None
    return ColumnLimits(column.shown, places=column.modifier if 0 <= column.modifier < 6 else None)


def _truth(column: _ProductionColumn) -> ColumnLimits | None:
    return _any(column, "bool", "text", "varchar")


def _any(column: _ProductionColumn, *types: str) -> ColumnLimits | None:
    """Without a limit, if it has one of these types and no length."""
    limited = column.base == "varchar" and column.length is not None
    return _all(column) if column.base in types and not limited else None


def _all(column: _ProductionColumn) -> ColumnLimits:
    return ColumnLimits(column.shown)


_FITS: dict[type, Callable[[_ProductionColumn], ColumnLimits | None]] = {
    str: _text,
    int: _whole,
    Decimal: _number,
    date: _day,
    datetime: _time,
    bool: _truth,
}
