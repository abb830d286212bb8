"""The example provider: found by the setting, given to a site, and told of its sales over a real socket."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from weighbridge.delivery.vault import new_key

ROOT = Path(__file__).parents[2]
TOKEN = "token-canary"


class FakeCrm(ThreadingHTTPServer):
    """Takes every sale but `A-2`, and keeps those that are not only to be checked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.kept: list[str] = []
        self.statuses: list[int] = []  # of the next answers; then 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/sales"


class _Answers(BaseHTTPRequestHandler):
    server: FakeCrm

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        orders = [sale["order"] for sale in body["sales"]]
        refused = [{"order": order, "code": "UNKNOWN_CUSTOMER"} for order in orders if order == "A-2"]
        right = self.headers["authorization"] == f"Bearer {TOKEN}"
        status = self.server.statuses.pop(0) if self.server.statuses else 200 if right else 401
        if status == 200 and not body["check_only"]:
            self.server.kept += [order for order in orders if order != "A-2"]
        said = json.dumps({"receipt": "receipt-1", "refused": refused}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nothing: the output belongs to the tests."""


@pytest.fixture
def crm() -> Iterator[FakeCrm]:
    server = FakeCrm()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def weighbridge(database_url: str, home: Path, weighbridge_bin: Path) -> Callable[..., Any]:
    (home / "examples").symlink_to(
        ROOT / "examples"
    )  # modules of one's own are found in the folder of the command
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "WEIGHBRIDGE_HOME": str(home),
        "WEIGHBRIDGE_VAULT_KEY": new_key(),
        "WEIGHBRIDGE_PROVIDERS": "examples.crm",
    }

    def weighbridge(*words: str, ends: int = 0) -> Any:
        done = subprocess.run(
            [weighbridge_bin / "weighbridge", *words, "--json"],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == ends, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return json.loads(done.stdout)

    return weighbridge


@pytest.fixture
def site(weighbridge: Callable[..., Any], crm: FakeCrm, query: Callable[..., Any], home: Path) -> str:
    """A site that the CRM hears of, with three sales that wait."""
    site = weighbridge("sites", "create", "Shop", "--provider", "crm")["site_id"]
    (home / "crm.json").write_text(json.dumps({"url": crm.url, "token": TOKEN}))
    weighbridge("providers", "credentials", "Shop", "crm", "crm.json")
    query(
        "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, gclid)"
        " SELECT s.workspace_id, s.id, o, now(), o FROM sites s, unnest('{A-1,A-2,A-3}'::text[]) o"
    )
    return str(site)


def test_a_provider_of_ones_own_is_told_of_sales_and_says_what_is_wrong_with_each(
    weighbridge: Callable[..., Any], crm: FakeCrm, site: str
) -> None:
    checked = weighbridge("deliver", "--dry-run", ends=1)  # a row would be refused
    assert (checked["completed"], checked["failed"], crm.kept) == (2, 1, [])
    sent = weighbridge("deliver", "--once")
    assert (sent["completed"], sent["failed"], sent["retry"]) == (2, 1, 0)
    assert crm.kept == ["A-1", "A-3"]
    rows = {row["order_id"]: row for row in weighbridge("conversions", "list", "--provider", "crm")}
    assert (rows["A-1"]["status"], rows["A-1"]["provider_request_id"]) == ("COMPLETED", "receipt-1")
    assert (rows["A-2"]["status"], rows["A-2"]["provider_error_code"]) == ("FAILED", "UNKNOWN_CUSTOMER")


@pytest.mark.parametrize(
    ("status", "counts", "category"),
    [(503, (0, 0, 3), "TRANSIENT"), (400, (0, 3, 0), "VALIDATION"), (401, (0, 3, 0), "AUTH")],
)
def test_temporary_errors_are_retried_and_a_wrong_token_stops_it(
    weighbridge: Callable[..., Any],
    crm: FakeCrm,
    site: str,
    status: int,
    counts: tuple[int, int, int],
    category: str,
) -> None:
    crm.statuses.append(status)
    sent = weighbridge("deliver", "--once")
    assert (sent["completed"], sent["failed"], sent["retry"]) == counts
    rows = weighbridge("conversions", "list", "--provider", "crm")
    assert {row["provider_error_category"] for row in rows} == {category}
    [group] = weighbridge("providers", "status", "--site", site)
    assert (group["credentials"]["refused_code"] is not None) == (category == "AUTH")
