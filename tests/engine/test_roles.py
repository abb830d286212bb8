"""The rights of each worker, checked by running statements."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.engine.conftest import Put, Run, meta_file

STAGING = (
    "staging.ads_campaign",
    "staging.ads_ad_set",
    "staging.ads_ad",
    "staging.ads_daily_metric",
    "staging.judgments_plaintiff",
    "staging.judgments_judgment",
    "staging.keywords_keyword",
    "staging.conversions_sale",
)
STAGED = {"staging_rows": "S", "intake.simplicity_validated_rows": "S"}  # views
PRODUCTION = ("campaigns", "ad_sets", "ads", "daily_metrics", "plaintiffs", "judgments", "keywords", "sales")
DELIVERY = (  # for the role of the delivery alone
    *("offline_conversion_queue", "provider_health_state", "provider_credentials", "provider_upload_metrics"),
    *("provider_upload_attempts", "weighbridge.providers", "weighbridge.confirmations"),
)
GROUPS = ("keyword_groups", "group_keywords", "token_merges")

# What each role may do to every table and view there is: Select, Insert, Update, Delete, Truncate, References, triGger.
# Every other right is refused. The parse worker also reads staging to find where to resume, and UPDATE and DELETE
# need SELECT to find the rows.
FOR_ALL = {"weighbridge.clock": "S", "weighbridge.moves": "S"}
RIGHTS: dict[str, dict[str, str]] = {
    "weighbridge_intake": {
        "data_uploads": "IU",
        "weighbridge.resumable_uploads": "SIUD",
        "sites": "SIU",
        "sales": "SIU",
    },
    "weighbridge_parse": {
        "data_uploads": "S",
        **dict.fromkeys(STAGING, "SI"),
        "staging_id_resolution": "SI",
        **STAGED,
        "upload_rejections": "I",
        "upload_warnings": "I",
        "weighbridge.staging_groups": "I",
        "weighbridge.upload_fixes": "I",
        "weighbridge.receipts": "S",
    },
    "weighbridge_promote": {
        **dict.fromkeys(PRODUCTION, "SIU"),
        "data_uploads": "SIU",
        **dict.fromkeys(STAGING, "S"),
        "staging_id_resolution": "S",
        **STAGED,
        "upload_rejections": "SIU",
        "upload_warnings": "SIU",
        "weighbridge.staging_groups": "S",
        "weighbridge.receipts": "SIUD",
        "weighbridge.upload_fixes": "S",
        "sites": "S",
    },
    "weighbridge_clean": {
        **dict.fromkeys(STAGING, "SD"),
        "staging_id_resolution": "SD",
        **STAGED,
        "weighbridge.staging_groups": "SD",
    },
    "weighbridge_announce": {"weighbridge.audit_log": "SI"},
    "weighbridge_group": {
        **dict.fromkeys(("projects", "keywords"), "S"),
        **dict.fromkeys(GROUPS, "SIUD"),
    },
    "weighbridge_tenant": {
        **dict.fromkeys((*PRODUCTION, *GROUPS, "projects", "csv_processing_jobs", "upload_duplicates"), "S"),
        **dict.fromkeys(("data_uploads", "upload_rejections", "upload_warnings", "ingest.import_runs"), "S"),
        "storage_usage": "S",
        "weighbridge.resumable_uploads": "S",
        "weighbridge.upload_fixes": "S",
        "sites": "S",
    },
    "weighbridge_deliver": dict.fromkeys((*DELIVERY, "sites", "sales"), "S"),
}
STATEMENTS = {
    "S": "SELECT FROM {} LIMIT 1",
    "I": "INSERT INTO {} DEFAULT VALUES",
    "U": "UPDATE {} SET workspace_id = workspace_id",
    "D": "DELETE FROM {}",
}


def _try(url: str, role: str, statement: str) -> bool:
    """Is the statement allowed to the role? Other errors than a missing right count as allowed."""
    with psycopg.connect(url) as connection:
        connection.execute(f"SET ROLE {role}")
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            # If row-level security refuses, the role has the right; the row belongs to another workspace.
            return "row-level security" in str(error)
        except (psycopg.errors.NotNullViolation, psycopg.errors.ForeignKeyViolation):
            return True  # it was allowed to try
        return True


@pytest.mark.parametrize("role", RIGHTS)
def test_each_worker_has_exactly_the_specified_rights(database_url: str, role: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT c.oid::regclass::text, string_agg(letter, '' ORDER BY place) FROM pg_class c,"
            " (VALUES ('SELECT', 'S', 1), ('INSERT', 'I', 2), ('UPDATE', 'U', 3), ('DELETE', 'D', 4),"
            "  ('TRUNCATE', 'T', 5), ('REFERENCES', 'R', 6), ('TRIGGER', 'G', 7)) AS rights (name, letter, place)"
            " WHERE c.relkind IN ('r', 'p', 'v', 'm')"
            " AND c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')"
            " AND (has_table_privilege(%s, c.oid, rights.name) OR"
            "      rights.place IN (1, 2, 3, 6) AND has_any_column_privilege(%s, c.oid, rights.name))"
            " GROUP BY 1",
            (role, role),
        ).fetchall()
    assert dict(rows) == RIGHTS[role] | FOR_ALL


@pytest.mark.parametrize("role", RIGHTS)
def test_each_worker_can_do_only_what_its_rights_allow(database_url: str, role: str) -> None:
    """Run statements on the tables of uploads: a grant alone does not show access to the schema or excess rights."""
    for table in (*STAGING, "staging_id_resolution", *PRODUCTION, "data_uploads"):
        done = {letter for letter, text in STATEMENTS.items() if _try(database_url, role, text.format(table))}
        allowed = set(RIGHTS[role].get(table, ""))
        if "S" not in allowed:
            allowed.discard("U")  # without reading it an UPDATE can only set, and ours reads
        assert done == allowed, table


def test_the_parse_role_cannot_write_production(database_url: str) -> None:
    for table in PRODUCTION:
        for statement in (
            f"INSERT INTO {table} DEFAULT VALUES",
            f"UPDATE {table} SET line = 1",
            f"TRUNCATE {table}",
        ):
            assert not _try(database_url, "weighbridge_parse", statement)


@pytest.mark.parametrize("role", RIGHTS)
def test_no_worker_can_move_the_clock_or_read_keys_or_change_the_moves(database_url: str, role: str) -> None:
    for statement in (
        "UPDATE weighbridge.clock SET shift = '1 day'",
        "SELECT key_hash FROM weighbridge.api_keys",
        "INSERT INTO weighbridge.moves VALUES ('x', 'failed', 'completed')",
        "UPDATE weighbridge.attempts SET lease_until = 'infinity'",
    ):
        assert not _try(database_url, role, statement)


@pytest.mark.parametrize("role", RIGHTS)
def test_a_worker_can_call_only_the_functions_of_its_step(database_url: str, role: str) -> None:
    own = {
        "weighbridge_intake": {
            "receive_upload",
            "note_duplicate",
            "make_project",
            "defer_upload",
            "finish_replay",
            "store_waiting",
            "reserve_storage",
            "release_storage",
            "count_blob",
            "note_uncounted",
            "increment_storage_usage",
        },
        "weighbridge_parse": {
            "fence",
            "begin_staging",
            "note_rows_read",
            "note_staged",
            "finish_staging",
            "note_columns",
        },
        "weighbridge_promote": {
            "fence",
            "begin_promotion",
            "later_uploads",
            "advance_promotion",
            "finish_upload",
        },
        "weighbridge_announce": {"fence", "finish_event_delivery"},
        "weighbridge_clean": {
            "expire_staging",
            "discard_preview",
            "retire_blob",
            "note_blob_removed",
            "sweep_reservations",
        },
        "weighbridge_deliver": {
            *("delivery_groups", "claim_conversions", "settle_conversions", "begin_probe", "park_deliveries"),
            *("refuse_credentials", "watch_deliveries", "claim_confirmations", "settle_confirmation"),
            *("set_credentials", "reseal_credentials", "requeue_deliveries", "reset_provider"),
            "enqueue_conversions",
            *("acquire_slots", "release_slots"),
        },
        "weighbridge_group": {"lock_project", "may_group", "note_grouped", "signature"},
        "weighbridge_tenant": {
            "known_upload",
            "workspace_figures",
            "project_status",
            "kick_project",
            "has_live_attempt",
            "usage_and_limits",
        },
    }
    for_all = {
        "now",
        "workspace",
        "natural_key_hash",
        "entity_id",
        "run_status",
        "job_status",
        "only_digests",
        "new_id",
    }
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT proname FROM pg_proc"
            " WHERE pronamespace IN ('weighbridge'::regnamespace, 'ingest'::regnamespace)"
            " AND has_function_privilege(%s, oid, 'EXECUTE')",
            (role,),
        ).fetchall()
    assert {name for (name,) in rows} == own.get(role, set()) | for_all


async def test_a_tenant_sees_only_its_own_workspace(
    put: Put, run: Run, workspace: UUID, database_url: str
) -> None:
    case = b"Case Number,Plaintiff,Amount\n1,Ann,5\n"
    for owner in (workspace, uuid4()):
        await run(await put(meta_file(days=1, ads=1), workspace_id=owner))
        await run(await put(case, workspace_id=owner, pipeline="judgments", platform=None))
        listed = {"pipeline": "keywords", "platform": None, "project_id": 1}
        await run(await put(b"Keyword\nshoes\n", workspace_id=owner, **listed))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "WITH made AS (INSERT INTO sites (workspace_id, name) SELECT unnest(%s), 'shop' RETURNING workspace_id, id)"
            " INSERT INTO sales (workspace_id, site_id, order_id, occurred_at)"
            " SELECT workspace_id, id, 'a', now() FROM made",
            ([workspace, uuid4()],),
        )
        connection.commit()
        connection.execute("SET ROLE weighbridge_tenant")
        for table in ("data_uploads", "sites", *PRODUCTION):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        connection.execute("SELECT set_config('weighbridge.workspace_id', %s, true)", (str(workspace),))
        for table in ("data_uploads", "sites", *PRODUCTION):
            rows: list[Any] = connection.execute(f"SELECT DISTINCT workspace_id FROM {table}").fetchall()
            assert rows == [(workspace,)]


def test_every_table_a_tenant_can_see_has_row_level_security(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
            " AND relnamespace IN ('public'::regnamespace, 'staging'::regnamespace, 'weighbridge'::regnamespace)"
            " AND has_table_privilege('weighbridge_tenant', oid, 'SELECT') AND NOT relrowsecurity"
        ).fetchall()
    # No role may write the clock or the table of transitions.
    assert {name for (name,) in rows} == {"weighbridge.clock", "weighbridge.moves"}


def test_intake_cannot_record_an_upload_for_another_workspace(database_url: str, workspace: UUID) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "SELECT set_config('role', 'weighbridge_intake', true), set_config('weighbridge.workspace_id', %s, true)",
            (str(workspace),),
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="another workspace"):
            connection.execute(
                "SELECT weighbridge.receive_upload(%s, NULL, 'meta', NULL, 'manual', 'ads', 'x', 'x', 'csv',"
                " sha256('x'), 1, NULL, false, false, NULL, NULL)",
                (uuid4(),),
            )


async def test_staging_rows_shows_our_roles_only_their_workspace(
    put: Put, run: Run, workspace: UUID, database_url: str
) -> None:
    case = b"Case Number,Plaintiff,Amount\n1,Ann,5\n"
    for owner in (workspace, uuid4()):
        await run(await put(meta_file(days=1, ads=1), workspace_id=owner))
        await run(await put(case, workspace_id=owner, pipeline="judgments", platform=None))
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(DISTINCT workspace_id) FROM staging_rows").fetchone() == (2,)
        connection.execute(
            "SELECT set_config('role', 'weighbridge_promote', true), set_config('weighbridge.workspace_id', %s, true)",
            (str(workspace),),
        )
        assert connection.execute("SELECT DISTINCT workspace_id FROM staging_rows").fetchall() == [
            (workspace,)
        ]
