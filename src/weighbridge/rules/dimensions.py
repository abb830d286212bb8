"""Fourth of the checks: typed records → distinct dimension rows with their ids.

    tuples   the distinct combinations of dimension columns, with the last record of each
    dim …    one row per entity, sorted by its key: number, id, hash, and the last known value of each column
    links    key columns of the file → numbers of the entities they name

Hashes are made once per entity, not once per record. Numbers follow the ids, so sorting facts by number is
sorting them by id.
"""

from __future__ import annotations

from typing import Any

from weighbridge.model.pipeline import Entity, Field, NamePath
from weighbridge.model.upload import Scope
from weighbridge.rules.plan import Plan, duck_type, literal, quoted
from weighbridge.rules.typed import ACCEPTED

SEPARATOR = "chr(31)"


def build(db: Any, plan: Plan, scope: Scope) -> None:
    """Make `dim <entity>` for every dimension, and `links`."""
    entities = [entity for entity in plan.pipeline.dimensions if _sources(entity, plan)]
    db.execute(_tuples(plan))
    for entity in entities:
        db.execute(_rows(entity, plan, scope))
        db.execute(_numbered(entity, plan))
    sources = _all_sources(plan)
    numbers = [number(entity) for entity in entities]
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE links AS SELECT {', '.join([*sources, *numbers])} FROM tuples GROUP BY ALL"
    )


def number(entity: Entity) -> str:
    """The column that holds an entity's number."""
    return quoted(f"{entity.name}#")


def table(entity: Entity) -> str:
    return quoted(f"dim {entity.name}")


def stored(plan: Plan, entity: Entity, name: str) -> str | None:
    """The column of `dim <entity>` that holds a column of the entity; None where the file has no such column."""
    if name in entity.key:
        return quoted(f"key {name}")
    return None if _value(entity, name, plan) == "NULL" else quoted(name)


def present(entity: Entity, plan: Plan) -> bool:
    """Does the file name this entity at all?"""
    return bool(_sources(entity, plan))


def join(plan: Plan) -> str:
    """From records to the numbers of their entities."""
    on = " AND ".join(f"typed.{source} IS NOT DISTINCT FROM links.{source}" for source in _all_sources(plan))
    return f"LEFT JOIN links ON {on}" if on else ""


def _tuples(plan: Plan) -> str:
    names = [quoted(c.name) for c in plan.columns if not c.name.startswith(f"{plan.pipeline.grain.name}.")]
    names += [quoted(f"{name}~") for name in plan.folded]
    affected = f"{plan.pipeline.grain.name}.{plan.pipeline.affected}"
    day = f"({quoted(affected)} - DATE '1970-01-01')" if affected in plan.layout.columns else "0"
    return f"""CREATE OR REPLACE TEMP TABLE tuples AS
        SELECT {", ".join(names)}, max(recency) AS last, arg_max(row_index, recency) AS row_index, arg_max(line, recency) AS line
        FROM (SELECT *, {day}::BIGINT * 2147483648 + row_index AS recency FROM typed WHERE kind = {ACCEPTED})
        GROUP BY {", ".join(names)}"""


def _rows(entity: Entity, plan: Plan, scope: Scope) -> str:
    keys = [(name, _key(entity, name, plan)) for name in entity.key]
    named = [f"{sql} AS {quoted(f'key {name}')}" for name, sql in keys]
    values = [
        f"arg_max({_value(entity, name, plan)}, last) AS {quoted(name)}"
        for name in entity.columns
        if name not in entity.key and _value(entity, name, plan) != "NULL"
    ]
    here = " AND ".join(f"({sql}) IS NOT NULL" for name, sql in keys if name in {f.name for f in entity.fields})
    group = ", ".join(quoted(f"key {name}") for name in entity.key)
    return f"""CREATE OR REPLACE TEMP TABLE {table(entity)} AS
        SELECT *, CAST(row_number() OVER (ORDER BY id) AS INTEGER) AS no
        FROM (SELECT *, unhex(sha) AS natural_key_hash, {_uuid("sha")} AS id
        FROM (SELECT *, sha256({_natural_key(entity, plan, scope)}) AS sha
        FROM (SELECT {", ".join([group, *values])},
            arg_max(row_index, last) AS row_index, arg_max(line, last) AS line
        FROM (SELECT *, {", ".join(named)} FROM tuples WHERE {here}) GROUP BY {group})))
        ORDER BY {group}"""


