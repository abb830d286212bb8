"""Names, e-mails, phones, social security numbers, tokens and a connection string go through every path that
a file or a request can take, failures included, in a real service. Afterwards none of them stands in a log line, an
alert, a metric, an error text, an event or an HTTP answer. The rejects are the exception: they are the rows themselves,
for whoever sent them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from tests import prefork
from tests.api.conftest import new_key
from tests.observe.listener import Listener, listening
from weighbridge.postgres.transactions import Database

FIRST, LAST, DEBTOR = "Zorblatt", "Quxley", "Vexmoor"
EMAIL = "zorblatt.quxley@example.org"
SSN = "078-05-1120"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJ6b3JiIjoicXV4In0.cXV4bGV5"
PASSWORD = "zorbpass"
ADDRESS = f"postgresql://zorbuser:{PASSWORD}@db.example.org:5432/prod"
KEY = "wb_zorbkey0123456789"
FILE = "zorbfile"  # a name of a file, which only its sender is told
PHONES = ("(555) 010-4477", "555-010-4477", "5550104477", "+1 555 010 4477")
# Names are searched for by their parts, in any case: half a name is one too many.
CANARIES = (FIRST, LAST, DEBTOR, SSN, TOKEN, TOKEN.split(".")[2], PASSWORD, "zorbuser", "zorbkey", *PHONES)

HEADER = "Case Number,Plaintiff,Defendant,Email,Phone,Judgment Amount,Filing Date,County"
METRICS = {"Authorization": "Bearer scrape"}


def _row(case: str = "1", **cells: str) -> str:
    row = {
        "case": case, "plaintiff": f"{FIRST} {LAST}", "defendant": DEBTOR, "email": EMAIL, "phone": f'"{PHONES[0]}"',
        "amount": "100.00", "filed": "2025-01-31", "county": "Kings",
    }  # fmt: skip
    return ",".join({**row, **cells}.values())


def _file(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


NAME = f"{FIRST} {LAST}"
BAD_ROWS = [_row(f"b{n}") for n in range(20)] + [
    _row("b90", email=f"{FIRST} at home"),
    _row("b91", phone=f"{SSN} {NAME}"),
]
FILES: dict[str, tuple[str, str]] = {  # what is wrong: the file, and the state it ends in
    "nothing": (_file(_row(), _row("2", phone=PHONES[1]), _row("3", email="", phone=PHONES[2])), "completed"),
    "a case twice, differently": (_file(*[_row(f"c{n}") for n in range(20)], _row("c1", county=NAME)), "completed"),
    "an e-mail and a phone": (_file(*BAD_ROWS), "completed"),
    "amounts and dates": (_file(_row(amount=NAME), _row("2", filed=EMAIL), _row("3", amount=SSN)), "failed"),
    "too many cells": (_file(_row(), _row("2") + f",{NAME},{SSN}", _row("3") + f",{TOKEN}"), "failed"),
    "no case numbers": (_file(_row(""), _row("")), "failed"),
    "no case number column": (_file(_row(), header=HEADER.replace("Case Number", "Docket")), "failed"),
    "no header": (_file(_row(), _row("2"), header=_row("0")), "failed"),
    "names for a header": (_file(f"{DEBTOR},{NAME}", header=f"{NAME},{DEBTOR}"), "failed"),
    "a quote that never closes": (_file(f'1,"{NAME},{EMAIL}', *([_row()] * 3)), "failed"),
    "refused by a constraint": (_file(*[_row(f"k{n}") for n in range(20)], _row("k90", county="Checked")), "partial"),
    "refused by a trigger that quotes": (_file(_row("t1", county="Raised"), _row("t2")), "partial"),
    "a bug that quotes": (_file(_row("u1", county="Crashed")), "failed"),
}  # fmt: skip
JSONS = {
    "json": (
        json.dumps([{"case_number": "j1", "plaintiff_name": NAME, "email": EMAIL, "amount": 5}]),
        "completed",
    ),
    "json of other things": (json.dumps([{"x": NAME, "y": EMAIL}]), "failed"),
    "json with people for keys": (json.dumps([{NAME: 1, EMAIL: 2}]), "failed"),
    "json in bits": (f'[{{"case_number": "j2", "plaintiff_name": "{NAME}"}}, "{NAME} {SSN}", 7]', "failed"),
    "json that is cut off": (f'[{{"case_number": "j3", "plaintiff_name": "{NAME}', "failed"),
}
# Postgres's own words quote the row: the DETAIL of a check, the message of a trigger, an error nobody expects.
TRAPS = """
ALTER TABLE judgments ADD CONSTRAINT county_checked CHECK (county <> 'Checked');
CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.county = 'Raised' THEN
        RAISE EXCEPTION 'no % here', NEW.plaintiff_name USING DETAIL = NEW.defendant_name, HINT = NEW.plaintiff_name;
    ELSIF NEW.county = 'Crashed' THEN
        RAISE EXCEPTION 'a bug about %', NEW.plaintiff_name USING ERRCODE = 'XX000', DETAIL = NEW.defendant_name;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER trap BEFORE INSERT ON judgments FOR EACH ROW EXECUTE FUNCTION public.trap();
