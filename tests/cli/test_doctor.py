"""`weighbridge doctor`: each possible problem is caused here, found, and fixed as printed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests import prefork
from tests.conftest import _remove
from tests.intake.test_blob_stores import bucket  # noqa: F401 (a real S3 server)
from weighbridge.cli.doctor import command
from weighbridge.cli.doctor.database import FIRST, THEN
from weighbridge.postgres import embedded

from .conftest import Command, Ended

Query = Callable[..., list[tuple[Any, ...]]]

UPLOAD = (
    "INSERT INTO data_uploads (workspace_id, source, pipeline, file_url, content_sha256, byte_size, status, started_at,"
    " finished_at) VALUES (gen_random_uuid(), 'manual', 'judgments', 'x', sha256('x'), 1, '{status}',"
    " now() - interval '2 hours', {finished});"
)
STALE = UPLOAD.format(status="processing", finished="NULL")
DEAD = UPLOAD.format(status="failed", finished="now()")
GIVEN_UP = (
    "WITH e AS (INSERT INTO weighbridge.events (workspace_id, type, payload)"
    " VALUES (gen_random_uuid(), 'Alert', '{}') RETURNING id, workspace_id)"
    " INSERT INTO weighbridge.event_deliveries (event_id, workspace_id, consumer, gave_up_at, last_error)"
    " SELECT id, workspace_id, 'alerts', now(), 'hunter2' FROM e"
)
LATE = GIVEN_UP.replace("(workspace_id, type, payload)", "(workspace_id, type, payload, created_at)").replace(
    "'Alert', '{}')", "'Alert', '{}', now() - interval '1 hour')"
).replace("now(), 'hunter2'", "NULL, NULL")  # fmt: skip


def found(done: Ended, name: str) -> dict[str, Any]:
    [check] = [each for each in done.json["checks"] if each["name"] == name]
    return check


def statuses(done: Ended, status: str) -> set[str]:
    return {check["name"] for check in done.json["checks"] if check["status"] == status}


def test_where_all_is_well_nothing_failed(weighbridge: Command) -> None:
    done = weighbridge("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["status"] == "warning"
    assert statuses(done, "failed") == set()
    assert statuses(done, "warning") == {"webhook"}
    assert statuses(done, "skipped") == {"vault key", "golden path"}
    assert {*FIRST, *THEN, "settings", "home", "disk space", "file store", "database"} <= statuses(done, "ok")
    assert all(set(check) == {"name", "status", "found", "fix"} for check in done.json["checks"])


def test_the_text_output_is_a_list_with_a_fix_under_each_problem(main: Command, query: Query) -> None:
    query(STALE)
    done = main("doctor")
    lines = done.out.splitlines()
    at = next(number for number, line in enumerate(lines) if "stale runs" in line)
    assert lines[at] == "✗ stale runs          1 run started over an hour ago and has no live lease."
    assert lines[at + 1] == f"{' ' * 22}→ weighbridge recover"
    assert lines[0] == "✓ settings            All settings are valid."
    assert lines[-1].endswith("ok, 1 warning, 1 failed, 2 skipped.")
    assert done.code == 1
    assert main("recover").code == 0
    assert main("doctor").code == 0


@pytest.mark.parametrize(
    ("broken", "name", "words"),
    [
        (
            "ALTER TABLE judgments DROP CONSTRAINT judgments_workspace_id_case_number_key",
            "constraints",
            "public.judgments has no unique key (workspace_id, case_number).",
        ),
        (
            "ALTER TABLE judgments DROP CONSTRAINT judgments_workspace_id_case_number_key;"
            " CREATE INDEX not_unique ON judgments (workspace_id, case_number)",
            "constraints",
            "public.judgments has no unique key (workspace_id, case_number).",
        ),
        (
            "ALTER TABLE plaintiffs DROP CONSTRAINT plaintiffs_workspace_id_dedupe_key_key",
            "constraints",
            "public.plaintiffs has no unique key (workspace_id, dedupe_key).",
        ),
        (
            "ALTER TABLE data_uploads DROP CONSTRAINT data_uploads_batch",
            "constraints",
            "public.data_uploads has no unique key (workspace_id, source_batch_id).",
        ),
        (
            "ALTER TABLE staging.judgments_judgment DROP CONSTRAINT judgments_judgment_upload_id_case_number_key",
            "constraints",
            "staging.judgments_judgment has no unique key (upload_id, case_number).",
        ),
        (
            "ALTER TABLE daily_metrics DROP CONSTRAINT daily_metrics_key",
            "constraints",
            "public.daily_metrics has no unique key (workspace_id, client_id, platform, metric_date,",
        ),
        (
            "ALTER TABLE data_uploads DISABLE TRIGGER guard_status",
            "constraints",
            "guard_status on public.data_uploads is disabled.",
        ),
        (
            "ALTER TABLE judgments DISABLE ROW LEVEL SECURITY",
            "row-level security",
            "public.judgments has no row-level security.",
        ),
        ("DROP POLICY workspace ON judgments", "row-level security", "public.judgments has no policy."),
        (
            "ALTER VIEW ingest.import_runs RESET (security_invoker)",
            "row-level security",
            "ingest.import_runs reads with its owner's permissions.",
        ),
        (
            "GRANT INSERT ON judgments TO weighbridge_parse",
            "roles",
            "weighbridge_parse may INSERT public.judgments.",
        ),
        (
            "GRANT UPDATE (county) ON judgments TO weighbridge_tenant",
            "roles",
            "weighbridge_tenant may UPDATE public.judgments.",
        ),
        (
            "GRANT DELETE ON plaintiffs TO PUBLIC",
            "roles",
            "weighbridge_promote may DELETE public.plaintiffs; weighbridge_tenant may DELETE public.plaintiffs.",
        ),
        (
            "GRANT SELECT ON weighbridge.api_keys TO weighbridge_announce",
            "roles",
            "weighbridge_announce may SELECT weighbridge.api_keys.",
        ),
        (
            "UPDATE weighbridge.clock SET shift = '1 hour'",
            "test clock",
            "A test shifted the database's clock by +3,600 s.",
        ),
    ],
)
def test_a_broken_database_object_is_found_and_repaired_with_the_printed_fix(
    main: Command, query: Query, broken: str, name: str, words: str
) -> None:
    query(broken)
    done = main("doctor", "--json")
    assert (done.code, done.json["status"]) == (1, "failed")
    assert statuses(done, "failed") == {name}
    assert words in found(done, name)["found"]
    for statement in found(done, name)["fix"].partition("n psql: ")[2].split(";"):
        if statement.strip():
            query(statement)
    mended = main("doctor", "--json")
    assert (mended.code, statuses(mended, "failed")) == (0, set())


@pytest.mark.parametrize(
    ("broken", "name", "status", "words", "fix"),
    [
        ("DROP TRIGGER trg_import_runs_status_guard ON ingest.import_runs", "constraints", "failed",
         "trg_import_runs_status_guard on ingest.import_runs is missing.", "weighbridge db migrate --reapply"),
        ("CREATE POLICY wide ON judgments USING (true)", "row-level security", "failed",
         "public.judgments has a policy that does not check the workspace.", "DROP POLICY"),
        (DEAD, "dead letters", "warning", "1 failed upload to inspect,", "weighbridge uploads list --status failed"),
        (GIVEN_UP, "outbox", "failed", "1 event delivery failed", "docs/runbook.md#outbox"),
        (LATE, "outbox", "warning", "1 event delivery", "weighbridge worker"),
        ("INSERT INTO weighbridge_migrations.applied VALUES (9999, 'later', 'x')", "migrations", "failed",
         "The database has migration 9999", "version of Weighbridge"),
        ("DELETE FROM weighbridge_migrations.applied", "migrations", "failed",
         "The database lacks migration 0001_initial, migration 0002_", "weighbridge db migrate"),
        ("UPDATE weighbridge_migrations.functions SET digest = 'other'", "migrations", "failed",
         "The database lacks the current SQL functions.", "weighbridge db migrate"),
        ("DELETE FROM weighbridge.pipelines WHERE name = 'ads'", "tables", "failed",
         "The database lacks the tables of ads.", "weighbridge db migrate"),
        ("UPDATE weighbridge.retention_run SET ran_at = now() - interval '5 days'", "growth", "warning",
         "Old records were last removed 5 days ago.", "weighbridge clean"),
    ],
)  # fmt: skip
def test_other_problems_of_the_database_are_reported_with_a_hint(
    main: Command, query: Query, broken: str, name: str, status: str, words: str, fix: str
) -> None:
    query(broken)
    done = main("doctor", "--json")
    assert done.code == (status == "failed")
    assert statuses(done, "failed") == ({name} if status == "failed" else set())
    check = found(done, name)
    assert (check["status"], words in check["found"], fix in check["fix"]) == (status, True, True), check
    assert "hunter2" not in done.out


def test_the_tables_that_grow_are_listed_with_rows_size_and_age(main: Command, query: Query) -> None:
    query(
        "INSERT INTO weighbridge.audit_log (actor, action, at) SELECT 'a', 'b', now() - interval '70 days'"
        " FROM generate_series(1, 1500); ANALYZE weighbridge.audit_log"
    )
    check = found(main("doctor", "--json"), "growth")
    assert check["status"] == "ok"
    assert re.search(r"audit_log 1,500 rows, 0\.\d MB, oldest 70 days[;.]", check["found"]), check


def test_a_missing_trigger_is_restored_by_the_command_that_doctor_names(main: Command, query: Query) -> None:
    query("DROP TRIGGER trg_import_runs_status_guard ON ingest.import_runs")
    command = found(main("doctor", "--json"), "constraints")["fix"].partition("run: weighbridge ")[2]
    assert command == "db migrate --reapply"
    assert main(*command.split(), "--json").json == {"applied": ["the current SQL functions"]}
    assert found(main("doctor", "--json"), "constraints")["status"] == "ok"


def test_a_database_without_our_schema_is_reported_and_not_changed(main: Command, postgres: str) -> None:
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            url = postgres.replace("/postgres?", f"/{name}?")
            done = main("doctor", "--json", DATABASE_URL=url)
            assert done.code == 1
            assert found(done, "migrations")["fix"] == "weighbridge db migrate"
            assert set(THEN) <= statuses(done, "skipped")
            with psycopg.connect(url) as made:
                schemas = made.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'weighbridge%'")
                assert schemas.fetchall() == []
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_that_is_away_leaves_the_other_checks(main: Command) -> None:
    done = main("doctor", "--json", DATABASE_URL="postgresql://u:hunter2@127.0.0.1:1/x")
    assert done.code == 1
    assert statuses(done, "failed") == {"database"}
    assert {*FIRST, *THEN} <= statuses(done, "skipped")
    assert {"settings", "disk space", "file store"} <= statuses(done, "ok")
    assert "hunter2" not in done.out + done.err


def test_a_database_that_accepts_connections_but_does_not_respond_times_out(
    main: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "DATABASE_TIMEOUT", 0.3)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"postgresql://u:hunter2@127.0.0.1:{mute.getsockname()[1]}/x"
        done = main("doctor", "--json", DATABASE_URL=url)
    assert found(done, "database")["found"] == "DATABASE_URL: no response within 0.3 seconds."
    assert statuses(done, "failed") == {"database"}


# Roles belong to a whole server, so these have one of their own -----------------------------------------------


@pytest.fixture(scope="module")
def own_server() -> Iterator[Path]:
    """A home whose embedded Postgres is running. Not in pytest's own folder: Postgres has no rights there."""
    folder = Path(tempfile.mkdtemp(prefix="weighbridge-doctor-tests-"))
    embedded.start(folder)
    yield folder
    _remove(folder)


