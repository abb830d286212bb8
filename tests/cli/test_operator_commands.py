"""The commands of an operator: keys, database, settings, upkeep; and the embedded Postgres."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from .conftest import Command


def test_a_key_is_shown_once_listed_and_revoked(main: Command, query: Callable[..., Any]) -> None:
    workspace = str(uuid4())
    made = main(
        "keys",
        "create",
        "--workspace",
        workspace,
        "--scope",
        "read",
        "--name",
        "page",
        "--days",
        "3",
        "--json",
    )
    assert made.code == 0
    assert made.json["key"].startswith("wb_")
    assert made.json["scopes"] == ["read"]
    lasts = "SELECT expires_at - created_at BETWEEN '2 days 23 hours' AND '3 days' FROM weighbridge.api_keys"
    assert query(lasts) == [(True,)]
    plain = main("keys", "create")
    assert plain.out.startswith("wb_")
    assert len(plain.out.split()) == 1
    listed = main("keys", "list", "--workspace", workspace, "--json").json
    assert [(key["name"], "key" in key) for key in listed] == [("page", False)]
    assert main("keys", "revoke", listed[0]["id"]).code == 0
    again = main("keys", "revoke", listed[0]["id"])
    assert (again.code, again.err) == (
        1,
        f"weighbridge: There is no active key {listed[0]['id']}. List the keys: weighbridge keys list.\n",
    )
    wrong = main("keys", "create", "--scope", "raed")
    assert wrong.code == 2
    assert "did you mean 'read'?" in wrong.err


def test_a_user_database_is_checked_and_migrated_by_command(main: Command, postgres: str) -> None:
    name = f"test_{uuid4().hex[:12]}"
    url = postgres.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            early = main("uploads", "list", DATABASE_URL=url)
            assert early.code == 1
            assert early.err.startswith("weighbridge: The database lacks migration 0001_initial")
            assert early.err.endswith("Run: weighbridge db migrate\n")
            assert main("db", "status", "--json", DATABASE_URL=url).code == 1
            assert main("db", "migrate", DATABASE_URL=url).code == 0
            status = main("db", "status", "--json", DATABASE_URL=url)
            assert (status.code, status.json) == (0, {"current": True, "missing": []})
            assert main("db", "migrate", "--json", DATABASE_URL=url).json == {"applied": []}
            assert main("db", "url", DATABASE_URL=url).out == f"{url}\n"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "DATABASE_URL: no Postgres answers there"),
        ({"WEIGHBRIDGE_PORT": "high"}, "WEIGHBRIDGE_PORT: input should be a valid integer"),
        ({"WEIGHBRIDGE_ALERT_HOOK": "json:lods"}, "WEIGHBRIDGE_ALERT_HOOK: json has no function 'lods'"),
        ({"WEIGHBRIDGE_ALERT_HOOK": "json"}, "WEIGHBRIDGE_ALERT_HOOK: expected module:function, got 'json'."),
        ({"WEIGHBRIDGE_ALERT_HOOK": "no.such:f"}, "WEIGHBRIDGE_ALERT_HOOK: cannot import 'no.such'"),
        ({"WEIGHBRIDGE_BLOB_URL": "ftp://x"}, "expected a folder or s3://bucket/prefix, got 'ftp://x'."),
    ],
)
def test_a_wrong_setting_is_said_in_a_sentence(
    main: Command, settings: dict[str, str], sentence: str
) -> None:
    done = main("uploads", "list", **settings)
    assert (done.code, done.out) == (1, "")
    assert sentence in done.err
    assert done.err.startswith("weighbridge: ")
    assert done.err.count("\n") == 1


def test_a_user_hook_and_a_user_pipeline_are_found_in_the_current_folder(
    weighbridge: Command, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "from weighbridge.model.pipeline import Entity, Field, Pipeline\n"
        "number = Field('number', str, header=['No'], required=True)\n"
        "sale = Entity(table='shop_sales', key=['number'], fields=[number])\n"
        "sales = Pipeline(name='sales', entities=[sale])\n"
        "def alert(event): ...\n"
    )
    settings = {"WEIGHBRIDGE_PIPELINES": "shop", "WEIGHBRIDGE_ALERT_HOOK": "shop:alert"}
    listed = weighbridge("pipelines", "list", "--json", **settings).json
    assert [each["name"] for each in listed if each["name"] == "sales"] == ["sales"]
    assert weighbridge("db", "migrate", **settings).out == "applied tables of the pipeline sales\n"
    assert "INSERT INTO" in weighbridge("pipelines", "sql", "sales", **settings).out
    (tmp_path / "sales.csv").write_text("No\n1\n2\n")
    loaded = weighbridge("load", "sales.csv", "--pipeline", "sales", "--json", **settings)
    assert (loaded.code, loaded.json["shop_sales_upserted"]) == (0, 2)


def test_upkeep_runs_by_command(main: Command) -> None:
    assert main("recover", "--json").json == []
    assert main("clean", "--json").json == {
        "rows": 0,
        "scratch_files": 0,
        "blobs": 0,
        "records": 0,
    }


def test_wrong_usage_is_2(main: Command) -> None:
    for arguments in (
        ["lod"],
        ["load"],
        ["load", "no-such-file.csv"],
        ["worker", "--no-parse", "--no-promote"],
        ["uploads", "list", "--status", "faild"],
    ):
        assert main(*arguments).code == 2, arguments


def loaded_with(*modules: str) -> set[str]:
    found = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", found], text=True).split())


def test_the_command_line_alone_loads_nothing_heavy() -> None:
    heavy = {
        "psycopg",
        "duckdb",
        "pyarrow",
        "numpy",
        "fastapi",
        "uvicorn",
        "structlog",
        "obstore",
        "pydantic",
    }
    assert heavy.isdisjoint(loaded_with("weighbridge.cli.root"))


def test_a_command_that_reads_no_file_loads_nothing_that_only_files_need() -> None:
    """Most of them: they list, show and deliver, and nobody waits for a third of a second more."""
    every = loaded_with("weighbridge.app", "weighbridge.delivery.deliverer", "weighbridge.engine.options")
    assert {"duckdb", "pyarrow", "numpy", "fastapi", "uvicorn"}.isdisjoint(every)
