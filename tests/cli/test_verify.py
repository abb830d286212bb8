"""`weighbridge verify golden-path`: the specified output; every row and file of the check is removed."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import prefork
from tests.intake.test_blob_stores import bucket  # noqa: F401 (a real S3 server)
from weighbridge.cli.verify import golden_path
from weighbridge.cli.verify.golden_path import WORKSPACE

from .conftest import Command

Query = Callable[..., list[tuple[Any, ...]]]

PASSED = """\
  Initial Completion: PASS
  Duplicate Skip:     PASS
  Cleanup:            PASS
  [SUCCESS] Golden Path Verified - Data Moat is operational!
"""
VERIFY = ("verify", "golden-path", "--env")


@pytest.fixture
def tables(query: Query) -> Callable[[], dict[str, str]]:
    """Every row of every table there is, as the catalog lists them."""

    def tables() -> dict[str, str]:
        found = query(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        rows = "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM {} t"
        return {name: query(rows.format(name))[0][0] for (name,) in found}

    return tables


def leftovers(query: Query, home: Path) -> list[str]:
    """Tables with rows of the check's workspace, and its blobs; and what belongs to its uploads elsewhere."""
    of_workspaces = query(
        "SELECT table_schema || '.' || table_name FROM information_schema.columns"
        " JOIN information_schema.tables USING (table_schema, table_name)"
        " WHERE column_name = 'workspace_id' AND table_type = 'BASE TABLE'"
    )
    assert len(of_workspaces) > 15
    left = [
        name
        for (name,) in of_workspaces
        if query(f"SELECT 1 FROM {name} WHERE workspace_id = %s LIMIT 1", (WORKSPACE,))
    ]
    left += [
        name
        for name in ("weighbridge.alerts", "weighbridge.events", "weighbridge.unbroken")
        if query(f"SELECT 1 FROM {name} LIMIT 1")
    ]
    return left + [str(path) for path in (home / "blobs").rglob("*")]


def test_it_says_what_s3_prints_and_leaves_everything_as_it_was(
    weighbridge: Command, tables: Callable[[], dict[str, str]], query: Query, home: Path
) -> None:
    before = tables()
    done = weighbridge(*VERIFY, "dev")
    assert (done.code, done.out, done.err) == (0, PASSED, "")
    assert leftovers(query, home) == []
    assert tables() == before


def test_for_programs_it_is_one_object(main: Command) -> None:
    done = main(*VERIFY, "dev", "--json")
    names = ("Initial Completion", "Duplicate Skip", "Cleanup")
    steps = [{"name": name, "status": "PASS", "reason": None} for name in names]
    assert (done.code, done.json) == (
        0,
        {"env": "dev", "dry_run": False, "status": "passed", "steps": steps},
    )


def test_rows_of_others_stay(main: Command, query: Query, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Case Number,Plaintiff,Amount\nX-1,Acme,5\n")
    assert (
        main("load", tmp_path / "a.csv", "--pipeline", "judgments", "--batch", "golden_path_test_mine").code
        == 0
    )
    mine = query("SELECT j::text FROM judgments j"), query("SELECT d::text FROM data_uploads d")
    assert main(*VERIFY, "dev").code == 0
    assert (query("SELECT j::text FROM judgments j"), query("SELECT d::text FROM data_uploads d")) == mine


def test_files_of_other_pipelines_are_left_to_their_workers(main: Command, query: Query) -> None:
    query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, platform, file_url, content_sha256, byte_size)"
        " VALUES (gen_random_uuid(), 'manual', 'ads', 'meta', 'elsewhere', sha256('x'), 1)"
    )
    assert main(*VERIFY, "dev").out == PASSED
    assert query("SELECT status FROM data_uploads") == [("pending",)]


def test_the_file_in_a_bucket_goes_too(main: Command, bucket: str) -> None:  # noqa: F811
    from obstore.store import S3Store

    assert main(*VERIFY, "dev", WEIGHBRIDGE_BLOB_URL=bucket).out == PASSED
    assert S3Store.from_url(bucket).list(prefix=str(WORKSPACE)).collect() == []


# Without doing it --------------------------------------------------------------------------------------------