def _numbered(entity: Entity, plan: Plan) -> str:
    on = " AND ".join(
        f"({_key(entity, name, plan)}) IS NOT DISTINCT FROM dim.{quoted(f'key {name}')}" for name in entity.key
    )
    return f"""CREATE OR REPLACE TEMP TABLE tuples AS
        SELECT tuples.*, dim.no AS {number(entity)} FROM tuples LEFT JOIN {table(entity)} AS dim ON {on}"""


def _key(entity: Entity, name: str, plan: Plan) -> str:
    """SQL over tuples for one column of the key."""
    for ref in entity.refs:
        if ref.name == name:
            return number(plan.pipeline.entity(ref.entity)) if present(plan.pipeline.entity(ref.entity), plan) else "NULL"
    full = f"{entity.name}.{name}"
    declared = plan.pipeline.fields[full]
    if full in plan.layout.columns:
        return quoted(full)
    if isinstance(declared.otherwise, NamePath):
        own = quoted(f"{declared.otherwise.names[-1]}~")
        parts = [
            f"coalesce({quoted(f'{n}~')}, '')" if n in plan.layout.columns else "''" for n in declared.otherwise.names
        ]
        path = f" || {SEPARATOR} || ".join(parts)
        return f"CASE WHEN {own} IS NOT NULL THEN 'name:' || sha256({path})[:32] END"
    return "NULL"


def _value(entity: Entity, name: str, plan: Plan) -> str:
    for ref in entity.refs:
        if ref.name == name:
            parent = plan.pipeline.entity(ref.entity)
            return number(parent) if present(parent, plan) else "NULL"
    full = f"{entity.name}.{name}"
    return quoted(full) if full in plan.layout.columns else "NULL"


def _natural_key(entity: Entity, plan: Plan, scope: Scope) -> str:
    """Entity, workspace, scope and key as one text. Postgres makes the same, so nothing here may change."""
    parts = [literal(entity.name), literal(str(scope.workspace_id))]
    parts += [literal(scope.value(name) or "") for name in entity.scope]
    refs = {ref.name: plan.pipeline.entity(ref.entity) for ref in entity.refs}
    for name in entity.key:
        column = quoted(f"key {name}")
        if name in refs:
            ids = f"(SELECT id FROM {table(refs[name])} AS parent WHERE parent.no = {column})"
            parts.append(f"coalesce(CAST({ids} AS VARCHAR), '')" if present(refs[name], plan) else "''")
        else:
            parts.append(f"coalesce({as_text(plan.pipeline.fields[f'{entity.name}.{name}'], column)}, '')")
    return f" || {SEPARATOR} || ".join(parts)


def as_text(declared: Field, column: str) -> str:
    if declared.sql_type == "timestamptz":
        return f"strftime({column} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    return f"CAST({column} AS VARCHAR)" if duck_type(declared) != "VARCHAR" else column


def _uuid(sha: str) -> str:
    """The first 16 bytes of a hash as a UUID of version 8."""
    variant = f"substr('89ab', ((instr('0123456789abcdef', {sha}[17]) - 1) % 4 + 1)::BIGINT, 1)"
    return f"CAST({sha}[1:12] || '8' || {sha}[14:16] || {variant} || {sha}[18:32] AS UUID)"


def _sources(entity: Entity, plan: Plan) -> list[str]:
    """The typed columns that say which entity a record names; none where the file has no such entity."""
    found: list[str] = []
    for name in entity.key:
        full = f"{entity.name}.{name}"
        if full not in plan.pipeline.fields:
            continue  # a ref: its own entity has the sources
        declared = plan.pipeline.fields[full]
        if full in plan.layout.columns:
            found.append(quoted(full))
        elif isinstance(declared.otherwise, NamePath) and declared.otherwise.names[-1] in plan.layout.columns:
            found += [quoted(f"{n}~") for n in declared.otherwise.names if n in plan.layout.columns]
        else:
            return []
    return found


def _all_sources(plan: Plan) -> list[str]:
    return list(dict.fromkeys(s for entity in plan.pipeline.dimensions for s in _sources(entity, plan)))