def on_own_server(home: Path, *arguments: str, **settings: str) -> Ended:
    environment = {**os.environ, "WEIGHBRIDGE_HOME": str(home), **settings}
    done = subprocess.run(
        [prefork.command(), *arguments],
        env=environment, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def test_on_a_machine_without_a_database_the_embedded_one_is_well(own_server: Path) -> None:
    done = on_own_server(own_server, "doctor", "--json")
    assert (done.code, done.err, statuses(done, "failed")) == (0, "", set())
    assert found(done, "database")["found"] == "The embedded database responds."
    assert "database" in found(done, "disk space")["found"]


def test_on_a_machine_without_a_database_a_file_goes_all_the_way(own_server: Path) -> None:
    done = on_own_server(own_server, "verify", "golden-path", "--env", "dev")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("[SUCCESS] Golden Path Verified - Data Moat is operational!\n")


def test_a_role_with_all_rights_is_reported_and_corrected_with_the_printed_fix(own_server: Path) -> None:
    assert on_own_server(own_server, "db", "migrate").code == 0
    with psycopg.connect(embedded.start(own_server), autocommit=True) as connection:
        connection.execute("ALTER ROLE weighbridge_tenant BYPASSRLS")
        connection.execute("ALTER ROLE weighbridge_parse SUPERUSER")
        connection.execute("ALTER ROLE weighbridge_clean LOGIN")
        done = on_own_server(own_server, "doctor", "--json")
        assert statuses(done, "failed") == {"roles"}
        assert found(done, "roles")["found"] == (
            "weighbridge_clean may log in; weighbridge_parse is a superuser; "
            "weighbridge_tenant bypasses row-level security."
        )
        connection.execute(found(done, "roles")["fix"].partition("psql: ")[2].encode())
        assert on_own_server(own_server, "doctor").code == 0


def test_a_login_that_cannot_set_a_role_is_reported(own_server: Path) -> None:
    admin = embedded.start(own_server)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
        connection.execute("CREATE DATABASE plain OWNER plain")
        url = psycopg.conninfo.make_conninfo(admin, user="plain", dbname="plain")
        errand = on_own_server(own_server, "db", "migrate", DATABASE_URL=url).err.partition("run: ")[2]
        connection.execute(errand.encode())
        assert on_own_server(own_server, "db", "migrate", DATABASE_URL=url).code == 0
        assert on_own_server(own_server, "doctor", DATABASE_URL=url).code == 0
        connection.execute("REVOKE weighbridge_intake, weighbridge_clean FROM plain")
    done = on_own_server(own_server, "doctor", "--json", DATABASE_URL=url)
    assert statuses(done, "failed") == {"roles"}
    assert (
        found(done, "roles")["found"]
        == "The login cannot switch to the roles weighbridge_intake, weighbridge_clean."
    )
    assert found(done, "roles")["fix"] == "weighbridge db migrate"
