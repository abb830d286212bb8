"""The declaration of a pipeline → its staging tables, and its production tables where they do not exist yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256

from psycopg import sql

from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.postgres.production_columns import refuse_unfit
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one

SCOPE_TYPES = {"client_id": "uuid", "platform": "text", "project_id": "bigint"}
# Views run with their owner's rights: this hides from our roles what row-level security hides.
_VISIBLE = sql.SQL(
    "s.workspace_id = (SELECT weighbridge.workspace()) OR current_setting('role') NOT LIKE 'weighbridge\\_%'"
)


@cache
def fingerprint(pipeline: Pipeline) -> str:
    """Changes whenever rows staged under the old declaration could mean something else under the new one."""
    return sha256(repr(asdict(pipeline)).encode()).hexdigest()[
        :16
    ]  # every rule's expression, not its name only


def staging_table(pipeline: Pipeline, entity: Entity) -> sql.Identifier:
    return sql.Identifier("staging", f"{pipeline.name}_{entity.name}")


async def install(tx: Tx, pipelines: list[Pipeline]) -> list[str]:
    """Create the tables that the declarations need; returns the pipelines whose tables were created or replaced."""
    await tx.execute("SELECT pg_advisory_xact_lock(hashtext('weighbridge.migrate'))")
    known: dict[str, str] = dict(await fetch_all(tx, "SELECT name, fingerprint FROM weighbridge.pipelines"))
    _refuse_clashes(pipelines)
    await refuse_unfit(tx, pipelines)  # all pipelines: a table may have changed without its declaration
    changed = [p for p in pipelines if known.get(p.name) != fingerprint(p)]
    for pipeline in changed:
        await _send_back_staged(tx, pipeline)
        for entity in pipeline.entities:
            await _make_staging(tx, pipeline, entity)
            await _make_production(tx, pipeline, entity)
        await tx.execute(
            "INSERT INTO weighbridge.pipelines (name, fingerprint) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint, updated_at = weighbridge.now()",
            (pipeline.name, fingerprint(pipeline)),
        )
    if changed:
        await _make_view(tx, pipelines)
    return [p.name for p in changed]


async def fill_lanes(tx: Tx, pipelines: Sequence[Pipeline]) -> None:
    """Give uploads of earlier versions their lane (Pipeline.lane): some may still be in the queue, or be retried."""
    for pipeline in pipelines:
        if pipeline.lane_scopes is None:
            continue
        parts = [
            sql.SQL("coalesce({}::text, '')").format(sql.Identifier(name)) for name in pipeline.lane_scopes
        ]
        lane = sql.SQL("concat_ws('/', {})").format(sql.SQL(", ").join([sql.SQL("pipeline"), *parts]))
        await tx.execute(
            sql.SQL("UPDATE public.data_uploads SET lane = {} WHERE lane IS NULL AND pipeline = %s").format(
                lane
            ),
            (pipeline.name,),
        )


def _refuse_clashes(pipelines: list[Pipeline]) -> None:
    """Two pipelines may write to one table if they agree on its key; they never share staging tables."""
    staged: dict[str, str] = {}
    tables: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        for entity in pipeline.entities:
            name = staging_table(pipeline, entity).as_string(None)
            if name in staged:
                raise ConfigError(
                    f"Pipelines {staged[name]} and {pipeline.name}: their staging would have one name, {name}. "
                    "Rename one of them."
                )
            staged[name] = pipeline.name
        other = tables.setdefault(pipeline.grain.table, pipeline)
        mine, theirs = (
            (p.affected if p.grouped else None, p.grain.key, p.grain.scope) for p in (pipeline, other)
        )
        if mine != theirs:
            raise ConfigError(
                f"Pipelines {other.name} and {pipeline.name} both write to {pipeline.grain.table}: expected the same "
                f"key, scope and affected field, got {theirs} and {mine}."
            )


async def _send_back_staged(tx: Tx, pipeline: Pipeline) -> None:
    """Uploads staged under the old declaration are parsed again; running attempts find their staged rows missing."""
    await tx.execute(
        "UPDATE public.data_uploads SET status = 'pending', staged = '{}', staged_at = NULL"
        " WHERE pipeline = %s AND status = 'staging_complete' AND NOT EXISTS (SELECT FROM weighbridge.attempts a"
        " WHERE a.queue = 'uploads' AND a.subject = data_uploads.id AND a.closed_at IS NULL)",
        (pipeline.name,),
    )


async def _make_staging(tx: Tx, pipeline: Pipeline, entity: Entity) -> None:
    table = staging_table(pipeline, entity)
    await tx.execute("DROP VIEW IF EXISTS public.staging_rows")
    # Together with its readers: the view of the pipeline, under its present or earlier name.
    await tx.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(table))
    columns: list[sql.Composable] = [
        sql.SQL("upload_id uuid NOT NULL, workspace_id uuid NOT NULL"),
        sql.SQL("seq int NOT NULL, row_index int NOT NULL, line int NOT NULL"),
    ]
    if entity is not pipeline.grain:
        columns.append(sql.SQL("id uuid NOT NULL, natural_key_hash bytea NOT NULL"))
    columns += [_column(entity, name) for name in entity.columns]
    if pipeline.staged_as and entity is pipeline.grain:
        key = sql.SQL(", ").join(map(sql.Identifier, ("upload_id", *entity.key)))
        columns.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(key))
    # Unlogged: rows that a server crash loses are parsed again from the stored file.
    await tx.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} ({}, PRIMARY KEY (upload_id, workspace_id, seq))").format(
            table, sql.SQL(", ").join(columns)
        )
    )
    await _without_statistics(tx, table)
    await tx.execute(sql.SQL("GRANT SELECT, INSERT ON {} TO weighbridge_parse").format(table))
    await tx.execute(sql.SQL("GRANT SELECT ON {} TO weighbridge_promote").format(table))
    await tx.execute(sql.SQL("GRANT SELECT, DELETE ON {} TO weighbridge_clean").format(table))
    if pipeline.staged_as and entity is pipeline.grain:
        await _make_staged_as(tx, pipeline)


async def _make_staged_as(tx: Tx, pipeline: Pipeline) -> None:
    """The grain's staged rows under the declared name."""
    view, grain = _staged_as(pipeline), pipeline.grain
    schema = sql.Identifier(pipeline.staged_as.split(".")[0])
    readers = sql.SQL("weighbridge_parse, weighbridge_promote, weighbridge_clean")
    await tx.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
    await tx.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, readers))
    await tx.execute(
        sql.SQL(
            "CREATE VIEW {} AS SELECT s.upload_id AS batch_id, s.workspace_id, {}, s.row_index, s.line,"
            " coalesce(u.staged_at, u.started_at) AS created_at"
            " FROM {} s JOIN public.data_uploads u ON u.id = s.upload_id WHERE {}"
        ).format(
            view,
            sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(c)) for c in grain.columns),
            staging_table(pipeline, grain),
            _VISIBLE,
        )
    )
    await tx.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(view, readers))


