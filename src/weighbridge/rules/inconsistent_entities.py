"""Called by run_checks.py: entities with several values or several parents in one file. The later one is kept.

These checks read the table `tuples` (dimensions.py), not every record. Values of entities with a platform's id may
change within a file, so only their parents are checked here; id_checks.py checks their names.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.counts import counted, with_and
from weighbridge.model.pipeline import Entity, NamePath
from weighbridge.rules import dimensions
from weighbridge.rules.check_plan import CheckPlan, Column, quoted

FEW_COMBINATIONS = 1_000  # up to here a loop is faster than planning a query


def warnings(db: Any, plan: CheckPlan, combos: Any) -> dict[str, str]:
    """`several_values` and `several_parents`. `combos`: the combinations of cells that `tuples` is made of."""
    found: dict[str, str] = {}
    for entity in _possible(db, plan, combos):
        columns = _columns(entity, plan)
        if columns and (sentence := _several_values(db, entity, columns)):
            found.setdefault("several_values", sentence)
        for parent in _parents(entity, plan):
            if sentence := _several_parents(db, plan, entity, parent):
                found.setdefault("several_parents", sentence)
    return found


def _possible(db: Any, plan: CheckPlan, combos: Any) -> list[Entity]:
    """Entities that may have several combinations of cells. Most files have none."""
    candidates = [
        entity
        for entity in dimensions.entities(plan)
        if (_columns(entity, plan) or _parents(entity, plan)) and not _made_of_names(entity, plan)
    ]
    if len(combos) < FEW_COMBINATIONS:
        candidates = [entity for entity in candidates if _may_differ(entity, plan, combos)]
    if not candidates:
        return []
    counts = ", ".join(
        f"(SELECT count(*) FROM {dimensions.table(entity)}) < count(*) FILTER (NOT bad AND {_id(entity)} IS NOT NULL)"
        for entity in candidates
    )
    [answers] = db.execute(f"SELECT {counts} FROM tuples").fetchall()
    return [entity for entity, several in zip(candidates, answers, strict=True) if several]


def _may_differ(entity: Entity, plan: CheckPlan, combos: Any) -> bool:
    """Whether one key may have several values. True too often: rules are not applied to these cells yet."""
    key = [plan.layout.columns.get(f"{entity.name}.{name}", ()) for name in entity.key]
    if not all(key):
        return True  # the key is computed: only `tuples` has it
    own = [p for cells in key for p in cells]
    others = [p for column in _columns(entity, plan) for p in column.cells]
    for parent in _parents(entity, plan):
        ids = [p for name in parent.key for p in plan.layout.columns.get(f"{parent.name}.{name}", ())]
        others += ids or [p for column in _entity_columns(parent, plan) for p in column.cells]
    texts = [combos.column(f"t{p}").to_pylist() for p in (*own, *others)]
    found = set(zip(*texts, strict=True))
    return len({cells[: len(own)] for cells in found}) < len(found)


def _several_values(db: Any, entity: Entity, columns: list[Column]) -> str | None:
    """The message, with the columns that differ, the number of entities, and the lines of one."""
    conditions, found = [], []
    for no, column in enumerate(columns):
        value = _folded(column)
        conditions += [f"min({value}) <> max({value}) AS several{no}"]
        conditions += [f"[arg_min(line, {value}), arg_max(line, {value})] AS lines{no}"]
        found += [f"count(*) FILTER (several{no})", f"min(lines{no}) FILTER (several{no})"]
    any_of = " OR ".join(f"coalesce(several{no}, false)" for no in range(len(columns)))
    [(count, *answers)] = db.execute(f"""SELECT count(*) FILTER ({any_of}), {", ".join(found)}
        FROM (SELECT {", ".join(conditions)} FROM tuples WHERE NOT bad AND {_id(entity)} IS NOT NULL
            GROUP BY {_id(entity)})""").fetchall()
    if not count:
        return None
    differing = [column for column, several in zip(columns, answers[::2], strict=True) if several]
    lines = min(each for each in answers[1::2] if each)
    headers = with_and([repr(column.header) for column in differing])
    key = with_and([name.replace("_", " ") for name in entity.key])
    return (
        f"{headers}: {counted(count, _noun(entity))} {'has' if count == 1 else 'have'} several values, as on "
        f"{_on(lines)}. Records with the same {key} are one {_noun(entity)}, and the later value was kept."
    )


def _several_parents(db: Any, plan: CheckPlan, entity: Entity, parent: Entity) -> str | None:
    [(count, lines)] = db.execute(f"""SELECT count(*), min(lines) FROM (
            SELECT [arg_min(line, {_id(parent)}), arg_max(line, {_id(parent)})] AS lines
            FROM tuples WHERE NOT bad AND {_id(entity)} IS NOT NULL
            GROUP BY {_id(entity)} HAVING min({_id(parent)}) <> max({_id(parent)}))""").fetchall()
    if not count:
        return None
    columns = _entity_columns(entity, plan)
    header = next((c.header for c in columns if c.field.name in entity.key), columns[0].header)
    many = f"{'It belongs' if count == 1 else 'Each belongs'} to the {_noun(parent)} of its latest day."
    return (
        f"{header!r}: {counted(count, _noun(entity))} {'is' if count == 1 else 'are'} in several {_noun(parent)}s, "
        f"as on {_on(lines)}. {many}"
    )


def _columns(entity: Entity, plan: CheckPlan) -> list[Column]:
    """The columns in which each entity should have one value per file."""
    if any(isinstance(declared.otherwise, NamePath) for declared in entity.fields):
        return []
    return [column for column in _entity_columns(entity, plan) if column.field.name not in entity.key]


def _entity_columns(entity: Entity, plan: CheckPlan) -> list[Column]:
    return [column for column in plan.dimension_columns if column.name.startswith(f"{entity.name}.")]


def _parents(entity: Entity, plan: CheckPlan) -> list[Entity]:
    """The entities that its rows refer to, except those in its key, which cannot differ."""
    found = dimensions.entities(plan)
    refs = [plan.pipeline.entity(ref.entity) for ref in entity.refs if ref.name not in entity.key]
    return [parent for parent in refs if parent in found]


def _made_of_names(entity: Entity, plan: CheckPlan) -> bool:
    """Whether its id is computed from names, which include those of its parents."""
    return any(
        isinstance(declared.otherwise, NamePath)
        and f"{entity.name}.{declared.name}" not in plan.layout.columns
        for declared in entity.fields
    )


def _folded(column: Column) -> str:
    """SQL: the value; of a text only letters and digits, so that `Acme, Inc` equals `ACME INC.`"""
    name = quoted(column.name)
    return (
        rf"regexp_replace(lower({name}), '[^\p{{L}}\p{{N}}]', '', 'g')" if column.field.type is str else name
    )


def _id(entity: Entity) -> str:
    return quoted(f"{entity.name} id")


def _noun(entity: Entity) -> str:
    return entity.name.replace("_", " ")


def _on(lines: list[int]) -> str:
    first, *others = sorted(set(lines))
    return f"lines {first} and {others[0]}" if others else f"line {first}"
