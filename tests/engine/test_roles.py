"""S1 §2.2: what each worker may write and read, tried and not only asked."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.engine.conftest import Put, Run, meta_file

STAGING = ("staging.ads_campaign", "staging.ads_ad_set", "staging.ads_ad", "staging.ads_daily_metric")
PRODUCTION = ("campaigns", "ad_sets", "ads", "daily_metrics")

# role: (writes, deletes, reads) as S1's drawing has them; what is in none of them is closed. The parse worker reads
# staging for §6.4's resume check; whoever updates or deletes must read to find the rows.
BOUNDARIES: dict[str, tuple[set[str], set[str], set[str]]] = {
    "weighbridge_intake": ({"data_uploads"}, set(), set()),
    "weighbridge_parse": (
        {*STAGING, "staging_id_resolution"},
        set(),
        {"data_uploads", *STAGING, "staging_id_resolution", "staging_rows"},
    ),
    "weighbridge_promote": (
        {*PRODUCTION, "data_uploads"},
        set(),
        {*STAGING, "staging_id_resolution", "staging_rows", *PRODUCTION, "data_uploads"},
    ),
    "weighbridge_clean": (
        set(),
        {*STAGING, "staging_id_resolution"},
        {*STAGING, "staging_id_resolution", "staging_rows"},
    ),
    "weighbridge_announce": (set(), set(), set()),
    "weighbridge_tenant": (set(), set(), {"data_uploads", *PRODUCTION}),
}
TABLES = ("data_uploads", *STAGING, "staging_id_resolution", "staging_rows", *PRODUCTION)


def _try(url: str, role: str, statement: str) -> bool:
    """Is the statement allowed to the role? Other errors than a missing right count as allowed."""
    with psycopg.connect(url) as connection:
        connection.execute(f"SET ROLE {role}")
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            # Where row-level security says no, the right is there; the row was another workspace's.
            return "row-level security" in str(error)
        except (psycopg.errors.NotNullViolation, psycopg.errors.ForeignKeyViolation):
            return True  # it was allowed to try
        return True


@pytest.mark.parametrize("role", BOUNDARIES)
def test_each_worker_writes_and_reads_just_what_s1_draws(database_url: str, role: str) -> None:
    writes, deletes, reads = BOUNDARIES[role]
    found: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for table in TABLES:
        column = "upload_id" if table != "data_uploads" else "id"
        if table != "staging_rows" and _try(database_url, role, f"INSERT INTO {table} DEFAULT VALUES"):
            found[0].add(table)
        if table != "staging_rows" and _try(database_url, role, f"DELETE FROM {table}"):
            found[1].add(table)
        if _try(database_url, role, f"SELECT {column} FROM {table} LIMIT 1"):
            found[2].add(table)
    assert found == (writes, deletes, reads)


def test_the_parse_role_cannot_write_production(database_url: str) -> None:
    for table in PRODUCTION:
        for statement in (
            f"INSERT INTO {table} DEFAULT VALUES",
            f"UPDATE {table} SET line = 1",
            f"TRUNCATE {table}",
        ):
            assert not _try(database_url, "weighbridge_parse", statement)


@pytest.mark.parametrize("role", BOUNDARIES)
def test_no_worker_can_move_the_clock_or_read_keys_or_change_the_moves(database_url: str, role: str) -> None:
    for statement in (
        "UPDATE weighbridge.clock SET shift = '1 day'",
        "SELECT key_hash FROM weighbridge.api_keys",
        "INSERT INTO weighbridge.moves VALUES ('x', 'failed', 'completed')",
        "UPDATE weighbridge.attempts SET lease_until = 'infinity'",
    ):
        assert not _try(database_url, role, statement)


@pytest.mark.parametrize("role", BOUNDARIES)
def test_a_worker_can_call_only_the_functions_of_its_step(database_url: str, role: str) -> None:
    own = {
        "weighbridge_intake": {"receive_upload"},
        "weighbridge_parse": {"fence", "reset_staging", "note_rows_read", "note_staged", "finish_staging"},
        "weighbridge_promote": {"fence", "begin_promotion", "advance_promotion", "finish_upload"},
        "weighbridge_announce": {"fence", "finish_delivery"},
        "weighbridge_clean": {"expire_staging"},
    }
    for_all = {"now", "workspace", "natural_key_hash", "entity_id"}
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'weighbridge'::regnamespace"
            " AND has_function_privilege(%s, oid, 'EXECUTE')",
            (role,),
        ).fetchall()
    assert {name for (name,) in rows} == own.get(role, set()) | for_all


async def test_a_tenant_sees_only_its_own_workspace(
    put: Put, run: Run, workspace: UUID, database_url: str
) -> None:
    await run(await put(meta_file(days=1, ads=1)))
    await run(await put(meta_file(days=1, ads=1), workspace_id=uuid4()))
    with psycopg.connect(database_url) as connection:
        connection.execute("SET ROLE weighbridge_tenant")
        for table in ("data_uploads", *PRODUCTION):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        connection.execute("SELECT set_config('weighbridge.workspace_id', %s, true)", (str(workspace),))
        for table in ("data_uploads", *PRODUCTION):
            rows: list[Any] = connection.execute(f"SELECT DISTINCT workspace_id FROM {table}").fetchall()
            assert rows == [(workspace,)]


def test_every_table_a_tenant_can_see_has_row_level_security(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
            " AND relnamespace IN ('public'::regnamespace, 'staging'::regnamespace, 'weighbridge'::regnamespace)"
            " AND has_table_privilege('weighbridge_tenant', oid, 'SELECT') AND NOT relrowsecurity"
        ).fetchall()
    # The clock and the table of moves belong to nobody.
    assert {name for (name,) in rows} == {"weighbridge.clock", "weighbridge.moves"}


def test_intake_cannot_hand_over_for_another_workspace(database_url: str, workspace: UUID) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "SELECT set_config('role', 'weighbridge_intake', true), set_config('weighbridge.workspace_id', %s, true)",
            (str(workspace),),
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="another workspace"):
            connection.execute(
                "SELECT weighbridge.receive_upload(%s, NULL, 'meta', 'manual', 'ads', 'x', 'x', 'csv', sha256('x'), 1,"
                " NULL, false, false)",
                (uuid4(),),
            )


async def test_staging_rows_shows_our_roles_only_their_workspace(
    put: Put, run: Run, workspace: UUID, database_url: str
) -> None:
    await run(await put(meta_file(days=1, ads=1)))
    await run(await put(meta_file(days=1, ads=1), workspace_id=uuid4()))
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(DISTINCT workspace_id) FROM staging_rows").fetchone() == (2,)
        connection.execute(
            "SELECT set_config('role', 'weighbridge_promote', true), set_config('weighbridge.workspace_id', %s, true)",
            (str(workspace),),
        )
        assert connection.execute("SELECT DISTINCT workspace_id FROM staging_rows").fetchall() == [
            (workspace,)
        ]
