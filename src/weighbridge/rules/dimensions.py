"""Called by run_checks.py: cells of the dimensions' columns → entities with ids. It makes these tables:

    tuples   the distinct combinations of these cells, typed, with the ids of their entities and the last
             record of each
    links    combination → number of each entity, in the order of the ids: sorting by number sorts by id
    dim …    one row per entity, with its last known values, in the order of its key

Rules and hashes run once per combination, not once per record.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from functools import reduce

from weighbridge.model.pipeline import Computed, Entity, Field, NamePath
from weighbridge.model.upload import Scope
from weighbridge.rules.check_plan import CheckPlan, Locale, duck_type, literal, quoted, stages
from weighbridge.rules.check_tables import Tables
from weighbridge.rules.field_errors import dimension_errors
from weighbridge.rules.record_kinds import ACCEPTED, REJECTED

_SEPARATOR = " || chr(31) || "


def build(db: Tables, plan: CheckPlan, locale: Locale, scope: Scope) -> None:
    """Make these tables from the accepted records. Reject records with an error in a dimension's cell."""
    if not plan.dimension_columns:
        return
    db.make("tuples", _tuples(db, plan, locale))
    db.make("links", _links(plan))
    if db.execute("SELECT count(*) FROM tuples WHERE bad").fetchall()[0][0]:
        db.execute(f"""UPDATE typed SET kind = {REJECTED}
            FROM links WHERE bad AND typed.combo = links.combo AND kind = {ACCEPTED}""")
    for entity in entities(plan):
        db.make(table(entity), _rows(entity, plan))


def link_rejected(db: Tables, plan: CheckPlan, locale: Locale, scope: Scope) -> None:
    """Make `rejected_links`: as `links`, for rejected records. Number 0: no accepted record has this entity.

    `readable`: whether the key of the record can be read from its cells.
    """
    same = " AND ".join(f"combos.{cell} IS NOT DISTINCT FROM tuples.{cell}" for cell in plan.dimension_cells)
    in_key = {ref.entity for ref in plan.pipeline.grain.refs if ref.name in plan.pipeline.grain.key}
    columns, joins, known = [], [], ["true"]
    for entity in entities(plan):
        numbered, found = quoted(f"{entity.name} numbered"), f"tuples.{_id(entity)}"
        columns.append(
            f", CASE WHEN {found} IS NOT NULL THEN coalesce({numbered}.no, 0) END AS {number(entity)}"
        )
        joins.append(f"""LEFT JOIN (SELECT row_number() OVER (ORDER BY id) AS no, id FROM {table(entity)})
            AS {numbered} ON {numbered}.id = {found}""")
        if entity.name in in_key:
            known.append(f"{found} IS NOT NULL")
    db.make(
        "rejected_links",
        f"""SELECT combo, NOT bad OR ({" AND ".join(known)}) AS readable{"".join(columns)}
        FROM combos JOIN ({_tuples(db, plan, locale, REJECTED)}) AS tuples ON {same} {" ".join(joins)}""",
    )


def entities(plan: CheckPlan) -> list[Entity]:
    """The dimensions that the file has."""
    return [entity for entity in plan.pipeline.dimensions if _is_in_file(entity, plan)]


def computed(entity: Entity, plan: CheckPlan) -> list[str]:
    """The fields of an entity that are computed from columns of the file."""
    return [
        declared.name
        for declared in entity.fields
        if isinstance(declared.otherwise, Computed) and _can_be_computed(entity, declared, plan)
    ]


def number(entity: Entity) -> str:
    """The column of `links` and `grain` with the number of the entity."""
    return quoted(f"{entity.name}#")


def join(plan: CheckPlan) -> str:
    """SQL: joins records with the numbers of their entities."""
    return "LEFT JOIN links ON typed.combo = links.combo" if plan.dimension_columns else ""


def table(entity: Entity) -> str:
    return quoted(f"dim {entity.name}")


