"""A model of the queue in a few lines of Python, and the transactions that must do to the database what it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from hypothesis.stateful import RuleBasedStateMachine

from tests.engine.conftest import CLAIM
from weighbridge.model.errors import RetryLater
from weighbridge.model.states import Status
from weighbridge.model.upload import Bins, Watermark
from weighbridge.postgres.transactions import Database, Lease, Tx
from weighbridge.uploads import queue
from weighbridge.uploads.queue import Staged, UploadResult

T = TypeVar("T")

# In minutes, so that the real time that a game takes does not count.
LEASE, CEILING = 60, 150
PAUSES = (5, 20, 61, 100)
PER_WORKSPACE = 3
MAX_CRASHES = 4
MOST_FAILURES = 10  # of an announcement; one more worker that stops at it is the last
WORKSPACES = [UUID(int=n) for n in (1, 2, 3)]
ENTITIES = ("campaign", "daily_metric")
ROWS = 3  # of each entity
START = Watermark()
BOTH = (Status.PENDING, Status.STAGING_COMPLETE)


def minutes(n: float) -> timedelta:
    return timedelta(minutes=n)


# The world: a database, and one event loop --------------------------------------------------------------------


class World:
    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.db = Database(url, size=12, statement_timeout_ms=10_000)
        self.run(self.db.open())
        self._eyes = psycopg.connect(url, autocommit=True, options="-c statement_timeout=10s")
        self.query(
            "CREATE TABLE public.moved (upload uuid, before text, after text);"
            "CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
            " $$ BEGIN INSERT INTO public.moved VALUES (NEW.id, OLD.status, NEW.status); RETURN NULL; END $$;"
            "CREATE TRIGGER note_move AFTER UPDATE OF status ON data_uploads FOR EACH ROW"
            " WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.note_move()"
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._eyes.execute(statement, params)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def clean(self) -> None:
        tables = ("data_uploads", "daily_metrics", "moved", "upload_rejections", "upload_warnings")
        tables += (
            "weighbridge.attempts",
            "weighbridge.turns",
            "weighbridge.events",
            "weighbridge.audit_log",
            "weighbridge.alerts",
        )
        self.query(";".join(f"DELETE FROM {table}" for table in tables))
        self.query("UPDATE weighbridge.clock SET shift = '0'")

    def close(self) -> None:
        self.run(self.db.close())
        self._runner.close()
        self._eyes.close()


# The model ----------------------------------------------------------------------------------------------------


@dataclass
class Piece:
    """An upload, as the model sees it."""

    id: UUID
    workspace: UUID
    number: int  # in the order of arrival
    status: Status = Status.PENDING
    run_after: float = 0
    failures: int = 0
    crashes: int = 0
    staged: dict[str, int] = field(default_factory=dict)
    digest: int = 0  # of what would be staged now
    staging_digest: int | None = None  # of what `staged` counts
    staged_digest: int | None = None  # of what was staged last
    mark: Watermark = START
    promoted: int = 0
    written: frozenset[int] = frozenset()  # rows of it in production
    announced: bool = False
    resets: int = 0  # how often the watermark may have gone back

    @property
    def seen(self) -> tuple[Any, ...]:
        """What the database must say of it."""
        return (
            self.status, self.failures, self.crashes, self.staged, self.mark.entity, self.mark.seq, self.promoted,
            sorted(self.written), self.announced, int(self.announced),
        )  # fmt: skip

    @property
    def place(self) -> tuple[int, int]:
        return (ENTITIES.index(self.mark.entity) if self.mark.entity else -1, self.mark.seq)


@dataclass
class Announcement:
    """One event for its one consumer."""

    upload: UUID
    run_after: float = 0
    failures: int = 0
    over: bool = False  # delivered, or given up


@dataclass
class Try:
    """An attempt."""

    lease: Lease
    subject: Piece | Announcement
    until: float
    progressed: float
    live: bool = True
    begun: bool = False  # it knows what of an earlier attempt's staging it can go on with
    opened: Opened | None = None

    @property
    def piece(self) -> Piece:
        assert isinstance(self.subject, Piece)
        return self.subject


@dataclass
class Opened:
    """A fenced transaction that an attempt is in, and what becomes of the model when it commits."""

    context: AbstractAsyncContextManager[Tx]
    tx: Tx
    effect: Callable[[], None] = lambda: None
    wrote: bool = False
    hidden: bool = False
    ended_by_takeover: bool = False


class QueueModel(RuleBasedStateMachine):
    """What is where, by the model. What happens to it is in test_model.py."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.clean()
        self.now: float = 0
        self.pieces: dict[UUID, Piece] = {}
        self.announcements: dict[UUID, Announcement] = {}
        self.tries: dict[UUID, Try] = {}
        self.served: dict[UUID, int] = {}  # workspace → number of its last claim
        self.moves: Counter[tuple[UUID, str, str]] = Counter()
        self.before: dict[UUID, tuple[tuple[int, int], int]] = {}

    # The model's own moves ----------------------------------------------------------------------------------

    def _move(self, piece: Piece, to: Status) -> None:
        if piece.status != to:
            self.moves[piece.id, piece.status.value, to.value] += 1
            piece.status = to

    def _back(self, piece: Piece) -> None:
        """To where the upload can be claimed again."""
        back = {Status.PROCESSING: Status.PENDING, Status.PROMOTING: Status.STAGING_COMPLETE}
        self._move(piece, back.get(piece.status, piece.status))

    def _crash(self, piece: Piece) -> None:
        piece.crashes += 1
        if piece.crashes >= MAX_CRASHES:
            self._move(piece, Status.FAILED)
        else:
            self._back(piece)

    def _claimable(self, piece: Piece, sources: tuple[Status, ...]) -> bool:
        live = [t.subject for t in self.tries.values() if t.live and isinstance(t.subject, Piece)]
        return (
            piece.status in sources
            and piece.run_after <= self.now
            and not any(subject is piece for subject in live)
            and sum(subject.workspace == piece.workspace for subject in live) < PER_WORKSPACE
        )

    def _next(self, sources: tuple[Status, ...]) -> Piece | None:
        """The oldest of the workspace with the fewest live attempts; of several, the one served longest ago."""
        free = [piece for piece in self.pieces.values() if self._claimable(piece, sources)]
        oldest = {piece.workspace: piece for piece in sorted(free, key=lambda piece: -piece.number)}
        live = Counter(
            t.subject.workspace for t in self.tries.values() if t.live and isinstance(t.subject, Piece)
        )
        return min(
            oldest.values(),
            key=lambda piece: (live[piece.workspace], self.served.get(piece.workspace, -1), piece.number),
            default=None,
        )

    def _take(self, lease: Lease, upload: Any) -> None:
        piece = self.pieces[upload.id]
        self._move(piece, Status.PROCESSING if piece.status == Status.PENDING else Status.PROMOTING)
        assert (upload.status, upload.staged, upload.watermark) == (piece.status, piece.staged, piece.mark)
        assert lease.token not in self.tries
        self.tries[lease.token] = Try(lease, piece, self.now + LEASE, self.now)
        self.served[piece.workspace] = len(self.tries)

    def _idle(self, *statuses: Status) -> list[Try]:
        """Live attempts at uploads, between two transactions."""
        return [
            t
            for t in self.tries.values()
            if t.live and not t.opened and isinstance(t.subject, Piece)
            and (not statuses or t.subject.status in statuses)
        ]  # fmt: skip

    def _announcing(self) -> list[Try]:
        return [t for t in self.tries.values() if t.live and isinstance(t.subject, Announcement)]

    def _opened(self) -> list[Try]:
        return [t for t in self.tries.values() if t.opened]

    def _lost(self) -> list[Try]:
        return [t for t in self.tries.values() if not t.live]

    # Transactions -------------------------------------------------------------------------------------------

    def _tx(self, write: Callable[[Tx], Awaitable[T]], *acting: Any) -> T:
        async def inside() -> T:
            async with self.world.db.tx(*acting) as tx:
                return await write(tx)

        return self.world.run(inside())

    def _overdue(self) -> list[Try]:
        return [
            t
            for t in self.tries.values()
            if t.live and t.until <= self.now and not (t.opened and t.opened.hidden)
        ]

    def _take_back(self, overdue: list[Try]) -> None:
        for each in overdue:
            each.live = False
            if isinstance(each.subject, Piece):
                self._crash(each.subject)
            else:
                each.subject.failures += 1
                each.subject.over = each.subject.failures > MOST_FAILURES

    async def _claim(self, sources: tuple[Status, ...]) -> queue.Claimed:
        wish = replace(
            CLAIM,
            sources=sources,
            lease=minutes(LEASE),
            per_workspace=PER_WORKSPACE,
            max_crashes=MAX_CRASHES,
        )
        async with self.world.db.tx() as tx:
            return await queue.claim(tx, wish)

    def _enter(self, attempt: Try) -> None:
        role = "weighbridge_parse" if attempt.piece.status == Status.PROCESSING else "weighbridge_promote"
        context = self.world.db.fenced(attempt.lease, role, durable=False)
        attempt.opened = Opened(context, self.world.run(context.__aenter__()))

    def _hide(self, attempt: Try) -> None:
        assert attempt.opened is not None
        self.world.run(attempt.opened.tx.execute("SELECT set_config('application_name', 'hidden', true)"))
        attempt.opened.hidden = True

    def _leave(self, attempt: Try, error: Exception | None = None) -> None:
        """Commit, or roll back with an error. An attempt that was taken over meanwhile can only roll back."""
        opened = attempt.opened
        assert opened is not None
        attempt.opened = None
        end = opened.context.__aexit__(type(error) if error else None, error, None)
        if opened.ended_by_takeover and error is None:
            with pytest.raises(RetryLater):
                self.world.run(end)
            return
        self.world.run(end)
        if error is None:
            opened.effect()

    def _write(self, attempt: Try) -> None:
        """What the steps would write next; the model follows when it commits."""
        opened, piece = attempt.opened, attempt.piece
        assert opened is not None
        lease, tx = attempt.lease, opened.tx
        opened.wrote = True

        def after(effect: Callable[[], None], work: Coroutine[Any, Any, Any]) -> None:
            def committed() -> None:
                attempt.progressed = self.now
                effect()

            self.world.run(work)
            opened.effect = committed

        match piece.status:
            case Status.PROCESSING:
                entity = next((e for e in ENTITIES if e not in piece.staged), None)
                if not attempt.begun:
                    kept = self.world.run(queue.begin_staging(tx, lease, piece.digest.to_bytes(1, "big")))
                    assert kept == (bool(piece.staged) and piece.staging_digest == piece.digest)
                    opened.effect = lambda: self._begin_staging(attempt, kept)
                elif entity:
                    after(
                        lambda: piece.staged.update({entity: ROWS}),
                        queue.note_staged(tx, lease, {entity: ROWS}),
                    )
                else:
                    found = Staged(Bins(accepted=ROWS), (), {}, (), piece.digest.to_bytes(1, "big"))
                    after(lambda: self._staged(piece), queue.finish_staging(tx, lease, found))
            case Status.STAGING_COMPLETE:
                self.world.run(queue.begin_promotion(tx, lease, patient=False))
                opened.effect = lambda: self._move(piece, Status.PROMOTING)
            case Status.PROMOTING if piece.place < (len(ENTITIES) - 1, ROWS):
                mark, rows = self._advanced(piece)
                after(lambda: self._advance(piece, mark, rows), self._promote(attempt, tx, mark, rows))
            case Status.PROMOTING:
                verdict = UploadResult(Status.COMPLETED if piece.number % 2 else Status.PARTIAL, 0)
                self.world.run(queue.finish(tx, lease, verdict, ["audit_log"]))
                opened.effect = lambda: self._finish(attempt, verdict.status)

    async def _promote(self, attempt: Try, tx: Tx, mark: Watermark, rows: frozenset[int]) -> None:
        """A row and the watermark that says so; the row's key would not let it be written twice."""
        piece = attempt.piece
        if mark.entity == ENTITIES[-1]:
            await tx.execute(
                "INSERT INTO daily_metrics"
                " (workspace_id, platform, metric_date, upload_id, line, created_at, updated_at)"
                " VALUES (%s, 'meta', %s, %s, %s, now(), now())"
                + (" ON CONFLICT DO NOTHING" if piece.resets > 1 else ""),
                (
                    piece.workspace,
                    date(2026, 1, 1) + timedelta(days=100 * piece.number + mark.seq),
                    piece.id,
                    mark.seq,
                ),
            )
        await queue.advance(tx, attempt.lease, mark, {}, len(rows))

    def _advanced(self, piece: Piece) -> tuple[Watermark, frozenset[int]]:
        place, seq = piece.place
        entity, seq = (place, seq + 1) if place >= 0 and seq < ROWS else (place + 1, 1)
        rows = frozenset(range(1, seq + 1)) if entity == len(ENTITIES) - 1 else frozenset()
        return Watermark(ENTITIES[entity], seq), rows

    def _begin_staging(self, attempt: Try, kept: bool) -> None:
        """What was staged counts only where the rows are numbered as they were."""
        attempt.begun, piece = True, attempt.piece
        if not kept:
            piece.staged = {}
        piece.staging_digest = piece.digest

    def _staged(self, piece: Piece) -> None:
        self._move(piece, Status.STAGING_COMPLETE)
        piece.failures = 0
        if piece.staged_digest != piece.digest:
            piece.mark, piece.promoted, piece.resets = START, 0, piece.resets + 1
        piece.staged_digest = piece.digest

    def _advance(self, piece: Piece, mark: Watermark, rows: frozenset[int]) -> None:
        piece.mark, piece.promoted, piece.failures = mark, len(rows), 0
        piece.written |= rows

    def _finish(self, attempt: Try, status: Status) -> None:
        piece = attempt.piece
        attempt.live = False
        self._move(piece, status)
        piece.failures = 0
        if not piece.announced:
            piece.announced = True
            self.announcements[piece.id] = Announcement(piece.id)
