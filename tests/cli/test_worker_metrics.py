"""`weighbridge worker --metrics-port`: a worker's own counters, for Prometheus."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import prefork

from .conftest import Command


@pytest.fixture
def worker(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [prefork.command(), "worker", "--metrics-port", "0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


async def test_a_worker_serves_its_counters_until_it_ends(
    worker: subprocess.Popen[str],
    query: Callable[..., list[tuple[Any, ...]]],
    eventually: Callable[..., Awaitable[Any]],
) -> None:
    assert worker.stderr is not None
    found = re.search(
        r"^Weighbridge serves metrics at (http://127\.0\.0\.1:\d+/metrics)$", worker.stderr.readline()
    )
    assert found
    query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, platform, content_sha256, byte_size, file_url)"
        " VALUES (gen_random_uuid(), 'api', 'ads', 'meta', sha256(''), 1, 'file:///nowhere')"
    )
    await eventually(lambda: query("SELECT id FROM data_uploads WHERE status = 'failed'"), within=60)

    def seen() -> dict[tuple[str, str], float]:
        answer = httpx.get(found[1])
        assert answer.headers["content-type"].startswith("text/plain")
        return {
            (sample.name, "".join(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    # It counts what it has committed, a moment later.
    await eventually(lambda: seen()["weighbridge_uploads_ended_total", "failed"] == 1)
    assert seen()["weighbridge_claims_total", ""] == 1
    # There before the first: an increase from nothing is none.
    assert seen()["weighbridge_uploads_ended_total", "partial"] == 0
    assert seen()["weighbridge_retries_total", "deadlock"] == 0
    assert ("weighbridge_backlog", "") not in seen()  # what the database knows, the API says
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1])


def test_a_port_in_use_is_reported_with_the_options_for_another(main: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = main("worker", "--metrics-port", port)
    assert (done.code, done.err) == (
        1,
        f"weighbridge: Metrics cannot be served on 127.0.0.1:{port}: Address already in use. "
        "Choose another address with --metrics-port and --metrics-host.\n",
    )


def test_a_host_that_does_not_belong_to_the_machine_is_reported(main: Command) -> None:
    done = main("worker", "--metrics-port", 0, "--metrics-host", "192.0.2.1")
    assert (done.code, done.err.split(": ")[1]) == (1, "Metrics cannot be served on 192.0.2.1:0")