def _tuples(db: Tables, plan: CheckPlan, locale: Locale, kind: int = ACCEPTED) -> str:
    """SELECT the combinations of the records of this kind."""
    cells = ", ".join(plan.dimension_cells)
    affected = f"{plan.pipeline.grain.name}.{plan.pipeline.affected}"
    day = f"({quoted(affected)} - DATE '1970-01-01')" if affected in plan.layout.columns else "0"
    latest = f"""(SELECT combo, max(recency) AS last, arg_max(row_index, recency) AS row_index,
            arg_max(line, recency) AS line
        FROM (SELECT *, {day}::BIGINT * 2147483648 + row_index AS recency FROM typed WHERE kind = {kind})
        GROUP BY combo)"""
    distinct = f"""(SELECT {cells}, max(last) AS last, arg_max(row_index, last) AS row_index,
            arg_max(line, last) AS line
        FROM combos JOIN {latest} USING (combo) GROUP BY {cells})"""
    values = [f"{column.value} AS {quoted(column.name)}" for column in plan.dimension_columns]
    for entity in entities(plan):
        for declared in entity.fields:
            full = f"{entity.name}.{declared.name}"
            if full in plan.layout.columns:
                continue
            if isinstance(declared.otherwise, NamePath):
                values.append(f"{_name_key(declared.otherwise, plan)} AS {quoted(full)}")
            elif isinstance(declared.otherwise, Computed):
                computed = f"CAST({_computed(declared.otherwise, entity, plan)} AS {duck_type(declared)})"
                values.append(f"{computed} AS {quoted(full)}")
    bad = " OR ".join(f"({fault.when})" for fault in dimension_errors(plan)) or "false"
    sql = f"""SELECT {cells}, last, row_index, line, coalesce({bad}, false) AS bad, {", ".join(values)}
        FROM {stages(plan.dimension_columns, plan, locale, distinct)}"""
    for entity in entities(plan):
        sql = f"SELECT *, {_natural_key_hash(db, entity, plan)} AS {_hash(entity)} FROM ({sql})"
        sql = f"SELECT *, {_uuid(_hash(entity))} AS {_id(entity)} FROM ({sql})"
    return sql


def _links(plan: CheckPlan) -> str:
    """SELECT combo, bad, and the number of each entity."""
    same = " AND ".join(f"combos.{cell} IS NOT DISTINCT FROM tuples.{cell}" for cell in plan.dimension_cells)
    columns = ["combo", "bad"]
    for entity in entities(plan):
        known = f"CASE WHEN NOT bad THEN {_id(entity)} END"
        rank = f"CAST(dense_rank() OVER (ORDER BY {known} NULLS LAST) AS INTEGER)"
        columns.append(f"CASE WHEN {known} IS NOT NULL THEN {rank} END AS {number(entity)}")
    return f"SELECT {', '.join(columns)} FROM combos JOIN tuples ON {same}"


def _rows(entity: Entity, plan: CheckPlan) -> str:
    """SELECT one row per entity, in the order of its key: row_index, line, id, hash, last known values."""
    refs = {ref.name: plan.pipeline.entity(ref.entity) for ref in entity.refs}
    columns = []
    for name in entity.columns:
        full = f"{entity.name}.{name}"
        if name in refs:
            value = _id(refs[name]) if refs[name] in entities(plan) else "NULL::UUID"
        elif (
            full in plan.layout.columns
            or name in entity.key
            or isinstance(plan.pipeline.fields[full].otherwise, Computed)
        ):
            value = quoted(full)
        else:
            value = f"NULL::{duck_type(plan.pipeline.fields[full])}"
        columns.append(f"arg_max({value}, last) AS {quoted(name)}")
    order = ", ".join(f"{quoted(name)} NULLS LAST" for name in entity.key)
    return f"""SELECT arg_max(row_index, last) AS row_index, arg_max(line, last) AS line, {_id(entity)} AS id,
            unhex(any_value({_hash(entity)})) AS natural_key_hash, {", ".join(columns)}
        FROM tuples WHERE NOT bad AND {_id(entity)} IS NOT NULL GROUP BY {_id(entity)} ORDER BY {order}"""