def _staged_as(pipeline: Pipeline) -> sql.Identifier:
    return sql.Identifier(*pipeline.staged_as.split("."))


async def _make_production(tx: Tx, pipeline: Pipeline, entity: Entity) -> None:
    """Create the production table, or check that the existing one fits."""
    there = [
        name
        for (name,) in await fetch_all(
            tx,
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (f"public.{entity.table}",),
        )
    ]
    if there:
        for needed in _needed(pipeline, entity):
            if needed not in there:
                raise ConfigError(
                    f"Pipeline {pipeline.name}: table {entity.table} has no column '{needed}'"
                    f"{did_you_mean(needed, there) or '.'} "
                    "Add it, or name another table."
                )
        await _check_key(tx, pipeline, entity)
        await _open_to_promotion(tx, pipeline, entity)
        return
    table = sql.Identifier("public", entity.table)
    columns: list[sql.Composable] = [sql.SQL("workspace_id uuid NOT NULL")]
    if entity is not pipeline.grain:
        columns.append(sql.SQL("id uuid NOT NULL"))
    columns += [sql.SQL("{} {}").format(sql.Identifier(s), sql.SQL(SCOPE_TYPES[s])) for s in entity.scope]
    columns += [_column(entity, name) for name in entity.columns]
    if entity.source_file:
        columns.append(sql.SQL("{} text").format(sql.Identifier(entity.source_file)))
    columns.append(
        sql.SQL(
            "upload_id uuid NOT NULL, line int NOT NULL,"
            " created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL"
        )
    )
    if entity is not pipeline.grain:
        columns.append(sql.SQL("PRIMARY KEY (workspace_id, id)"))
    key = sql.SQL(", ").join(map(sql.Identifier, ("workspace_id", *entity.scope, *entity.key)))
    columns.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(key))
    await tx.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(columns)))
    await _without_statistics(tx, table)
    await tx.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(table))
    await tx.execute(
        sql.SQL(
            "CREATE POLICY workspace ON {} USING (workspace_id = (SELECT weighbridge.workspace()))"
        ).format(table)
    )
    await tx.execute(sql.SQL("GRANT SELECT ON {} TO weighbridge_tenant").format(table))
    await _open_to_promotion(tx, pipeline, entity)


