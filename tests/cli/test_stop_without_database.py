"""SIGTERM and SIGINT end every process in bounded time while Postgres swallows everything."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import prefork
from tests.database_proxy import DatabaseProxy


@pytest.fixture
def proxy(database_url: str) -> Iterator[DatabaseProxy]:
    with DatabaseProxy(database_url) as proxy:
        yield proxy


@contextmanager
def started(
    environment: dict[str, str], proxy: DatabaseProxy, *words: str
) -> Iterator[subprocess.Popen[str]]:
    own = {
        "DATABASE_URL": proxy.url,
        "WEIGHBRIDGE_POLL_SECONDS": "0.05",
        "WEIGHBRIDGE_LEASE_SECONDS": "0.5",
        "WEIGHBRIDGE_STOP_SECONDS": "0.5",
        "WEIGHBRIDGE_PORT": "0",
    }
    process = subprocess.Popen(
        [prefork.command(), *words], env=environment | own, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["worker"], signal.SIGTERM),
        (["worker"], signal.SIGINT),
        (["api"], signal.SIGTERM),
        (["watch", "--platform", "meta"], signal.SIGINT),
    ],
)
async def test_a_process_ends_although_postgres_swallows_everything(
    environment: dict[str, str],
    proxy: DatabaseProxy,
    tmp_path: Path,
    words: list[str],
    sent: signal.Signals,
    eventually: Any,
) -> None:
    folder = [str(tmp_path)] if words[0] == "watch" else []
    with started(environment, proxy, *words, *folder) as process:
        # It works: one connection to see whether Postgres answers, one of the pool, and one more.
        await eventually(lambda: proxy.connections >= 3)
        proxy.swallow()
        if words != ["api"]:
            assert proxy.swallowed.wait(20)
        process.send_signal(sent)
        assert process.wait(15) in (0, 128 + sent)


def test_a_command_that_cannot_connect_ends_at_once(
    environment: dict[str, str], proxy: DatabaseProxy
) -> None:
    proxy.swallow()
    with started(environment | {"WEIGHBRIDGE_STOP_SECONDS": "60"}, proxy, "uploads", "list") as process:
        assert proxy.swallowed.wait(20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 128 + signal.SIGTERM