def _name_key(path: NamePath, plan: CheckPlan) -> str:
    """SQL: an external id computed from folded names; NULL if the entity's own name is missing."""
    folded = [[f"k{p}" for p in plan.layout.columns.get(name, ())] for name in path.names]
    parts = [f"coalesce({', '.join([*cells, literal('')])})" for cells in folded]
    key = f"'name:' || sha256({_SEPARATOR.join(parts)})[:32]"
    return f"CASE WHEN coalesce({', '.join(folded[-1])}) IS NOT NULL THEN {key} END"


def _computed(computed: Computed, entity: Entity, plan: CheckPlan) -> str:
    """SQL: the declared expression over the values of its fields; NULL for fields that the file lacks."""
    values = {column.name: column.value for column in plan.dimension_columns}
    parts = {
        f"{{{name}}}": values.get(
            f"{entity.name}.{name}", f"NULL::{duck_type(plan.pipeline.fields[f'{entity.name}.{name}'])}"
        )
        for name in computed.fields
    }
    return reduce(lambda sql, part: sql.replace(part, f"({parts[part]})"), parts, computed.expression)


def _natural_key_hash(db: Tables, entity: Entity, plan: CheckPlan) -> str:
    """SQL: SHA-256 of entity, workspace, scope and key. Postgres computes the same hash: do not change it."""
    parts = [literal(entity.name), *map(db.value, ("workspace_id", *entity.scope))]
    refs = {ref.name: plan.pipeline.entity(ref.entity) for ref in entity.refs}
    own = []
    for name in entity.key:
        full = f"{entity.name}.{name}"
        if name not in refs:
            own.append(f"{quoted(full)} IS NOT NULL")
            parts.append(_as_text(plan.pipeline.fields[full], quoted(full)))
        elif refs[name] in entities(plan):
            parts.append(f"coalesce(CAST({_id(refs[name])} AS VARCHAR), '')")
        else:
            parts.append("''")
    own = own or [f"{_id(refs[name])} IS NOT NULL" for name in entity.key]
    return f"CASE WHEN {' AND '.join(own)} THEN sha256({_SEPARATOR.join(parts)}) END"


def _as_text(declared: Field, column: str) -> str:
    if declared.sql_type == "timestamptz":
        return f"strftime({column} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    return column if declared.type is str else f"CAST({column} AS VARCHAR)"


def _uuid(sha: str) -> str:
    """The first 16 bytes of a hash as a UUID of version 8."""
    variant = f"substr('89ab', (instr('0123456789abcdef', {sha}[17]) - 1) % 4 + 1, 1)"
    return f"CAST({sha}[1:12] || '8' || {sha}[14:16] || {variant} || {sha}[18:32] AS UUID)"


def _id(entity: Entity) -> str:
    return quoted(f"{entity.name} id")


def _hash(entity: Entity) -> str:
    return quoted(f"{entity.name} hash")


def _is_in_file(entity: Entity, plan: CheckPlan) -> bool:
    """Whether the file has the key of this entity or can compute it. A key of references needs all of them."""
    refs = {ref.name: plan.pipeline.entity(ref.entity) for ref in entity.refs}
    own = [plan.pipeline.fields[f"{entity.name}.{name}"] for name in entity.key if name not in refs]
    for declared in own:
        if f"{entity.name}.{declared.name}" not in plan.layout.columns and not _can_be_computed(
            entity, declared, plan
        ):
            return False
    return bool(own) or all(_is_in_file(refs[name], plan) for name in entity.key)


def _can_be_computed(entity: Entity, declared: Field, plan: CheckPlan) -> bool:
    match declared.otherwise:
        case NamePath():
            return declared.otherwise.names[-1] in plan.layout.columns
        case Computed():
            return any(f"{entity.name}.{name}" in plan.layout.columns for name in declared.otherwise.fields)
        case _:
            return False