async def _without_statistics(tx: Tx, table: sql.Identifier) -> None:
    """As in the tables of migration 3: plans must not depend on whether statistics know a workspace."""
    await tx.execute(sql.SQL("ALTER TABLE {} ALTER workspace_id SET STATISTICS 0").format(table))


async def _open_to_promotion(tx: Tx, pipeline: Pipeline, entity: Entity) -> None:
    """The privileges to write and, for the grain, the triggers that void receipts when others write."""
    table = sql.Identifier("public", entity.table)
    await tx.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE ON {} TO weighbridge_promote").format(table))
    if entity is pipeline.grain:
        await tx.execute("SELECT weighbridge.watch_writes(%s::regclass)", (table.as_string(None),))


async def _check_key(tx: Tx, pipeline: Pipeline, entity: Entity) -> None:
    key = ["workspace_id", *entity.scope, *entity.key]
    found = await fetch_one(
        tx,
        "SELECT FROM pg_index i WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
        " AND i.indisvalid AND i.indimmediate AND i.indexprs IS NULL AND (SELECT"
        " array_agg(a.attname::text ORDER BY a.attname) = %s AND (i.indnullsnotdistinct OR bool_and(a.attnotnull))"
        " FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[]))",
        (f"public.{entity.table}", sorted(key)),
    )
    if found is None:
        raise ConfigError(
            f"Pipeline {pipeline.name}: table {entity.table} needs UNIQUE NULLS NOT DISTINCT ({', '.join(key)}), "
            "so that a row can be written exactly once."
        )


def _needed(pipeline: Pipeline, entity: Entity) -> list[str]:
    file = [entity.source_file] if entity.source_file else []
    own = ["workspace_id", *entity.scope, *entity.columns, *file]
    own += ["upload_id", "line", "created_at", "updated_at"]
    return own if entity is pipeline.grain else ["id", *own]


def _column(entity: Entity, name: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(entity.sql_type(name)))


async def _make_view(tx: Tx, pipelines: list[Pipeline]) -> None:
    """The view staging_rows over the typed staging tables; rejected rows are its invalid ones."""
    parts: list[sql.Composable] = [_view_part(p, e) for p in pipelines for e in p.entities]
    parts.append(
        sql.SQL(
            "SELECT r.upload_id, r.workspace_id, r.row_index,"
            " NULL::text AS entity_type, NULL::text AS natural_key_hash,"
            " to_jsonb(r.raw) AS raw_data, 'invalid' AS validation_status,"
            " jsonb_build_array(jsonb_build_object('line', r.line, 'column', r.column_name, 'code', r.code,"
            " 'message', r.message)) AS validation_errors, u.staged_at AS created_at"
            " FROM public.upload_rejections r JOIN public.data_uploads u ON u.id = r.upload_id WHERE r.stage = 'parse'"
            " AND (r.workspace_id = (SELECT weighbridge.workspace())"
            " OR current_setting('role') NOT LIKE 'weighbridge\\_%')"
        )
    )
    await tx.execute("DROP VIEW IF EXISTS public.staging_rows")
    await tx.execute(
        sql.SQL("CREATE VIEW public.staging_rows AS {}").format(sql.SQL(" UNION ALL ").join(parts))
    )
    await tx.execute(
        "GRANT SELECT ON public.staging_rows TO weighbridge_parse, weighbridge_promote, weighbridge_clean"
    )


def _view_part(pipeline: Pipeline, entity: Entity) -> sql.Composed:
    raw = sql.SQL(", ").join(
        sql.SQL("{}, s.{}").format(sql.Literal(c), sql.Identifier(c)) for c in entity.columns
    )
    if entity is pipeline.grain:
        parts = [sql.SQL("u.{}::text").format(sql.Identifier(c)) for c in entity.scope]
        parts += [sql.SQL("s.{}::text").format(sql.Identifier(c)) for c in entity.key]
        key: sql.Composable = sql.SQL("weighbridge.natural_key_hash({}, s.workspace_id::text, {})").format(
            sql.Literal(entity.name), sql.SQL(", ").join(parts)
        )
    else:
        key = sql.SQL("s.natural_key_hash")
    return sql.SQL(
        "SELECT s.upload_id, s.workspace_id, s.row_index, {entity}::text AS entity_type,"
        " encode({key}, 'hex') AS natural_key_hash, jsonb_build_object({raw}) AS raw_data,"
        " 'valid' AS validation_status, NULL::jsonb AS validation_errors,"
        " coalesce(u.staged_at, u.started_at) AS created_at"
        " FROM {table} s JOIN public.data_uploads u ON u.id = s.upload_id"
        " WHERE {visible}"
    ).format(
        entity=sql.Literal(entity.name),
        key=key,
        raw=raw,
        table=staging_table(pipeline, entity),
        visible=_VISIBLE,
    )
