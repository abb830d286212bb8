"""What the tests of judgments share: files to send, a way through intake and worker, and the log."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from uuid import UUID

import pytest
import structlog
from structlog.testing import LogCapture

from tests.api.conftest import client, key, make_key  # noqa: F401 (fixtures)
from tests.cli.conftest import environment, main  # noqa: F401
from tests.engine.conftest import run  # noqa: F401
from weighbridge.delivery.context import Context
from weighbridge.model.upload import Upload
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive

HEADER = (
    "case_number,plaintiff_name,plaintiff_email,plaintiff_phone,defendant_name,judgment_amount,filing_date,"
    "county"
)
BATCH = "simplicity-2026-01-07"
ROW = 'CV-2024-001,Jane Roe,jane@example.com,(212) 555-0100,John Doe,"$1,234.56",3/4/2024,Kings'

Send = Callable[..., Awaitable[Received]]
Load = Callable[..., Awaitable[Upload]]
Query = Callable[..., list[tuple[Any, ...]]]
InState = Callable[[str], None]
Lines = list[MutableMapping[str, Any]]


def judgments(*rows: str, header: str = HEADER) -> str:
    """An export with these records."""
    return "\n".join([header, *rows, ""])


def case(number: str = "CV-2024-001", **cells: object) -> str:
    """A record with these cells, by the names of the header; empty where none is given."""
    found = {"case_number": number, **cells}
    return ",".join('"' + str(found.pop(name, "")).replace('"', '""') + '"' for name in HEADER.split(","))


@pytest.fixture
def send(ctx: Context, workspace: UUID) -> Send:
    """`await send(text, batch="b-1")`: what intake says of the file."""

    async def send(text: str, *, batch: str | None = None, of: UUID | None = None, **said: Any) -> Received:
        async def content() -> AsyncIterator[bytes]:
            yield text.encode()

        values = {"pipeline": "judgments", "filename": "simplicity.csv", **said}
        request = Request(workspace_id=of or workspace, source_batch_id=batch, **values)
        return await receive(ctx, request, content())

    return send


@pytest.fixture
def load(send: Send, run: Callable[..., Awaitable[Upload]]) -> Load:  # noqa: F811
    """`await load(text, batch="b-1")`: sent and worked on; the upload as it ended."""

    async def load(text: str, **said: Any) -> Upload:
        return await run((await send(text, **said)).upload_id)

    return load


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What has been logged since the test began, whatever commands have set up logging in this process before."""
    capture = LogCapture()
    wrapper = structlog.make_filtering_bound_logger(0)
    for name, module in list(sys.modules.items()):
        if name.startswith("weighbridge.") and hasattr(module, "log"):
            log = structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper)
            monkeypatch.setattr(module, "log", log)
    return capture.entries


@pytest.fixture
def moves(query: Query) -> Callable[[], list[str]]:
    """`moves()`: every status that an upload has had since the test began, in order."""
    query(
        "CREATE TABLE public.moves_seen (number serial, status text);"
        "CREATE FUNCTION public.see_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        " $$ BEGIN INSERT INTO public.moves_seen (status) VALUES (NEW.status); RETURN NULL; END $$;"
        "CREATE TRIGGER see_move AFTER UPDATE OF status ON data_uploads"
        " FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.see_move()"
    )
    return lambda: [status for (status,) in query("SELECT status FROM public.moves_seen ORDER BY number")]


@pytest.fixture
def in_state(query: Query, workspace: UUID) -> InState:
    """`in_state("completed")`: the batch in this state of data_uploads, with nobody at it, begun two hours ago."""

    def in_state(status: str) -> None:
        query(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status,"
            " source_batch_id, started_at) VALUES (%s, 'manual', 'judgments', sha256('x'), 1, %s, %s,"
            " CASE WHEN %s <> 'pending' THEN weighbridge.now() - INTERVAL '2 hours' END)",
            (workspace, status, BATCH, status),
        )

    return in_state


def run_of(query: Query) -> str:
    """The status of the batch's import run."""
    [(status,)] = query("SELECT status::text FROM ingest.import_runs WHERE source_batch_id = %s", (BATCH,))
    return str(status)
