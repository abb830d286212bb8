"""Postgres's own log stays empty: work that succeeds causes no error in it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.engine.tenant import Tenant, service


async def test_work_that_succeeds_leaves_no_error_in_the_log_of_the_server(
    postgres: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    with fresh_database(postgres) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            [(database, log)] = connection.execute(
                "SELECT current_database(), current_setting('data_directory') || '/log'"
            ).fetchall()
            # Other databases of this server log no errors.
            connection.execute(f"ALTER DATABASE {database} SET log_min_messages = error")
            connection.execute(f"ALTER DATABASE {database} SET log_min_error_statement = error")
        before = Path(log).stat().st_size
        async with service(url, tmp_path / "home") as app:
            tenant = Tenant(app)
            for name, work in tenant.work.items():
                await work()
                with Path(log).open() as file:
                    file.seek(before)
                    errors = [line for line in file if "ERROR:" in line or "STATEMENT:" in line]
                assert errors == [], name
