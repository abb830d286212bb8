"""One workspace that uses everything once: files of every pipeline, groups, deliveries, pages, and all chores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import httpx

from tests.api.conftest import new_key
from tests.conftest import worked_out
from tests.deliver.conftest import Scripted
from tests.engine.conftest import HEADER as META
from tests.engine.conftest import meta_line
from tests.judgments.conftest import case, judgments
from tests.projects.conftest import keyword_file
from weighbridge.access import keys
from weighbridge.app import App, open_app
from weighbridge.console import create
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.confirm import confirm
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.vault import new_key as new_vault_key
from weighbridge.engine import recover
from weighbridge.engine.announce import announce
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.projects import queue as projects_queue
from weighbridge.settings import read
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import quota
from weighbridge.storage.recount import recount
from weighbridge.storage.replay import due, replay
from weighbridge.storage.retention import retain
from weighbridge.uploads import figures, live, queue, resumable
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive
from weighbridge.uploads.retention import clean
from weighbridge.worker import Worker

QUICK = WorkerOptions(name="test", poll=timedelta(seconds=0.02))
SALES = "Order ID,Conversion Time,Conversion Value,Conversion Currency,GCLID,Click Time"


@asynccontextmanager
async def service(database_url: str, home: Path) -> AsyncIterator[App]:
    """The whole service, with a provider that accepts everything."""
    home.mkdir(exist_ok=True)
    settings = read(home=home, DATABASE_URL=database_url, vault_key=new_vault_key())
    async with open_app(settings) as app:
        assert app.ctx.outbound is not None
        outbound = replace(app.ctx.outbound, providers={"google_ads": Scripted()})
        yield replace(app, ctx=replace(app.ctx, outbound=outbound))


@dataclass
class Tenant:
    """`rows`: how many rows the files have."""

    app: App
    rows: int = 20
    workspace: UUID = field(default_factory=uuid4)
    site: UUID | None = None

    ON_HOLD: ClassVar = Status.STAGING_COMPLETE
    # All kinds of work, in an order in which each finds what it needs.
    WORK: ClassVar = (
        "ads", "previews", "rejects", "keywords", "judgments", "conversions", "storage", "chores", "pages",
    )  # fmt: skip

    async def do(self, name: str) -> None:
        work: Callable[[], Awaitable[None]] = getattr(self, name)
        await work()

    async def do_everything(self) -> None:
        for name in self.WORK:
            await self.do(name)

    async def send(self, content: bytes, **said: Any) -> Received:
        async def chunks() -> AsyncIterator[bytes]:
            yield content

        request = Request(**{"workspace_id": self.workspace, "platform": "meta", "filename": "a.csv", **said})
        return await receive(self.app.ctx, request, chunks())

    async def load(self, content: bytes, status: Status = Status.COMPLETED, **said: Any) -> Upload:
        return await self.finish((await self.send(content, **said)).upload_id, status)

    async def finish(self, upload_id: UUID, status: Status = Status.COMPLETED) -> Upload:
        """Work until it has ended, or is on hold, and its project is grouped."""
        ctx = self.app.ctx
        for _ in range(20):
            await Worker(ctx, QUICK).run_once()
            async with ctx.db.tx() as tx:
                upload = await queue.get(tx, upload_id)
                assert upload is not None
                ended = upload.on_hold or upload.status in TERMINAL
                if ended and (
                    upload.on_hold or await projects_queue.grouped_since(tx, [upload_id], ctx.pipelines)
                ):
                    break
        for _ in range(20):
            if not await announce(ctx, QUICK.name, QUICK.lease):
                break
        assert upload.status == status, (upload.status, upload.error_text)
        return upload

    def month(self, *days: int, impressions: int = 100) -> bytes:
        ads = range(max(1, self.rows // 2))
        lines = [
            meta_line(f"2026-01-{day:02}", ad, impressions=impressions + ad) for day in days for ad in ads
        ]
        return ("\n".join([META, *lines]) + "\n").encode()

    async def ads(self) -> None:
        """New, sent again, loaded again, one day changed, one day new, other ads and campaigns on the same days."""
        await self.load(self.month(1, 2))
        assert (await self.send(self.month(1, 2))).duplicate
        await self.load(self.month(1, 2), force=True)
        await self.load(self.month(1, 3, impressions=200))
        await self.load(self.month(2, 4).replace(b",120220", b",120229"))
        campaigns = "Day,Campaign name,Campaign ID,Impressions,Amount spent (USD)\n"
        await self.load(f"{campaigns}2026-01-01,A,12020000000000001,5,1\n2026-01-02,Z,12029,5,1\n".encode())

    async def previews(self) -> None:
        async with self.client() as http:
            for verb in ("promote", "discard"):
                day = 10 if verb == "promote" else 11
                upload = await self.load(self.month(1, day), Status.STAGING_COMPLETE, preview=True)
                path = f"/api/uploads/{upload.id}"
                for page in (
                    "preview",
                    "preview/rows?entity=daily_metric&kind=inserted",
                    "preview?fresh=true",
                ):
                    await ok(http.get(f"{path}/{page}"))
                await ok(http.get(f"/uploads/{upload.id}/preview"))
                await ok(http.post(f"{path}/{verb}"))
                if verb == "promote":
                    await self.finish(upload.id)

    async def rejects(self) -> None:
        bad = (
            f"{META}\n{meta_line('2026-01-20', 0)}\n{meta_line('2026-01-20', 1, impressions='x')}\n".encode()
        )
        upload = await self.load(bad, Status.PARTIAL, force_partial=True)
        async with self.client() as http:
            file = await ok(http.get(f"/api/uploads/{upload.id}/rejects"))
        fixed = await self.load(file.content.replace(b",x,", b",7,"))
        assert fixed.promoted_rows == 1

    async def keywords(self) -> None:
        first = [(f"blue shoes {n}", n) for n in range(self.rows)]
        said: dict[str, Any] = {"pipeline": "keywords", "platform": None, "project_id": 1}
        await self.load(keyword_file(first), **said)
        await self.load(keyword_file([*first[1:], ("red hats", 5), ("hat red", 3), ("red cap", 1)]), **said)
        base = "/api/projects/1"
        async with self.client() as http:
            await ok(http.post(f"{base}/tokens/merge", json={"tokens": ["cap"], "into": "hat"}))
            await ok(http.post(f"{base}/tokens/unmerge", json={"tokens": ["cap"]}))
            await ok(http.post(f"{base}/keywords/move", json={"keywords": ["red cap"], "new_group": "Caps"}))
            found = (await ok(http.get(f"{base}/groups"))).json()["groups"]
            group = f"{base}/groups/{found[0]['id']}"
            for path in ("confirm", "unconfirm"):
                await ok(http.post(f"{group}/{path}"))
            await ok(http.patch(group, json={"name": "Shoes"}))
            await ok(http.get(group))
            await ok(http.post(f"{base}/regroup", json={}))
            for path in ("", "/jobs", "/groups", "/keywords", "/tokens/merges"):
                await ok(http.get(f"{base}{path}"))

    async def judgments(self) -> None:
        said: dict[str, Any] = {"pipeline": "judgments", "platform": None}
        rows = [
            case(f"CV-{n}", plaintiff_name=f"Jane {n}", judgment_amount=n, filing_date="2024-01-31")
            for n in range(self.rows)
        ]
        await self.load(judgments(*rows).encode(), **said)
        await self.load(judgments(*rows[1:], case("CV-9999", plaintiff_name="Jo")).encode(), **said)

    async def conversions(self) -> None:
        ctx = self.app.ctx
        assert ctx.outbound is not None
        in_flight = (
            InFlight()
        )  # as in a worker: a run does not wait for calls of others that cannot be settled
        async with self.client() as http:
            made = await ok(http.post("/api/sites", json={"name": "shop", "providers": ["google_ads"]}))
            site = self.site = UUID(made.json()["site_id"])
            sealed = ctx.outbound.vault.seal(site, "google_ads", {"secret": "s"}, 1)
            async with self.app.db.tx(roles.DELIVER) as tx:
                await tx.execute(
                    "SELECT weighbridge.set_credentials(%s, 'google_ads', 1, %s, %s, %s, 'test')",
                    (site, sealed.key_id, sealed.nonce, sealed.ciphertext),
                )
                [(day,)] = await (
                    await tx.execute("SELECT (weighbridge.now() - INTERVAL '1 day')::timestamptz(0)::text")
                ).fetchall()
            lines = [f"order-{n},{day},{n}.5,EUR,gclid-{n}," for n in range(self.rows)]
            said: dict[str, Any] = {"pipeline": "conversions", "platform": None, "client_id": site}
            await self.load("\n".join([SALES, *lines, ""]).encode(), **said)
            await self.load(
                "\n".join([SALES, *lines[1:], f"more,{day},1,EUR,gclid-more,", ""]).encode(), **said
            )
            await deliver(ctx, "test", 500, in_flight)
            sale = {"site_id": str(site), "order_id": "by api", "occurred_at": day.replace(" ", "T") + ":00"}
            await ok(http.post("/api/conversions", json={"conversions": [sale | {"gclid": "g"}]}))
            await deliver(ctx, "test", 500, in_flight)
            await confirm(ctx)
            await ok(http.post(f"/api/sites/{site}/providers/google_ads/reset"))
        async with self.app.db.tx() as tx:
            statuses = await (
                await tx.execute(
                    "SELECT q.status, count(*) FROM sales s JOIN offline_conversion_queue q ON q.sale_id = s.id"
                    " WHERE s.workspace_id = %s AND s.client_id = %s GROUP BY 1",
                    (self.workspace, site),
                )
            ).fetchall()
        assert statuses == [("COMPLETED", self.rows + 2)]

    async def storage(self) -> None:
        """A file that the store does not accept at first."""
        blobs = self.app.ctx.blobs.folder
        assert blobs is not None
        away = blobs.rename(blobs.with_name("away"))
        blobs.write_text("not a folder")
        received = await self.send(self.month(25))
        blobs.unlink()
        away.rename(blobs)
        assert received.storage_status == "pending_retry"
        assert received.queue_id is not None
        async with self.app.db.tx() as tx:
            await storage_queue.retry(tx, received.queue_id, "test")
        [waiting] = await due(self.app.ctx, QUICK.name, QUICK.lease, 1, early=True)
        assert await replay(self.app.ctx, waiting)
        await self.finish(received.upload_id)

    async def chores(self) -> None:
        """Those serve all workspaces."""
        ctx = self.app.ctx
        await recover.run(ctx.db, 3)
        async with ctx.db.tx() as tx:
            await figures.watch_queues(tx, 10, 100)
            await storage_queue.watch(tx, 100, timedelta(minutes=15))
        await quota.count_again(ctx.db)
        async with ctx.db.tx(roles.DELIVER) as tx:
            await delivery_queue.watch(tx, timedelta(hours=24), 10_000)
            await delivery_queue.recover_stuck(tx, 15)
        kept = replace(ctx, limits=replace(ctx.limits, staging_days=0, blob_days=1000))
        await clean(kept)
        await retain(kept)
        await resumable.sweep(ctx)
        await recount(ctx, self.workspace)

    async def pages(self) -> None:
        pages = ["/uploads", "/projects", "/projects/1", "/deliveries", "/storage", "/health"]
        api = ["/uploads", "/projects", "/conversions", "/sites", "/providers", "/metrics", "/usage"]
        async with self.client() as http:
            uploads = (await ok(http.get("/api/uploads"))).json()["uploads"]
            one = uploads[0]["upload_id"]
            for path in (
                *pages,
                *(f"/api{each}" for each in api),
                *(f"{each}/{one}" for each in ("/uploads", "/api/uploads")),
                f"/uploads/{one}/rows?code=bad_number",
                f"/api/uploads/{one}/warnings",
                "/projects/1/processing-status",
                "/readyz",
            ):
                await ok(http.get(path))
        async with self.app.db.tx(roles.TENANT, self.workspace) as tx:
            shown = await live.under_way(tx, self.workspace, 50)
            await live.progress_of(tx, [*shown, UUID(one)])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """The API and the console, for someone who may do everything."""
        headers = await new_key(self.app.db, self.workspace, ("upload", "read", "operate", "admin"))
        async with self.app.db.tx() as tx:
            _, secret = await keys.create(tx, self.workspace, "reader", ("read",), None)
        transport = httpx.ASGITransport(worked_out(create(self.app)), raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://weighbridge", headers=headers
        ) as http:
            assert (await http.post("/sign-in", data={"key": secret})).status_code == 303
            yield http


async def ok(answer: Awaitable[httpx.Response]) -> httpx.Response:
    found = await answer
    assert found.status_code < 300, (found.request.method, found.request.url, found.status_code, found.text)
    return found
