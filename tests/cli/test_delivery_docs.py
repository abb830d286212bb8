"""docs/delivery.md and the runbook's part on deliveries: what they print is what runs.

Statements are run, and the table of providers is compared with the providers. tests/docs runs the page's commands.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from weighbridge import service_figures
from weighbridge.api import create
from weighbridge.app import App, open_app
from weighbridge.cli.options import DEFAULT_WORKSPACE
from weighbridge.delivery.providers import BUILT_IN
from weighbridge.delivery.vault import new_key
from weighbridge.testing.fake_providers import FAKES

from . import test_runbook
from .conftest import Command
from .outbound import GOOGLE_ADS, Query, Sell, delivering, google, sell, shop

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "delivery.md").read_text()
RUNBOOK = test_runbook.TEXT[test_runbook.TEXT.index("\n# Deliveries to ad platforms") :]
ID = "7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b"
STAYS = ("weighbridge worker", "weighbridge up", "weighbridge deliver", "weighbridge api")

__all__ = ["delivering", "google", "sell", "shop"]


def blocks(text: str, kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for label, body in found if label == kind]


def commands(text: str) -> list[str]:
    """As the runbook's own test finds them, but only whole ones: `weighbridge providers`, as prose has it, is none."""
    lines = [
        line
        for body in blocks(text, "sh")
        for line in re.findall(r"^weighbridge .*?(?= {2,}#|$)", body, re.M)
    ]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return sorted({*lines, *re.findall(r"`(weighbridge [^`]+)`", prose)})


def rows(text: str, *header: str) -> dict[str, list[str]]:
    """A table by its first cell; the table is the one with these names at the head of its columns."""
    lines = text.splitlines()
    at = lines.index(next(line for line in lines if line.startswith(f"| {' | '.join(header)}")))
    found: dict[str, list[str]] = {}
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        first, *others = [cell.strip() for cell in line.strip("|").split("|")]
        found[first.strip("`")] = others
    return found


# Providers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", BUILT_IN, ids=lambda provider: provider.name)
def test_the_table_of_providers_says_what_they_are(provider: Any) -> None:
    clicks, batch, window, needs = rows(TEXT, "provider", "click ids")[provider.name]
    required, _, optional = needs.partition(";")
    assert re.findall(r"`(\w+)`", clicks) == list(provider.clicks)
    assert int(batch) == provider.max_batch
    days = f"{provider.window.days} days from the {provider.window_from}" if provider.window else "any age"
    assert window == days
    assert re.findall(r"`(\w+)`", required) == [need.name for need in provider.needs if need.required]
    assert re.findall(r"`(\w+)`", optional) == [need.name for need in provider.needs if not need.required]
    assert provider.name in rows(TEXT, "provider", "proof")
    assert provider.name in FAKES


# Commands and statements ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", commands(TEXT))
def test_every_command_of_the_page_exists_with_its_options(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sales.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert test_runbook.understood(line.replace('"$SITE"', ID).replace(" SITE", f" {ID}"))


@pytest.mark.parametrize("statement", [*blocks(TEXT, "sql"), *blocks(RUNBOOK, "sql")])
def test_every_statement_runs_for_the_owner_and_reading_ones_for_the_service(
    statement: str, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO sites (id, workspace_id, name) VALUES (%s, %s, 'Shop')", (ID, DEFAULT_WORKSPACE)
        )
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode())
        if statement.startswith(("SELECT *", "-- ")):
            connection.execute("SET ROLE weighbridge_deliver")
            connection.execute(statement.encode())
        connection.rollback()


def test_every_link_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    here = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= here
    assert set(re.findall(r"\]\(delivery\.md#([^)]+)\)", RUNBOOK)) <= here
    assert set(re.findall(r"\]\(runbook\.md#([^)]+)\)", TEXT)) <= test_runbook.anchors()
    for file in re.findall(r"\]\((?!https)([^#)]+)", TEXT):
        assert (ROOT / "docs" / file).exists(), file


def test_every_condition_of_deliveries_has_its_page() -> None:
    for condition in service_figures.CONDITIONS[service_figures.CONDITIONS.index("circuit_open") :]:
        assert f'<a id="{condition.replace("_", "-")}"></a>' in RUNBOOK
        assert f"`{condition}`" in RUNBOOK


@pytest.mark.parametrize("line", [each for each in commands(RUNBOOK) if each not in STAYS])
def test_every_command_of_the_runbook_ends_well(
    line: str, delivering: Command, shop: str, sell: Sell, query: Query
) -> None:
    """Beside one delivery that failed, of the sale that the page has in every command."""
    sell(shop, id=ID)  # type: ignore[arg-type]
    query(
        "UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_code = 'UNKNOWN',"
        " provider_error_category = 'TRANSIENT'"
    )
    words = shlex.split(line)[1:]
    if "retry" in words and ID not in words and "--yes" not in words:
        words.append("--yes")  # nobody is there to be asked
    done = delivering(*words, WEIGHBRIDGE_ALERT_URLS="")
    assert done.code == 0, done.err


# The example -------------------------------------------------------------------------------------------------


def test_the_example_on_the_page_is_the_one_that_is_tested() -> None:
    [example] = [body for body in blocks(TEXT, "python") if "class Crm" in body]
    assert example.rstrip() in (ROOT / "examples" / "crm.py").read_text()


# The routes of the runbook ----------------------------------------------------------------------------------


async def test_the_routes_answer_as_the_runbook_says(app: App, query: Query) -> None:
    query("INSERT INTO sites (id, workspace_id, name) VALUES (%s, %s, 'Shop')", (ID, DEFAULT_WORKSPACE))
    secrets = {"cron_secret": SecretStr("secret"), "vault_key": SecretStr(new_key())}
    settings = app.settings.model_copy(update={"environment": "staging", **secrets})
    answers = {}
    async with open_app(settings) as served:
        transport = httpx.ASGITransport(create(served))
        async with httpx.AsyncClient(transport=transport) as client:
            for body in blocks(RUNBOOK, "sh"):
                for line in re.findall(r"^curl .*$", body, re.MULTILINE):
                    method, url, headers, content = _read(line)
                    answer = await client.request(method, url, headers=headers, content=content)
                    assert answer.status_code == 200, answer.text
                    answers[url.partition("?")[0].rpartition("/")[2]] = answer.json()
    assert set(answers) == {"seed-credentials", "process-offline-conversions", "recover-processing"}
    assert answers["recover-processing"] == {"ok": True, "recovered": 0}
    assert {"ok", "processed", "completed", "failed", "retry"} <= set(answers["process-offline-conversions"])


def _read(line: str) -> tuple[str, str, dict[str, str], str | None]:
    """A request, from a line with curl in it."""
    words = shlex.split(line.replace("$BASE", "http://weighbridge").replace("$CRON_SECRET", "secret"))
    headers: dict[str, str] = {}
    method, url, content = "GET", "", None
    while words:
        match words.pop(0):
            case "curl":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                content = words.pop(0)
            case other:
                url = other
    return method, url, headers, content


def test_the_credentials_of_the_examples_are_those_that_the_fake_takes() -> None:
    said = json.loads((ROOT / "examples" / "google_ads.json").read_text())
    assert said.keys() == GOOGLE_ADS.keys()
