"""After classify_records.py: finds subtotals, records that add up other records of the same day.

An export may have a row for a campaign named `Total`, or a row for a campaign next to the rows of its ad sets. If they
were loaded with their parts, all figures would be doubled. Present and missing names show which records may be
subtotals; only for these are figures compared.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow.compute as pc

from weighbridge.model.pipeline import Entity, NamePath
from weighbridge.rules import dimensions
from weighbridge.rules.check_plan import CheckPlan, Column, literal, quoted, texts
from weighbridge.rules.record_kinds import ACCEPTED, REJECTED, TOTALS
from weighbridge.rules.totals_rows import is_label

# Also possible names of a campaign: such a record is totals only if its figures are the sums of the others.
EVERYTHING = (
    r"all|alle|tous|toutes|tutti|tutte|todos|todas|wszystkie|(?:all|alle) (?:campaigns|ad sets|ad groups|ads)"
)
FEW = 20  # up to so many combinations are listed in the query
NAMED, BLANK, LABEL, MAYBE = range(4)  # the state of a record at one level


def count_subtotals(db: Any, plan: CheckPlan, combos: Any, *, confirmed: bool) -> None:
    """Count subtotals as totals in `typed`; a record named Total that adds up no others is rejected.

    `combos` is the table of combinations. `confirmed`: the sender loads the records again in a rejects file, so they
    are not totals.
    """
    levels = [level for entity in dimensions.entities(plan) if (level := _Level.of(entity, plan))]
    if confirmed or not levels:
        return
    # Only combinations of accepted records: most files have a row of totals without any name.
    loaded = f"(SELECT combo FROM typed WHERE kind = {ACCEPTED}) AS loaded"
    source = texts(plan.dimension_columns, f"(SELECT * FROM combos SEMI JOIN {loaded} USING (combo))")
    if all(level.id for level in levels) and not _any_without_id(db, combos, [level.id for level in levels]):
        return
    if not _any(db, source, " OR ".join(level.open for level in levels)):
        return
    states = ", ".join(f"{level.state} AS state{no}" for no, level in enumerate(levels))
    names = ", ".join(f"{level.key} AS key{no}" for no, level in enumerate(levels))
    source = f"(SELECT combo, {states}, {names} FROM {source})"
    # A campaign without a name is an error, not a subtotal.
    conditions = [f"state0 >= {LABEL}", *(f"state{no} <> {NAMED}" for no in range(1, len(levels)))]
    if not _any(db, source, " OR ".join(conditions)):
        return
    db.make("levels", f"SELECT * FROM {source}")
    figures = [
        quoted(column.name) for column in plan.grain_columns if column.numeric and column.field.additive
    ]
    for no in reversed(range(len(levels))):
        _settle_level(db, plan, figures, no, len(levels))


@dataclass(frozen=True)
class _Level:
    """SQL over `combos` for one entity: its state and its key."""

    open: str  # fast: may its state be another than NAMED?
    state: str
    key: str
    id: str  # the column of `combos` with its id; empty if the file has none, or has copies of it

    @classmethod
    def of(cls, entity: Entity, plan: CheckPlan) -> _Level | None:
        columns: dict[str, Column] = {column.name: column for column in plan.dimension_columns}
        for declared in entity.fields:
            if isinstance(declared.otherwise, NamePath):
                own = columns.get(f"{entity.name}.{declared.name}")
                name = columns.get(declared.otherwise.names[-1])
                state = _state(own, name)
                may_be = f"{own.text} IS NULL" if own else f"{state} <> {NAMED}"
                single = own.text if own and len(own.cells) == 1 else ""
                return cls(may_be, state, _key(own, name), single)
        return None


def _any_without_id(db: Any, combos: Any, ids: list[str]) -> bool:
    """Does an accepted record lack the id of a level? In most files only the row of totals does."""
    missing_required = reduce(pc.or_, (pc.is_null(combos.column(name)) for name in ids))
    found = combos.column("combo").filter(missing_required).to_pylist()
    if not found or len(found) > FEW:
        return bool(found)
    listed = ", ".join(map(str, found))
    rows = db.execute(
        f"SELECT 1 FROM typed WHERE kind = {ACCEPTED} AND combo IN ({listed}) LIMIT 1"
    ).fetchall()
    return bool(rows)


def _state(own: Column | None, name: Column | None) -> str:
    with_id = f"WHEN {own.text} IS NOT NULL THEN {NAMED} " if own else ""
    if name is None:
        return f"CASE {with_id}ELSE {BLANK} END"
    everything = f"regexp_full_match({name.text}, {literal(f'(?i)(?:{EVERYTHING})')})"
    return (
        f"CASE {with_id}WHEN {name.text} IS NULL THEN {BLANK} WHEN {is_label(name.text)} THEN {LABEL}"
        f" WHEN length({name.text}) < 20 AND {everything} THEN {MAYBE} ELSE {NAMED} END"
    )


def _key(own: Column | None, name: Column | None) -> str:
    """The id if the file has ids, otherwise the name: a name may change from day to day."""
    column = own or name
    assert column is not None
    return f"lower({column.text})"


def _any(db: Any, source: str, condition: str) -> bool:
    return bool(db.execute(f"SELECT count(*) FROM {source} WHERE {condition}").fetchall()[0][0])


def _settle_level(db: Any, plan: CheckPlan, figures: list[str], no: int, count: int) -> None:
    """Compare the records without a name at this level with the named records of the same day and parent."""
    above = [f"state{i} = {NAMED}" for i in range(no)]
    below = [f"state{i} <> {NAMED}" for i in range(no + 1, count)]
    stops = f"state{no} >= {LABEL}" if no == 0 else f"state{no} <> {NAMED}"
    whole = " AND ".join([*above, stops, *below])
    labelled = f"state{no} = {LABEL}"
    query = f"""SELECT row_index FROM typed JOIN levels USING (combo) WHERE kind = {ACCEPTED} AND {whole}"""
    if not _any(db, f"({query})", "true"):
        return
    if not figures:
        db.execute(f"UPDATE typed SET kind = {REJECTED} WHERE row_index IN ({query} AND {labelled})")
        return
    group = [*_days(plan), *(f"key{i}" for i in range(no))]
    part = " AND ".join([*above, f"state{no} = {NAMED}"])
    sums = ", ".join(f"sum({name}) AS {name}" for name in figures)
    parts = f"""SELECT {", ".join([*group, "count(*) AS records", sums])} FROM typed JOIN levels USING (combo)
        WHERE kind = {ACCEPTED} AND {part} {f"GROUP BY {', '.join(group)}" if group else ""}"""
    same = " AND ".join(f"wholes.{name} IS NOT DISTINCT FROM parts.{name}" for name in group) or "true"
    fits = [f"coalesce(wholes.{name} = parts.{name}, wholes.{name} IS NULL)" for name in figures]
    any_figure = " OR ".join(f"coalesce(wholes.{name} <> 0, false)" for name in figures)
    db.make(
        "wholes",
        f"""SELECT wholes.row_index, wholes.state{no} = {LABEL} AS labelled, coalesce(parts.records, 0) AS records,
            coalesce({" AND ".join(fits)}, false) AS fits, {any_figure} AS filled
        FROM (SELECT * FROM typed JOIN levels USING (combo) WHERE kind = {ACCEPTED} AND {whole}) AS wholes
        LEFT JOIN ({parts}) AS parts ON {same}""",
    )
    # The file has subtotals at this level if some add up two or more records, or if several are equal to the one record
    # below them and none differs. Then records that cover one record are subtotals, too, and records that do not fit
    # are rejected, as one of their parts may be rejected. A single record that is equal to the one record below it is
    # rejected, and the sender decides.
    below_name = "true" if no else "false"
    shown = f"""(SELECT count(*) FILTER (records > 1 AND fits AND filled) > 0 OR {below_name}
        AND count(*) FILTER (fits AND filled) > 1 AND count(*) FILTER (records > 0 AND NOT fits) = 0 FROM wholes)"""
    db.execute(f"""UPDATE typed SET kind = CASE
            WHEN fits AND records > 0 AND {shown} THEN {TOTALS}
            WHEN labelled OR (records > 0 AND {shown}) OR ({below_name} AND fits AND filled AND records = 1)
            THEN {REJECTED} ELSE kind END
        FROM wholes WHERE typed.row_index = wholes.row_index""")


def _days(plan: CheckPlan) -> list[str]:
    """The columns of `typed` that belong to the key besides the names."""
    own = {column.name for column in plan.grain_columns}
    keys = (f"{plan.pipeline.grain.name}.{name}" for name in plan.pipeline.grain.key)
    return [quoted(name) for name in keys if name in own]