def test_a_dry_run_writes_no_row_and_no_file(
    main: Command, tables: Callable[[], dict[str, str]], home: Path
) -> None:
    before = tables()
    for env in ("dev", "prod"):  # nothing changes, so nobody need be asked
        done = main(*VERIFY, env, "--dry-run")
        assert done.code == 0
        assert [line.split() for line in done.out.splitlines()[:4]] == [
            ["Connection:", "PASS"],
            ["Migrations:", "PASS"],
            ["Constraints:", "PASS"],
            ["File", "Accepted:", "PASS"],
        ]
        assert done.out.splitlines()[4].startswith("  [DRY RUN] Nothing was changed.")
    assert tables() == before
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ("DELETE FROM weighbridge_migrations.applied",
         "  Migrations:         FAIL (The database lacks migration 0001"),
        ("DELETE FROM weighbridge.pipelines", "  Migrations:         FAIL (The database lacks the tables of ads"),
        ("ALTER TABLE judgments DROP CONSTRAINT judgments_workspace_id_case_number_key",
         "  Constraints:        FAIL (public.judgments has no unique key"),
    ],
)  # fmt: skip
def test_a_dry_run_says_what_would_not_work(main: Command, query: Query, broken: str, line: str) -> None:
    query(broken)
    done = main(*VERIFY, "dev", "--dry-run")
    assert done.code == 1
    assert line in done.out
    assert done.out.splitlines()[-1].startswith("  [FAILURE] ")


def test_a_dry_run_without_a_database_says_so(main: Command) -> None:
    done = main(*VERIFY, "dev", "--dry-run", DATABASE_URL="postgresql://u:hunter2@127.0.0.1:1/x")
    assert done.code == 1
    assert done.out.startswith("  Connection:         FAIL (DATABASE_URL: no Postgres answers there")
    assert "hunter2" not in done.out + done.err
    done = main(*VERIFY, "dev", "--dry-run", WEIGHBRIDGE_BLOB_URL="ftp://u:hunter2@x")
    assert done.out.startswith("  Connection:         FAIL (WEIGHBRIDGE_BLOB_URL: expected a folder")
    assert "hunter2" not in done.out + done.err


def test_a_dry_run_needs_rules_that_accept_the_file(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from weighbridge.cli.verify.golden_path import TestBatch

    monkeypatch.setattr(TestBatch, "content", b"Case Number,Plaintiff,Amount\n,Nobody,x\n")
    done = main(*VERIFY, "dev", "--dry-run")
    assert "  File Accepted:      FAIL (0 rows accepted, 1 rejected)" in done.out
    assert done.code == 1


# In production -----------------------------------------------------------------------------------------------


def test_in_production_a_run_without_a_terminal_is_wrong_usage(
    main: Command, weighbridge: Command, tables: Callable[[], dict[str, str]]
) -> None:
    before = tables()
    done = weighbridge(*VERIFY, "prod")
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert main("verify", "golden-path").code == 2  # --env is asked for
    assert main(*VERIFY, "staging").code == 2
    assert tables() == before


def test_in_production_yes_needs_no_terminal(weighbridge: Command) -> None:
    done = weighbridge(*VERIFY, "prod", "--yes")
    assert (done.code, done.out) == (0, PASSED)


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_in_production_the_confirmation_names_the_database(
    environment: dict[str, str], database_url: str, answer: str, code: int
) -> None:
    before, _, host = database_url.partition("?")
    url = f"postgresql://postgres:hunter2@/{before.rpartition('/')[2]}?{host}"
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        [prefork.command(), *VERIFY, "prod"],
        env={**environment, "DATABASE_URL": url},
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, answer.encode())
    out, err = asked.communicate(timeout=60)
    os.close(ours)
    assert asked.returncode == code
    assert f"into {before.rpartition('/')[2]} on {host.partition('=')[2]}, and delete it again?" in err
    assert "hunter2" not in out + err
    assert out == (PASSED if code == 0 else "")


# When something is wrong -------------------------------------------------------------------------------------

REFUSE = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;"
    " CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
)


def test_a_row_that_does_not_arrive_fails_and_is_cleaned_up(main: Command, query: Query, home: Path) -> None:
    query(REFUSE.format(event="INSERT", table="judgments"))
    done = main(*VERIFY, "dev")
    assert done.code == 1
    first, second, third, last = done.out.splitlines()
    assert first == (
        "  Initial Completion: FAIL (status failed, record_count None: "
        "judgment: not written, Postgres rejected the row (SQLSTATE P0001). (line 2).)"
    )
    assert second == "  Duplicate Skip:     FAIL (not tried: the first upload did not complete)"
    assert third == "  Cleanup:            PASS"
    assert last.startswith("  [FAILURE] Golden Path NOT verified")
    assert leftovers(query, home) == []