"""


@dataclass
class Service:
    """A running service, and everything that it ever said."""

    url: str
    database: str
    listener: Listener
    log: Path
    key: dict[str, str]
    answers: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, **how: Any) -> httpx.Response:
        """Call, and keep the answer, headers and all."""
        how["headers"] = {**self.key, **how.get("headers", {})}
        answer = httpx.request(method, self.url + path, timeout=30, **how)
        self.answers[f"{len(self.answers)} {method} {path}"] = f"{answer.headers} {answer.text}"
        return answer

    def send(self, content: str, **fields: str) -> httpx.Response:
        form = {"pipeline": "judgments", **fields}
        return self.call("POST", "/api/uploads", data=form, files={"file": (f"{FILE}.csv", content)})

    def ended(self, upload_id: str) -> dict[str, Any]:
        give_up = time.monotonic() + 60
        while True:
            found: dict[str, Any] = self.call("GET", f"/api/uploads/{upload_id}").json()
            if found["status"] in ("completed", "partial", "failed"):
                return found
            assert time.monotonic() < give_up, found
            time.sleep(0.05)

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement, params)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def service(database_url: str, home: Path, tmp_path: Path) -> Iterator[Service]:
    log = tmp_path / "log"
    with listening() as listener, log.open("w") as file:
        environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "WEIGHBRIDGE_HOME": str(home),
            "WEIGHBRIDGE_PORT": "0",
            "WEIGHBRIDGE_ALERT_URLS": listener.url,
            "WEIGHBRIDGE_METRICS_TOKEN": "scrape",
            "WEIGHBRIDGE_ALERT_DEAD_LETTERS": "1",
            "WEIGHBRIDGE_LEASE_SECONDS": "6",
            "PYTHONUNBUFFERED": "1",
        }
        command = [prefork.command(), "up", "--log-level", "debug"]
        process = subprocess.Popen(command, env=environment, stderr=file, stdout=file)
        try:
            found = _eventually(lambda: re.search(r"listens on (http://\S+)", log.read_text()))
            yield Service(found.group(1), database_url, listener, log, asyncio.run(_key(database_url)))
        finally:
            process.terminate()
            process.wait(20)


async def _key(url: str) -> dict[str, str]:
    db = Database(url, size=1)
    await db.open()
    try:
        return await new_key(db, uuid4(), ["admin"])
    finally:
        await db.close()


def _eventually(question: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + 30
    while not (answer := question()):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return answer


def test_no_canary_gets_out_by_any_way(service: Service) -> None:
    service.query(TRAPS)
    uploads = _send_files(service)
    _ask_wrongly(service)
    _take_over(service)
    _look_everywhere(service, uploads)
    _eventually(lambda: any("dead-letter" in message for message in service.listener.messages))
    metrics = httpx.get(f"{service.url}/metrics", headers=METRICS).text
    said = {
        "log": service.log.read_text(),
        "alerts": b"\n".join(service.listener.bodies).decode(),
        "metrics": metrics,
        "recorded": str(service.query(RECORDED)),
        **service.answers,
    }
    assert all(said.values())
    found = [
        f"{canary} in {where}: …{text[max(0, at - 80) : at + 80]}…"
        for where, text in said.items()
        for canary in CANARIES
        if (at := text.lower().find(canary.lower())) >= 0
    ]
    assert not found, "\n".join(found)
    assert not [where for where in ("log", "alerts", "metrics", "recorded") if FILE in said[where]]
    # That they did go through: the rows are in production, and the refused ones where they belong.
    assert service.query("SELECT count(*) > 20 FROM judgments WHERE plaintiff_name = %s", (NAME,)) == [
        (True,)
    ]
    rejects = httpx.get(
        f"{service.url}/api/uploads/{uploads['amounts and dates']}/rejects", headers=service.key
    )
    assert NAME in rejects.text
    assert '"event": "Bug"' in said["log"]
    assert "weighbridge_uploads" in metrics


# What the service keeps of a file beside its rows: texts, events, deliveries, alerts, audit, warnings.
RECORDED = """
SELECT array_agg(error_text), array_agg(columns::text), (SELECT array_agg(payload) FROM weighbridge.events),
       (SELECT array_agg(last_error) FROM weighbridge.event_deliveries),
       (SELECT array_agg(message) FROM weighbridge.alerts), (SELECT array_agg(detail) FROM weighbridge.audit_log),
       (SELECT array_agg(message) FROM upload_warnings)
