"""docs/runbook.md: every command in it exists with those options, and every statement runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from weighbridge.cli.root import app

TEXT = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
STATEMENTS = [text for kind, text in BLOCKS if kind == "sql"]
PAGES = [
    "ingest-failure", "stale-takeover", "dead-letters", "backlog", "failed-24h", "stale-runs", "slow-processing",
    "lease-losses", "retries", "oldest-transaction", "outbox", "api-down", "worker-down", "golden-path-failed",
    "webhook-dead", "restoring-a-backup", "storage-queue", "circuit-open", "credentials-refused",
    "conversions-expiring", "conversions-expired", "conversions-unconfirmed", "provider-unclassified",
    "conversions-failed", "conversions-wait-long", "redis-is-down",
]  # fmt: skip


def commands() -> Iterator[str]:
    """Those in blocks, those in the middle of a line of shell, and those between back-ticks."""
    for kind, text in BLOCKS:
        if kind == "sh":
            yield from re.findall(r"^weighbridge .*?(?= {2,}#|$)", text, re.MULTILINE)
            yield from re.findall(r"\$\((weighbridge .*?)\)", text)
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`(weighbridge [^`]+)`", prose)


COMMANDS = sorted(set(commands()))


def understood(line: str) -> bool:
    """Does the command line take it? It is parsed as always, down to the options, and nothing runs."""
    with pytest.raises(SystemExit) as ended:
        disarmed()(shlex.split(line)[1:], prog_name="weighbridge")
    return ended.value.code == 0


@cache
def disarmed() -> Any:
    command = typer.main.get_command(app)
    disarm(command)
    return command


def disarm(command: Any) -> None:
    for each in getattr(command, "commands", {}).values():
        disarm(each)
    if not hasattr(command, "commands"):
        command.callback = lambda **_: None


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists_with_its_options(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert understood(line)


@pytest.mark.parametrize(
    "line", ["recovr", "recover --now", "uploads show", "load none.csv", "verify golden-path"]
)
def test_what_is_no_command_would_be_found(line: str) -> None:
    assert not understood(f"weighbridge {line}")


def test_the_test_sees_the_commands_and_statements() -> None:
    assert len(COMMANDS) > 20
    assert len(STATEMENTS) > 15
    assert "weighbridge verify golden-path --env prod" in COMMANDS


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_runs(statement: str, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(statement.encode())
        connection.rollback()


@pytest.mark.parametrize("page", PAGES)
def test_every_alert_and_condition_has_its_page(page: str) -> None:
    assert page in anchors()


def test_every_link_within_the_page_leads_somewhere() -> None:
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors()
    for file in re.findall(r"\]\(([^#)]+)\)", TEXT):
        assert (Path(__file__).parents[2] / "docs" / file).exists(), file


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"></a>', TEXT))


async def test_what_was_given_up_is_sent_by_the_statement_that_says_so(
    app: Any, query: Callable[..., Any]
) -> None:
    from datetime import timedelta

    from weighbridge.engine.announce import announce

    query(
        "WITH e AS (INSERT INTO weighbridge.events (workspace_id, upload_id, type, payload) VALUES (gen_random_uuid(),"
        " gen_random_uuid(), 'IngestionCompleteEvent', jsonb_build_object('upload_id', gen_random_uuid(),"
        " 'status', 'completed', 'metrics', '{}'::jsonb)) RETURNING id, workspace_id)"
        " INSERT INTO weighbridge.event_deliveries (event_id, workspace_id, consumer, failures, gave_up_at)"
        " SELECT id, workspace_id, 'audit_log', 11, now() FROM e"
    )
    assert await announce(app.ctx, "a worker", timedelta(seconds=60)) == 0
    [again] = [each for each in STATEMENTS if each.startswith("UPDATE weighbridge.event_deliveries")]
    query(again)
    assert await announce(app.ctx, "a worker", timedelta(seconds=60)) == 1
    assert query("SELECT action FROM weighbridge.audit_log") == [("ingestion.complete",)]