def test_a_run_that_fails_leaves_no_alert_behind(main: Command, query: Query, home: Path) -> None:
    query("ALTER TABLE judgments DROP COLUMN county")
    query("CREATE TABLE told AS TABLE weighbridge.alerts")
    query(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.told SELECT NEW.*; RETURN NEW;"
        " END $$; CREATE TRIGGER note AFTER INSERT ON weighbridge.alerts FOR EACH ROW EXECUTE FUNCTION note()"
    )
    done = main(*VERIFY, "dev")
    assert done.out.startswith(
        "  Initial Completion: FAIL (status failed, record_count None: Internal error in Weighbridge"
    )
    assert "  Cleanup:            PASS" in done.out
    [(message,)] = query("SELECT message FROM told")
    assert message.startswith("[INGEST FAILURE] golden_path_test_")
    assert leftovers(query, home) == []


def test_a_batch_that_is_not_known_again_fails(main: Command, query: Query, home: Path) -> None:
    [(definition,)] = query("SELECT pg_get_functiondef('weighbridge.known_upload'::regproc)")
    query(definition.replace("'duplicate_' ||", "'known_' ||"))
    done = main(*VERIFY, "dev")
    assert done.code == 1
    assert "  Initial Completion: PASS\n" in done.out
    assert "  Duplicate Skip:     FAIL (expected duplicate_completed, got known_completed)\n" in done.out
    assert leftovers(query, home) == []


def test_a_skip_that_changes_something_fails(main: Command, query: Query) -> None:
    [(definition,)] = query("SELECT pg_get_functiondef('weighbridge.known_upload'::regproc)")
    query(definition.replace("weighbridge.known_upload(", "weighbridge.really_known("))
    query("GRANT EXECUTE ON FUNCTION weighbridge.really_known TO weighbridge_tenant")
    head = definition.partition("AS $function$")[0].replace("LANGUAGE sql", "LANGUAGE sql SECURITY DEFINER")
    query(
        f"{head.replace(' STABLE', '')} AS $$ UPDATE public.judgments SET county = 'Elsewhere';"
        " SELECT * FROM weighbridge.really_known($1, $2, $3, $4, $5, $6, $7, $8) $$"
    )
    done = main(*VERIFY, "dev")
    assert "  Duplicate Skip:     FAIL (the batch was skipped, but rows changed)\n" in done.out
    assert done.code == 1


def test_rows_that_cannot_be_removed_are_reported_and_removed_by_the_next_run(
    main: Command, query: Query, home: Path
) -> None:
    query(REFUSE.format(event="DELETE", table="plaintiffs"))
    done = main(*VERIFY, "dev")
    assert done.code == 1
    assert "  Cleanup:            FAIL (Postgres rejected the row" in done.out
    assert leftovers(query, home) != []
    query("DROP TRIGGER refuse ON plaintiffs")
    assert main(*VERIFY, "dev").out == PASSED
    assert leftovers(query, home) == []


def test_a_table_that_is_forgotten_fails(main: Command, query: Query) -> None:
    query(
        "CREATE TABLE later (workspace_id uuid);"
        " CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        " $$ BEGIN INSERT INTO public.later VALUES (NEW.workspace_id); RETURN NEW; END $$;"
        " CREATE TRIGGER note AFTER INSERT ON judgments FOR EACH ROW EXECUTE FUNCTION note()"
    )
    done = main(*VERIFY, "dev")
    assert "  Cleanup:            FAIL (rows are left in public.later)\n" in done.out
    assert done.code == 1


def test_a_file_that_no_worker_claims_is_given_up(
    main: Command, query: Query, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden_path, "LOAD_TIMEOUT", 0.5)
    query(
        "CREATE FUNCTION put_off() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.run_after := 'infinity'; RETURN NEW; END $$;"
        " CREATE TRIGGER put_off BEFORE INSERT ON data_uploads FOR EACH ROW EXECUTE FUNCTION put_off()"
    )
    done = main(*VERIFY, "dev")
    assert done.out.startswith("  Initial Completion: FAIL (not finished after 0.5 s)\n")
    assert (done.code, leftovers(query, home)) == (1, [])


def test_two_checks_do_not_meet(main: Command, database_url: str) -> None:
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_lock(hashtext('weighbridge.golden_path'))")
        done = main(*VERIFY, "dev")
        assert (done.code, done.out) == (1, "")
        assert "Another golden path check is running on this database" in done.err
    assert main(*VERIFY, "dev").out == PASSED