FROM data_uploads
"""


def _send_files(service: Service) -> dict[str, str]:
    """Every file, for the pipeline that it is meant for; then some for one that it is not."""
    sent = {what: service.send(content).json() for what, (content, _) in {**FILES, **JSONS}.items()}
    states = {what: service.ended(answer["upload_id"])["status"] for what, answer in sent.items()}
    assert states == {what: status for what, (_, status) in {**FILES, **JSONS}.items()}
    for what in ("nothing", "no header", "names for a header", "json"):
        wrong = service.send({**FILES, **JSONS}[what][0], pipeline="ads", platform="meta")
        service.ended(wrong.json()["upload_id"])
    return {what: answer["upload_id"] for what, answer in sent.items()}


def _ask_wrongly(service: Service) -> None:
    """Requests that carry canaries where they do not belong."""
    good = FILES["nothing"][0]
    for name in ("pipeline", "platform", "source", "workspace_id", "client_id", "created_by", "force"):
        for word in (EMAIL, SSN, TOKEN, KEY, ADDRESS, PHONES[0]):
            service.send(good, **{name: word})
    service.send(good + "\n", source_batch_id=f"batch of {EMAIL} {SSN}")
    service.send(good + "\n\n", source_batch_id=f"{EMAIL}\x07")
    for secret in (KEY, TOKEN, ADDRESS, f"{NAME}"):
        service.call("GET", "/api/uploads", headers={"Authorization": f"Bearer {secret}"})
    for path in (
        f"/api/uploads?status={EMAIL}",
        f"/api/uploads?after={TOKEN}",
        f"/api/uploads/{SSN}",
        f"/{EMAIL}",
    ):
        service.call("GET", path)
    service.call("GET", "/healthz", headers={"traceparent": TOKEN})
    service.call(
        "POST", f"/api/uploads?{EMAIL}=1&{EMAIL}=2", content=good, headers={"content-type": "text/csv"}
    )
    service.call("POST", "/api/uploads", files=[("file", ("a.csv", good)), (EMAIL, (None, "late"))])
    service.call(
        "POST", "/api/uploads", content=f"{NAME} {EMAIL}", headers={"content-type": "text/x-{EMAIL}"}
    )
    service.call(
        "POST",
        "/api/uploads",
        content=f"--x\r\n{NAME}",
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    service.call("POST", f"/api/uploads/{uuid4()}/retry", json={"force_partial": EMAIL})


def _take_over(service: Service) -> None:
    """A run that nobody works on."""
    sent = service.send(_file(_row("s1"), _row("s2"), _row("s3")), source_batch_id="stale-one").json()
    service.ended(sent["upload_id"])
    service.query("ALTER TABLE data_uploads DISABLE TRIGGER USER")
    service.query(
        "UPDATE data_uploads SET status = 'processing', finished_at = NULL, started_at = now() - interval '2 hours'"
        " WHERE id = %s",
        (UUID(sent["upload_id"]),),
    )
    service.query("ALTER TABLE data_uploads ENABLE TRIGGER USER")
    _eventually(lambda: any("STALE TAKEOVER" in message for message in service.listener.messages))


def _look_everywhere(service: Service, uploads: dict[str, str]) -> None:
    for path in ("/api/uploads", "/api/metrics", "/api/openapi.json", "/readyz"):
        service.call("GET", path)
    for upload_id in uploads.values():
        service.call("GET", f"/api/uploads/{upload_id}/warnings")
    for verb in ("retry", "dismiss"):
        service.call("POST", f"/api/uploads/{uploads['no header']}/{verb}")
        service.call("POST", f"/api/uploads/{uploads['nothing']}/{verb}")
    service.ended(uploads["no header"])


@pytest.mark.parametrize(
    "command", [["load", "{file}", "--pipeline", "judgments"], ["doctor", "--json"], ["db", "status"]]
)
def test_no_command_shows_the_password_of_its_database(
    command: list[str], home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "export.csv"
    file.write_text(FILES["nothing"][0])
    done = subprocess.run(
        [prefork.command(), *(word.format(file=file) for word in command)],
        env={
            **os.environ,
            "DATABASE_URL": f"postgresql://zorbuser:{PASSWORD}@127.0.0.1:1/prod",
            "WEIGHBRIDGE_HOME": str(home),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert (PASSWORD in done.stderr + done.stdout, NAME in done.stderr + done.stdout) == (False, False)
